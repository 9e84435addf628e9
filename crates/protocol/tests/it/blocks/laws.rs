//! Over random logs: every turn is well formed, a resumed stream misses nothing, and both reducers agree with the log.

use super::lines;
use super::reducer::{Flutter, React};
use crate::resumes::{self, Place};
use model::Record;
use model::event::DisplayMode;
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::Block;
use model::item::Item;
use model::task::TaskStatus;
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use protocol::blocks::BlocksProjection;
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn laws_4_and_5_hold() {
    resumes::hold(Place::Line(protocol::blocks::BLOCKS_PROJECTION), |thread, _| {
        Box::new(BlocksProjection::new(thread.to_string()))
    });
}

/// The runs of a seed's log, each with its records and with its frames for a viewer of the whole thread.
fn turns(seed: u64) -> Vec<(RunFold, Vec<Value>)> {
    let (_, records) = generate_thread_log(seed, LogOptions::default());
    let frames = lines(&resumes::frames(Box::new(BlocksProjection::new("s1".to_owned())), &records));
    let mut runs: Vec<RunFold> = Vec::new();
    for record in &records {
        if is_first(record) {
            runs.push(RunFold::default());
        }
        runs.last_mut().unwrap().apply(record).unwrap();
    }
    let of = |run: &RunFold| {
        let id = run.root().unwrap().id.as_str();
        frames.iter().filter(|frame| frame["message_id"] == id).cloned().collect()
    };
    let turns: Vec<(RunFold, Vec<Value>)> = runs.into_iter().map(|run| (of(&run), run)).map(|(f, r)| (r, f)).collect();
    assert_eq!(turns.iter().map(|(_, frames)| frames.len()).sum::<usize>(), frames.len(), "SEED={seed}");
    turns
}

fn is_first(record: &Record) -> bool {
    matches!(record.event(), model::Event::Created(created) if created.task.parent_task_id.is_none())
}

#[test]
fn every_turn_is_well_formed() {
    for seed in test_seeds() {
        for (run, frames) in turns(seed) {
            let at = format!("SEED={seed}, {}", run.root().unwrap().id);
            let kinds: Vec<&str> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
            assert_eq!(kinds[0], "message_start", "{at}");
            assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"], "{at}");
            let (mut begun, mut open) = (0, BTreeSet::new());
            let outside = |frame: &&Value| frame["type"] == "approval_resolved" || frame["type"] == "input_added";
            for frame in frames[1..frames.len() - 2].iter().filter(|frame| !outside(frame)) {
                let index = frame["index"].as_u64().unwrap();
                match frame["type"].as_str().unwrap() {
                    "content_block_start" => {
                        assert_eq!(index, begun, "{at}: the index counts starts");
                        begun += 1;
                        open.insert(index);
                    }
                    "content_block_delta" => assert!(open.contains(&index), "{at}: {frame}"),
                    "content_block_stop" => assert!(open.remove(&index), "{at}: {frame}"),
                    other => panic!("{at}: {other} inside a turn"),
                }
            }
            assert!(open.is_empty(), "{at}: {open:?} never stopped");
        }
    }
}

/// The content of a log in the form that reducers return.
fn log_content(run: &RunFold) -> Vec<String> {
    let mut said = Vec::new();
    let thinks = run.root().unwrap().spec.display_mode == DisplayMode::Agent;
    for task in &run.tasks {
        for fold in &task.items {
            match &fold.item {
                Item::Message(_) => said.extend(texts(fold).map(|text| format!("text {text}"))),
                Item::Reasoning(item) if thinks => {
                    let parts = item.summary.iter().flatten();
                    said.extend(parts.map(|part| format!("thinking {}", part.text())));
                }
                Item::ToolCall(call) if fold.arguments_complete => {
                    said.push(format!("tool_use {} answered={}", call.call_id, task.result(&call.call_id).is_some()));
                }
                Item::HostedCall(call) => said.push(format!("tool_use {} answered=true", call.id)),
                Item::FileProcessing(_) => said.push("file_processing".to_owned()),
                Item::Reasoning(_) | Item::ToolCall(_) | Item::ToolResult(_) => {}
            }
        }
        said.extend(task.approvals.iter().map(|(asked, _)| format!("approval_request {}", asked.key)));
    }
    match run.root().unwrap().status {
        TaskStatus::Failed => said.push("terminal_error".to_owned()),
        TaskStatus::Cancelled => said.push("terminal_user_stopped".to_owned()),
        _ => {}
    }
    said.sort();
    said
}

fn texts(fold: &ItemFold) -> impl Iterator<Item = &str> {
    fold.item.blocks().iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.text()),
        _ => None,
    })
}

fn reducer_content(blocks: &[Value]) -> Vec<String> {
    let mut heard: Vec<String> = blocks
        .iter()
        .map(|block| {
            let of = |name: &str| {
                [&block[name], &block["data"][name]].into_iter().find_map(|v| v.as_str()).unwrap_or_default()
            };
            match block["type"].as_str().unwrap() {
                "text" => format!("text {}", of("text")),
                "thinking" => format!("thinking {}", of("thinking")),
                "tool_use" => format!("tool_use {} answered={}", of("id"), block["toolResult"].is_string()),
                "approval_request" => format!("approval_request {}", of("approval_key")),
                other => other.to_owned(),
            }
        })
        .collect();
    heard.sort();
    heard
}

#[test]
fn law_6_both_reducers_agree_with_the_log() {
    for seed in test_seeds() {
        for (run, frames) in turns(seed) {
            let (mut react, mut flutter) = (React::default(), Flutter::default());
            for frame in &frames {
                react.handle(frame);
                flutter.handle(frame);
            }
            let at = format!("SEED={seed}, {}", run.root().unwrap().id);
            assert!(!react.is_streaming, "{at}");
            assert_eq!(reducer_content(&react.blocks), log_content(&run), "{at}: React");
            assert_eq!(reducer_content(&flutter.blocks), log_content(&run), "{at}: Flutter");
        }
    }
}

/// The last text of a root task that ended by itself with a text.
fn answer(root: &TaskFold) -> Option<&str> {
    let ended = matches!(root.status, TaskStatus::Completed | TaskStatus::Incomplete);
    let last = root.items.last().filter(|fold| matches!(fold.item, Item::Message(_)) && ended)?;
    let in_last_step = last.step_index == root.steps.len().checked_sub(1);
    texts(last).last().filter(|_| in_last_step)
}

#[test]
fn only_the_answer_is_final() {
    let mut answers = 0;
    for seed in test_seeds() {
        for (run, frames) in turns(seed) {
            let at = format!("SEED={seed}, {}", run.root().unwrap().id);
            let finals: Vec<&Value> = frames.iter().filter(|frame| frame["is_final"] == true).collect();
            let answer = answer(run.root().unwrap());
            assert_eq!(finals.len(), usize::from(answer.is_some()), "{at}");
            let (Some(last), Some(answer)) = (finals.first(), answer) else { continue };
            let of_it = frames.iter().filter(|frame| frame["index"] == last["index"]);
            let text: String = of_it.filter_map(|frame| frame["delta"]["text"].as_str()).collect();
            assert_eq!(text, answer, "{at}");
            answers += 1;
        }
    }
    assert!(answers > 0, "no log had an answer");
}
