//! The requirements of the service on a request, as documented or observed.

use serde_json::Value;
use std::collections::HashSet;

const MARKS_MAX: usize = 4;

/// Panics where the service would reject the request.
pub(crate) fn demands(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    assert!(!messages.is_empty());
    for (place, message) in messages.iter().enumerate() {
        let expected = if place % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], expected, "message {place}");
        let content = blocks(message);
        assert!(!content.is_empty(), "message {place} is empty");
        content.iter().for_each(takes_block);
        assert!(!is_thought(content.last().unwrap()), "message {place} ends with a thought");
    }
    assert_eq!(messages.last().unwrap()["role"], "user", "a request ends with the user");
    calls_are_answered(messages);
    hosted_calls_have_both_halves(messages);
    thoughts_lead_the_open_turn(body, messages);
    let marks = body.to_string().matches("cache_control").count();
    assert!(marks <= MARKS_MAX, "{marks} marks");
    let calls = messages.iter().flat_map(blocks).any(|block| kind(block) == "tool_use");
    assert!(!calls || !body["tools"].as_array().unwrap().is_empty(), "calls without tools");
    assert!(body["max_tokens"].as_u64() > body["thinking"]["budget_tokens"].as_u64(), "no room for an answer");
    assert!(body.get("betas").is_none());
    assert!(!body.to_string().contains("elsewhere"), "raw items of another origin");
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().unwrap()
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap()
}

fn is_thought(block: &Value) -> bool {
    matches!(kind(block), "thinking" | "redacted_thinking")
}

fn takes_block(block: &Value) {
    match kind(block) {
        "text" => assert!(!block["text"].as_str().unwrap().trim().is_empty(), "blank text"),
        "thinking" => assert!(block["signature"].is_string() && block.get("cache_control").is_none(), "{block}"),
        "redacted_thinking" => assert!(block["data"].is_string() && block.get("cache_control").is_none(), "{block}"),
        "tool_use" => {
            assert!(block["input"].is_object(), "{block}");
            for text in [&block["name"], &block["id"]] {
                let text = text.as_str().unwrap();
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                assert!(!text.is_empty() && text.chars().all(plain), "{block}");
            }
        }
        "tool_result" => {
            let content = blocks(block);
            content.iter().for_each(takes_block);
            if block["is_error"] == true {
                assert!(!content.is_empty() && content.iter().all(|part| kind(part) == "text"), "{block}");
            }
        }
        "image" | "document" => assert!(block["source"].is_object()),
        kind => assert!(kind == "server_tool_use" || kind.ends_with("_tool_result"), "{block}"),
    }
}

/// All results of a message's calls come first in the next message, and nowhere else.
fn calls_are_answered(messages: &[Value]) {
    let mut named = HashSet::new();
    let mut wanted: Vec<&Value> = Vec::new();
    for message in messages {
        let content = blocks(message);
        let results: Vec<&Value> = content.iter().filter(|block| kind(block) == "tool_result").collect();
        let first: Vec<&Value> = content.iter().take(wanted.len()).map(|block| &block["tool_use_id"]).collect();
        assert_eq!(first, wanted, "calls are answered first");
        assert_eq!(results.len(), wanted.len(), "and only they");
        wanted = content.iter().filter(|block| kind(block) == "tool_use").map(|block| &block["id"]).collect();
        for id in &wanted {
            assert!(named.insert(id.to_string()), "{id} is named twice");
        }
    }
    assert!(wanted.is_empty());
}

fn is_named(block: &Value, id: &str) -> bool {
    block["id"].as_str().is_some_and(|found| id == found)
}

fn hosted_calls_have_both_halves(messages: &[Value]) {
    let all = || messages.iter().flat_map(blocks);
    let is_result = |block: &&Value| kind(block).ends_with("_tool_result");
    let results: HashSet<String> =
        all().filter(is_result).map(|block| block["tool_use_id"].as_str().unwrap().to_owned()).collect();
    let calls: HashSet<String> = all()
        .filter(|block| kind(block) == "server_tool_use")
        .map(|block| block["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(results.is_subset(&calls), "{results:?} of {calls:?}");
    let newest = messages.len().checked_sub(2).map(|place| &messages[place]);
    let is_busy = |id: &String| {
        newest.is_some_and(|newest| {
            let content = blocks(newest);
            content.iter().any(|block| kind(block) == "tool_use") && content.iter().any(|block| is_named(block, id))
        })
    };
    let open: Vec<&String> = calls.difference(&results).filter(|id| !is_busy(id)).collect();
    assert!(open.is_empty(), "{open:?} have no result");
}

/// With manual thinking, a turn whose calls were just answered starts with reasoning: the turn since the last user
/// text, whether or not that message also had results.
fn thoughts_lead_the_open_turn(body: &Value, messages: &[Value]) {
    let is_result = |block: &Value| kind(block) == "tool_result";
    let answered = blocks(messages.last().unwrap()).iter().any(is_result);
    if body["thinking"]["type"] != "enabled" || !answered {
        return;
    }
    let before_last = &messages[..messages.len() - 1];
    for spoke in [
        before_last.iter().rposition(|message| message["role"] == "user" && !blocks(message).iter().all(is_result)),
        before_last.iter().rposition(|message| message["role"] == "user" && !blocks(message).iter().any(is_result)),
    ] {
        let begins = &messages[spoke.unwrap() + 1];
        assert!(is_thought(&blocks(begins)[0]), "{begins} begins without a thought");
    }
}
