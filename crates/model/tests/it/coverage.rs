//! What the generator's logs contain: without this, a law could hold only because no log challenges it.

use model::event::{Event, StopReason};
use model::item::{CallKind, FileStatus, IncompleteReason, Item, ResultStatus};
use model::limits::RECORD_BYTES_MAX;
use model::{Record, Seq, TaskId};
use model_testing::{DEFAULT_SEEDS, LogOptions, generate_thread_log};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! types {
    ($($variant:ident => $name:literal,)*) => {
        const TYPES: &[&str] = &[$($name),*];

        /// Exhaustive on purpose: a new event must be listed here, and then the generator must produce it.
        fn type_of(event: &Event) -> Option<&'static str> {
            match event {
                $(Event::$variant(_) => Some($name),)*
                Event::Unknown(_) => None,
            }
        }
    };
}

types! {
    Created => "task.created",
    Started => "task.started",
    StepStarted => "task.step.started",
    Retrying => "task.retrying",
    ItemAdded => "task.output_item.added",
    SummaryAdded => "task.reasoning_summary_item.added",
    SummaryDelta => "task.reasoning_summary_text.delta",
    SummaryDone => "task.reasoning_summary_item.done",
    ArgumentsDelta => "task.tool_call_arguments.delta",
    ArgumentsDone => "task.tool_call_arguments.done",
    HostedCallUpdated => "task.hosted_call.updated",
    FileProcessingUpdated => "task.file_processing.updated",
    TextAdded => "task.text.added",
    TextDelta => "task.text.delta",
    AnnotationAdded => "task.text.annotation.added",
    TextDone => "task.text.done",
    ImageAdded => "task.image.added",
    ImageDelta => "task.image.delta",
    ImageDone => "task.image.done",
    ItemDone => "task.output_item.done",
    StepDone => "task.step.done",
    ToolStarted => "task.tool.started",
    ToolProgress => "task.tool.progress",
    AgentUpdated => "task.agent.updated",
    InputAdded => "task.input.added",
    ApprovalRequested => "task.approval.requested",
    ApprovalResolved => "task.approval.resolved",
    Paused => "task.paused",
    Resumed => "task.resumed",
    StateSnapshot => "task.state.snapshot",
    StateDelta => "task.state.delta",
    Custom => "task.custom",
    ProviderEvent => "task.provider_event",
    Cancelling => "task.cancelling",
    Recovered => "task.recovered",
    Completed => "task.completed",
    Incomplete => "task.incomplete",
    Failed => "task.failed",
    Cancelled => "task.cancelled",
    HistoryCompacted => "thread.history.compacted",
    RunHidden => "thread.run.hidden",
}

#[test]
fn every_event_type_occurs() {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for seed in DEFAULT_SEEDS {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        for record in &log {
            let name = type_of(record.event()).unwrap_or_else(|| panic!("SEED={seed}: {record:?} is of no known type"));
            assert_eq!(record.event_type(), name, "SEED={seed}");
            seen.insert(name);
        }
    }
    let missing: Vec<&&str> = TYPES.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

/// The cases that an event covers, beyond its type.
fn trait_of(event: &Event) -> Option<String> {
    Some(match event {
        Event::StepStarted(e) if e.attempt > 1 => "a step done again".to_owned(),
        Event::StepDone(e) => format!("step ends: {:?}", e.stop_reason),
        Event::FileProcessingUpdated(e) => format!("file is {:?}", e.status),
        Event::ToolStarted(e) if e.attempt > 1 => "a tool started again".to_owned(),
        Event::ApprovalRequested(e) if e.question.is_some() => "a question".to_owned(),
        Event::TextDone(e) if e.item.block().text.is_none() => "a text left out".to_owned(),
        Event::ArgumentsDone(e) if e.arguments.is_none() => "arguments left out".to_owned(),
        Event::ItemDone(e) => match &e.item {
            Item::ToolCall(call) => format!("call of kind {:?}", call.kind?),
            Item::ToolResult(result) => format!("result is {:?}", result.status?),
            Item::FileProcessing(files) => format!("files are {:?}", files.reason),
            Item::Message(message) if message.block_list.is_none() => "blocks left out".to_owned(),
            _ => return None,
        },
        _ => return None,
    })
}

/// The cases that a log covers.
fn traits_of(log: &[Record]) -> BTreeSet<String> {
    let mut out: BTreeSet<String> = log.iter().filter_map(|record| trait_of(record.event())).collect();
    let mut depth: BTreeMap<&TaskId, usize> = BTreeMap::new();
    let mut open: BTreeSet<&TaskId> = BTreeSet::new();
    let mut last: Option<&TaskId> = None;
    for record in log {
        if !record.private.is_empty() {
            out.insert("a private half".to_owned());
        }
        if let Some(private) = record.private() {
            let brings = |what: &str| format!("{} brings {what}", record.event_type());
            out.extend(private.request_echo.map(|_| brings("an echo")));
            out.extend(private.prior_history.map(|_| brings("a past")));
            out.extend((!private.model_settings.is_empty()).then(|| brings("wishes")));
        }
        let event = record.event();
        let Some(task) = event.task_id() else { continue };
        if let Event::Created(e) = event {
            let here = e.task.parent_task_id.as_ref().map_or(0, |parent| depth[parent] + 1);
            depth.insert(task, here);
            open.insert(task);
            out.insert(format!("depth {here}"));
        }
        // Two sub-agents that are open at the same time, with interleaved events.
        if last.is_some_and(|last| last != task && open.contains(last) && depth[last] > 0) && depth[task] > 0 {
            out.insert("sub-agents interleave".to_owned());
        }
        if event.is_terminal() {
            open.remove(task);
        }
        last = Some(task);
    }
    out
}

#[test]
fn the_generated_logs_contain_every_kind_of_failure() {
    let mut seen = BTreeSet::new();
    for seed in DEFAULT_SEEDS {
        seen.extend(traits_of(&generate_thread_log(seed, LogOptions::default()).1));
    }
    let mut wanted: Vec<String> = [
        "a private half",
        "task.created brings an echo",
        "task.created brings a past",
        "task.created brings wishes",
        "task.resumed brings an echo",
        "depth 3",
        "a step done again",
        "a tool started again",
        "a question",
        "a text left out",
        "arguments left out",
        "blocks left out",
        "sub-agents interleave",
    ]
    .map(str::to_owned)
    .into();
    use StopReason::{Cancelled, ContentFilter, Error, Lost, MaxTokens, Stop, ToolCalls};
    wanted.extend(
        [Stop, ToolCalls, MaxTokens, ContentFilter, Error, Cancelled, Lost].map(|stop| format!("step ends: {stop:?}")),
    );
    use CallKind::{Agent, Client, Handoff, Hosted, Tool};
    wanted.extend([Tool, Agent, Handoff, Client, Hosted].map(|kind| format!("call of kind {kind:?}")));
    use ResultStatus::{Completed, Failed, Incomplete, Rejected, Unknown};
    wanted.extend([Completed, Failed, Rejected, Incomplete, Unknown].map(|status| format!("result is {status:?}")));
    use FileStatus::{Completed as Read, Failed as Unreadable, Processing as ReadAgain};
    wanted.extend([Read, Unreadable, ReadAgain].map(|status| format!("file is {status:?}")));
    let reasons = [None, Some(IncompleteReason::Cancelled)];
    wanted.extend(reasons.map(|reason| format!("files are {reason:?}")));
    let missing: Vec<&String> = wanted.iter().filter(|wanted| !seen.contains(*wanted)).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

#[test]
fn a_generated_log_is_valid_gap_free_and_deterministic() {
    for seed in DEFAULT_SEEDS {
        let (thread, log) = generate_thread_log(seed, LogOptions::default());
        assert_eq!(generate_thread_log(seed, LogOptions::default()), (thread.clone(), log.clone()), "SEED={seed}");
        for (record, place) in log.iter().zip(1..) {
            assert_eq!(record.seq, Seq(place), "SEED={seed}");
            assert!(record.has_valid_checksum(&thread), "SEED={seed}: {record:?}");
            assert!(
                record.size_bytes() <= RECORD_BYTES_MAX,
                "SEED={seed}: record {place} has {} bytes",
                record.size_bytes()
            );
        }
        for pair in log.windows(2) {
            assert!(pair[0].at <= pair[1].at && pair[0].epoch <= pair[1].epoch, "SEED={seed}: {pair:?}");
        }
    }
}
