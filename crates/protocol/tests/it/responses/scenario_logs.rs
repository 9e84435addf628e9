//! The logs of the demo's scenarios, as the run loop writes them.

use super::log::{Log, text};
use serde_json::{Value, json};

pub(crate) const PARIS: &str = r#"{"location":"Paris, France"}"#;
pub(crate) const ORDER: &str = r#"{"symbol":"VNM","quantity":100}"#;
const TOOL: [&str; 2] = ["tool", "never"];
const GATED: [&str; 2] = ["tool", "always"];
const THOUGHTS: [[&str; 2]; 2] = [["Let me", " see."], ["A tool", " knows."]];
const ANSWER: [&str; 3] = ["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"];

fn forecast() -> Value {
    let picture = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}, "id": 1});
    json!([text(r#"{"temperature":15}"#), picture])
}

pub(crate) fn weather() -> Log {
    let mut log = Log::new();
    log.step().reasoning("rs_R1", &THOUGHTS);
    log.call(2, "get_weather", TOOL, &[r#"{"location":"#, r#""Paris, France"}"#]);
    log.step_done("tool_calls").started(2, PARIS).result(2, forecast());
    log.step().message("msg_R3", &ANSWER, Some([1, 56, 60])).step_done("stop").completed();
    log
}

pub(crate) fn help() -> Log {
    let mut log = Log::new();
    log.step().reasoning("rs_R1", &THOUGHTS);
    log.call(2, "ask_for_help", ["agent", "never"], &["{}"]).step_done("tool_calls").started(2, "{}");
    let at = log.result_added(2);
    log.of("call_R2").step().reasoning("rs_R3", &THOUGHTS).call(4, "get_weather", TOOL, &[PARIS]);
    log.step_done("tool_calls").started(4, PARIS).result(4, forecast());
    log.step().message("msg_R5", &ANSWER, Some([1, 56, 60])).step_done("stop").completed();
    log.of("task_R").result_done(2, at, json!({"status": "completed"}));
    log.step().message("msg_R6", &["WeatherAgent says: sunny, 15C.[^1]"], Some([1, 30, 34])).step_done("stop");
    log.completed();
    log
}

pub(crate) fn parallel() -> Log {
    let mut log = Log::new();
    log.step();
    for (number, name) in [(1, "tool_a"), (2, "tool_b"), (3, "tool_c")] {
        log.call(number, name, TOOL, &["{}"]);
    }
    log.step_done("tool_calls").started(1, "{}").started(2, "{}").started(3, "{}");
    for (number, said) in [(2, "b"), (1, "a"), (3, "c")] {
        log.result(number, json!([text(said)]));
    }
    log.step().message("msg_R4", &["All three."], None).step_done("stop").completed();
    log
}

/// A trade up to its approval request.
pub(crate) fn trade() -> Log {
    trade_asked(None)
}

pub(crate) fn trade_asked(echo: Option<Value>) -> Log {
    let mut log = Log::asked(echo);
    log.step().message("msg_R1", &["I will place the order."], None);
    log.call(2, "execute_trade", GATED, &[ORDER]).step_done("tool_calls");
    log.ask(2, "execute_trade", serde_json::from_str(ORDER).unwrap()).pause(&[("approval", 2, "task_R")]);
    log
}

pub(crate) fn trade_approved() -> Log {
    let mut log = trade();
    log.resume("user").decide(2, json!({"type": "approve"}), "user").started(2, ORDER);
    log.result(2, json!([text("Order placed: VNM x100")]));
    log.step().message("msg_R3", &["Done: bought VNM.[^1]"], Some([1, 17, 21])).step_done("stop").completed();
    log
}

pub(crate) fn trade_refused(by: &str) -> Log {
    let mut log = trade();
    let (code, why) =
        if by == "timeout" { ("approval_timeout", "No decision within 300 s") } else { ("rejected", "too risky") };
    log.resume(by).decide(2, json!({"type": "reject", "message": why}), by).no_result(2, "rejected", code, why);
    log.step().message("msg_R3", &["I did not."], None).step_done("stop").completed();
    log
}

pub(crate) fn trade_cancelled() -> Log {
    let mut log = trade();
    log.resume("cancel").decide(2, json!({"type": "reject"}), "system");
    log.no_result(2, "incomplete", "cancelled", "The run was cancelled.");
    log.ended("cancelled", json!({"mode": "immediate", "by": "user"}));
    log
}

pub(crate) fn client() -> Log {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["{", "}"]).step_done("tool_calls");
    log.pause(&[("client_tool", 1, "task_R")]).resume("user").result(1, json!([text("red")]));
    log.step().message("msg_R2", &["Red, then."], None).step_done("stop").completed();
    log
}

pub(crate) fn fail(code: &str) -> Log {
    let mut log = Log::new();
    log.step().cut_message("msg_R1", &["Once upon ", "a time"], "failed").step_done("error");
    log.ended("failed", json!({"error": {"code": code, "message": "The provider failed.", "retryable": true}}));
    log
}

pub(crate) fn cancel() -> Log {
    let mut log = Log::new();
    log.step().cut_message("msg_R1", &["Once upon ", "a time"], "cancelled").step_done("cancelled");
    log.ended("cancelled", json!({"mode": "immediate", "by": "user"}));
    log
}

pub(crate) fn limit() -> Log {
    let mut log = Log::new();
    log.step().cut_message("msg_R1", &["Once upon ", "a time"], "limit").step_done("max_tokens");
    log.ended("incomplete", json!({"reason": "max_tokens"}));
    log
}

pub(crate) fn recover() -> Log {
    let mut log = Log::new();
    log.step().cut_message("msg_R1", &["Once upon ", "a ti"], "recovered").step_done("lost");
    log.add(json!({"type": "task.recovered", "step": 1, "attempt": 2, "cut": ["msg_R1"]}));
    log.step_again().message("msg_R2", &["Once more."], None).step_done("stop").completed();
    log
}

pub(crate) fn handoff() -> Log {
    let mut log = Log::new();
    log.step().call(1, "transfer_to_specialist", ["handoff", "never"], &["{}"]).step_done("tool_calls");
    log.started(1, "{}").result(1, json!([{"type": "text", "text": r#"{"assistant":"specialist"}"#}]));
    log.add(json!({"type": "task.agent.updated", "agent": "specialist", "from": "demo"}));
    log.step().message("msg_R2", &["The specialist here."], None).step_done("stop").completed();
    log
}

/// A sub-agent requests approval, and its parent waits for it.
pub(crate) fn nested() -> Log {
    let mut log = Log::new();
    log.step().call(1, "ask_for_help", ["agent", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    let at = log.result_added(1);
    log.of("call_R1").step().call(2, "execute_trade", GATED, &[ORDER]).step_done("tool_calls");
    log.ask(2, "execute_trade", serde_json::from_str(ORDER).unwrap()).pause(&[("approval", 2, "call_R1")]);
    log.resume("user").of("call_R1").decide(2, json!({"type": "approve"}), "user").started(2, ORDER);
    log.result(2, json!([text("Order placed: VNM x100")])).step();
    log.message("msg_R3", &["Bought."], None).step_done("stop").completed();
    log.of("task_R").result_done(1, at, json!({"status": "completed"}));
    log.step().message("msg_R4", &["It is done."], None).step_done("stop").completed();
    log
}

/// A hosted tool generates an image in partial steps.
pub(crate) fn image() -> Log {
    let mut log = Log::new();
    log.step();
    let item = |more: Value| {
        let mut item = json!({"type": "hosted_call", "id": "hc_R1", "name": "image_generation"});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let added = item(json!({"block_list": [], "status": "in_progress"}));
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": added}));
    let moved = |state: &str| json!({"type": "task.hosted_call.updated", "item_id": "hc_R1", "output_index": 0, "state": state});
    log.add(moved("in_progress")).add(moved("generating")).add(moved("generating"));
    let block = |url: &str| json!({"type": "image", "image_url": {"url": url}});
    let place = |kind: &str, more: Value| {
        let mut event = json!({"type": kind, "item_id": "hc_R1", "output_index": 0, "block_index": 0});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    log.add(place("task.image.added", json!({"item": block("")})));
    let partial = json!({"partial_image_index": 0, "item": block("data:image/png;base64,AAAA")});
    log.add(place("task.image.delta", partial));
    log.add(place("task.image.done", json!({"item": block("/v1/blobs/ab12")})));
    let done = item(json!({"block_list": [block("/v1/blobs/ab12")], "status": "completed"}));
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": done})).step_done("stop").completed();
    log
}

/// The provider asks whether it may call a tool of an MCP server.
pub(crate) fn hosted_approval(decision: &str) -> Log {
    let mut log = Log::new();
    let label = json!({"server_label": "dice"});
    log.step().labelled_call(1, "roll", ["hosted", "always"], &[r#"{"n":6}"#], &label).step_done("tool_calls");
    log.ask(1, "roll", json!({"n": 6})).pause(&[("approval", 1, "task_R")]).resume("user");
    match decision {
        "approve" => log.decide(1, json!({"type": "approve"}), "user").result(1, json!([text("Approved.")])),
        _ => {
            log.decide(1, json!({"type": "reject", "message": "not today"}), "user");
            log.no_result(1, "rejected", "rejected", "not today")
        }
    };
    log.step().message("msg_R2", &["So be it."], None).step_done("stop").completed();
    log
}

/// A run with an MCP server of the config: its list, one that did not answer, and a call that needs an approval.
pub(crate) fn mcp_server(decision: &str) -> Log {
    let mut log = Log::new();
    let tool = json!({"name": "read", "description": "Reads.", "input_schema": {"type": "object"}});
    log.mcp_list("hc_R1", "completed", &json!({"server_label": "files", "tools": [tool]}));
    log.mcp_list("hc_R2", "failed", &json!({"server_label": "wiki", "tools": [], "error": "It is gone."}));
    let label = json!({"server_label": "files", "server_tool": "read"});
    log.step().labelled_call(3, "files__read", ["tool", "always"], &[r#"{"n":6}"#], &label).step_done("tool_calls");
    log.ask(3, "files__read", json!({"n": 6})).pause(&[("approval", 3, "task_R")]).resume("user");
    match decision {
        "approve" => {
            log.decide(3, json!({"type": "approve"}), "user").started(3, r#"{"n":6}"#).result(3, json!([text("six")]))
        }
        _ => {
            log.decide(3, json!({"type": "reject", "message": "not today"}), "user");
            log.no_result(3, "rejected", "rejected", "not today")
        }
    };
    log.step().message("msg_R4", &["So be it."], None).step_done("stop").completed();
    log
}

/// The client operates a computer.
pub(crate) fn client_computer(arguments: &str) -> Log {
    let mut log = Log::new();
    log.step().call(1, "computer", ["client", "never"], &[arguments]).step_done("tool_calls");
    log.pause(&[("client_tool", 1, "task_R")]).resume("user");
    log.result(1, json!([{"type": "image", "image_url": {"url": "/v1/blobs/ab12"}}]));
    log.step().message("msg_R2", &["Clicked."], None).step_done("stop").completed();
    log
}

/// A message that cites files of the provider: one with a passage, one of a container, and one that the model wrote.
pub(crate) fn cited_files() -> Log {
    let mut log = Log::new();
    let message = |blocks: Value, status: &str| {
        let item =
            json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": blocks, "status": status});
        json!({"output_index": 0, "item": item})
    };
    let event = |kind: &str, members: Value| {
        let mut event = json!({"type": kind, "item_id": "msg_R1", "output_index": 0, "block_index": 0});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        event
    };
    let cited = json!([
        {"type": "file_citation", "file_id": "file_1", "filename": "a.pdf", "index": 2, "quote": "fifteen"},
        {"type": "container_file_citation", "container_id": "c_1", "file_id": "cfile_1", "filename": "b.csv",
            "start_index": 0, "end_index": 2},
        {"type": "file_path", "file_id": "file_2", "index": 3},
        {"type": "file_citation", "file_id": "file_1", "filename": "a.pdf", "index": 3},
    ]);
    let mut added = message(json!([]), "in_progress");
    added["type"] = "task.output_item.added".into();
    log.step().add(added);
    log.add(event("task.text.added", json!({"item": {"type": "text", "text": ""}})));
    log.add(event("task.text.delta", json!({"delta": "15C."})));
    for (index, annotation) in cited.as_array().unwrap().iter().enumerate() {
        let members = json!({"annotation_index": index, "annotation": annotation});
        log.add(event("task.text.annotation.added", members));
    }
    let block = json!({"type": "text", "text": "15C.", "annotations": cited});
    log.add(event("task.text.done", json!({ "item": block })));
    let mut done = message(json!([block]), "completed");
    done["type"] = "task.output_item.done".into();
    log.add(done).step_done("stop").completed();
    log
}
