//! How many allocations the path from a record to the bytes of its frame makes, in every client protocol.
//!
//! A delta is most of what a server sends, so this path is counted: counts are the same on every machine, and times are not.

use model::event::Event;
use model::ports::{Frames, Projection};
use model::record::{PrivatePayload, RecordDraft};
use model::usage::Usage;
use model::{Epoch, Record, Seq, TaskId, ThreadId};
use protocol::ui_stream::{UiStreamProjection, UiVersion};
use serde_json::{Value, json};

/// Number of deltas that are counted, and of those before them that only fill buffers.
const COUNTED_DELTAS: usize = 1_000;
/// The texts that projections hold grow, by doubling: a few allocations for all deltas together.
const GROWTH_MAX: u64 = 8;

const ITEM: &str = "msg_0192f6d2a7b57e4a8c1d2e3f4a5b6c7d1";

fn run() -> TaskId {
    TaskId::from("task_0192f6d2a7b57e4a8c1d2e3f4a5b6c7d")
}

fn thread() -> ThreadId {
    ThreadId::from("thr_1")
}

/// What grows: its name, the events that open it, and a delta.
fn growing() -> [(&'static str, Vec<Value>, Value); 3] {
    let added = |item: Value| json!({"type": "task.output_item.added", "output_index": 0, "item": item});
    let message =
        json!({"type": "message", "id": ITEM, "role": "assistant", "block_list": [], "status": "in_progress"});
    let reasoning = json!({"type": "reasoning", "id": ITEM, "summary": [], "status": "in_progress"});
    let call = json!({
        "type": "tool_call", "id": ITEM, "call_id": "call_1", "name": "f", "arguments": "", "kind": "tool",
        "gate": "never", "status": "in_progress",
    });
    let placed = |mut event: Value| {
        event["item_id"] = ITEM.into();
        event["output_index"] = 0.into();
        event
    };
    let empty = json!({"type": "text", "text": ""});
    let text_added = placed(json!({"type": "task.text.added", "block_index": 0, "item": empty}));
    let part_added = placed(json!({"type": "task.reasoning_summary_item.added", "summary_index": 0, "item": empty}));
    [
        (
            "text",
            vec![added(message), text_added],
            placed(json!({"type": "task.text.delta", "block_index": 0, "delta": " token"})),
        ),
        (
            "reasoning",
            vec![added(reasoning), part_added],
            placed(json!({"type": "task.reasoning_summary_text.delta", "summary_index": 0, "delta": " token"})),
        ),
        ("arguments", vec![added(call)], placed(json!({"type": "task.tool_call_arguments.delta", "delta": " token"}))),
    ]
}

/// A run up to its first delta, and its deltas.
fn log(opened: &[Value], delta: &Value) -> (Vec<Record>, Vec<Record>) {
    let task = json!({
        "thread_id": "thr_1", "agent": "demo", "model": "scripted/demo", "input": [], "parent_task_id": null,
        "display_mode": "agent",
    });
    let mut events = vec![json!({"type": "task.created", "task": task}), json!({"type": "task.started"})];
    events.push(json!({"type": "task.step.started", "step": 1, "attempt": 1}));
    events.extend_from_slice(opened);
    let deltas_from = events.len();
    events.extend(std::iter::repeat_n(delta.clone(), 2 * COUNTED_DELTAS));
    // The private half of any record may have tokens that the turn used so far.
    let usage = Some(Usage { output_tokens: 1, ..Usage::default() });
    let seal = |(index, mut event): (usize, Value)| {
        event["task_id"] = run().as_str().into();
        let event: Event = serde_json::from_value(event).unwrap();
        let private = Some(Box::new(PrivatePayload { usage, ..PrivatePayload::default() }));
        let draft = RecordDraft { seq: Seq(index as u64 + 1), at: 1_710_000_000_000, event, private };
        Record::seal(&thread(), &run(), Epoch(1), draft)
    };
    let mut records: Vec<Record> = events.into_iter().enumerate().map(seal).collect();
    let deltas = records.split_off(deltas_from);
    (records, deltas)
}

fn projections() -> [(&'static str, Box<dyn Projection>); 9] {
    let (agui, scope) = (protocol::agui::AgUiVersion::V1, protocol::agui::AgUiScope::Thread);
    [
        ("task", Box::new(protocol::task::TaskProjection::new(protocol::task::RecordScope::Run(run())))),
        ("responses", Box::new(protocol::responses::ResponsesProjection::new(run(), 1, &thread()))),
        ("run_items", Box::new(protocol::run_items::RunItemsProjection::new(run(), &thread()))),
        ("chat", Box::new(protocol::chat::ChatProjection::new(run(), 1, true.into()))),
        ("messages", Box::new(protocol::messages::MessagesProjection::new(run(), 1))),
        ("blocks", Box::new(protocol::blocks::BlocksProjection::new("session".to_owned()))),
        ("agent_runs", Box::new(protocol::agent_runs::AgentRunsProjection::new("name".to_owned()))),
        ("agui", Box::new(protocol::agui::AgUiProjection::new(agui, "name".to_owned(), scope))),
        ("ui_stream", Box::new(UiStreamProjection::new(run(), 1, 1, UiVersion::Six))),
    ]
}

#[test]
fn a_delta_becomes_a_frame_without_an_allocation() {
    let mut too_many = Vec::new();
    for (kind, opened, delta) in growing() {
        let (start, deltas) = log(&opened, &delta);
        let (warm_up, counted) = deltas.split_at(COUNTED_DELTAS);
        for (name, mut projection) in projections() {
            let mut out = Frames::default();
            start.iter().chain(warm_up).for_each(|record| projection.project(record, &mut out));
            // Room for the largest frame of all protocols: a buffer that grows is the hub's affair.
            let records: Vec<Record> = counted.iter().chain(counted).cloned().collect();
            let mut out = Frames::for_records(&records);
            let count = allocation_counter::measure(|| {
                counted.iter().for_each(|record| projection.project(record, &mut out));
            });
            println!(
                "{name} {kind}: {} allocations for {} deltas, {} bytes",
                count.count_total,
                counted.len(),
                out.len()
            );
            if count.count_total > GROWTH_MAX {
                too_many.push(format!("{name} {kind}: {}", count.count_total));
            }
        }
    }
    assert!(too_many.is_empty(), "allocations for {COUNTED_DELTAS} deltas: {too_many:#?}");
}
