//! A provider that asks whether it may call a tool of an MCP server: what it asked and what was decided go back to it alone.

use super::event_lines::turn;
use model::content::ContentPart;
use model::history::{HistoryEntry, RawItem};
use model::item::ResultStatus;
use model::{CallId, ItemId};
use serde_json::{Value, json};
use upstream::{RequestTarget, chat, messages, responses};

const ORIGIN: &str = "here";

fn raw(item: Value) -> RawItem {
    RawItem { origin: ORIGIN.to_owned(), item }
}

fn question(id: &str) -> Value {
    json!({"type": "mcp_approval_request", "id": id, "name": "roll", "server_label": "dice", "arguments": "{\"n\":6}"})
}

fn asked(number: u32, id: &str, item: Value) -> HistoryEntry {
    HistoryEntry::Call {
        call_id: CallId::numbered("R", number),
        name: "roll".to_owned(),
        arguments: r#"{"n":6}"#.to_owned(),
        provider_call_id: Some(id.to_owned()),
        raw: Some(raw(item)),
    }
}

fn decided(number: u32, status: ResultStatus, text: &str) -> HistoryEntry {
    let (call_id, content) = (CallId::numbered("R", number), vec![ContentPart::text(text)]);
    HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
}

fn reasoning(content: &Value) -> HistoryEntry {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content});
    HistoryEntry::Reasoning { id: ItemId::from("rs_1"), raw: raw(item) }
}

fn user() -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text("roll them")] }
}

fn sent_to(origin: &str, history: Vec<HistoryEntry>) -> Value {
    let target = RequestTarget { model: "gpt-5", origin, store: false };
    let mut body = responses::build_request(&turn(history, &[]), &target);
    body["input"].take()
}

#[test]
fn decisions_follow_their_questions() {
    let history = vec![
        user(),
        reasoning(&json!("gAAA")),
        asked(1, "mcpr_1", question("mcpr_1")),
        asked(2, "mcpr_2", question("mcpr_2")),
        decided(1, ResultStatus::Completed, "Approved."),
        decided(2, ResultStatus::Rejected, "not twice"),
    ];
    let sent = sent_to(ORIGIN, history.clone());
    let yes = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true});
    let no = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": false, "reason": "not twice"});
    assert_eq!(sent[1]["type"], "reasoning");
    assert_eq!(sent.as_array().unwrap()[2..], [question("mcpr_1"), question("mcpr_2"), yes, no]);
    // The same without reasoning: a question needs its id in any case.
    let without: Vec<HistoryEntry> =
        history.into_iter().filter(|entry| !matches!(entry, HistoryEntry::Reasoning { .. })).collect();
    assert_eq!(sent_to(ORIGIN, without).as_array().unwrap()[1], question("mcpr_1"));
}

#[test]
fn another_provider_gets_neither_the_question_nor_the_decision() {
    let history =
        || vec![user(), asked(1, "mcpr_1", question("mcpr_1")), decided(1, ResultStatus::Completed, "Approved.")];
    assert_eq!(sent_to("there", history()).as_array().unwrap().len(), 1);
    // Not even under the same name: the operator may have changed the protocol.
    let target = RequestTarget { model: "m", origin: ORIGIN, store: false };
    for body in [
        chat::build_request(&turn(history(), &[]), &target)["messages"].take(),
        messages::build_request(&turn(history(), &[]), &target)["messages"].take(),
    ] {
        let text = body.to_string();
        assert!(!text.contains("roll\"") && !text.contains("Approved"), "{text}");
    }
}

/// A question that cannot be sent back leaves no decision behind, and is never a call of a function.
#[test]
fn a_question_that_cannot_be_sent_back_is_left_out_with_its_decision() {
    let no_reasoning = vec![
        user(),
        reasoning(&Value::Null),
        asked(1, "mcpr_1", question("mcpr_1")),
        decided(1, ResultStatus::Completed, "Approved."),
    ];
    let emptied = json!({"type": "mcp_approval_request", "id": "mcpr_1"});
    let emptied = vec![user(), asked(1, "mcpr_1", emptied), decided(1, ResultStatus::Completed, "Approved.")];
    for history in [no_reasoning, emptied] {
        let sent = sent_to(ORIGIN, history);
        assert_eq!(sent.as_array().unwrap().len(), 1, "{sent}");
    }
    let history =
        vec![user(), asked(1, "mcpr_1", question("mcpr_1")), decided(1, ResultStatus::Completed, "Approved.")];
    let target = RequestTarget { model: "gpt-5", origin: ORIGIN, store: false };
    let again = responses::without_reasoning(responses::build_request(&turn(history, &[]), &target));
    assert_eq!(again["input"].as_array().unwrap().len(), 1, "{again}");
}

#[test]
fn acknowledged_checks_are_those_of_the_client() {
    let pending = json!([{"id": "sc_1"}, {"id": "sc_2"}]);
    let call = json!({"type": "computer_call", "id": "cu_1", "call_id": "p1", "action": {"type": "wait"},
        "pending_safety_checks": pending});
    let history = |checks: Option<Vec<Value>>| {
        let arguments = json!({"action": {"type": "wait"}, "pending_safety_checks": pending}).to_string();
        let call = HistoryEntry::Call {
            call_id: CallId::from("call_1"),
            name: "computer".to_owned(),
            arguments,
            provider_call_id: Some("p1".to_owned()),
            raw: Some(raw(call.clone())),
        };
        let content = vec![ContentPart::image("data:image/png;base64,AAAA")];
        let (call_id, status) = (CallId::from("call_1"), ResultStatus::Completed);
        vec![user(), call, HistoryEntry::Result { call_id, status, content, acknowledged_checks: checks }]
    };
    let acknowledged = |checks| sent_to(ORIGIN, history(checks))[2]["acknowledged_safety_checks"].clone();
    assert_eq!(acknowledged(Some(vec![json!({"id": "sc_2"})])), json!([{"id": "sc_2"}]));
    assert_eq!(acknowledged(Some(Vec::new())), json!([]));
    assert_eq!(acknowledged(None), pending, "a tool of the server acknowledges them by running the call");
    assert_eq!(sent_to(ORIGIN, history(None))[1], call, "in the shape that came");
}
