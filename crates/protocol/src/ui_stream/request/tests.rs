use super::*;
use crate::client_input::InputKind;
use serde_json::json;

fn parse(body: &Value) -> Result<UiChatRequest, InvalidField> {
    parse_ui_chat_request(body.as_object().unwrap())
}

fn user(parts: &Value) -> Value {
    json!({"id": "u1", "role": "user", "parts": parts})
}

fn chat(messages: &Value) -> Value {
    json!({"id": "c1", "trigger": "submit-message", "messages": messages})
}

/// The message of a run, with one call in this state.
fn answered(part: &Value) -> Value {
    let mut call = json!({"type": "dynamic-tool", "toolName": "execute_trade", "toolCallId": "call_R2"});
    call.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    let said = json!({"type": "text", "text": "I will.", "state": "done"});
    let parts = json!([{"type": "step-start"}, said, call, {"type": "data-state", "id": "state", "data": {}}]);
    json!({"id": "task_R", "role": "assistant", "parts": parts})
}

#[test]
fn a_message_has_texts_and_files() {
    let parts = json!([
        {"type": "text", "text": "What is it?"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf", "filename": "a.pdf"},
        {"type": "data-page", "data": 1},
    ]);
    let mut body = chat(&json!([user(&parts)]));
    let more =
        json!({"agent": "demo", "on_busy": "steer", "metadata": {"n": 1}, "tools": [{"name": "pick"}], "mine": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let request = parse(&body).unwrap();
    let message = request.last_message().unwrap();
    let file = file_part_of("https://example.org/a.pdf", "a.pdf");
    let image = ContentPart::image("data:image/png;base64,AAAA");
    assert_eq!(message.content, [ContentPart::text("What is it?"), image, file]);
    assert_eq!((request.chat_id.as_str(), request.agent.as_deref()), ("c1", Some("demo")));
    assert!(matches!(request.on_busy, Some(OnBusyParam::Steer)));
    assert_eq!(request.tools[0].parameters, json!({"type": "object"}));
    assert_eq!(request.metadata.len(), 1);
    request.check_new_messages(0).unwrap();
}

fn file_part_of(url: &str, name: &str) -> ContentPart {
    crate::request_fields::file_part(url, Some(name))
}

#[test]
fn only_the_last_message_may_be_sent() {
    let body = json!({"id": "c1", "message": user(&json!([{"type": "text", "text": "Hi"}]))});
    let request = parse(&body).unwrap();
    assert_eq!((request.messages.len(), request.trigger), (1, UiTrigger::SubmitMessage));
}

#[test]
fn an_approval_that_was_answered_is_an_answer() {
    let approval = json!({"id": "apr_R2", "approved": true, "reason": "fine"});
    let part = json!({"state": "approval-responded", "input": {"quantity": 1e2}, "approval": approval});
    let request = parse(&chat(&json!([user(&json!([])), answered(&part)]))).unwrap();
    let message = request.last_message().unwrap();
    let [answer] = &message.approvals[..] else { panic!("one answer") };
    assert_eq!((answer.approval_id.as_str(), answer.approved), ("apr_R2", true));
    assert_eq!((answer.reason.as_deref(), &answer.arguments), (Some("fine"), &None));
    assert_eq!(answer.call.field, "messages[1].parts[2]");
    let call = |arguments: &str| {
        let call = json!({"id": "fc_R2", "call_id": "call_R2", "name": "execute_trade", "arguments": arguments});
        serde_json::from_value::<ToolCall>(call).unwrap()
    };
    assert!(answer.call.is_same_call(&call(r#"{"quantity":100}"#)));
    assert!(answer.call.is_same_call(&call(r#"{ "quantity": 100.0 }"#)), "JavaScript has one type of numbers");
    assert!(!answer.call.is_same_call(&call(r#"{"quantity":101}"#)));
    assert!(!answer.call.is_same_call(&call(r#"{"quantity":100,"symbol":"VNM"}"#)));
}

#[test]
fn the_answer_to_a_question_is_beside_the_messages() {
    let approval = json!({"id": "apr_R2_1", "approved": true, "reason": "{\"n\":1}"});
    let part = json!({"state": "approval-responded", "input": {}, "approval": approval});
    let mut body = chat(&json!([answered(&part)]));
    let city = |body: &Value| {
        let request = parse(body).unwrap();
        request.messages[0].approvals[0].arguments.as_ref().map(|answer| answer["city"].to_string())
    };
    assert_eq!(city(&body), None, "what a reason says is for those who know whether there is a question");
    body["answers"] = json!({"apr_R2_1": {"city": "Rome"}});
    assert_eq!(city(&body).as_deref(), Some(r#""Rome""#));
    body["answers"] = json!({"apr_R9": {"city": "Rome"}});
    assert_eq!(parse(&body).unwrap_err().field, "answers.apr_R9");
}

#[test]
fn outputs_of_the_clients_tools_are_its_answers() {
    for (output, expected) in [
        (json!("red"), ContentPart::text("red")),
        (json!({"color": "red"}), ContentPart::text(r#"{"color":"red"}"#)),
        (json!(7), ContentPart::text("7")),
        (json!(null), ContentPart::text("null")),
        (json!({"image_url": "https://example.org/a.png"}), ContentPart::image("https://example.org/a.png")),
        (json!({"image_url": "u", "n": 1}), ContentPart::text(r#"{"image_url":"u","n":1}"#)),
        (json!("data:image/png;base64,AAAA"), ContentPart::image("data:image/png;base64,AAAA")),
    ] {
        let part = json!({"state": "output-available", "input": {}, "output": output});
        let request = parse(&chat(&json!([answered(&part)]))).unwrap();
        let [answer] = &request.messages[0].outputs[..] else { panic!("one output") };
        assert_eq!((&answer.content[..], answer.failed), (&[expected][..], false));
    }
    let failed = json!({"state": "output-error", "input": {}, "errorText": "no"});
    let request = parse(&chat(&json!([answered(&failed)]))).unwrap();
    assert!(request.messages[0].outputs[0].failed);
}

#[test]
fn what_the_server_ran_is_history_alone() {
    let part =
        json!({"state": "output-available", "input": {"n": 1}, "output": {"text": "ok"}, "providerExecuted": true});
    let request = parse(&chat(&json!([answered(&part)]))).unwrap();
    let message = &request.messages[0];
    assert_eq!(message.outputs, []);
    let kinds: Vec<&InputKind> = message.history.iter().map(|input| &input.kind).collect();
    let [InputKind::Assistant(text), InputKind::ToolCall { call_id, arguments, .. }, InputKind::ToolResult { .. }] =
        &kinds[..]
    else {
        panic!("a message, a call and its result: {kinds:?}")
    };
    assert_eq!((text.as_str(), call_id.as_str(), arguments.as_str()), ("I will.", "call_R2", r#"{"n":1}"#));
    assert_eq!(message.history[0].id.as_deref(), Some("task_R"));
    for state in ["input-streaming", "input-available", "approval-requested"] {
        let request = parse(&chat(&json!([answered(&json!({"state": state}))]))).unwrap();
        let message = &request.messages[0];
        assert_eq!((message.approvals.len(), message.outputs.len(), message.history.len()), (0, 0, 1), "{state}");
    }
}

#[test]
fn an_unknown_part_is_an_error_where_it_would_be_lost() {
    let new = user(&json!([{"type": "text", "text": "Hi"}, {"type": "hologram", "url": "u"}]));
    let old = answered(&json!({"state": "output-teleported"}));
    let request = parse(&chat(&json!([old, new]))).unwrap();
    assert_eq!(request.check_new_messages(1).unwrap_err().field, "messages[1].parts[1].type");
    assert_eq!(request.check_new_messages(0).unwrap_err().field, "messages[0].parts[2].state");
    request.check_new_messages(2).unwrap();
}

#[test]
fn invalid_fields_are_named() {
    let text = json!([{"type": "text", "text": "Hi"}]);
    let with = |name: &str, value: Value| {
        let mut body = chat(&json!([user(&text)]));
        body[name] = value;
        body
    };
    let message = |name: &str, value: Value| {
        let mut message = user(&text);
        message[name] = value;
        chat(&json!([message]))
    };
    let part = |part: Value| chat(&json!([user(&json!([part]))]));
    let call = |part: Value| chat(&json!([answered(&part)]));
    for (body, field) in [
        (with("id", json!("a/b")), "id"),
        (with("id", json!("x".repeat(65))), "id"),
        (with("id", json!(7)), "id"),
        (with("trigger", json!("resume-stream")), "trigger"),
        (with("messageId", json!("x".repeat(201))), "messageId"),
        (with("messages", json!([])), "messages"),
        (with("messages", json!({})), "messages"),
        (with("messages", json!([1])), "messages[0]"),
        (with("tools", json!([{"description": "x"}])), "tools[0].name"),
        (with("on_busy", json!("panic")), "on_busy"),
        (with("metadata", json!([])), "metadata"),
        (with("answers", json!([])), "answers"),
        (message("id", json!(null)), "messages[0].id"),
        (message("role", json!("tool")), "messages[0].role"),
        (message("parts", json!("Hi")), "messages[0].parts"),
        (part(json!({"text": "Hi"})), "messages[0].parts[0].type"),
        (part(json!({"type": "text"})), "messages[0].parts[0].text"),
        (part(json!({"type": "file", "url": "https://a"})), "messages[0].parts[0].mediaType"),
        (part(json!({"type": "file", "mediaType": "image/png", "url": "file:///a"})), "messages[0].parts[0].url"),
        (part(json!({"type": "file", "mediaType": "text/plain", "url": "file:///a"})), "messages[0].parts[0].url"),
        (part(json!({"type": "tool-pick", "toolCallId": "c", "state": "x"})), "messages[0].parts[0].type"),
        (call(json!({"toolCallId": null, "state": "input-available"})), "messages[0].parts[2].toolCallId"),
        (call(json!({})), "messages[0].parts[2].state"),
        (call(json!({"state": "approval-responded"})), "messages[0].parts[2].approval"),
        (
            call(json!({"state": "approval-responded", "approval": {"id": "a"}})),
            "messages[0].parts[2].approval.approved",
        ),
        (call(json!({"state": "output-error"})), "messages[0].parts[2].errorText"),
    ] {
        let error = parse(&body).unwrap_err();
        assert_eq!(error.field, field, "{}", error.reason);
    }
    let many: serde_json::Map<String, Value> = (0..65).map(|n| (n.to_string(), json!({}))).collect();
    assert_eq!(parse(&with("answers", many.into())).unwrap_err().field, "answers");
}
