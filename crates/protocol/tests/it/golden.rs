//! The exact bytes of every protocol, over random logs and the demo's scenarios.
//!
//! `golden/frames.txt` has one line per log and one column per protocol: the hash of everything that a client of the
//! protocol can be sent. A mismatch writes the transcript to `golden/actual` in Cargo's temporary folder;
//! [`bless_frames`] rewrites the fixture, and the transcripts to `golden/expected` next to it.

use crate::responses::log::{Log, thread};
use crate::responses::scenario_logs;
use model::condense::condense_records;
use model::ports::{Frames, Projection};
use model::{Record, TaskId, ThreadId};
use model_testing::{DEFAULT_SEEDS, LogOptions, generate_thread_log};
use protocol::agent_runs::{AgentRunsProjection, MessageHistory};
use protocol::agui::{AgUiProjection, AgUiScope, AgUiVersion};
use protocol::blocks::BlocksProjection;
use protocol::chat::ChatProjection;
use protocol::messages::MessagesProjection;
use protocol::responses::{InputItems, ResponsesProjection};
use protocol::run_items::RunItemsProjection;
use protocol::task::{RecordScope, TaskProjection};
use protocol::ui_stream::{UiReplay, UiRunMessages, UiStreamProjection, UiVersion};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const DIALECTS: [&str; 13] = [
    "task",
    "run_items",
    "responses",
    "input_items",
    "blocks",
    "agent_runs",
    "history",
    "messages",
    "chat",
    "agui1",
    "agui0",
    "ui6",
    "ui7",
];
/// No random run and no scenario has more segments.
const SEGMENTS_MAX: u32 = 4;

struct NamedLog {
    name: String,
    thread: ThreadId,
    records: Vec<Record>,
}

fn logs() -> Vec<NamedLog> {
    let random = |name: &str, options: LogOptions, seed: u64| {
        let (thread, records) = generate_thread_log(seed, options.without_hosted_approvals());
        NamedLog { name: format!("{name}-{seed}"), thread, records }
    };
    let mut logs: Vec<NamedLog> = DEFAULT_SEEDS.map(|seed| random("small", LogOptions::small(), seed)).collect();
    logs.extend(DEFAULT_SEEDS.take(6).map(|seed| random("large", LogOptions::default(), seed)));
    let echo = json!({
        "conversation": "conv_1", "text": {"verbosity": "low"}, "temperature": 0.5, "tool_choice": "required",
        "tools": [{"type": "function", "name": "pick"}, {"type": "web_search"}], "metadata": {"n": 1}, "user": "u",
    });
    let scenarios = [
        ("weather", scenario_logs::weather()),
        ("help", scenario_logs::help()),
        ("parallel", scenario_logs::parallel()),
        ("trade", scenario_logs::trade_asked(Some(echo))),
        ("trade-approved", scenario_logs::trade_approved()),
        ("trade-refused", scenario_logs::trade_refused("user")),
        ("trade-timeout", scenario_logs::trade_refused("timeout")),
        ("trade-cancelled", scenario_logs::trade_cancelled()),
        ("client", scenario_logs::client()),
        ("rate-limited", scenario_logs::fail("rate_limited")),
        ("overloaded", scenario_logs::fail("overloaded")),
        ("failed", scenario_logs::fail("provider_error")),
        ("cancel", scenario_logs::cancel()),
        ("limit", scenario_logs::limit()),
        ("recover", scenario_logs::recover()),
        ("handoff", scenario_logs::handoff()),
        ("nested", scenario_logs::nested()),
        ("image", scenario_logs::image()),
        ("hosted", hosted_tools()),
        ("computer", computer()),
        ("hosted-approval", scenario_logs::hosted_approval("approve")),
        ("hosted-rejection", scenario_logs::hosted_approval("reject")),
        ("mcp-server", scenario_logs::mcp_server("approve")),
        ("mcp-server-rejection", scenario_logs::mcp_server("reject")),
        ("client-computer", scenario_logs::client_computer(r#"{"action":{"type":"click"}}"#)),
    ];
    logs.extend(scenarios.into_iter().map(|(name, log)| NamedLog {
        name: name.to_owned(),
        thread: thread(),
        records: log.records,
    }));
    logs
}

/// A call of every hosted tool, and of one without a wire type.
fn hosted_tools() -> Log {
    let mut log = Log::new();
    log.step();
    let file = json!({"type": "text", "text": "found"});
    let calls = [
        ("web_search", json!({"query": "x"}), "searching", "completed"),
        ("web_search", Value::Null, "searching", "incomplete"),
        ("web_search", json!({"action": {"type": "open_page", "url": "u"}, "results": [1]}), "searching", "failed"),
        ("file_search", json!({"queries": ["x"]}), "searching", "completed"),
        ("code_interpreter", json!({"code": "print(1)", "container_id": "c"}), "interpreting", "completed"),
        ("code_interpreter", json!({"code": "1"}), "odd", "incomplete"),
        ("computer", json!({"type": "click", "x": 1}), "in_progress", "completed"),
        ("computer", json!({"actions": [{"type": "wait"}]}), "in_progress", "completed"),
        ("mcp_list_tools", json!({"server_label": "dice", "tools": []}), "in_progress", "completed"),
        ("mcp_list_tools", Value::Null, "in_progress", "failed"),
        ("mcp", json!({"name": "roll", "server_label": "dice", "arguments": "{}"}), "in_progress", "failed"),
        ("shell", json!({"commands": ["ls"]}), "in_progress", "completed"),
        ("shell", json!("ls"), "in_progress", "completed"),
        ("web_search", json!(7), "searching", "completed"),
    ];
    for (index, (name, action, state, status)) in calls.into_iter().enumerate() {
        let id = format!("hc_R{index}");
        let item = |status: &str, blocks: Value| json!({"type": "hosted_call", "id": id, "name": name, "block_list": blocks, "status": status});
        let added = item("in_progress", json!([]));
        log.add(json!({"type": "task.output_item.added", "output_index": index, "item": added}));
        for (state, action) in [("in_progress", &Value::Null), (state, &action), (state, &action)] {
            let mut event = json!({
                "type": "task.hosted_call.updated", "item_id": id, "output_index": index, "state": state,
            });
            if !action.is_null() {
                event["action"] = action.clone();
            }
            log.add(event);
        }
        let place = json!({"item_id": id, "output_index": index, "block_index": 0});
        let mut done = item(status, json!([file]));
        let mut block = json!({"type": "task.text.done", "item": file});
        block.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        log.add(block);
        if !action.is_null() {
            done["action"] = action;
        }
        log.add(json!({"type": "task.output_item.done", "output_index": index, "item": done}));
    }
    log.step_done("stop").completed();
    log
}

/// Computer calls: one action, several, and arguments of another shape.
fn computer() -> Log {
    let mut log = Log::new();
    log.step();
    let click = r#"{"actions":[{"type":"click","x":1}],"pending_safety_checks":[{"id":"s"}]}"#;
    let many = r#"{"actions":[{"type":"wait"},{"type":"click"}]}"#;
    for (number, arguments) in [(1, click), (2, many), (3, "{}")] {
        log.call(number, "computer", ["tool", "never"], &[arguments]);
    }
    log.step_done("tool_calls");
    for number in 1..=3 {
        log.started(number, "{}");
    }
    let screen = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}});
    log.result(1, json!([screen])).result(2, json!([{"type": "text", "text": "no screen"}]));
    log.no_result(3, "failed", "failed", "");
    log.step().message("msg_R4", &["Done."], None).step_done("stop").completed();
    log
}

/// Everything that clients of each protocol can be sent, in the order of [`DIALECTS`].
fn transcripts(log: &NamedLog) -> [Vec<u8>; DIALECTS.len()] {
    let NamedLog { thread, records, .. } = log;
    let mut runs: Vec<TaskId> = records.iter().map(|record| record.run.clone()).collect();
    runs.dedup();
    let mut all: [Vec<u8>; DIALECTS.len()] = Default::default();
    let [task, run_items, responses, input_items, blocks, agent_runs, history, messages, chat, agui1, agui0, ui6, ui7] =
        &mut all;
    project(&mut TaskProjection::new(RecordScope::Thread), records, task, |_, _| ());
    project(&mut RunItemsProjection::for_thread(thread), records, run_items, |_, _| ());
    project(&mut BlocksProjection::new("session".to_owned()), records, blocks, |_, _| ());
    project(&mut AgentRunsProjection::new("name".to_owned()), records, agent_runs, |_, _| ());
    for (version, transcript) in [(AgUiVersion::V1, agui1), (AgUiVersion::V0_0_59, agui0)] {
        let mut projection = AgUiProjection::new(version, "name".to_owned(), AgUiScope::Thread);
        project(&mut projection, records, transcript, |_, _| ());
    }
    for run in &runs {
        let of_run: Vec<Record> = records.iter().filter(|record| record.run == *run).cloned().collect();
        project(&mut TaskProjection::new(RecordScope::Run(run.clone())), records, task, |_, _| ());
        project(&mut RunItemsProjection::new(run.clone(), thread), records, run_items, |_, _| ());
        for segment in 1..=SEGMENTS_MAX {
            let mut projection = ResponsesProjection::new(run.clone(), segment, thread);
            project(&mut projection, &of_run, responses, |projection, out| push_json(&projection.object(), out));
            let mut projection = MessagesProjection::new(run.clone(), segment);
            project(&mut projection, &of_run, messages, |projection, out| push_json(&projection.object(), out));
            for include_usage in [false, true] {
                let mut projection = ChatProjection::new(run.clone(), segment, include_usage.into());
                project(&mut projection, &of_run, chat, |projection, out| push_json(&projection.object(), out));
            }
        }
        let (mut inputs, mut conversation) = (InputItems::default(), MessageHistory::default());
        for record in &of_run {
            push_json(&inputs.read_record(record), input_items);
            conversation.read_record(record);
        }
        push_json(&conversation.into_messages(), history);
        project_ui_stream(UiVersion::Six, &of_run, ui6);
        project_ui_stream(UiVersion::Seven, &of_run, ui7);
    }
    all
}

/// The stream of every segment, the replay of the run, and its messages.
fn project_ui_stream(version: UiVersion, records: &[Record], transcript: &mut Vec<u8>) {
    let Some(run) = records.first().map(|record| record.run.clone()) else { return };
    for segment in 1..=SEGMENTS_MAX {
        let mut projection = UiStreamProjection::new(run.clone(), segment, segment, version);
        project(&mut projection, records, transcript, |_, _| ());
    }
    let mut projection = UiStreamProjection::new(run.clone(), 1, SEGMENTS_MAX, version);
    let (mut replay, mut messages) = (UiReplay::default(), UiRunMessages::new(run, version));
    for record in condense_records(records.to_vec()) {
        projection.replay_record(&record, &mut replay);
        messages.read_record(&record);
    }
    transcript.extend_from_slice(&replay.into_frames());
    push_json(&messages.into_messages(), transcript);
}

fn project<P: Projection>(
    projection: &mut P,
    records: &[Record],
    transcript: &mut Vec<u8>,
    observe: impl Fn(&P, &mut Vec<u8>),
) {
    for (position, record) in records.iter().enumerate() {
        let mut out = Frames::default();
        projection.project(record, &mut out);
        transcript.extend_from_slice(&out.into_parts().0);
        // Objects after every record of a long log would take quadratic time.
        if position % (1 + records.len() / 50) == 0 || position + 1 == records.len() {
            observe(projection, transcript);
        }
    }
}

fn push_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, value).unwrap();
    out.push(b'\n');
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn fixture_line(name: &str, transcripts: &[Vec<u8>; DIALECTS.len()]) -> String {
    let mut line = name.to_owned();
    transcripts.iter().for_each(|transcript| write!(line, " {:016x}", hash(transcript)).unwrap());
    line
}

fn write_transcript(folder: &str, log: &str, dialect: &str, transcript: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden").join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{log}.{dialect}"));
    std::fs::write(&path, transcript).unwrap();
    path
}

#[test]
fn every_protocol_keeps_its_bytes() {
    let fixture = include_str!("golden/frames.txt");
    let logs = logs();
    let lines: Vec<&str> = fixture.lines().skip(1).collect();
    assert_eq!(fixture.lines().next(), Some(format!("log {}", DIALECTS.join(" ")).as_str()));
    assert_eq!(lines.len(), logs.len());
    let mut differences = Vec::new();
    for (log, expected) in logs.iter().zip(lines) {
        let transcripts = transcripts(log);
        let actual = fixture_line(&log.name, &transcripts);
        let columns = actual.split(' ').zip(expected.split(' ')).skip(1);
        for (index, _) in columns.enumerate().filter(|(_, (actual, expected))| actual != expected) {
            differences.push(write_transcript("actual", &log.name, DIALECTS[index], &transcripts[index]));
        }
    }
    assert!(differences.is_empty(), "bytes that clients get have changed: {differences:#?}");
}

#[test]
#[ignore = "writes the fixture anew, for a change of bytes that is meant"]
fn bless_frames() {
    let mut fixture = format!("log {}\n", DIALECTS.join(" "));
    for log in logs() {
        let transcripts = transcripts(&log);
        writeln!(fixture, "{}", fixture_line(&log.name, &transcripts)).unwrap();
        for (dialect, transcript) in DIALECTS.iter().zip(&transcripts) {
            write_transcript("expected", &log.name, dialect, transcript);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/frames.txt");
    std::fs::write(path, fixture).unwrap();
}
