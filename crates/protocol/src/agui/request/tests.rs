use super::*;
use crate::client_input::InputKind;
use model::content::ContentPart;
use model::content::{FileRef, ImageUrl};
use model::event::{ApprovalDecision, ApprovalDecisionKind, PendingKind};
use serde_json::json;

const PNG: &str = "iVBORw0KGgo=";

fn exact(value: &Value) -> ExactObject {
    match ExactValue::parse(&value.to_string()).unwrap() {
        ExactValue::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

fn read(changes: &Value) -> Result<AgUiRequest, InvalidAgUiRequest> {
    let mut body = json!({"threadId": "t-1", "runId": "r_1", "messages": []});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    parse_agui_request(&exact(&body))
}

fn read_messages(messages: &Value) -> AgUiRequest {
    read(&json!({"messages": messages})).unwrap()
}

fn field_at_fault(changes: &Value) -> String {
    match read(changes) {
        Err(InvalidAgUiRequest::Field(error)) => error.field,
        other => panic!("{changes}: {other:?}"),
    }
}

fn input(id: &str, kind: InputKind) -> ClientInput {
    ClientInput { id: Some(id.to_owned()), kind }
}

fn text(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

fn image(url: &str) -> ContentPart {
    ContentPart::ImageUrl { image_url: ImageUrl::parse(url.to_owned()).unwrap(), id: None }
}

#[test]
fn the_smallest_request_and_the_largest() {
    let request = read(&json!({})).unwrap();
    assert_eq!((request.thread_id.as_str(), request.run_id.as_str()), ("t-1", "r_1"));
    assert_eq!(request.version, AgUiVersion::V0_0_59);
    assert!(request.messages.is_empty() && request.answers.is_empty() && request.forwarded_props.is_none());

    let request = read(&json!({"protocolVersion": "1.0", "parentRunId": "r_0", "state": {"n": 1},
        "messages": [{"id": "u1", "role": "user", "content": "hello"}],
        "tools": [{"name": "pick", "description": "Picks", "parameters": {"type": "object", "properties": {}},
            "metadata": {}}, {"name": "bare"}],
        "context": [{"description": "page", "value": "cart"}], "resume": [], "later": {"x": 1},
        "forwardedProps": {"colour": "red", "headwater": {"on_busy": "steer", "previous": "task_1"}}}))
    .unwrap();
    assert_eq!(request.version, AgUiVersion::V1);
    assert_eq!(request.parent_run_id.as_deref(), Some("r_0"));
    assert_eq!(request.state, Some(json!({"n": 1})));
    assert_eq!(request.messages, [input("u1", InputKind::User(text("hello")))]);
    let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["pick", "bare"]);
    assert_eq!(request.tools.last().unwrap().parameters, json!({"type": "object"}));
    assert_eq!(request.context, [ContextEntry { description: "page".to_owned(), value: "cart".to_owned() }]);
    assert_eq!(request.forwarded_props.unwrap().to_value(), json!({"colour": "red"}));
    assert_eq!(request.on_busy, Some(OnBusyParam::Steer));
    assert_eq!(request.previous.as_deref(), Some("task_1"));
}

#[test]
fn absent_null_and_empty_optional_members_are_the_same() {
    let nothing = read(&json!({})).unwrap();
    let nulls = json!({"protocolVersion": null, "parentRunId": null, "state": null, "tools": null, "context": null,
        "forwardedProps": null, "resume": null});
    assert_eq!(read(&nulls).unwrap(), nothing);
    let empty = json!({"state": {}, "tools": [], "context": [], "forwardedProps": {}, "resume": []});
    assert_eq!(read(&empty).unwrap(), nothing);
    // An empty list is a state.
    assert_eq!(read(&json!({"state": []})).unwrap().state, Some(json!([])));
}

#[test]
fn versions_of_the_first_major_are_served_and_others_are_not() {
    let version = |version: &str| read(&json!({"protocolVersion": version})).map(|request| request.version);
    for known in ["1.0", "1.1", "1.12", "1.0.3"] {
        assert_eq!(version(known), Ok(AgUiVersion::V1), "{known}");
    }
    for unknown in ["2.0", "0.9", "1", "1.", "1.x", "", "10.0"] {
        let expected = InvalidAgUiRequest::UnsupportedVersion { version: unknown.to_owned() };
        assert_eq!(version(unknown), Err(expected), "{unknown}");
    }
    let long = version(&"9".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 256, "{long}");
}

#[test]
fn members_of_the_wrong_type_are_named() {
    let long = "x".repeat(65);
    for (changes, field) in [
        (json!({"threadId": null}), "threadId"),
        (json!({"threadId": "a/b"}), "threadId"),
        (json!({"threadId": ""}), "threadId"),
        (json!({"runId": long}), "runId"),
        (json!({"runId": 7}), "runId"),
        (json!({"protocolVersion": 1}), "protocolVersion"),
        (json!({"parentRunId": 1}), "parentRunId"),
        (json!({"messages": {}}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": ["hi"]}), "messages[0]"),
        (json!({"messages": [{"role": "user", "content": "x"}]}), "messages[0].id"),
        (json!({"messages": [{"id": "x".repeat(257), "role": "user", "content": "x"}]}), "messages[0].id"),
        (json!({"messages": [{"id": "1", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"id": "1", "role": "user"}]}), "messages[0].content"),
        (json!({"messages": [{"id": "1", "role": "user", "content": 5}]}), "messages[0].content"),
        (json!({"messages": [{"id": "1", "role": "user", "content": ["x"]}]}), "messages[0].content[0]"),
        (json!({"messages": [{"id": "1", "role": "user", "content": [{"text": "x"}]}]}), "messages[0].content[0].type"),
        (
            json!({"messages": [{"id": "1", "role": "user", "content": [{"type": "image"}]}]}),
            "messages[0].content[0].source",
        ),
        (
            json!({"messages": [{"id": "1", "role": "user", "content": [{"type": "image",
            "source": {"type": "data", "value": PNG}}]}]}),
            "messages[0].content[0].source.mimeType",
        ),
        (json!({"messages": [{"id": "1", "role": "system", "content": []}]}), "messages[0].content"),
        (json!({"messages": [{"id": "1", "role": "assistant", "content": []}]}), "messages[0].content"),
        (
            json!({"messages": [{"id": "1", "role": "assistant", "toolCalls": [{"id": "c"}]}]}),
            "messages[0].toolCalls[0].function",
        ),
        (
            json!({"messages": [{"id": "1", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f",
            "arguments": {}}}]}]}),
            "messages[0].toolCalls[0].function.arguments",
        ),
        (json!({"messages": [{"id": "1", "role": "tool", "content": "x"}]}), "messages[0].toolCallId"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"description": "x"}]}), "tools[0].name"),
        (json!({"tools": [{"name": "x", "parameters": "y"}]}), "tools[0].parameters"),
        (json!({"context": [{"description": "x", "value": {}}]}), "context[0].value"),
        (json!({"context": vec![json!({"description": "", "value": ""}); 65]}), "context"),
        (json!({"resume": {}}), "resume"),
        (json!({"resume": ["apr_1"]}), "resume[0]"),
        (json!({"resume": [{"status": "resolved"}]}), "resume[0].interruptId"),
        (json!({"resume": [{"interruptId": "apr_1", "status": "done"}]}), "resume[0].status"),
        (json!({"forwardedProps": {"headwater": []}}), "forwardedProps.headwater"),
        (json!({"forwardedProps": {"headwater": {"on_busy": "wait"}}}), "forwardedProps.headwater.on_busy"),
    ] {
        assert_eq!(field_at_fault(&changes), field, "{changes}");
    }
}

#[test]
fn large_members_are_refused() {
    let fill = |bytes: usize| "x".repeat(bytes);
    for (changes, field) in [
        (json!({"state": {"x": fill(64 * 1024)}}), "state"),
        (json!({"context": [{"description": "", "value": fill(32 * 1024)}]}), "context"),
        (json!({"forwardedProps": {"x": fill(16 * 1024)}}), "forwardedProps"),
    ] {
        match read(&changes) {
            Err(InvalidAgUiRequest::TooLarge { field: at_fault, .. }) => assert_eq!(at_fault, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(read(&json!({"state": {"x": fill(60 * 1024)}})).is_ok());
}

#[test]
fn a_conversation_that_is_sent_back() {
    let request = read_messages(&json!([
        {"id": "s1", "role": "system", "content": "Be brief."},
        {"id": "d1", "role": "developer", "content": "Be kind."},
        {"id": "u1", "role": "user", "content": "weather?", "name": "Ada"},
        {"id": "rs_1", "role": "reasoning", "content": "hm"},
        {"id": "msg_1", "role": "assistant", "content": "One moment.", "toolCalls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"at\":1}"}},
            {"id": "call_2", "type": "function", "function": {"name": "get_time", "arguments": ""}}]},
        {"id": "fco_1", "role": "tool", "toolCallId": "call_1", "content": "sunny"},
        {"id": "x9", "role": "tool", "toolCallId": "call_2", "content": "", "error": "no clock"},
        {"id": "act", "role": "activity", "activityType": "image", "content": {"url": "/v1/blobs/1"}},
        {"id": "msg_2", "role": "assistant"},
        {"id": "msg_3", "role": "assistant", "content": ""},
        {"id": "call_3", "role": "assistant", "toolCalls": [
            {"id": "call_3", "type": "function", "function": {"name": "pick", "arguments": "{}"}}]},
        {"id": "u2", "role": "user", "content": ""},
    ]));
    let call = |id: &str, name: &str, arguments: &str| {
        let (call_id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        input(id, InputKind::ToolCall { call_id, name, arguments })
    };
    let result = |id: &str, call_id: &str, content: &str, failed: bool| {
        let (call_id, content, acknowledged_checks) = (call_id.to_owned(), text(content), Vec::new());
        input(id, InputKind::ToolResult { call_id, content, failed, acknowledged_checks })
    };
    assert_eq!(
        request.messages,
        [
            input("s1", InputKind::System("Be brief.".to_owned())),
            input("d1", InputKind::System("Be kind.".to_owned())),
            input("u1", InputKind::User(text("weather?"))),
            input("rs_1", InputKind::ItemReference),
            input("msg_1", InputKind::Assistant("One moment.".to_owned())),
            call("call_1", "get_weather", "{\"at\":1}"),
            call("call_2", "get_time", ""),
            result("fco_1", "call_1", "sunny", false),
            result("x9", "call_2", "no clock", true),
            input("act", InputKind::ItemReference),
            input("msg_2", InputKind::ItemReference),
            input("msg_3", InputKind::ItemReference),
            call("call_3", "pick", "{}"),
            input("u2", InputKind::ItemReference),
        ]
    );
    assert_eq!(request.check_new_messages(0), Ok(()));
}

#[test]
fn pictures_and_documents_in_both_forms() {
    let request = read_messages(&json!([{"id": "u1", "role": "user", "content": [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "url", "value": "https://x/y.png"}},
        {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "url", "value": "https://x/y.pdf"}, "metadata": {"filename": "y.pdf"}},
        {"type": "binary", "mimeType": "image/png", "data": PNG},
        {"type": "binary", "mimeType": "application/pdf", "url": "https://x/z.pdf", "filename": "z.pdf"}]}]));
    let file = |url: &str, name: &str| ContentPart::File {
        file: FileRef { url: Some(url.to_owned()), name: Some(name.to_owned()), ..FileRef::default() },
    };
    let data = format!("data:image/png;base64,{PNG}");
    let expected = vec![
        ContentPart::text("look"),
        image("https://x/y.png"),
        image(&data),
        file("https://x/y.pdf", "y.pdf"),
        image(&data),
        file("https://x/z.pdf", "z.pdf"),
    ];
    assert_eq!(request.messages, [input("u1", InputKind::User(expected))]);

    let request = read_messages(&json!([{"id": "r", "role": "tool", "toolCallId": "c", "content": data}]));
    let [ClientInput { kind: InputKind::ToolResult { content, .. }, .. }] = request.messages.as_slice() else {
        panic!("{:?}", request.messages)
    };
    assert_eq!(*content, [image(&data)]);
}

/// What the server cannot pass on is skipped in a history, and refused where it would be lost.
#[test]
fn what_is_unknown_is_refused_only_in_new_messages() {
    let request = read_messages(&json!([
        {"id": "u1", "role": "user", "content": [{"type": "audio", "source": {"type": "data", "value": "x",
            "mimeType": "audio/wav"}}]},
        {"id": "f1", "role": "function", "content": "x"},
        {"id": "msg_1", "role": "assistant", "content": "Nice song."},
        {"id": "u2", "role": "user", "content": [{"type": "text", "text": "and this?"},
            {"type": "hologram", "source": {}}]},
        {"id": "u3", "role": "user", "content": [{"type": "image", "source": {"type": "file", "value": "file-1"}}]},
    ]));
    assert_eq!(
        request.messages,
        [
            input("u1", InputKind::ItemReference),
            input("f1", InputKind::ItemReference),
            input("msg_1", InputKind::Assistant("Nice song.".to_owned())),
            input("u2", InputKind::User(text("and this?"))),
            input("u3", InputKind::ItemReference),
        ]
    );
    let at_fault = |first_new: usize| request.check_new_messages(first_new).err().map(|error| error.field);
    assert_eq!(at_fault(0).as_deref(), Some("messages[0].content[0].type"));
    assert_eq!(at_fault(1).as_deref(), Some("messages[1].role"));
    assert_eq!(at_fault(2).as_deref(), Some("messages[3].content[1].type"));
    assert_eq!(at_fault(4).as_deref(), Some("messages[4].content[0]"));
    assert_eq!(at_fault(5), None);
}

#[test]
fn messages_of_sub_agents_are_no_history_of_the_root_but_may_answer() {
    let request = read_messages(&json!([
        {"id": "msg_0123456789abcdef0123456789abcdef5", "role": "assistant", "content": "I am the child.",
            "subagentRunId": "call_1"},
        {"id": "fco_018f2f0a7c6b7d3e8a4b5c6d7e8f90126", "role": "tool", "toolCallId": "call_2", "content": "x",
            "subagentRunId": "call_1"},
        {"id": "mine", "role": "tool", "toolCallId": "call_3", "content": "red", "subagentRunId": "call_1"},
    ]));
    let kinds: Vec<bool> = request.messages.iter().map(|message| message.kind == InputKind::ItemReference).collect();
    assert_eq!(kinds, [true, true, false]);
}

fn approval(payload: &Value) -> Result<ApprovalDecision, InvalidField> {
    let request = read(&json!({"resume": [{"interruptId": "apr_1", "status": "resolved", "payload": payload}]}));
    request.unwrap().answers.first().unwrap().decision(PendingKind::Approval)
}

fn decided(kind: ApprovalDecisionKind, message: Option<&str>, args: Option<Value>) -> ApprovalDecision {
    ApprovalDecision { kind, always: false, message: message.map(str::to_owned), args: args.map(ExactValue::from) }
}

#[test]
fn payloads_that_are_decisions() {
    use ApprovalDecisionKind::{Approve, Edit, Reject};
    for (payload, expected) in [
        (json!(true), decided(Approve, None, None)),
        (json!(false), decided(Reject, None, None)),
        (json!({"approved": true}), decided(Approve, None, None)),
        (json!({"approved": true, "reason": "fine", "editedArgs": null}), decided(Approve, Some("fine"), None)),
        (json!({"approved": false, "reason": "no"}), decided(Reject, Some("no"), None)),
        (json!({"approved": false, "reason": "", "editedArgs": {"n": 1}}), decided(Reject, None, None)),
        (json!({"accepted": true, "message": "ok"}), decided(Approve, Some("ok"), None)),
        (json!({"approved": true, "accepted": true}), decided(Approve, None, None)),
        (json!({"approved": true, "editedArgs": {"n": 1}}), decided(Edit, None, Some(json!({"n": 1})))),
        (json!({"decision": "approve"}), decided(Approve, None, None)),
        (json!({"decision": "reject", "reason": "no"}), decided(Reject, Some("no"), None)),
        (json!({"type": "edit", "args": {"n": 1}}), decided(Edit, None, Some(json!({"n": 1})))),
        (json!({"type": "approve", "arguments": {"n": 1}}), decided(Edit, None, Some(json!({"n": 1})))),
    ] {
        assert_eq!(approval(&payload), Ok(expected), "{payload}");
    }
    assert!(approval(&json!({"approved": true, "always": true})).unwrap().always);
    // A rejection is for one call.
    assert!(!approval(&json!({"approved": false, "always": true})).unwrap().always);
}

#[test]
fn payloads_that_are_no_decisions() {
    for payload in [
        json!(null),
        json!("yes"),
        json!(1),
        json!([]),
        json!({}),
        json!({"approved": "yes"}),
        json!({"approved": true, "accepted": false}),
        json!({"approved": true, "reason": 5}),
        json!({"approved": true, "always": "yes"}),
        json!({"approved": true, "editedArgs": "{}"}),
        json!({"decision": "edit"}),
        json!({"decision": "maybe"}),
    ] {
        assert_eq!(approval(&payload).unwrap_err().field, "resume[0].payload", "{payload}");
    }
}

#[test]
fn cancelled_entries_reject_and_questions_take_an_object() {
    let request = read(&json!({"resume": [
        {"interruptId": "apr_1", "status": "cancelled", "payload": {"approved": true}},
        {"interruptId": "apr_2", "status": "resolved", "payload": {"name": "Ada"}},
        {"interruptId": "apr_3", "status": "resolved", "payload": true}]}))
    .unwrap();
    let [cancelled, object, flag] = request.answers.as_slice() else { panic!("{:?}", request.answers) };
    for asked in [PendingKind::Approval, PendingKind::Question] {
        assert_eq!(
            cancelled.decision(asked),
            Ok(decided(ApprovalDecisionKind::Reject, Some("Cancelled by the user"), None))
        );
    }
    let expected = decided(ApprovalDecisionKind::Approve, None, Some(json!({"name": "Ada"})));
    assert_eq!(object.decision(PendingKind::Question), Ok(expected));
    assert_eq!(flag.decision(PendingKind::Question).unwrap_err().field, "resume[2].payload");
    assert_eq!(flag.decision(PendingKind::ClientTool).unwrap_err().field, "resume[2].payload");
}

/// An amount that a person approves must not lose digits.
#[test]
fn numbers_of_payloads_stay_as_they_were_written() {
    let body = r#"{"threadId":"t","runId":"r","messages":[],"forwardedProps":{"n":1.10},
        "resume":[{"interruptId":"apr_1","status":"resolved","payload":{"approved":true,"editedArgs":{"n":12345678901234567890.10}}}]}"#;
    let Ok(ExactValue::Object(body)) = ExactValue::parse(body) else { panic!("no object") };
    let request = parse_agui_request(&body).unwrap();
    let decision = request.answers.first().unwrap().decision(PendingKind::Approval).unwrap();
    assert_eq!(decision.args.unwrap().to_string(), r#"{"n":12345678901234567890.10}"#);
    assert_eq!(request.forwarded_props.unwrap().to_string(), r#"{"n":1.10}"#);
}

#[test]
fn resume_has_one_entry_per_interrupt_and_not_too_many() {
    let entry = |id: usize| json!({"interruptId": format!("apr_{id}"), "status": "cancelled"});
    let entries = |count: usize| (0..count).map(entry).collect::<Vec<_>>();
    assert_eq!(read(&json!({"resume": entries(64)})).unwrap().answers.len(), 64);
    assert_eq!(field_at_fault(&json!({"resume": entries(65)})), "resume");
    assert_eq!(field_at_fault(&json!({"resume": [entry(1), entry(1)]})), "resume[1].interruptId");
}

#[test]
fn the_legacy_answer_names_its_interrupts_or_means_the_only_one() {
    let answer = |command: Value, open: &[&str]| {
        let request = read(&json!({"forwardedProps": {"command": command, "rest": 1}})).unwrap();
        assert_eq!(request.forwarded_props.unwrap().to_value(), json!({"rest": 1}));
        let entries = request.legacy_answer.unwrap().entries(open)?;
        Ok::<_, InvalidField>(entries.into_iter().map(|entry| entry.interrupt_id).collect::<Vec<_>>())
    };
    let approved = json!({"approved": true});
    assert_eq!(answer(json!({"resume": approved}), &["apr_1"]), Ok(vec!["apr_1".to_owned()]));
    let event = json!({"resume": approved, "interruptEvent": {"id": "apr_2", "reason": "tool_call"}});
    assert_eq!(answer(event, &["apr_1"]), Ok(vec!["apr_2".to_owned()]));
    let several = json!({"resume": {"apr_1": true, "apr_2": false},
        "interruptEvent": {"interrupts": [{"id": "apr_1"}, {"id": "apr_2"}]}});
    assert_eq!(answer(several, &[]), Ok(vec!["apr_1".to_owned(), "apr_2".to_owned()]));
    assert_eq!(answer(json!({"resume": approved}), &["apr_1", "apr_2"]).unwrap_err().field, LEGACY_FIELD);
    assert_eq!(answer(json!({"resume": approved}), &[]).unwrap_err().field, LEGACY_FIELD);

    let request = read(&json!({"forwardedProps": {"command": {"resume": "{\"approved\":false}"}}})).unwrap();
    let entries = request.legacy_answer.unwrap().entries(&["apr_1"]).unwrap();
    let decision = entries.first().unwrap().decision(PendingKind::Approval);
    assert_eq!(decision, Ok(decided(ApprovalDecisionKind::Reject, None, None)));
    // A command without an answer is the application's.
    let request = read(&json!({"forwardedProps": {"command": {"goto": "x"}}})).unwrap();
    assert!(request.legacy_answer.is_none() && request.forwarded_props.is_some());
}

const LEGACY_FIELD: &str = "forwardedProps.command.resume";

#[test]
fn tool_messages_that_decide() {
    use ApprovalDecisionKind::{Approve, Reject};
    let kind = |content: &str| parse_tool_message_decision(&text(content)).map(|decision| decision.kind);
    for (content, expected) in [
        ("true", Some(Approve)),
        (" Yes\n", Some(Approve)),
        ("no", Some(Reject)),
        (r#"{"accepted":true}"#, Some(Approve)),
        (r#"{"approved":false,"reason":"x"}"#, Some(Reject)),
        ("Order placed", None),
        (r#"{"accepted":"x"}"#, None),
        ("42", None),
        ("", None),
    ] {
        assert_eq!(kind(content), expected, "{content}");
    }
    assert_eq!(parse_tool_message_decision(&[]), None);
}

#[test]
fn a_stop_names_at_most_its_run() {
    let stop = |body: Value| parse_agui_stop(&exact(&body)).map_err(|error| error.field);
    assert_eq!(stop(json!({})), Ok(None));
    assert_eq!(stop(json!({"runId": null})), Ok(None));
    assert_eq!(stop(json!({"runId": "r-1"})), Ok(Some("r-1".to_owned())));
    assert_eq!(stop(json!({"runId": 1})), Err("runId".to_owned()));
    assert_eq!(stop(json!({"runId": "a b"})), Err("runId".to_owned()));
    assert_eq!(stop(json!({"runID": "r-1"})), Err("runID".to_owned()));
}
