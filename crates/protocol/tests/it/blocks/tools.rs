//! Calls and results, hosted tools, and files.

use super::log::{Log, image, text};
use super::{bare, story};
use serde_json::{Value, json};

fn called(arguments: &str) -> Log {
    Log::new().step(1).call("tool_a", arguments, json!({})).calls(1)
}

/// The block of a log's last start event.
fn last_block(log: &Log) -> Value {
    let frames = bare(log);
    let start = frames.iter().rev().find(|frame| frame["type"] == "content_block_start").unwrap();
    start["content_block"].clone()
}

fn result_of(blocks: &[Value], end: Value) -> Value {
    last_block(&called("{}").result("call_R1", blocks, end))
}

#[test]
fn non_object_arguments_are_shown_unchanged() {
    for (arguments, input) in [
        (r#"{"b":1,"a":[2]}"#, json!({"b": 1, "a": [2]})),
        ("{}", json!({})),
        ("[1]", json!({"_raw": "[1]"})),
        ("7", json!({"_raw": "7"})),
        (r#"{"a":"#, json!({"_raw": r#"{"a":"#})),
        ("", json!({"_raw": ""})),
    ] {
        assert_eq!(last_block(&called(arguments))["input"], input, "{arguments}");
    }
    assert_eq!(last_block(&called("{}"))["tool_content_message"], "tool_a", "a tool without a name for people");
}

#[test]
fn a_call_with_truncated_arguments_is_never_shown() {
    let call = json!({"type": "tool_call", "id": "fc_R1", "call_id": "call_R1", "name": "tool_a", "arguments": ""});
    let mut cut = call.clone();
    cut["arguments"] = json!("{\"a\":");
    cut["status"] = json!("incomplete");
    let log = Log::new()
        .step(1)
        .item(&call)
        .event(json!({"type": "task.tool_call_arguments.delta", "item_id": "fc_R1", "output_index": 0, "delta": "{\"a\":"}))
        .event(json!({"type": "task.output_item.done", "output_index": 0, "item": cut}))
        .cut(1, "error");
    assert_eq!(story(&log), ["message_start"]);
    assert_eq!(story(&log.result("call_R1", &[], json!({"status": "incomplete"}))), ["message_start"]);
}

#[test]
fn a_long_result_is_truncated_and_complete_in_the_artifact() {
    let (fits, long) = ("ạ".repeat(500), "ạ".repeat(501));
    assert_eq!(result_of(&[text(&fits)], json!({})), {
        json!({"type": "tool_result", "tool_use_id": "call_R1", "name": "tool_a", "status": "success",
            "content": fits, "artifact": null, "subagent": null, "parent_tool_use_id": null})
    });
    let cut = result_of(&[text(&long)], json!({}));
    assert_eq!((&cut["content"], &cut["artifact"]), (&json!(fits), &json!({"blocks": [text(&long)]})));
    // Characters outside the basic plane count once, and texts count with their separators.
    let smiles = result_of(&[text(&"🙂".repeat(501))], json!({}));
    assert_eq!(smiles["content"], "🙂".repeat(500));
    let lines = result_of(&[text(&"a".repeat(250)), text(&"b".repeat(249))], json!({}));
    assert_eq!((lines["content"].as_str().unwrap().len(), &lines["artifact"]), (500, &Value::Null));
    let lines = result_of(&[text(&"a".repeat(250)), text(&"b".repeat(250))], json!({}));
    assert_eq!(
        (lines["content"].as_str().unwrap().len(), lines["artifact"]["blocks"].as_array().unwrap().len()),
        (500, 2)
    );
}

#[test]
fn a_tools_own_artifact_takes_precedence() {
    let own = json!({"chart": [1, 2]});
    let block = result_of(&[text("x"), image("/v1/blobs/1")], json!({"artifact": own}));
    assert_eq!(block["artifact"], own);
}

#[test]
fn a_summary_replaces_the_text_which_moves_to_the_artifact() {
    let block = result_of(&[text("a long table")], json!({"summary": "3 rows"}));
    assert_eq!((&block["content"], &block["artifact"]), (&json!("3 rows"), &json!({"blocks": [text("a long table")]})));
}

#[test]
fn a_failed_result_is_an_error_with_text() {
    for status in ["failed", "rejected", "incomplete", "unknown"] {
        let block = result_of(&[], json!({"status": status, "error": {"code": "x", "message": "It broke."}}));
        assert_eq!((&block["status"], &block["content"]), (&json!("error"), &json!("It broke.")), "{status}");
    }
}

#[test]
fn a_hosted_tool_is_a_use_and_a_result() {
    let call = |more: Value| {
        let mut call = json!({"type": "hosted_call", "id": "hc_R1", "name": "image_generation", "block_list": []});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let picture = image("/v1/blobs/1");
    let done = call(json!({"block_list": [picture], "status": "completed"}));
    let at = |kind: &str, item: &Value| json!({"type": kind, "item_id": "hc_R1", "output_index": 0, "block_index": 0, "item": item});
    let drawing = Log::new().step(1).item(&call(json!({}))).event(
        json!({"type": "task.hosted_call.updated", "item_id": "hc_R1", "output_index": 0, "state": "generating"}),
    );
    assert_eq!(story(&drawing), ["message_start"], "nobody knows what it was asked for");
    let drawing = drawing.event(at("task.image.added", &image("")));
    assert_eq!(story(&drawing)[1], "start 0 tool_use id=hc_R1 tool_use_id=hc_R1", "it has begun");
    let drawn = drawing
        .event(at("task.image.done", &picture))
        .event(json!({"type": "task.output_item.done", "output_index": 0, "item": done}));
    assert_eq!(story(&drawn).len(), 5, "{:#?}", story(&drawn));
    assert_eq!(
        last_block(&drawn),
        json!({"type": "tool_result", "tool_use_id": "hc_R1", "name": "image_generation", "status": "success",
            "content": "[image /v1/blobs/1]", "artifact": {"blocks": [picture]}, "subagent": null,
            "parent_tool_use_id": null})
    );

    let searching = Log::new().step(1).item(&call(json!({}))).event(json!({"type": "task.hosted_call.updated",
        "item_id": "hc_R1", "output_index": 0, "state": "searching", "action": {"query": "rivers"}}));
    assert_eq!(last_block(&searching)["input"], json!({"query": "rivers"}));
    let failed = searching.event(json!({"type": "task.output_item.done", "output_index": 0,
        "item": call(json!({"status": "failed"}))}));
    assert_eq!((story(&failed).len(), &last_block(&failed)["status"]), (5, &json!("error")));
    let at_once = Log::new().step(1).item(&call(json!({"action": {"query": "rivers"}})));
    assert_eq!(last_block(&at_once)["input"], json!({"query": "rivers"}));
}

/// A hosted call in the states of a provider's stream, each with the action so far; the last one is its end.
fn hosted_log(name: &str, states: &[(&str, Value)]) -> Log {
    let call = json!({"type": "hosted_call", "id": "hc_R1", "name": name, "block_list": []});
    let mut log = Log::new().step(1).item(&call);
    let mut done = call;
    for (state, action) in states {
        log = log.event(json!({"type": "task.hosted_call.updated", "item_id": "hc_R1", "output_index": 0,
            "state": state, "action": action}));
        (done["state"], done["action"]) = (json!(state), action.clone());
    }
    done["status"] = json!("completed");
    log.event(json!({"type": "task.output_item.done", "output_index": 0, "item": done}))
}

#[test]
fn a_hosted_tool_has_its_arguments_its_output_and_its_outcome() {
    let logs = json!([{"type": "logs", "logs": "2\n"}]);
    let code = hosted_log(
        "code_interpreter",
        &[
            ("in_progress", json!({"container_id": "c"})),
            ("in_progress", json!({"code": "prin", "container_id": "c"})),
            ("interpreting", json!({"code": "print(2)", "container_id": "c"})),
            ("completed", json!({"code": "print(2)", "container_id": "c", "outputs": logs})),
        ],
    );
    let frames = bare(&code);
    assert_eq!(frames.len(), 5, "{frames:#?}");
    assert_eq!(frames[1]["content_block"]["input"], json!({"code": "print(2)"}), "not before the code is complete");
    let result = &frames[3]["content_block"];
    assert_eq!((&result["content"], &result["status"]), (&json!("2\n"), &json!("success")));
    assert_eq!(result["artifact"], json!({"output": logs}));

    let called = json!({"name": "ask", "server_label": "wiki", "arguments": "{\"q\":\"Seine\"}"});
    let mut failed = called.clone();
    failed["error"] = json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no page"}]});
    let frames = bare(&hosted_log("mcp", &[("in_progress", called), ("failed", failed)]));
    let (used, result) = (&frames[1]["content_block"], &frames[3]["content_block"]);
    assert_eq!((&used["name"], &used["input"]), (&json!("ask"), &json!({"q": "Seine"})));
    assert_eq!((&result["name"], &result["status"]), (&json!("ask"), &json!("error")));
    assert_eq!((&result["content"], &result["artifact"]), (&json!("no page"), &Value::Null));

    let found = json!([{"type": "web_search_result", "title": "Seine", "url": "https://example.org/seine"}]);
    let asked = json!({"input": {"query": "rivers"}});
    let answered = json!({"input": {"query": "rivers"}, "result": found});
    let frames = bare(&hosted_log("web_search", &[("in_progress", asked), ("completed", answered)]));
    assert_eq!(frames[1]["content_block"]["input"], json!({"query": "rivers"}));
    let result = &frames[3]["content_block"];
    assert_eq!(result["content"], "Seine https://example.org/seine");
    assert_eq!(result["artifact"], json!({"output": found}));
}

#[test]
fn an_image_in_a_message_leaves_its_text_final() {
    let item = json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": []});
    let blocks = [text("Look."), image("/v1/blobs/1")];
    let mut done = item.clone();
    done["block_list"] = json!(blocks);
    let at = |kind: &str, block: usize| json!({"type": kind, "item_id": "msg_R1", "output_index": 0, "block_index": block, "item": blocks[block]});
    let log = Log::new()
        .step(1)
        .item(&item)
        .event(at("task.text.done", 0))
        .event(at("task.image.done", 1))
        .event(json!({"type": "task.output_item.done", "output_index": 0, "item": done}))
        .done(1)
        .completed();
    assert_eq!(story(&log)[1..4], ["start 0 text is_part=false", "delta 0 Look.", "stop 0 is_final=true"]);
}

#[test]
fn files_are_the_first_block_with_their_outcome() {
    let item = |files: &[(&str, &str)]| {
        let files: Vec<Value> = files.iter().map(|(url, status)| json!({"url": url, "status": status})).collect();
        json!({"type": "file_processing", "id": "fp_R1", "files": files})
    };
    let moved = |url: &str, status: &str, message: Value| {
        let event = json!({"type": "task.file_processing.updated", "output_index": 0, "url": url, "status": status});
        let mut event = event;
        if !message.is_null() {
            event["message"] = message;
        }
        event
    };
    let end = |files: &[(&str, &str)]| json!({"type": "task.output_item.done", "output_index": 0, "item": item(files)});
    let one = Log::new()
        .item(&item(&[("https://example.com/a.pdf", "processing")]))
        .event(moved("https://example.com/a.pdf", "completed", json!(null)))
        .event(end(&[("https://example.com/a.pdf", "completed")]));
    assert_eq!(
        bare(&one)[1..],
        [
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "file_processing",
                "status": "processing", "files": [{"url": "https://example.com/a.pdf"}]}}),
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"status": "completed", "message": "Processed 1 file"}}),
            json!({"type": "content_block_stop", "index": 0}),
        ]
    );
    let two = Log::new()
        .item(&item(&[("a", "processing"), ("b", "processing")]))
        .event(moved("a", "completed", json!(null)))
        .event(moved("b", "processing", json!("page 2")))
        .event(moved("b", "failed", json!("no such file")))
        .event(end(&[("a", "completed"), ("b", "failed")]));
    let told = story(&two);
    assert_eq!(
        told[2..],
        [
            "delta 0 Processed 1 of 2 files",
            "delta 0 page 2",
            "delta 0 b: no such file",
            "delta 0 Processed 1 of 2 files",
            "stop 0"
        ]
    );
    assert_eq!(bare(&two)[5]["delta"]["status"], "completed", "the run goes on with what could be read");
    let again = Log::new()
        .item(&item(&[("a", "processing"), ("b", "processing")]))
        .event(moved("a", "failed", json!("no such file")))
        .event(moved("b", "processing", json!(null)))
        .event(moved("b", "completed", json!(null)))
        .event(end(&[("a", "failed"), ("b", "completed")]));
    let counted =
        ["delta 0 a: no such file", "delta 0 Processed 0 of 2 files", "delta 0 Processed 1 of 2 files", "stop 0"];
    assert_eq!(story(&again)[2..], counted, "one count, of those that could be read");
    let none = Log::new().item(&item(&[("a", "processing")])).event(end(&[("a", "failed")]));
    assert_eq!(bare(&none)[2]["delta"], json!({"status": "failed", "message": "Processed 0 of 1 file"}));
}
