use super::*;
use crate::http::UpstreamDialect;
use model::content::ContentPart;
use model::item::ResultStatus;
use model::model_turn::ModelRequest;
use serde_json::json;
use upstream::RequestTarget;

const HERE: &str = "here";

fn came(item: Value) -> RawItem {
    RawItem { origin: HERE.to_owned(), item }
}

fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

/// Reasoning in the format of its protocol.
fn thought(kind: UpstreamDialect, number: u32) -> HistoryEntry {
    let blob = format!("blob {number}");
    let item = match kind {
        UpstreamDialect::Responses => {
            json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": blob})
        }
        UpstreamDialect::Messages => json!([{"type": "thinking", "thinking": "hm", "signature": blob}]),
        UpstreamDialect::Chat => json!({"reasoning_content": blob}),
    };
    HistoryEntry::Reasoning { id: format!("rs_R{number}").into(), raw: came(item) }
}

fn assistant_message(kind: UpstreamDialect, number: u32) -> HistoryEntry {
    let text = format!("word {number}");
    let item = match kind {
        UpstreamDialect::Responses => json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant",
            "status": "completed", "phase": "final_answer", "content": [{"type": "output_text", "text": text}]}),
        UpstreamDialect::Messages => json!([{"type": "text", "text": text}]),
        UpstreamDialect::Chat => json!({"content": text}),
    };
    HistoryEntry::Assistant { id: format!("msg_R{number}").into(), text, raw: Some(came(item)) }
}

fn call(kind: UpstreamDialect, number: u32) -> HistoryEntry {
    let id = format!("theirs_{number}");
    let item = match kind {
        UpstreamDialect::Responses => json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": id,
            "name": "look", "arguments": "{}", "status": "completed"}),
        UpstreamDialect::Messages => json!([{"type": "tool_use", "id": id, "name": "look", "input": {}}]),
        UpstreamDialect::Chat => {
            json!({"id": id, "extra_content": {"google": {"thought_signature": format!("blob {number}")}}})
        }
    };
    let (name, arguments) = ("look".to_owned(), "{}".to_owned());
    let call_id = format!("call_R{number}").into();
    HistoryEntry::Call { call_id, name, arguments, provider_call_id: Some(id), raw: Some(came(item)) }
}

fn result(number: u32) -> HistoryEntry {
    let content = vec![ContentPart::text("42")];
    let (call_id, status) = (format!("call_R{number}").into(), ResultStatus::Completed);
    HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
}

/// A complete turn with one call. Its items are numbered from `first`.
fn turn(kind: UpstreamDialect, first: u32) -> Vec<HistoryEntry> {
    vec![
        user("go on"),
        thought(kind, first),
        call(kind, first + 1),
        result(first + 1),
        thought(kind, first + 2),
        assistant_message(kind, first + 3),
    ]
}

fn body(kind: UpstreamDialect, history: &SharedHistory) -> Value {
    let request = ModelRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        task: "task_R".into(),
        step: 1,
        attempt: 1,
        model: "up/o1".to_owned(),
        instructions: String::new(),
        history: history.clone(),
        tools: Arc::default(),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    };
    kind.build_request(&request, &RequestTarget { model: "o1", origin: HERE, store: false })
}

#[test]
fn a_later_turn_sends_at_once_what_was_accepted_after_the_refusal() {
    for kind in UpstreamDialect::ALL {
        let mut history = turn(kind, 1);
        history.push(user("next"));
        let history = SharedHistory::from(history);
        let mark = newest_entry_id(&history, HERE).unwrap();
        let left = strip_up_to(&history, HERE, mark, kind.refusal_scope());
        assert_eq!(body(kind, &left), kind.without_reasoning(body(kind, &history)), "{kind:?}");
        assert!(body(kind, &history).to_string().contains("blob"), "{kind:?}: there was nothing to leave out");
    }
}

/// A refused question is not a call of a function: it is left out with its decision, as in the request that was tried again.
#[test]
fn a_refused_question_of_the_provider_is_left_out() {
    let kind = UpstreamDialect::Responses;
    let item = json!({"type": "mcp_approval_request", "id": "mcpr_2", "name": "look", "server_label": "s",
        "arguments": "{}"});
    let question = HistoryEntry::Call {
        call_id: "call_R2".into(),
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some("mcpr_2".to_owned()),
        raw: Some(came(item)),
    };
    let history: SharedHistory = vec![user("go"), thought(kind, 1), question, result(2)].into();
    assert!(body(kind, &history).to_string().contains("mcp_approval_response"));
    let left = strip_up_to(&history, HERE, newest_entry_id(&history, HERE).unwrap(), kind.refusal_scope());
    assert_eq!(body(kind, &left), kind.without_reasoning(body(kind, &history)));
    assert_eq!(body(kind, &left)["input"].as_array().unwrap().len(), 1);
}

#[test]
fn items_newer_than_the_refusal_are_sent_unchanged() {
    for kind in UpstreamDialect::ALL {
        let old = turn(kind, 1);
        let both: SharedHistory = [old.clone(), turn(kind, 5)].concat().into();
        let old = SharedHistory::from(old);
        let left = strip_up_to(&both, HERE, newest_entry_id(&old, HERE).unwrap(), kind.refusal_scope());
        assert_eq!(left.entries()[old.len()..], both.entries()[old.len()..], "{kind:?}");
        let text = body(kind, &left).to_string();
        let blobs: Vec<bool> = (1..=7).map(|number| text.contains(&format!("blob {number}"))).collect();
        let signed = kind == UpstreamDialect::Chat;
        assert_eq!(blobs, [false, false, false, false, true, signed, true], "{kind:?}: {text}");
        for number in [4, 8] {
            assert!(text.contains(&format!("word {number}")), "{kind:?}: {text}");
        }
    }
}

#[test]
fn items_of_other_origins_are_not_affected() {
    let elsewhere = |id: &str| HistoryEntry::Reasoning {
        id: id.into(),
        raw: RawItem { origin: "there".to_owned(), item: json!({"blob": 1}) },
    };
    let history: SharedHistory =
        vec![elsewhere("rs_R1"), thought(UpstreamDialect::Responses, 2), elsewhere("rs_R3"), user("hi")].into();
    assert_eq!(newest_entry_id(&history, HERE), Some("rs_R2"));
    assert_eq!(newest_entry_id(&history, "nowhere"), None);
    let left = strip_up_to(&history, HERE, "rs_R2", RefusalScope::AllItems);
    assert_eq!(left.entries()[0], history.entries()[0]);
    assert_eq!(raw_item(&left.entries()[1]).unwrap().item, json!({"id": "rs_2"}));
    assert_eq!(strip_up_to(&history, HERE, "rs_R9", RefusalScope::AllItems), history, "a mark of another branch");
}

#[test]
fn a_refusal_is_remembered_per_thread_and_origin() {
    let refused = RefusedHistory::default();
    let history: SharedHistory = turn(UpstreamDialect::Responses, 1).into();
    let (one, two) = (ThreadId::from("thr_1"), ThreadId::from("thr_2"));
    let readable =
        |thread: &ThreadId, origin: &str| refused.strip_refused(thread, origin, &history, RefusalScope::AllItems);
    assert_eq!(readable(&one, HERE), history);
    refused.record_refusal(&one, HERE, &history);
    refused.record_refusal(&two, "there", &history);
    assert_ne!(readable(&one, HERE), history);
    assert_eq!((readable(&one, "there"), readable(&two, HERE)), (history.clone(), history.clone()));
    assert_eq!(readable(&two, "there"), history, "nothing of it came from there");
}

#[test]
fn the_refusal_cache_is_bounded_and_keeps_recently_used_entries() {
    let mut marks = RefusalMarks::default();
    let place = |number: usize| (ThreadId::from(format!("thr_{number}")), HERE.to_owned());
    for number in 0..MARKS_MAX {
        marks.set(place(number), number.to_string());
    }
    assert_eq!(marks.get(&place(0)), Some("0".to_owned()));
    for number in MARKS_MAX..MARKS_MAX + 2 {
        marks.set(place(number), number.to_string());
    }
    assert_eq!(marks.marks.len(), MARKS_MAX);
    let known = [0, 1, 2, 3, MARKS_MAX, MARKS_MAX + 1].map(|number| marks.get(&place(number)).is_some());
    assert_eq!(known, [true, false, false, true, true, true]);
    marks.set(place(0), "newer".to_owned());
    assert_eq!((marks.get(&place(0)), marks.marks.len()), (Some("newer".to_owned()), MARKS_MAX));
}
