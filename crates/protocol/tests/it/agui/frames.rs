//! The events of the demo's scenarios.

use super::reducer::reduce;
use super::verifier::verify;
use super::{parse_events, segments, thread_events};
use crate::responses::log::{Log, run, text};
use crate::responses::scenario_logs::{self, ORDER, PARIS};
use crate::resumes;
use protocol::agui::AgUiVersion;
use serde_json::{Value, json};

/// The events in one line each way: the type, and the id or the name that it is about. Consecutive deltas are counted.
fn story(events: &[Value]) -> String {
    let mut words: Vec<(String, usize)> = Vec::new();
    for event in events {
        let ids =
            ["messageId", "toolCallId", "stepName", "name", "runId"].iter().filter_map(|name| event[*name].as_str());
        let id = ids.map(str::to_owned).next().unwrap_or_default();
        let id =
            if event["type"] == "SUBAGENT_STARTED" { event["subagentRunId"].as_str().unwrap().to_owned() } else { id };
        let tag = event["subagentRunId"].as_str().map(|tag| format!("@{tag}")).unwrap_or_default();
        let word = format!("{}{{{id}{tag}}}", event["type"].as_str().unwrap());
        match words.last_mut().filter(|(last, _)| *last == word) {
            Some((_, count)) => *count += 1,
            None => words.push((word, 1)),
        }
    }
    let words = words.iter().map(|(word, count)| match count {
        1 => word.clone(),
        count => format!("{word}×{count}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn events_of(log: &Log) -> Vec<Value> {
    let events = thread_events(AgUiVersion::V1, &log.records);
    verify(&events);
    events
}

fn segment_events(log: &Log, segment: u32) -> Vec<Value> {
    let projection = Box::new(segments(AgUiVersion::V1, &run(), segment, segment));
    parse_events(&resumes::frames(projection, &log.records))
}

fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
}

#[test]
fn weather() {
    let events = events_of(&scenario_logs::weather());
    let expected = [
        "RUN_STARTED{task_R} STEP_STARTED{turn-1}",
        "REASONING_START{rs_R1} REASONING_MESSAGE_START{rs_R1} REASONING_MESSAGE_CONTENT{rs_R1}×2 REASONING_MESSAGE_END{rs_R1}",
        "REASONING_MESSAGE_START{rs_R1-2} REASONING_MESSAGE_CONTENT{rs_R1-2}×2 REASONING_MESSAGE_END{rs_R1-2} REASONING_END{rs_R1}",
        "TOOL_CALL_START{call_R2} TOOL_CALL_ARGS{call_R2}×2 TOOL_CALL_END{call_R2} STEP_FINISHED{turn-1}",
        "TOOL_CALL_RESULT{fco_R2} STEP_STARTED{turn-2}",
        "TEXT_MESSAGE_START{msg_R3} TEXT_MESSAGE_CONTENT{msg_R3}×3 TEXT_MESSAGE_END{msg_R3} STEP_FINISHED{turn-2}",
        "RUN_FINISHED{task_R}",
    ];
    assert_eq!(story(&events), expected.join(" "));
    assert_eq!(events[0]["protocolVersion"], "1.0");
    let picture = json!({"type": "image", "source": {"type": "url", "value": "/v1/blobs/ab12"}});
    let parts = json!([{"type": "text", "text": r#"{"temperature":15}"#}, picture]);
    assert_eq!(find(&events, "TOOL_CALL_RESULT")["content"], parts);
    let citations = json!({"headwater": {"citations": [{"start": 56, "end": 60, "reference": 1}]}});
    assert_eq!(find(&events, "TEXT_MESSAGE_END")["metadata"], citations);
    let finished = find(&events, "RUN_FINISHED");
    assert_eq!(finished["outcome"], json!({"type": "success"}));
    let usage = json!([{
        "model": "scripted/demo", "inputTokens": 20, "outputTokens": 10, "totalTokens": 30, "reasoningTokens": 4,
        "cachedInputTokens": 8, "cacheWriteInputTokens": 0,
    }]);
    assert_eq!(finished["usage"], usage);
}

#[test]
fn help() {
    let events = events_of(&scenario_logs::help());
    let story = story(&events);
    let child = [
        "SUBAGENT_STARTED{call_R2@call_R2} STEP_STARTED{turn-1@call_R2} REASONING_START{rs_R3@call_R2}",
        "TOOL_CALL_RESULT{fco_R4@call_R2} STEP_STARTED{turn-2@call_R2} TEXT_MESSAGE_START{msg_R5@call_R2}",
        "STEP_FINISHED{turn-2@call_R2} SUBAGENT_FINISHED{@call_R2} TOOL_CALL_RESULT{fco_R2} STEP_STARTED{turn-2}",
    ];
    for part in child {
        assert!(story.contains(part), "{part} is not in {story}");
    }
    let started = find(&events, "SUBAGENT_STARTED");
    assert_eq!((&started["name"], &started["parentToolCallId"]), (&json!("WeatherAgent"), &json!("call_R2")));
    let result = events.iter().find(|event| event["messageId"] == "fco_R2").unwrap();
    assert_eq!(result["content"], "The weather in Paris is sunny with a temperature of 15C.[^1]");
}

#[test]
fn trade() {
    let log = scenario_logs::trade_approved();
    let asked = segment_events(&log, 1);
    let expected = [
        "RUN_STARTED{task_R} STEP_STARTED{turn-1} TEXT_MESSAGE_START{msg_R1} TEXT_MESSAGE_CONTENT{msg_R1} TEXT_MESSAGE_END{msg_R1}",
        "TOOL_CALL_START{call_R2} TOOL_CALL_ARGS{call_R2} TOOL_CALL_END{call_R2} STEP_FINISHED{turn-1} RUN_FINISHED{task_R}",
    ];
    assert_eq!(story(&asked), expected.join(" "));
    assert_eq!(find(&asked, "TOOL_CALL_START")["parentMessageId"], "msg_R1");
    let args: Value = serde_json::from_str(ORDER).unwrap();
    let interrupt = json!({
        "id": "apr_R2", "reason": "tool_call", "message": "Approve the call of execute_trade?", "toolCallId": "call_R2",
        "responseSchema": {
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": {"type": "object"},
                "always": {"type": "boolean"},
            },
            "required": ["approved"],
        },
        "expiresAt": "2024-03-09T16:05:00.000Z",
        "metadata": {"headwater": {
            "action_requests": [{"name": "execute_trade", "args": args}], "expires_at": 1_710_000_300_000_u64,
        }},
    });
    let outcome = json!({"type": "interrupt", "interrupts": [interrupt]});
    assert_eq!(find(&asked, "RUN_FINISHED")["outcome"], outcome);
    let answered = segment_events(&log, 2);
    let expected = [
        "RUN_STARTED{task_R_2} CUSTOM{headwater.approval_resolved} TOOL_CALL_RESULT{fco_R2} STEP_STARTED{turn-2}",
        "TEXT_MESSAGE_START{msg_R3} TEXT_MESSAGE_CONTENT{msg_R3} TEXT_MESSAGE_END{msg_R3} STEP_FINISHED{turn-2}",
        "RUN_FINISHED{task_R_2}",
    ];
    assert_eq!(story(&answered), expected.join(" "));
    assert_eq!(answered[0]["parentRunId"], "task_R");
    let client = reduce(&[asked, answered].concat());
    let ids: Vec<&str> = client.messages.iter().map(|message| message["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["msg_R1", "fco_R2", "msg_R3"]);
    assert_eq!(client.interrupts, Vec::<Value>::new());
}

#[test]
fn a_rejected_call_has_the_reason_as_its_result() {
    for (by, expected) in [("user", "Rejected: too risky"), ("timeout", "No decision within 300 s")] {
        let events = events_of(&scenario_logs::trade_refused(by));
        let result = find(&events, "TOOL_CALL_RESULT");
        assert_eq!(result["content"], expected);
        assert_eq!(result["metadata"]["headwater"]["status"], "rejected");
    }
}

#[test]
fn client_tools() {
    let log = scenario_logs::client();
    let events = segment_events(&log, 1);
    let outcome = json!({"type": "success", "pendingToolCallIds": ["call_R1"]});
    assert_eq!(find(&events, "RUN_FINISHED")["outcome"], outcome);
    let result = segment_events(&log, 2);
    assert!(story(&result).starts_with("RUN_STARTED{task_R_2} TOOL_CALL_RESULT{fco_R1} STEP_STARTED{turn-2}"));
    assert_eq!(find(&result, "TOOL_CALL_RESULT")["content"], "red");
}

#[test]
fn a_gated_call_of_a_sub_agent_suspends_it() {
    let log = scenario_logs::nested();
    let asked = segment_events(&log, 1);
    assert!(story(&asked).ends_with("STEP_FINISHED{turn-1@call_R1} SUBAGENT_FINISHED{@call_R1} RUN_FINISHED{task_R}"));
    let suspended = json!({"type": "suspended", "interruptIds": ["apr_R2"]});
    assert_eq!(find(&asked, "SUBAGENT_FINISHED")["outcome"], suspended);
    assert_eq!(find(&asked, "RUN_FINISHED")["outcome"]["interrupts"][0]["subagentRunId"], "call_R1");
    let answered = story(&segment_events(&log, 2));
    let start = "RUN_STARTED{task_R_2} SUBAGENT_STARTED{call_R1@call_R1} CUSTOM{headwater.approval_resolved@call_R1} TOOL_CALL_RESULT{fco_R2@call_R1}";
    assert!(answered.starts_with(start), "{answered}");
}

#[test]
fn a_pause_for_both_names_the_calls_of_the_client_first() {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["{}"]).call(2, "execute_trade", ["tool", "always"], &[ORDER]);
    log.step_done("tool_calls").ask(2, "execute_trade", json!({}));
    log.pause(&[("client_tool", 1, "task_R"), ("approval", 2, "task_R")]);
    log.resume("user").result(1, json!([text("red")])).pause(&[("approval", 2, "task_R")]);
    let both = find(&segment_events(&log, 1), "RUN_FINISHED")["outcome"].clone();
    assert_eq!(both, json!({"type": "success", "pendingToolCallIds": ["call_R1"]}));
    let rest = find(&segment_events(&log, 2), "RUN_FINISHED")["outcome"].clone();
    assert_eq!(rest["interrupts"][0]["id"], "apr_R2");
    let starts: Vec<Value> = events_of(&log).into_iter().filter(|event| event["type"] == "TOOL_CALL_START").collect();
    assert_eq!(starts[0].get("parentMessageId"), None, "the client makes a message with the id of the call");
    assert_eq!(starts[1]["parentMessageId"], "call_R1");
}

#[test]
fn ends() {
    let end = |log: &Log, version: AgUiVersion| {
        let events = thread_events(version, &log.records);
        verify(&events);
        let mut end = events.last().unwrap().clone();
        let members = end.as_object_mut().unwrap();
        members.retain(|name, _| !["timestamp", "usage", "threadId", "runId"].contains(&name.as_str()));
        end
    };
    let (new, old) = (AgUiVersion::V1, AgUiVersion::V0_0_59);
    let cancelled = json!({"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}});
    assert_eq!(end(&scenario_logs::cancel(), new), cancelled);
    let aborted = json!({"type": "RUN_ERROR", "message": "The run was cancelled.", "code": "abort"});
    assert_eq!(end(&scenario_logs::cancel(), old), aborted);
    let failed = json!({"type": "RUN_ERROR", "message": "The provider failed.", "code": "overloaded"});
    assert_eq!(end(&scenario_logs::fail("overloaded"), new), failed);
    let limited = json!({"type": "RUN_FINISHED", "result": {"reason": "max_tokens"}});
    assert_eq!(end(&scenario_logs::limit(), old), limited);
    let cut = events_of(&scenario_logs::cancel());
    let status = json!({"headwater": {"status": "incomplete", "reason": "cancelled"}});
    assert_eq!(find(&cut, "TEXT_MESSAGE_END")["metadata"], status);
}

/// Clients keep interrupts until a run finishes, and refuse to start another one before: an error alone would be the last
/// thing that they show.
#[test]
fn an_error_after_an_interrupt_leaves_no_interrupt() {
    let mut log = scenario_logs::trade();
    log.resume("user").decide(2, json!({"type": "approve"}), "user").started(2, ORDER);
    log.no_result(2, "failed", "failed", "").step().step_done("error");
    log.ended("failed", json!({"error": {"code": "overloaded", "message": "The provider failed."}}));
    for (version, log) in [(AgUiVersion::V1, &log), (AgUiVersion::V0_0_59, &scenario_logs::trade_cancelled())] {
        let events = thread_events(version, &log.records);
        verify(&events);
        assert!(story(&events).ends_with("RUN_FINISHED{task_R_2} RUN_ERROR{}"), "{}", story(&events));
        assert_eq!(reduce(&events).interrupts, Vec::<Value>::new());
    }
}

#[test]
fn the_agent_after_a_hand_off_is_named() {
    let events = events_of(&scenario_logs::handoff());
    assert_eq!(find(&events, "TEXT_MESSAGE_START")["name"], "specialist");
    assert_eq!(find(&events, "CUSTOM")["value"], json!({"agent": "specialist", "from": "demo"}));
}

#[test]
fn hosted_calls_have_arguments_and_a_result_and_their_images_are_activities() {
    let events = events_of(&scenario_logs::image());
    let image = find(&events, "ACTIVITY_SNAPSHOT");
    assert_eq!(image["activityType"], "image");
    let client = reduce(&events);
    let activities: Vec<&Value> = client.messages.iter().filter(|message| message["role"] == "activity").collect();
    assert!(activities.iter().all(|activity| activity["content"]["url"].is_string()), "{activities:?}");
    assert!(activities.iter().all(|activity| activity["content"].get("partial").is_none()), "the last one is whole");
}

#[test]
fn the_tools_of_an_mcp_server_are_an_activity() {
    let mut log = Log::new();
    let listed = json!({"server_label": "wiki", "tools": [{"name": "ask"}, {"name": "read"}]});
    log.mcp_list("hc_R1", "completed", &listed).mcp_list(
        "hc_R2",
        "failed",
        &json!({"server_label": "dice", "error": "gone"}),
    );
    log.step().message("msg_R3", &["Hi."], None).step_done("stop").completed();
    let events = events_of(&log);
    let lists: Vec<&Value> = events.iter().filter(|event| event["type"] == "ACTIVITY_SNAPSHOT").collect();
    assert_eq!(lists[0]["content"], json!({"serverLabel": "wiki", "tools": ["ask", "read"]}));
    assert_eq!(lists[1]["content"], json!({"serverLabel": "dice", "tools": [], "error": "gone"}));
    assert_eq!((&lists[0]["messageId"], &lists[0]["activityType"]), (&json!("hc_R1"), &json!("mcp_list_tools")));
}

#[test]
fn a_question_is_an_interrupt_with_its_schema() {
    let mut log = Log::new();
    log.step().call(1, "book", ["tool", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}});
    log.add(json!({
        "type": "task.approval.requested", "key": "apr_R1_1", "call_id": "call_R1", "action_requests": [],
        "review_configs": [], "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64,
        "question": {"message": "Which seat?", "schema": schema, "url": "/v1/mcp/air/authorize"},
    }));
    let pending = json!([{"kind": "question", "key": "apr_R1_1", "call_id": "call_R1", "task_id": "task_R"}]);
    log.add(json!({"type": "task.paused", "pending": pending}));
    let events = events_of(&log);
    let interrupt = &find(&events, "RUN_FINISHED")["outcome"]["interrupts"][0];
    assert_eq!((&interrupt["id"], &interrupt["reason"]), (&json!("apr_R1_1"), &json!("input_required")));
    assert_eq!((&interrupt["message"], &interrupt["responseSchema"]), (&json!("Which seat?"), &schema));
    assert_eq!(interrupt["metadata"]["headwater"]["url"], "/v1/mcp/air/authorize");
}

#[test]
fn a_provider_runs_its_calls_as_it_asked_for_them() {
    let events = events_of(&scenario_logs::hosted_approval("approve"));
    let interrupted = events.iter().find(|event| event["outcome"]["type"] == "interrupt").unwrap();
    let properties = &interrupted["outcome"]["interrupts"][0]["responseSchema"]["properties"];
    assert_eq!(properties.get("editedArgs"), None);
}

#[test]
fn input_in_mid_run_is_a_text_of_the_user() {
    let mut log = Log::new();
    log.step().call(1, "look", ["tool", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    let picture = json!({"type": "image_url", "image_url": {"url": "/v1/blobs/ab12"}});
    let content = json!([{"type": "text", "text": "in Lyon"}, picture]);
    log.add(json!({"type": "task.input.added", "input": [{"id": "msg_R2", "role": "user", "content": content}]}));
    log.result(1, json!([text("rain")])).step().message("msg_R3", &["Rain."], None).step_done("stop").completed();
    let client = reduce(&events_of(&log));
    let steered = client.messages.iter().find(|message| message["id"] == "msg_R2").unwrap();
    assert_eq!(*steered, json!({"id": "msg_R2", "role": "user", "content": "in Lyon\n[image /v1/blobs/ab12]"}));
}

#[test]
fn pieces_of_a_result_change_no_message() {
    let mut log = Log::new();
    log.step().call(1, "list", ["tool", "never"], &[PARIS]).step_done("tool_calls").started(1, PARIS);
    let at = log.result_added(1);
    let place = json!({"item_id": "fco_R1", "output_index": at, "block_index": 0});
    let event = |kind: &str, name: &str, value: Value| {
        let mut event = place.clone();
        event["type"] = kind.into();
        event[name] = value;
        event
    };
    log.add(event("task.text.added", "item", json!({"type": "text", "text": ""})));
    log.add(event("task.text.delta", "delta", json!("one ")));
    log.add(json!({"type": "task.tool.progress", "call_id": "call_R1", "progress": 0.5}));
    log.add(event("task.text.delta", "delta", json!("two")));
    log.add(event("task.text.done", "item", json!({"type": "text", "text": "one two"})));
    log.result_done(1, at, json!({"status": "completed"}));
    log.completed();
    let events = events_of(&log);
    let pieces: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "CUSTOM").map(|event| &event["value"]).collect();
    let piece = |delta: &str| json!({"blockIndex": 0, "delta": delta, "toolCallId": "call_R1"});
    assert_eq!(pieces, [&piece("one "), &json!({"toolCallId": "call_R1", "progress": 0.5}), &piece("two")]);
    assert_eq!(find(&events, "TOOL_CALL_RESULT")["content"], "one two");
}

#[test]
fn applications_set_and_patch_activities() {
    let mut log = Log::new();
    let custom = |value: Value| json!({"type": "task.custom", "name": "ag-ui.activity", "value": value});
    let plan = json!({"messageId": "plan", "activityType": "PLAN", "content": {"steps": ["a"]}});
    let patch = json!([{"op": "add", "path": "/steps/-", "value": "b"}]);
    log.add(custom(plan)).add(custom(json!({"messageId": "plan", "activityType": "PLAN", "patch": patch})));
    log.add(custom(json!({"messageId": "plan", "activityType": "PLAN", "content": {}, "replace": false})));
    let invalid = [
        json!({"messageId": "other", "activityType": "PLAN", "patch": patch}),
        json!({"messageId": "plan", "activityType": "PLAN", "patch": [{"op": "set", "path": "/a"}]}),
        json!({"messageId": "plan", "activityType": "PLAN", "patch": [{"op": "remove", "path": "/~2"}]}),
        json!({"messageId": "plan", "activityType": "PLAN", "content": "text"}),
        json!({"activityType": "PLAN", "content": {}}),
        json!(7),
    ];
    for value in &invalid {
        log.add(custom(value.clone()));
    }
    log.completed();
    let events = events_of(&log);
    let values: Vec<Value> =
        events.iter().filter(|event| event["type"] == "CUSTOM").map(|event| event["value"].clone()).collect();
    assert_eq!(values, invalid, "other values stay custom events");
    assert_eq!(reduce(&events).messages[0]["content"], json!({"steps": ["a", "b"]}));
}

#[test]
fn files_are_an_activity_until_they_are_read() {
    let mut log = Log::new();
    let item = |status: &str, file: &str| {
        let files = json!([{"url": "https://example.org/a.pdf", "status": file}]);
        json!({"type": "file_processing", "id": "fp_R1", "files": files, "status": status})
    };
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": item("in_progress", "processing")}));
    let (url, status) = ("https://example.org/a.pdf", "completed");
    log.add(json!({"type": "task.file_processing.updated", "output_index": 0, "url": url, "status": status}));
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item("completed", "completed")}));
    log.completed();
    let client = reduce(&events_of(&log));
    assert_eq!(client.messages[0]["content"]["files"][0]["status"], "completed");
    assert_eq!(client.messages[0]["content"]["status"], "completed");
    assert_eq!(client.messages.len(), 1);
}
