//! Agent runs: the exact frames of each scenario, and the laws over random logs.

mod log;
mod shape;

use crate::resumes::{Place, hold, runs};
use log::{Frame, Log, shown, tell, text};
use model::event::Event;
use model::json::ExactValue;
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, AgentRunsProjection, HistoryMessage, MessageHistory, MessageRole};
use serde_json::{Value, json};
use std::collections::HashMap;

#[test]
fn resuming_after_any_frame_yields_exactly_the_rest() {
    hold(Place::Id(AGENT_RUNS_PROJECTION), |thread, _| Box::new(AgentRunsProjection::new(thread.to_string())));
}

#[test]
fn weather_streams_turns_a_result_and_the_answer() {
    let place = json!({"location": "Paris, France"});
    let image = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}, "id": 1});
    let log = Log::new()
        .step(1, 1)
        .call(2, "get_weather", &place, json!({}))
        .step_done(1, "tool_calls")
        .start(2, &place)
        .result(2, &[text("{\"temperature\":15}"), image], json!({"status": "completed"}))
        .step(2, 1)
        .say("msg_R3", &["The weather in Paris is sunny ", "with 15C.[^", "1]"])
        .step_done(2, "stop");
    let expected = r"RUN_STARTED
STEP_STARTED {stepName:turn-1}
STEP_FINISHED {stepName:turn-1}
TOOL_CALL_RESULT {messageId:fco_R2,toolAgentOutput:{result_summary:{\temperature\:15}\n[image /v1/blobs/ab12],status:success,tool_call_args:{location:Paris, France},tool_call_id:call_R2,tool_name:get_weather},toolCallId:call_R2}
STEP_STARTED {stepName:turn-2}
TEXT_MESSAGE_START {messageId:msg_R3,role:assistant,stage:demo}
TEXT_MESSAGE_CONTENT {delta:The weather in Paris is sunny ,messageId:msg_R3}
TEXT_MESSAGE_CONTENT {delta:with 15C.[^,messageId:msg_R3}
TEXT_MESSAGE_CONTENT {delta:1],messageId:msg_R3}
TEXT_MESSAGE_END {messageId:msg_R3,workerAgentOutput:{answer:The weather in Paris is sunny with 15C.[^1],status:success}}
STEP_FINISHED {stepName:turn-2}
RUN_FINISHED";
    assert_eq!(tell(&log.complete()), expected);
}

fn with_child() -> Log {
    let ask = json!({"question": "weather?"});
    let child = json!({ "task": {
        "thread_id": "thr_1", "agent": "WeatherAgent", "model": "m", "input": [], "parent_task_id": "task_R",
    }});
    let log = Log::new().step(1, 1).call(2, "ask_for_help", &ask, json!({"kind": "agent"})).step_done(1, "tool_calls");
    let item = json!({"type": "tool_result", "id": "fco_R2", "call_id": "call_R2"});
    let log = log.start(2, &ask).event("task.output_item.added", json!({"output_index": 1, "item": item}));
    log.at("call_R2").event("task.created", child).event("task.started", json!({})).step(1, 1)
}

#[test]
fn a_sub_agent_is_one_call_with_its_last_message_as_result() {
    let done = json!({"type": "tool_result", "id": "fco_R2", "call_id": "call_R2", "status": "completed"});
    let log = with_child()
        .say("msg_R5", &["Sunny, 15C.[^1]"])
        .step_done(1, "stop")
        .end("task.completed", json!({}))
        .at("task_R")
        .event("task.output_item.done", json!({"output_index": 1, "item": done}));
    let expected = r"RUN_STARTED
STEP_STARTED {stepName:turn-1}
STEP_FINISHED {stepName:turn-1}
TOOL_CALL_RESULT {messageId:fco_R2,toolAgentOutput:{result_summary:Sunny, 15C.[^1],status:success,tool_call_args:{question:weather?},tool_call_id:call_R2,tool_name:ask_for_help},toolCallId:call_R2}
RUN_FINISHED";
    assert_eq!(tell(&log.complete()), expected);
}

#[test]
fn each_approval_of_a_sub_agent_has_the_ids_of_its_own_call() {
    let order = |symbol: &str| json!({"symbol": symbol});
    let log = with_child()
        .call(4, "execute_trade", &order("VNM"), json!({"gate": "always"}))
        .call(5, "execute_trade", &order("FPT"), json!({"gate": "always"}))
        .step_done(1, "tool_calls")
        .ask(4, "execute_trade", &order("VNM"))
        .ask(5, "execute_trade", &order("FPT"))
        .resolve(4, &json!({"type": "approve"}), "user")
        .resolve(5, &json!({"type": "reject"}), "user")
        .start(4, &order("VNM"))
        .result(4, &[text("Order placed")], json!({"status": "completed"}))
        .result(5, &[], json!({"status": "rejected", "error": {"code": "rejected", "message": "no"}}));
    let records = log.records();
    let results: Vec<Value> =
        shown(&records).into_iter().filter(|frame| frame.kind == "TOOL_CALL_RESULT").map(|frame| frame.data).collect();
    let ids = |result: &Value| {
        let output = &result["toolAgentOutput"];
        assert_eq!((&output["tool_call_id"], &output["tool_name"]), (&result["toolCallId"], &json!("execute_trade")));
        let id = |name: &str| result[name].as_str().unwrap().chars().rev().take(1).collect::<String>();
        format!("{} {} {}", id("messageId"), id("toolCallId"), output["status"].as_str().unwrap())
    };
    let told: Vec<String> = results.iter().map(ids).collect();
    assert_eq!(told, ["4 4 partial", "5 5 partial", "4 4 success", "5 5 failure"]);
    assert_eq!(results[1]["toolAgentOutput"]["tool_call_args"], order("FPT"));
    let approval = &results[1]["toolAgentOutput"]["ui_hints"]["approval"];
    assert!(approval["key"].as_str().unwrap().ends_with('5'), "{approval}");
    let history = serde_json::to_value(conversation(&records)).unwrap();
    let tools: Vec<&Value> = history.as_array().unwrap().iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(tools.len(), 2, "{history:#}");
    assert_eq!((&tools[0]["id"], &tools[1]["content"]), (&results[0]["messageId"], &json!("no")));
}

#[test]
fn a_hosted_tool_has_its_arguments_its_output_and_its_outcome() {
    let output = |name: &str, state: &str, action: Value| {
        let item = json!({"type": "hosted_call", "id": "hc_R1", "name": name, "block_list": [], "state": state,
            "action": action, "status": "completed"});
        let log = Log::new().step(1, 1).event("task.output_item.added", json!({"output_index": 0, "item": item}));
        let records = log.event("task.output_item.done", json!({"output_index": 0, "item": item})).records();
        let told = shown(&records).pop().unwrap().data["toolAgentOutput"].clone();
        let history = conversation(&records).pop().unwrap();
        assert_eq!(
            (
                history.metadata.get("toolAgentOutput").map(ExactValue::to_value).as_ref(),
                told["result_summary"] == history.content
            ),
            (Some(&told), true)
        );
        told
    };
    let logs = json!([{"type": "logs", "logs": "2"}]);
    let code =
        output("code_interpreter", "completed", json!({"code": "print(2)", "container_id": "c", "outputs": logs}));
    assert_eq!((&code["tool_call_args"], &code["result_summary"]), (&json!({"code": "print(2)"}), &json!("2")));
    assert_eq!(code["status"], "success");
    let action = json!({"name": "ask", "server_label": "wiki", "arguments": "{\"q\":1}", "error": "no page"});
    let failed = output("mcp", "failed", action);
    assert_eq!((&failed["tool_name"], &failed["tool_call_args"]), (&json!("ask"), &json!({"q": 1})));
    assert_eq!(
        (&failed["status"], &failed["error"], &failed["result_summary"]),
        (&json!("failure"), &json!({"code": "failed", "message": "no page"}), &json!("no page"))
    );
    let found = json!([{"type": "web_search_result", "title": "Seine", "url": "https://example.org/seine"}]);
    let search = output("web_search", "completed", json!({"input": {"query": "rivers"}, "result": found}));
    assert_eq!(search["tool_call_args"], json!({"query": "rivers"}));
    assert_eq!(search["result_summary"], "Seine https://example.org/seine");
}

fn trade() -> Log {
    let order = json!({"quantity": 100, "symbol": "VNM"});
    Log::new()
        .step(1, 1)
        .say("msg_R1", &["I will place the order."])
        .call(2, "execute_trade", &order, json!({"gate": "always"}))
        .step_done(1, "tool_calls")
        .ask(2, "execute_trade", &order)
}

const TRADE: &str = r"RUN_STARTED
STEP_STARTED {stepName:turn-1}
TEXT_MESSAGE_START {messageId:msg_R1,role:assistant,stage:demo}
TEXT_MESSAGE_CONTENT {delta:I will place the order.,messageId:msg_R1}
TEXT_MESSAGE_END {messageId:msg_R1,workerAgentOutput:{answer:I will place the order.,status:success}}
STEP_FINISHED {stepName:turn-1}
TOOL_CALL_RESULT {messageId:fco_R2,toolAgentOutput:{result_summary:Waiting for approval,status:partial,tool_call_args:{quantity:100,symbol:VNM},tool_call_id:call_R2,tool_name:execute_trade,ui_hints:{approval:{action_requests:[{args:{quantity:100,symbol:VNM},name:execute_trade}],expires_at:1710000300000,key:apr_R2,review_configs:[{require_approval:true}],timeout_seconds:300}}},toolCallId:call_R2}";

/// The frames after the decision about the call of `trade`.
fn after_trade(log: Log) -> String {
    let told = log.told();
    told.strip_prefix(TRADE).unwrap_or_else(|| panic!("{told}\nbegins otherwise")).trim().to_owned()
}

#[test]
fn a_call_that_waits_for_approval_is_partial_at_once_and_final_later() {
    assert_eq!(trade().told(), TRADE, "before the pause");
    let order = json!({"quantity": 1, "symbol": "VNM"});
    let log = trade().pause("approval", 2, "user").resolve(2, &json!({"type": "edit", "args": order}), "user");
    let log = log.start(2, &order).result(2, &[text("Order placed: VNM x1")], json!({"status": "completed"}));
    let log = log.step(2, 1).say("msg_R3", &["Done."]).step_done(2, "stop").end("task.completed", json!({}));
    let expected = r"TOOL_CALL_RESULT {messageId:fco_R2,toolAgentOutput:{result_summary:Order placed: VNM x1,status:success,tool_call_args:{quantity:1,symbol:VNM},tool_call_id:call_R2,tool_name:execute_trade},toolCallId:call_R2}
STEP_STARTED {stepName:turn-2}
TEXT_MESSAGE_START {messageId:msg_R3,role:assistant,stage:demo}
TEXT_MESSAGE_CONTENT {delta:Done.,messageId:msg_R3}
TEXT_MESSAGE_END {messageId:msg_R3,workerAgentOutput:{answer:Done.,status:success}}
STEP_FINISHED {stepName:turn-2}
RUN_FINISHED";
    assert_eq!(after_trade(log), expected);
}

#[test]
fn a_rejected_call_is_a_failure_with_its_reason() {
    let (no, reject) = (json!({"type": "reject"}), "rejected");
    for (by, code, message) in
        [("user", "rejected", "too risky"), ("timeout", "approval_timeout", "No decision within 300 s")]
    {
        let end = json!({"status": reject, "error": {"code": code, "message": message}});
        let log = trade().pause("approval", 2, by).resolve(2, &no, by).result(2, &[], end);
        let expected = format!(
            "TOOL_CALL_RESULT {{messageId:fco_R2,toolAgentOutput:{{error:{{code:{code},message:{message}}},result_summary:{message},status:failure,tool_call_args:{{quantity:100,symbol:VNM}},tool_call_id:call_R2,tool_name:execute_trade}},toolCallId:call_R2}}"
        );
        assert_eq!(after_trade(log), expected);
    }
    let end = json!({"status": "incomplete", "error": {"code": "cancelled", "message": "Cancelled"}});
    let log = trade().pause("approval", 2, "cancel").resolve(2, &no, "system").result(2, &[], end);
    let told = after_trade(log.end("task.cancelled", json!({"mode": "immediate", "by": "user"})));
    assert!(
        told.contains("error:{code:cancelled,message:Cancelled},result_summary:Cancelled,status:failure"),
        "{told}"
    );
    assert!(told.ends_with("\nRUN_ERROR {message:cancelled}"), "{told}");
}

fn cut(reason: &str, step: &str) -> Log {
    let end = json!({"status": "incomplete", "reason": reason});
    Log::new().step(1, 1).message("msg_R1", &["Once upon ", "a time"], end).step_done(1, step)
}

#[test]
fn interrupted_work_names_its_cause() {
    let end_of = |log: Log| {
        let told = log.told();
        let lines: Vec<&str> = told.lines().skip(5).collect();
        lines.join("\n")
    };
    let cancelled = cut("cancelled", "cancelled").end("task.cancelled", json!({"mode": "immediate", "by": "user"}));
    let expected = r"TEXT_MESSAGE_END {messageId:msg_R1,workerAgentOutput:{answer:Once upon a time,error:{code:cancelled,message:Cancelled,retryable:true},status:partial_success}}
STEP_FINISHED {stepName:turn-1}
RUN_ERROR {message:cancelled}";
    assert_eq!(end_of(cancelled), expected);
    let error = json!({"error": {"code": "provider_error", "message": "The provider broke off", "retryable": true}});
    let expected = r"TEXT_MESSAGE_END {messageId:msg_R1,workerAgentOutput:{answer:Once upon a time,error:{code:failed,message:The model failed in the middle of the answer},status:failed}}
STEP_FINISHED {stepName:turn-1}
RUN_ERROR {message:The provider broke off}";
    assert_eq!(end_of(cut("failed", "error").end("task.failed", error)), expected);
    let limited = cut("limit", "max_tokens").end("task.incomplete", json!({"reason": "max_tokens"}));
    let expected = r"TEXT_MESSAGE_END {messageId:msg_R1,workerAgentOutput:{answer:Once upon a time,error:{code:limit,message:A limit cut the answer short},status:partial_success}}
STEP_FINISHED {stepName:turn-1}
RUN_FINISHED";
    assert_eq!(end_of(limited), expected);
    let recovered =
        cut("recovered", "lost").event("task.recovered", json!({"step": 1, "attempt": 2, "cut": ["msg_R1"]}));
    let recovered =
        recovered.step(1, 2).say("msg_R2", &["Once."]).step_done(1, "stop").end("task.completed", json!({}));
    let expected = r"TEXT_MESSAGE_END {messageId:msg_R1,workerAgentOutput:{answer:Once upon a time,error:{code:recovered,message:The server restarted; the turn is done again},status:failed}}
STEP_FINISHED {stepName:turn-1}
STEP_STARTED {stepName:turn-1}
TEXT_MESSAGE_START {messageId:msg_R2,role:assistant,stage:demo}
TEXT_MESSAGE_CONTENT {delta:Once.,messageId:msg_R2}
TEXT_MESSAGE_END {messageId:msg_R2,workerAgentOutput:{answer:Once.,status:success}}
STEP_FINISHED {stepName:turn-1}
RUN_FINISHED";
    assert_eq!(end_of(recovered), expected);
}

#[test]
fn the_stage_is_the_current_agent() {
    let log = Log::new()
        .step(1, 1)
        .call(1, "transfer_to_specialist", &json!({}), json!({"kind": "handoff"}))
        .step_done(1, "tool_calls")
        .start(1, &json!({}))
        .result(1, &[text(r#"{"assistant":"specialist"}"#)], json!({"status": "completed"}))
        .event("task.agent.updated", json!({"agent": "specialist", "from": "demo"}))
        .step(2, 1)
        .say("msg_R2", &["Hello."]);
    let told = log.told();
    assert!(told.contains(r"result_summary:{\assistant\:\specialist\},status:success"), "{told}");
    assert!(told.contains("TEXT_MESSAGE_START {messageId:msg_R2,role:assistant,stage:specialist}"), "{told}");
}

#[test]
fn results_come_in_the_order_of_completion() {
    let none = json!({});
    let log = Log::new().step(1, 1).call(1, "tool_a", &none, none.clone()).call(2, "tool_b", &none, none.clone());
    let log = log.step_done(1, "tool_calls").start(1, &none).start(2, &none);
    let log = log.result(2, &[text("b")], json!({"status": "completed"})).result(
        1,
        &[text("a")],
        json!({"status": "completed"}),
    );
    let records = log.complete();
    let results = shown(&records).into_iter().filter(|frame| frame.kind == "TOOL_CALL_RESULT");
    let names: Vec<Value> = results.map(|frame| frame.data["toolAgentOutput"]["tool_name"].clone()).collect();
    assert_eq!(names, ["tool_b", "tool_a"]);
}

#[test]
fn a_client_call_is_partial_once_with_name_and_arguments() {
    let none = json!({});
    let log = Log::new().step(1, 1).call(1, "pick", &json!({"n": 1}), json!({"kind": "client"}));
    let log =
        log.call(2, "execute_trade", &none, none.clone()).step_done(1, "tool_calls").ask(2, "execute_trade", &none);
    // The approval is decided first, so that the second pause lists the client call again.
    let log = log.pause("client_tool", 1, "user").resolve(2, &json!({"type": "approve"}), "user").start(2, &none);
    let log = log.result(2, &[text("done")], json!({"status": "completed"})).pause("client_tool", 1, "user");
    let log = log.result(1, &[text("red")], json!({"status": "completed"}));
    let told = log.told();
    let of_client: Vec<&str> = told.lines().filter(|line| line.contains("toolCallId:call_R1")).collect();
    let expected = [
        r"TOOL_CALL_RESULT {messageId:fco_R1,toolAgentOutput:{result_summary:Waiting for the client,status:partial,tool_call_args:{n:1},tool_call_id:call_R1,tool_name:pick,ui_hints:{client_tool:{arguments:{\n\:1},call_id:call_R1,name:pick}}},toolCallId:call_R1}",
        r"TOOL_CALL_RESULT {messageId:fco_R1,toolAgentOutput:{result_summary:red,status:success,tool_call_args:{n:1},tool_call_id:call_R1,tool_name:pick},toolCallId:call_R1}",
    ];
    assert_eq!(of_client, expected);
}

#[test]
fn only_a_structured_message_yields_fields() {
    let output = |text: &str| {
        let records = Log::new().step(1, 1).say("msg_R1", &[text]).records();
        shown(&records).pop().expect("the end of the message").data["workerAgentOutput"].clone()
    };
    let whole = json!({
        "answer": "42", "status": "partial_success", "key_points": ["a"], "result_type": "number",
        "suggested_actions": ["ask on"], "ui_hints": {"big": true},
        "error": {"code": "c", "message": "m", "retryable": false, "details": {"x": 1}},
    });
    assert_eq!(output(&whole.to_string()), whole);
    assert_eq!(output(r#"{"answer":"42","more":1}"#), json!({"answer": "42", "status": "success"}));
    for other in [
        "plain",
        "42",
        "[]",
        "{}",
        r#"{"answer":42}"#,
        r#"{"answer":"42","key_points":"a"}"#,
        r#"{"answer":"42""#,
        r#"{"answer":"42","status":"great"}"#,
        r#"{"answer":"42","error":"no"}"#,
        r#"{"answer":"42","ui_hints":[]}"#,
        r#"{"answer":"42","answer":"43"}"#,
        r#"{"answer":"42","key_points":[1]}"#,
        r#"{"answer":"42","error":["code","message"]}"#,
        r#"{"answer":"42","error":{"code":"no message"}}"#,
        // An array of as many elements as there are fields.
        r#"["42",null,null,null,null,null,null]"#,
    ] {
        assert_eq!(output(other), json!({"answer": other, "status": "success"}));
    }
}

#[test]
fn text_in_the_opening_event_of_a_message_is_kept() {
    let place = json!({"item_id": "msg_R1", "output_index": 0, "block_index": 0});
    let with = |more: Value| {
        let mut event = place.clone();
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let item = json!({"type": "message", "id": "msg_R1", "role": "assistant"});
    let records = Log::new()
        .step(1, 1)
        .event("task.output_item.added", json!({"output_index": 0, "item": item}))
        .event("task.text.added", with(json!({"item": text("Once ")})))
        .event("task.text.delta", with(json!({"delta": "upon"})))
        .event("task.text.done", with(json!({"item": text("Once upon")})))
        .event("task.output_item.done", json!({"output_index": 0, "item": item}))
        .records();
    let frames = shown(&records);
    let pieces: String = frames.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert_eq!(
        (pieces.as_str(), &frames.last().unwrap().data["workerAgentOutput"]["answer"]),
        ("Once upon", &json!("Once upon"))
    );
}

#[test]
fn a_long_result_is_shortened_by_code_points() {
    let records = Log::new().step(1, 1).call(1, "t", &json!([]), json!({})).step_done(1, "tool_calls");
    let records = records.result(1, &[text(&"é".repeat(600))], json!({"status": "completed"})).records();
    let output = shown(&records).pop().unwrap().data["toolAgentOutput"].clone();
    assert_eq!(output["result_summary"], "é".repeat(500));
    assert_eq!(output.get("tool_call_args"), None, "a list is no record of arguments");
}

/// Every frame of every random log matches the schema of its type, and a client that accumulates them has complete
/// messages.
#[test]
fn every_frame_matches_its_schema_and_every_start_has_an_end() {
    let mut seen: HashMap<String, u32> = HashMap::new();
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let frames = shown(&records);
            for Frame { kind, data } in &frames {
                shape::check(kind, data).unwrap_or_else(|why| panic!("SEED={seed}: {why} in {data}"));
                *seen.entry(kind.clone()).or_default() += 1;
            }
            shape::check_story(&frames).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
        }
    }
    for kind in protocol::agent_runs::wire::EVENT_TYPES {
        assert!(seen.contains_key(kind), "no log has {kind}");
    }
    assert_eq!(seen.len(), 9);
}

/// The frames of a thread are the concatenated frames of its runs.
#[test]
fn the_stream_of_a_thread_is_the_concatenation_of_its_runs() {
    for seed in test_seeds() {
        let (_, records) = generate_thread_log(seed, LogOptions::small());
        let thread = shown(&records).into_iter().map(|frame| frame.data).collect::<Vec<_>>();
        let alone = runs(seed).into_iter().flat_map(|(_, run)| shown(&run)).map(|frame| frame.data).collect::<Vec<_>>();
        assert!(thread == alone, "SEED={seed}");
    }
}

fn conversation(records: &[model::Record]) -> Vec<HistoryMessage> {
    let mut conversation = MessageHistory::default();
    records.iter().for_each(|record| conversation.read_record(record));
    conversation.into_messages()
}

/// A viewer has the same messages as the history, except those lost in a crash.
#[test]
fn history_equals_what_a_viewer_accumulated() {
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let cut: Vec<String> = records
                .iter()
                .flat_map(|record| match record.event() {
                    Event::Recovered(e) => e.cut.iter().map(ToString::to_string).collect(),
                    _ => Vec::new(),
                })
                .collect();
            let watched: Vec<(String, Value)> = shown(&records)
                .into_iter()
                .filter_map(|Frame { kind, data }| {
                    let output = match kind.as_str() {
                        "TEXT_MESSAGE_END" => data["workerAgentOutput"].clone(),
                        "TOOL_CALL_RESULT" if data["toolAgentOutput"]["status"] != "partial" => {
                            data["toolAgentOutput"].clone()
                        }
                        _ => return None,
                    };
                    Some((data["messageId"].as_str().unwrap().to_owned(), output))
                })
                .filter(|(id, _)| !cut.contains(id))
                .collect();
            let messages = conversation(&records);
            let read: Vec<(String, Value)> = messages
                .iter()
                .filter_map(|said| {
                    let name = if said.role == MessageRole::Tool { "toolAgentOutput" } else { "workerAgentOutput" };
                    Some((said.id.to_string(), said.metadata.get(name)?.to_value()))
                })
                .collect();
            assert!(watched == read, "SEED={seed}");
            for said in &messages {
                let record = records.iter().find(|record| record.seq == said.seq).unwrap();
                assert_eq!(record.at, said.at, "SEED={seed}: the record that finished it");
            }
        }
    }
}

#[test]
fn user_messages_have_their_files_and_notes() {
    let file = json!({"type": "file", "file": {"bucket": "b", "path": "agent-inputs/me/a.pdf"}});
    let input = json!([{"id": "msg_Rin", "role": "user", "content": [{"type": "text", "text": "read"}, file]}]);
    let log = Log::with(json!({"input": input, "metadata": {"page": 3}})).step(1, 1).say("msg_R1", &["Read."]);
    let messages = serde_json::to_value(conversation(&log.records())).unwrap();
    assert_eq!(messages[0]["role"], "user");
    assert_eq!((&messages[0]["content"], &messages[0]["seq"]), (&json!("read"), &json!(1)));
    let metadata = &messages[0]["metadata"];
    assert_eq!(metadata["attachments"], json!([{"bucket": "b", "path": "agent-inputs/me/a.pdf"}]));
    assert_eq!(metadata["page"], 3);
    assert_eq!((&messages[1]["role"], &messages[1]["content"]), (&json!("assistant"), &json!("Read.")));
    assert_eq!(messages[1]["metadata"]["stage"], "demo");
}
