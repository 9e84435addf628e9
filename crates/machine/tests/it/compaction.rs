//! A thread between two runs: when its history is compacted, and who pays for the summary.

use crate::fixtures::demo_definitions;
use machine::{Effect, EffectId, MachineOutput, ThreadInput, ThreadState, apply_thread_input};
use model::content::ContentPart;
use model::definition::{Agent, CompactionPolicy, Definitions, Price};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, StopReason};
use model::history::HistoryEntry;
use model::limits::CostMicros;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelTurnEnd};
use model::thread::{PastRun, ThreadFold};
use model::usage::Usage;
use model::{Seq, TaskId};
use std::sync::Arc;

const USAGE: Usage =
    Usage { input_tokens: 3, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 1, reasoning_tokens: 0 };

fn compacting_definitions() -> Arc<Definitions> {
    let mut definitions = demo_definitions([]);
    let policy = CompactionPolicy { after_tokens: 0, keep_turns: 1, model: Some("mine/small".to_owned()) };
    let agent = Agent { name: "demo".to_owned(), compaction: Some(policy), ..Agent::default() };
    definitions.agents.insert("demo".to_owned(), agent);
    let price = Price { input: 1.0, output: 1.0, ..Price::default() };
    definitions.prices.insert("mine/small".to_owned(), price);
    Arc::new(definitions)
}

/// A thread after this many runs, with the output of the end of the last one.
fn thread_after(runs: u64) -> (ThreadState, MachineOutput) {
    let past = |n: u64| PastRun {
        run: TaskId::from(format!("task_{n}").as_str()),
        previous: n.checked_sub(1).filter(|n| *n > 0).map(|n| TaskId::from(format!("task_{n}").as_str())),
        last_seq: Seq(n * 10),
        entries: vec![Arc::new(HistoryEntry::User { content: vec![ContentPart::text("hello")] })],
    };
    let fold = ThreadFold {
        seq: Seq(runs * 10),
        at: 7_000,
        runs: (1..=runs).map(|n| Arc::new(past(n))).collect(),
        agent: Some("demo".to_owned()),
        ..ThreadFold::default()
    };
    let mut thread = ThreadState::new("local".into(), "thr_1".into(), Arc::new(fold));
    let mut out = MachineOutput::new(5_000);
    apply_thread_input(&mut thread, ThreadInput::RunEnded(compacting_definitions()), &mut out);
    (thread, out)
}

fn send(thread: &mut ThreadState, event: ModelEvent) -> MachineOutput {
    let mut out = MachineOutput::new(6_000);
    let id = EffectId::Compaction { run: TaskId::from("task_1") };
    apply_thread_input(thread, ThreadInput::Model { id, event }, &mut out);
    out
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Delta(ModelDelta::Text { slot: 0, part: 0, text: text.to_owned(), logprobs: None })
}

fn end() -> ModelEvent {
    let (stop_reason, usage) = (StopReason::Stop, USAGE);
    ModelEvent::End(ModelTurnEnd { stop_reason, usage, model: None, service_tier: None })
}

#[test]
fn only_a_thread_longer_than_its_window_is_compacted() {
    let (one, out) = thread_after(1);
    assert!(!one.is_compacting() && out.effects.is_empty());
    let (two, out) = thread_after(2);
    assert!(two.is_compacting() && out.drafts.is_empty());
    let [Effect::CallModel { id, request, not_before: None }] = &out.effects[..] else { panic!("{:?}", out.effects) };
    assert_eq!(*id, EffectId::Compaction { run: TaskId::from("task_1") });
    assert_eq!((request.model.as_str(), request.history.len(), request.step), ("mine/small", 2, 0));
}

#[test]
fn the_record_has_the_summary_and_its_usage() {
    let (mut thread, _) = thread_after(2);
    assert!(send(&mut thread, text("A ")).drafts.is_empty());
    assert!(send(&mut thread, text("summary")).drafts.is_empty());
    let out = send(&mut thread, end());
    let [draft] = &out.drafts[..] else { panic!("{:?}", out.drafts) };
    assert_eq!((draft.seq, draft.at), (Seq(21), 7_000), "the log's time does not go back");
    let Event::HistoryCompacted(compacted) = &draft.event else { panic!("{draft:?}") };
    assert_eq!((compacted.summary.as_str(), compacted.up_to), ("A summary", Seq(10)));
    assert_eq!(compacted.details.get("usage"), Some(&serde_json::to_value(USAGE).unwrap()));
    assert_eq!((out.spend.usage, out.spend.cost), (USAGE, CostMicros(4)));
    assert_eq!(thread.fold.usage, Usage::default(), "no run has used it");
    assert_eq!((thread.fold.seq, thread.compacted_run()), (Seq(21), Some(&TaskId::from("task_1"))));
    assert!(send(&mut thread, end()).spend == MachineOutput::new(0).spend, "a second end answers nothing");
}

#[test]
fn a_failed_or_abandoned_summary_counts_as_usage_and_leaves_no_record() {
    let (mut thread, _) = thread_after(2);
    send(&mut thread, text("half"));
    send(&mut thread, ModelEvent::Delta(ModelDelta::Usage(USAGE)));
    let mut abandoned = thread.clone();
    let error = ErrorInfo::new(ErrorCode::ProviderError, "It broke off.");
    let failed = send(&mut thread, ModelEvent::Failed(ModelFailure { error, retry_after_ms: None }));
    assert!(failed.drafts.is_empty() && !thread.is_compacting());
    assert_eq!(failed.spend.usage, USAGE);
    let mut out = MachineOutput::new(6_000);
    apply_thread_input(&mut abandoned, ThreadInput::RunStarting, &mut out);
    assert_eq!(out.effects, [Effect::Abort(EffectId::Compaction { run: TaskId::from("task_1") })]);
    assert_eq!((out.spend.usage, out.drafts.is_empty()), (USAGE, true));
    assert!(send(&mut abandoned, end()).drafts.is_empty(), "a late end answers nothing");
}
