//! Final and non-final blocks, and every way in which a turn ends.

use super::log::Log;
use super::{bare, story};
use serde_json::{Value, json};

fn last(log: &Log, count: usize) -> Vec<String> {
    let story = story(log);
    story[story.len() - count..].to_vec()
}

#[test]
fn a_text_stops_when_something_follows_it() {
    let said = || Log::new().step(1).say(&["First."]);
    assert_eq!(last(&said().done(1), 1), ["delta 0 First."], "nobody knows yet");
    assert_eq!(last(&said().done(1).step(2), 1), ["stop 0 is_final=false"]);
    let with_call = said().call("tool_a", "{}", json!({}));
    assert_eq!(story(&with_call)[3..5], ["stop 0 is_final=false", "start 1 tool_use id=call_R2 tool_use_id=call_R2"]);
    assert_eq!(
        last(&said().done(1).completed(), 3),
        ["stop 0 is_final=true", "message_delta end_turn", "message_stop"]
    );
}

#[test]
fn sub_agent_events_do_not_end_the_roots_text() {
    let log = Log::new()
        .step(1)
        .call("ask", "{}", json!({"kind": "agent"}))
        .say(&["I have asked."])
        .calls(1)
        .result_begins("call_R1")
        .child("call_R1", "Helper")
        .step(1)
        .say(&["Here."])
        .done(1);
    // The result of the sub-agent is the root's next item.
    let story = story(&log);
    let stop = story.iter().position(|line| line == "stop 1 is_final=false").unwrap();
    let child = story.iter().position(|line| line.starts_with("start 2 text") && line.ends_with("Helper")).unwrap();
    assert!(stop < child && story.last().unwrap() == "stop 2 is_final=false", "{story:#?}");
    let before = Log::new().step(1).call("ask", "{}", json!({})).calls(1).result_begins("call_R1");
    let before = before.child("call_R1", "Helper").step(1).of("task_R").step(2).say(&["Meanwhile."]);
    let meanwhile = before.of("call_R1").say(&["Here."]).done(1);
    assert_eq!(last(&meanwhile, 2), ["delta 2 Here.", "stop 2 is_final=false"], "the root's text 1 still waits");
}

#[test]
fn further_texts_of_a_message_are_parts_of_it() {
    let log = Log::new().step(1).message(&[&["One."], &["Two."], &["Three."]], json!({"status": "completed"}));
    let log = log.done(1).completed();
    assert_eq!(
        story(&log),
        [
            "message_start",
            "start 0 text is_part=false",
            "delta 0 One.",
            "stop 0 is_final=false",
            "start 1 text is_part=true",
            "delta 1 Two.",
            "stop 1 is_final=false",
            "start 2 text is_part=true",
            "delta 2 Three.",
            "stop 2 is_final=true",
            "message_delta end_turn",
            "message_stop",
        ]
    );
}

#[test]
fn a_text_in_one_event_still_has_start_delta_and_stop() {
    let item = json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": []});
    let block = json!({"type": "text", "text": "All at once."});
    let log = Log::new().step(1).item(&item).event(
        json!({"type": "task.text.done", "item_id": "msg_R1", "output_index": 0, "block_index": 0, "item": block}),
    );
    assert_eq!(last(&log, 2), ["start 0 text is_part=false", "delta 0 All at once."]);
}

fn broken_off(reason: &str, step: &str) -> Log {
    let end = json!({"status": "incomplete", "reason": reason});
    Log::new().step(1).message(&[&["Once upon ", "a time"]], end).cut(1, step)
}

#[test]
fn a_cancelled_turn_has_a_text_that_says_so() {
    let log = broken_off("cancelled", "cancelled").end("cancelled", json!({"mode": "immediate", "by": "user"}));
    let frames = bare(&log);
    assert_eq!(story(&log)[4], "stop 0 is_final=false");
    let sentence = "Người dùng đã dừng cuộc trò chuyện. Gửi tin nhắn mới để tiếp tục";
    assert_eq!(
        frames[5..],
        [
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": sentence,
                "extras": {"block_subtype": "user_stopped"}}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "user_stopped"}}),
            json!({"type": "message_stop", "duration_ms": 3420}),
        ]
    );
}

#[test]
fn a_failed_turn_has_its_error_and_retryability() {
    let failed = |error: Value| broken_off("failed", "error").end("failed", json!({"error": error}));
    let log = failed(json!({"code": "provider_error", "message": "Rate limit exceeded", "retryable": true}));
    let extras = json!({"block_subtype": "error", "code": "provider_error", "can_retry": true,
        "error_type": "terminal", "details": {"error": "Rate limit exceeded"}});
    let delta = json!({"type": "text_delta", "text": "Đã xảy ra lỗi. Vui lòng thử lại.", "extras": extras});
    assert_eq!(bare(&log)[6]["delta"], delta);
    assert_eq!(last(&log, 3), ["stop 1", "message_delta error", "message_stop"]);
    let log = failed(json!({"code": "provider_error", "message": "No."}));
    assert_eq!(bare(&log)[6]["delta"]["extras"]["can_retry"], false, "nobody said that it may work");
}

#[test]
fn a_limited_turn_ends_with_its_last_text_as_the_answer() {
    let log = broken_off("limit", "max_tokens").end("incomplete", json!({"reason": "max_tokens"}));
    assert_eq!(last(&log, 3), ["stop 0 is_final=true", "message_delta max_tokens", "message_stop"]);
}

#[test]
fn a_repeated_turn_shows_both_attempts() {
    let log = broken_off("recovered", "lost")
        .event(json!({"type": "task.recovered", "step": 1, "attempt": 2, "cut": ["msg_R1"]}))
        .event(json!({"type": "task.step.started", "step": 1, "attempt": 2}))
        .say(&["Once upon a time there was a river."])
        .done(1)
        .completed();
    assert_eq!(
        story(&log)[4..],
        [
            "stop 0 is_final=false",
            "start 1 text is_part=false",
            "delta 1 Once upon a time there was a river.",
            "stop 1 is_final=true",
            "message_delta end_turn",
            "message_stop",
        ]
    );
}
