//! The scenarios of the demo, frame by frame.

use super::log::{Log, image, text};
use super::{bare, frames, story};
use serde_json::{Value, json};

fn weather() -> Log {
    Log::new()
        .step(1)
        .think(&[&["Thinking about the weather ", "in Paris."], &["Decided to call ", "get_weather function."]])
        .call("get_weather", r#"{"location":"Paris, France"}"#, json!({"kind": "tool", "display_name": "Weather"}))
        .calls(1)
        .started("call_R2")
        .result("call_R2", &[text(r#"{"temperature":15}"#), image("/v1/blobs/ab12")], json!({}))
        .step(2)
        .say(&["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"])
        .done(2)
        .completed()
}

fn whole(index: u32, block: &Value) -> [Value; 2] {
    [
        json!({"type": "content_block_start", "index": index, "content_block": block}),
        json!({"type": "content_block_stop", "index": index}),
    ]
}

fn thinking(index: u32, pieces: [&str; 2]) -> Vec<Value> {
    let delta = |piece| json!({"type": "content_block_delta", "index": index, "delta": {"type": "thinking_delta", "thinking": piece}});
    let block = json!({"type": "thinking", "thinking": "", "subagent": null, "parent_tool_use_id": null});
    let [start, stop] = whole(index, &block);
    vec![start, delta(pieces[0]), delta(pieces[1]), stop]
}

#[test]
fn a_turn_with_reasoning_a_tool_and_an_answer_has_every_field() {
    let mut expected = vec![json!({"type": "message_start", "session_id": "s1", "timestamp": 1_710_000_000.01,
        "display_mode": "agent", "is_new_session_from_share": false, "input": []})];
    expected.extend(thinking(0, ["Thinking about the weather ", "in Paris."]));
    expected.extend(thinking(1, ["Decided to call ", "get_weather function."]));
    expected.extend(whole(
        2,
        &json!({"type": "tool_use", "id": "call_R2", "name": "get_weather", "tool_use_id": "call_R2",
            "tool_content_message": "Weather", "input": {"location": "Paris, France"}, "subagent": null,
            "parent_tool_use_id": null}),
    ));
    expected.extend(whole(
        3,
        &json!({"type": "tool_result", "tool_use_id": "call_R2", "name": "get_weather", "status": "success",
            "content": "{\"temperature\":15}\n[image /v1/blobs/ab12]",
            "artifact": {"blocks": [text(r#"{"temperature":15}"#), image("/v1/blobs/ab12")]},
            "subagent": null, "parent_tool_use_id": null}),
    ));
    let block = json!({"type": "text", "text": "", "subagent": null, "parent_tool_use_id": null, "is_part": false});
    expected.push(json!({"type": "content_block_start", "index": 4, "content_block": block}));
    for piece in ["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"] {
        let delta = json!({"type": "text_delta", "text": piece});
        expected.push(json!({"type": "content_block_delta", "index": 4, "delta": delta}));
    }
    expected.push(json!({"type": "content_block_stop", "index": 4, "is_final": true}));
    expected.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    expected.push(json!({"type": "message_stop", "duration_ms": 3420}));
    assert_eq!(bare(&weather()), expected);
}

#[test]
fn chat_mode_shows_no_reasoning() {
    let log = Log::begun("chat")
        .step(1)
        .think(&[&["Hm."]])
        .call("ask", "{}", json!({"kind": "agent"}))
        .calls(1)
        .result_begins("call_R2")
        .child("call_R2", "Helper")
        .step(1)
        .think(&[&["Hm, too."]])
        .say(&["Yes."])
        .done(1)
        .completed()
        .of("task_R")
        .result_ends("call_R2", 2, json!({}))
        .step(2)
        .say(&["Yes, it says."])
        .done(2)
        .completed();
    let told = story(&log);
    assert!(told.iter().all(|line| !line.contains("thinking") && !line.contains("Hm")), "{told:#?}");
    assert_eq!(frames(&log)[0]["display_mode"], "chat");
    assert_eq!(told[1], "start 0 tool_use id=call_R2 tool_use_id=call_R2", "the index counts what is shown");
}

#[test]
fn a_sub_agent_is_named_in_its_blocks_and_its_text_is_never_final() {
    let log = Log::new()
        .step(1)
        .call("ask_for_help", "{}", json!({"kind": "agent"}))
        .calls(1)
        .started("call_R1")
        .result_begins("call_R1")
        .child("call_R1", "WeatherAgent")
        .step(1)
        .think(&[&["Hm."]])
        .call("get_weather", "{}", json!({}))
        .calls(1)
        .result("call_R3", &[text("15")], json!({}))
        .step(2)
        .say(&["Sunny.[^1]"])
        .done(2)
        .completed()
        .of("task_R")
        .result_ends("call_R1", 1, json!({}))
        .step(2)
        .say(&["WeatherAgent says: sunny.[^1]"])
        .done(2)
        .completed();
    assert_eq!(
        story(&log),
        [
            "message_start",
            "start 0 tool_use id=call_R1 tool_use_id=call_R1",
            "stop 0",
            "start 1 thinking subagent=WeatherAgent",
            "delta 1 Hm.",
            "stop 1",
            "start 2 tool_use id=call_R3 tool_use_id=call_R3 subagent=WeatherAgent",
            "stop 2",
            "start 3 tool_result tool_use_id=call_R3 status=success content=15 subagent=WeatherAgent",
            "stop 3",
            "start 4 text is_part=false subagent=WeatherAgent",
            "delta 4 Sunny.[^1]",
            "stop 4 is_final=false",
            "start 5 tool_result tool_use_id=call_R1 status=success content=Sunny.[^1]",
            "stop 5",
            "start 6 text is_part=false",
            "delta 6 WeatherAgent says: sunny.[^1]",
            "stop 6 is_final=true",
            "message_delta end_turn",
            "message_stop",
        ]
    );
    let starts = bare(&log);
    for (index, parent) in [(0, json!(null)), (1, json!("call_R1")), (4, json!("call_R1")), (5, json!(null))] {
        let is_it = |frame: &&Value| frame["type"] == "content_block_start" && frame["index"] == index;
        let block = &starts.iter().find(is_it).unwrap()["content_block"];
        assert_eq!(block["parent_tool_use_id"], parent, "{block}");
    }
    let of_child = |frame: &&Value| frame["content_block"]["tool_use_id"] == "call_R1";
    let result = starts.iter().rfind(of_child).unwrap();
    assert_eq!(result["content_block"]["artifact"], json!(null), "what the child said is all there is");
}

#[test]
fn an_approval_is_a_block_and_the_turn_stays_open_during_the_pause() {
    let asked = || {
        Log::new()
            .step(1)
            .say(&["I will place the order."])
            .call("execute_trade", r#"{"symbol":"VNM","quantity":100}"#, json!({"gate": "always"}))
            .calls(1)
            .ask("call_R2")
    };
    let approved = asked()
        .decided("call_R2", &json!({"type": "approve"}))
        .started("call_R2")
        .result("call_R2", &[text("Order placed: VNM x100")], json!({}))
        .step(2)
        .say(&["Done: bought VNM."])
        .done(2)
        .completed();
    assert_eq!(
        story(&approved),
        [
            "message_start",
            "start 0 text is_part=false",
            "delta 0 I will place the order.",
            "stop 0 is_final=false",
            "start 1 tool_use id=call_R2 tool_use_id=call_R2",
            "stop 1",
            "start 2 approval_request tool_use_id=call_R2 approval_key=apr_R2",
            "delta 2",
            "stop 2",
            "approval_resolved",
            "start 3 tool_result tool_use_id=call_R2 status=success content=Order placed: VNM x100",
            "stop 3",
            "start 4 text is_part=false",
            "delta 4 Done: bought VNM.",
            "stop 4 is_final=true",
            "message_delta end_turn",
            "message_stop",
        ]
    );
    let delta = json!({"action_requests": [{"name": "execute_trade", "args": {"symbol": "VNM", "quantity": 100}}],
        "review_configs": [{"require_approval": true}], "timeout_seconds": 300,
        "expires_at": 1_710_000_300_000_u64});
    let block = json!({"type": "approval_request", "approval_key": "apr_R2", "tool_use_id": "call_R2"});
    assert_eq!(bare(&approved)[6]["content_block"], block);
    assert_eq!(bare(&approved)[7]["delta"], delta);

    let error = |code, message| json!({"status": "rejected", "error": {"code": code, "message": message}});
    let no = json!({"type": "reject", "message": "too risky"});
    for (end, content) in [
        (error("rejected", "too risky"), "Rejected: too risky"),
        (error("approval_timeout", "No decision within 300 s"), "No decision within 300 s"),
    ] {
        let words = [text(end["error"]["message"].as_str().unwrap())];
        let rejected = asked().decided("call_R2", &no).result("call_R2", &words, end);
        let line = format!("start 3 tool_result tool_use_id=call_R2 status=error content={content}");
        assert_eq!(story(&rejected)[10], line);
        assert_eq!(
            bare(&rejected)[9],
            json!({"type": "approval_resolved", "approval_key": "apr_R2", "by": "user",
                "decisions": [{"type": "reject", "always": false, "message": "too risky"}]})
        );
    }
}

#[test]
fn a_second_device_is_told_what_the_user_wrote() {
    let message = |id: &str, content: Value| json!({"id": id, "role": "user", "content": content});
    let file = json!({"type": "file", "file": {"url": "https://example.org/a.pdf"}});
    let log = Log::with_input(&json!([message("msg_in", json!([file, text("Read it."), text("Then answer.")]))]))
        .step(1)
        .event(json!({"type": "task.input.added", "input": [message("msg_more", json!([text("Briefly.")]))]}))
        .say(&["Read."])
        .done(1)
        .completed();
    let input = json!([{"id": "msg_in", "role": "user", "content": "Read it.\nThen answer.",
        "content_urls": ["https://example.org/a.pdf"]}]);
    let added = json!({"type": "input_added", "input": [{"id": "msg_more", "role": "user", "content": "Briefly."}]});
    let frames = bare(&log);
    assert_eq!((&frames[0]["input"], &frames[1]), (&input, &added));
}

#[test]
fn the_next_run_of_the_thread_is_the_next_turn() {
    let log = weather().again("task_S").step(1).say(&["Again."]).done(1).completed();
    let frames = frames(&log);
    let second = frames.iter().position(|frame| frame["message_id"] == "task_S").unwrap();
    assert_eq!(frames[second]["type"], "message_start");
    assert_eq!(frames[second + 1]["index"], 0, "a turn counts its own blocks");
    assert!(frames[second..].iter().all(|frame| frame["message_id"] == "task_S"));
}
