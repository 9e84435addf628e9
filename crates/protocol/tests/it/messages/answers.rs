//! Answers in this protocol: the demo's scenarios frame by frame, and the laws over random logs.

use super::accumulator::{Collected, collect};
use super::event_lines;
use crate::responses::log::{Log, run};
use crate::responses::order::Frame;
use crate::responses::{scenario_frames, scenario_logs};
use crate::resumes::{Place, frames, hold, runs};
use model::event::Event;
use model::ports::{Frames, Projection as _};
use model::{Record, TaskId};
use model_testing::{DEFAULT_SEEDS, test_seeds};
use protocol::messages::MessagesProjection;
use protocol::stateless::is_client_tool_pause;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn bytes(records: &[Record], run: TaskId, segment: u32) -> Vec<u8> {
    frames(Box::new(MessagesProjection::new(run, segment)), records)
}

fn segment(log: &Log, number: u32) -> Vec<Frame> {
    scenario_frames::read(&bytes(&log.records, run(), number))
}

fn answer(records: &[Record], run: TaskId, segment: u32) -> MessagesProjection {
    let mut answer = MessagesProjection::new(run, segment);
    let mut out = Frames::default();
    records.iter().for_each(|record| answer.project(record, &mut out));
    assert_eq!(answer.is_finished(), out.is_finished());
    answer
}

/// A frame in short.
fn line((event, data): &Frame) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let more = match event.as_str() {
        "message_start" => text(&data["message"]["id"]),
        "content_block_start" => format!("{} {}", data["index"], data["content_block"]),
        "content_block_delta" => {
            let delta = data["delta"].as_object().unwrap();
            let said = delta.iter().find(|(key, _)| *key != "type").map(|(_, said)| text(said)).unwrap();
            format!("{} {} {said}", data["index"], text(&delta["type"]))
        }
        "content_block_stop" => data["index"].to_string(),
        "message_delta" => format!("{} {}", text(&data["delta"]["stop_reason"]), data["usage"]["output_tokens"]),
        "error" => format!("{} {}", text(&data["error"]["type"]), text(&data["error"]["message"])),
        _ => String::new(),
    };
    let event = event.replace("content_block_", "");
    if more.is_empty() { event } else { format!("{event} {more}") }
}

#[track_caller]
fn assert_lines(log: &Log, number: u32, lines: &[&str]) {
    let frames = segment(log, number);
    let told: Vec<String> = frames.iter().map(line).collect();
    assert_eq!(told, lines, "\n{}", told.join("\n"));
    collect(&frames).unwrap();
}

#[test]
fn reasoning_tools_and_text_are_consecutive_blocks() {
    let citation = json!({"type": "search_result_location", "source": "headwater:/threads/thr_1/references/1", "title": "[1]",
        "cited_text": "", "search_result_index": 0, "start_block_index": 0, "end_block_index": 1});
    let used = r#"start 2 {"id":"call_R2","input":{"location":"Paris, France"},"name":"get_weather","server_name":"headwater","type":"mcp_tool_use"}"#;
    let given = r#"start 3 {"content":[{"text":"{\"temperature\":15}\n[image /v1/blobs/ab12]","type":"text"}],"is_error":false,"tool_use_id":"call_R2","type":"mcp_tool_result"}"#;
    assert_lines(
        &scenario_logs::weather(),
        1,
        &[
            "message_start msg_R",
            r#"start 0 {"signature":"","thinking":"","type":"thinking"}"#,
            "delta 0 thinking_delta Let me",
            "delta 0 thinking_delta  see.",
            "delta 0 signature_delta rs_R1",
            "stop 0",
            r#"start 1 {"signature":"","thinking":"","type":"thinking"}"#,
            "delta 1 thinking_delta A tool",
            "delta 1 thinking_delta  knows.",
            "delta 1 signature_delta rs_R1",
            "stop 1",
            used,
            "stop 2",
            given,
            "stop 3",
            r#"start 4 {"text":"","type":"text"}"#,
            "delta 4 text_delta The weather in Paris is sunny ",
            "delta 4 text_delta with a temperature of 15C.[^",
            "delta 4 text_delta 1]",
            &format!("delta 4 citations_delta {citation}"),
            "stop 4",
            "message_delta end_turn 10",
            "message_stop",
        ],
    );
}

/// Each file has an index of its own, however often it is cited.
#[test]
fn files_are_cited_as_documents() {
    let file = |index: u32, id: &str, title: Option<&str>, quote: &str| {
        let citation = json!({"type": "content_block_location", "document_index": index, "document_title": title,
            "file_id": id, "cited_text": quote, "start_block_index": 0, "end_block_index": 1});
        format!("delta 0 citations_delta {citation}")
    };
    let log = scenario_logs::cited_files();
    assert_lines(
        &log,
        1,
        &[
            "message_start msg_R",
            r#"start 0 {"text":"","type":"text"}"#,
            "delta 0 text_delta 15C.",
            &file(0, "file_1", Some("a.pdf"), "fifteen"),
            &file(1, "cfile_1", Some("b.csv"), ""),
            &file(2, "file_2", None, ""),
            &file(0, "file_1", Some("a.pdf"), ""),
            "stop 0",
            "message_delta end_turn 5",
            "message_stop",
        ],
    );
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(collect(&segment(&log, 1)), Ok(Collected::Message(object)));
}

#[test]
fn the_message_equals_the_accumulated_frames() {
    let log = scenario_logs::weather();
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(
        (&object["id"], &object["type"], &object["role"], &object["model"], &object["stop_sequence"]),
        (&json!("msg_R"), &json!("message"), &json!("assistant"), &json!("demo"), &Value::Null)
    );
    let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8, "output_tokens": 10,
        "output_tokens_details": {"thinking_tokens": 4}});
    assert_eq!((&object["usage"], &object["stop_reason"]), (&usage, &json!("end_turn")));
    assert_eq!(collect(&segment(&log, 1)), Ok(Collected::Message(object)));
}

#[test]
fn a_sub_agent_is_one_call_with_its_last_text_as_result() {
    let frames = segment(&scenario_logs::help(), 1);
    let Ok(Collected::Message(message)) = collect(&frames) else { panic!("{frames:?}") };
    let kinds: Vec<&str> =
        message["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "thinking", "mcp_tool_use", "mcp_tool_result", "text"]);
    assert_eq!(message["content"][2]["name"], "ask_for_help");
    let said = "The weather in Paris is sunny with a temperature of 15C.[^1]";
    assert_eq!(message["content"][3]["content"], json!([{"type": "text", "text": said}]));
    assert_eq!(message["usage"]["output_tokens"], 20, "what the sub-agent cost is part of it");
}

#[test]
fn parallel_tools_are_shown_as_they_start_and_end() {
    let frames = segment(&scenario_logs::parallel(), 1);
    let about = |frame: &Frame| {
        let block = &frame.1["content_block"];
        let id = block.get("id").or(block.get("tool_use_id"))?.as_str()?.to_owned();
        Some((block["type"].as_str()?.to_owned(), id))
    };
    let told: Vec<String> = frames.iter().filter_map(about).map(|(kind, id)| format!("{kind} {id}")).collect();
    assert_eq!(
        told,
        [
            "mcp_tool_use call_R1",
            "mcp_tool_use call_R2",
            "mcp_tool_use call_R3",
            "mcp_tool_result call_R2",
            "mcp_tool_result call_R1",
            "mcp_tool_result call_R3",
        ]
    );
}

#[test]
fn an_answer_stays_open_during_an_approval() {
    let open = segment(&scenario_logs::trade(), 1);
    assert!(matches!(collect(&open), Ok(Collected::Open(_))), "{open:?}");
    let log = scenario_logs::trade_approved();
    let approved = segment(&log, 1);
    assert!(approved.starts_with(&open));
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(object["content"][1]["type"], "mcp_tool_use");
    assert_eq!((&object["content"][2]["is_error"], &object["stop_reason"]), (&json!(false), &json!("end_turn")));
    assert_eq!(segment(&log, 2), [], "a decision begins nothing");

    let refused = answer(&scenario_logs::trade_refused("user").records, run(), 1).object().to_value();
    assert_eq!((&refused["content"][1]["id"], &refused["content"][2]["is_error"]), (&json!("call_R2"), &json!(true)));
    assert_eq!(refused["content"][2]["content"][0]["text"], "too risky");
}

#[test]
fn a_client_tool_ends_the_answer_and_its_result_starts_the_next() {
    let log = scenario_logs::client();
    assert_lines(
        &log,
        1,
        &[
            "message_start msg_R",
            r#"start 0 {"id":"call_R1","input":{},"name":"pick","type":"tool_use"}"#,
            "delta 0 input_json_delta {}",
            "stop 0",
            "message_delta tool_use 5",
            "message_stop",
        ],
    );
    assert_lines(
        &log,
        2,
        &[
            "message_start msg_R_2",
            r#"start 0 {"text":"","type":"text"}"#,
            "delta 0 text_delta Red, then.",
            "stop 0",
            "message_delta end_turn 5",
            "message_stop",
        ],
    );
    assert_eq!(segment(&log, 3), []);
}

#[test]
fn a_client_call_that_is_not_pending_is_not_shown() {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["[1]"]).step_done("tool_calls");
    log.no_result(1, "failed", "invalid_arguments", "They are no object.");
    log.step().message("msg_R2", &["Never mind."], None).step_done("stop").completed();
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(object["content"], json!([{"type": "text", "text": "Never mind."}]));
}

#[test]
fn a_client_tool_call_of_a_sub_agent_reaches_the_client() {
    let mut log = Log::new();
    log.step().call(1, "ask_for_help", ["agent", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    let at = log.result_added(1);
    log.of("call_R1").step().call(2, "pick", ["client", "never"], &[r#"{"n":1}"#]).step_done("tool_calls");
    log.pause(&[("client_tool", 2, "call_R1")]).resume("user");
    log.of("call_R1").result(2, json!([{"type": "text", "text": "red"}])).step();
    log.message("msg_R3", &["Red."], None).step_done("stop").completed();
    log.of("task_R").result_done(1, at, json!({"status": "completed"}));
    log.step().message("msg_R4", &["It is red."], None).step_done("stop").completed();
    let first = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(first["content"][1], json!({"type": "tool_use", "id": "call_R2", "name": "pick", "input": {"n": 1}}));
    let second = answer(&log.records, run(), 2).object().to_value();
    let given = json!({"type": "mcp_tool_result", "tool_use_id": "call_R1", "is_error": false,
        "content": [{"type": "text", "text": "Red."}]});
    assert_eq!(second["content"], json!([given, {"type": "text", "text": "It is red."}]));
}

#[test]
fn limits_have_a_finish_reason_and_failures_are_errors() {
    let stop = |log: &Log| answer(&log.records, run(), 1).object().to_value()["stop_reason"].clone();
    assert_eq!(stop(&scenario_logs::limit()), "max_tokens");
    let mut filtered = Log::new();
    filtered.step().cut_message("msg_R1", &["Here is"], "limit").step_done("content_filter");
    filtered.ended("incomplete", json!({"reason": "content_filter"}));
    assert_eq!(stop(&filtered), "refusal");
    let error = |log: &Log| match collect(&segment(log, 1)) {
        Ok(Collected::Error(error)) => error["type"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(error(&scenario_logs::fail("provider_error")), "api_error");
    assert_eq!(error(&scenario_logs::fail("overloaded")), "overloaded_error");
    assert_eq!(error(&scenario_logs::fail("rate_limited")), "rate_limit_error");
    assert_eq!(error(&scenario_logs::cancel()), "api_error");
    assert_eq!(error(&scenario_logs::trade_cancelled()), "api_error");
    let failure = answer(&scenario_logs::cancel().records, run(), 1).failure().cloned().unwrap();
    assert!(!failure.retryable, "whoever stopped it would not have it begin again");
    assert!(answer(&scenario_logs::fail("overloaded").records, run(), 1).failure().unwrap().retryable);
}

#[test]
fn a_refusal_has_its_stop_reason_and_explanation() {
    let mut log = Log::new();
    log.step();
    let item =
        json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": [], "status": "in_progress"});
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": item}));
    let block = json!({"type": "text", "text": "I will not.", "refusal": true});
    log.add(json!({"type": "task.text.done", "item_id": "msg_R1", "output_index": 0, "block_index": 0, "item": block}));
    let item =
        json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": [block], "status": "completed"});
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item})).step_done("stop").completed();
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!((&object["stop_reason"], &object["content"][0]["text"]), (&json!("refusal"), &json!("I will not.")));
}

#[test]
fn output_lost_in_a_crash_was_streamed_but_is_not_in_the_message() {
    let log = scenario_logs::recover();
    let Ok(Collected::Message(told)) = collect(&segment(&log, 1)) else { panic!() };
    assert_eq!(told["content"].as_array().unwrap().len(), 2);
    let object = answer(&log.records, run(), 1).object().to_value();
    assert_eq!(object["content"], json!([{"type": "text", "text": "Once more."}]));
}

#[test]
fn a_hosted_tool_is_a_call_and_its_result() {
    let object = answer(&scenario_logs::image().records, run(), 1).object().to_value();
    let used = json!({"type": "mcp_tool_use", "id": "hc_R1", "name": "image_generation", "server_name": "headwater", "input": {}});
    assert_eq!(object["content"][0], used);
    assert_eq!(object["content"][1]["content"][0]["text"], "[image /v1/blobs/ab12]");
}

#[test]
fn a_hosted_tool_has_its_arguments_its_output_and_its_outcome() {
    let blocks = |name: &str, state: &str, action: Value| {
        let mut log = Log::new();
        let item = json!({"type": "hosted_call", "id": "hc_R1", "name": name, "block_list": [], "state": state,
            "action": action, "status": "completed"});
        log.step().add(json!({"type": "task.output_item.added", "output_index": 0, "item": item}));
        log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item}));
        log.step_done("stop").completed();
        answer(&log.records, run(), 1).object().to_value()["content"].clone()
    };
    let logs = json!([{"type": "logs", "logs": "2"}]);
    let code =
        blocks("code_interpreter", "completed", json!({"code": "print(2)", "container_id": "c", "outputs": logs}));
    let result = |text: &str, is_error: bool| {
        json!({"type": "mcp_tool_result", "tool_use_id": "hc_R1", "is_error": is_error,
            "content": [{"type": "text", "text": text}]})
    };
    let used = |name: &str, server: &str, input: Value| json!({"type": "mcp_tool_use", "id": "hc_R1", "name": name, "server_name": server, "input": input});
    let expected = used("code_interpreter", "headwater", json!({"code": "print(2)"}));
    assert_eq!(code, json!([expected, result("2", false)]));
    let action = json!({"name": "ask", "server_label": "wiki", "arguments": "{\"q\":1}", "error": "no page"});
    let failed = blocks("mcp", "failed", action);
    assert_eq!(failed, json!([used("ask", "wiki", json!({"q": 1})), result("no page", true)]));
    let found = json!([{"type": "web_search_result", "title": "Seine", "url": "https://example.org/seine"}]);
    let search = blocks("web_search", "completed", json!({"input": {"query": "rivers"}, "result": found}));
    let expected = used("web_search", "headwater", json!({"query": "rivers"}));
    assert_eq!(search, json!([expected, result("Seine https://example.org/seine", false)]));
}

#[test]
fn our_own_ingest_accepts_the_stream() {
    let story = |log: &Log| event_lines::tell(&event_lines::read([bytes(&log.records, run(), 1).as_slice()]));
    let told = story(&scenario_logs::weather());
    let lines = [
        "usage 0/0/0/0/0",
        "0 reasoning",
        r#"0.0 thinks "Let me see.""#,
        "0 done",
        "1 reasoning",
        r#"1.0 thinks "A tool knows.""#,
    ];
    assert!(told.starts_with(&lines.join("\n")), "{told}");
    assert!(told.contains(r#"3.0 says "The weather in Paris is sunny with a temperature of 15C.[^1]""#), "{told}");
    assert!(told.ends_with("end Stop 20/8/0/10/4 demo -"), "{told}");
    let told = story(&scenario_logs::client());
    assert!(told.contains("0 call pick call_R1\n0 with \"{}\""), "{told}");
    assert!(told.ends_with("end ToolCalls 10/4/0/5/2 demo -"), "{told}");
    let told = story(&scenario_logs::fail("overloaded"));
    assert!(told.contains("failed overloaded true"), "{told}");
}

#[test]
fn laws_4_and_5_hold() {
    for segment in 1..=3 {
        hold(Place::Count, |_, records| Box::new(MessagesProjection::new(records[0].run.clone(), segment)));
    }
}

#[test]
fn law_6_the_client_agrees() {
    let mut reasons = BTreeSet::new();
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let run = records[0].run.clone();
            let pauses =
                u32::try_from(records.iter().filter(|record| is_client_tool_pause(record.event())).count()).unwrap();
            let cut = records.iter().any(|record| matches!(record.event(), Event::Recovered(_)));
            for segment in 1..=pauses + 2 {
                let at = format!("SEED={seed}, {run}, segment {segment}");
                let answer = answer(&records, run.clone(), segment);
                let frames = scenario_frames::read(&bytes(&records, run.clone(), segment));
                let object = answer.object().to_value();
                match collect(&frames).unwrap_or_else(|why| panic!("{at}: {why}")) {
                    Collected::Nothing => assert!(segment > pauses, "{at}: nothing is told"),
                    Collected::Open(_) => panic!("{at}: no end"),
                    Collected::Error(error) => {
                        assert_eq!(error["message"], answer.failure().unwrap().message, "{at}");
                        reasons.insert("error".to_owned());
                    }
                    Collected::Message(told) => {
                        reasons.insert(told["stop_reason"].as_str().unwrap().to_owned());
                        let kept = |block: &Value| object["content"].as_array().unwrap().contains(block);
                        let dropped = told["content"].as_array().unwrap().iter().any(|block| !kept(block));
                        assert!(!dropped || cut, "{at}: {told}\n{object}");
                        assert!(cut || told == object, "{at}: {told}\n{object}");
                    }
                }
            }
        }
    }
    let all = ["end_turn", "error", "max_tokens", "refusal", "tool_use"];
    // A seed given by the user need not cover them all.
    if test_seeds().count() >= DEFAULT_SEEDS.count() {
        assert_eq!(reasons, all.map(str::to_owned).into(), "every end was met");
    }
}

/// What was approved is run and shown by the provider; what was rejected is shown once, with its server.
#[test]
fn a_rejected_question_of_the_provider_names_its_server() {
    let content = |decision: &str| {
        let log = scenario_logs::hosted_approval(decision);
        answer(&log.records, run(), 1).object().to_value()["content"].clone()
    };
    assert_eq!(content("approve"), json!([{"type": "text", "text": "So be it."}]));
    let shown = content("reject");
    let used =
        json!({"type": "mcp_tool_use", "id": "call_R1", "name": "roll", "server_name": "dice", "input": {"n": 6}});
    assert_eq!(shown[0], used);
    assert_eq!((&shown[1]["type"], &shown[1]["is_error"]), (&json!("mcp_tool_result"), &json!(true)));
}
