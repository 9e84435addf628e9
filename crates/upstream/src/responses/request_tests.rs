//! The rules for the history in a request, one test each, and the formats of everything else.

use super::*;
use crate::responses::classify_error;
use model::content::{ContentPart, FileRef};
use model::history::RawItem;
use model::item::ResultStatus;
use model::model_settings::{Logprobs, ModelSettings, OutputFormat, ToolChoice};
use model::{CallId, ItemId, TaskId, ThreadId, UserId};
use std::sync::Arc;

const HERE: &str = "openai/gpt-5";

fn turn(history: Vec<HistoryEntry>, options: Value) -> ModelRequest {
    let Value::Object(options) = options else { panic!("options are an object") };
    ModelRequest {
        user: UserId::from("u"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "openai/gpt-5".to_owned(),
        instructions: String::new(),
        history: history.into(),
        tools: Vec::new().into(),
        provider_options: options.into(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

fn body(history: Vec<HistoryEntry>) -> Value {
    build_request(&turn(history, json!({})), &RequestTarget { model: "gpt-5", origin: HERE, store: false })
}

fn sent(history: Vec<HistoryEntry>) -> Value {
    body(history)["input"].clone()
}

fn raw(origin: &str, item: Value) -> RawItem {
    RawItem { origin: origin.to_owned(), item }
}

fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

fn user_item(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn rs(number: u32) -> Value {
    json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": "gAAA"})
}

fn msg(text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final_answer", "content": [part]})
}

fn fc(number: u32) -> Value {
    json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("p{number}"), "name": "look",
        "arguments": "{}", "status": "completed"})
}

fn thought(origin: &str, item: Value) -> HistoryEntry {
    HistoryEntry::Reasoning { id: ItemId::from("rs_ours"), raw: raw(origin, item) }
}

fn assistant_message(text: &str, raw: Option<RawItem>) -> HistoryEntry {
    HistoryEntry::Assistant { id: ItemId::from("msg_ours"), text: text.to_owned(), raw }
}

fn tool_call(number: u32, raw: Option<RawItem>) -> HistoryEntry {
    HistoryEntry::Call {
        call_id: CallId::from(format!("call_{number}").as_str()),
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some(format!("p{number}")),
        raw,
    }
}

fn tool_result(number: u32, content: Vec<ContentPart>) -> HistoryEntry {
    let call_id = CallId::from(format!("call_{number}").as_str());
    HistoryEntry::Result { call_id, status: ResultStatus::Completed, content, acknowledged_checks: None }
}

fn output(call_id: &str, output: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": output})
}

/// A turn with reasoning, a call and an answer, all from `origin`.
fn whole_turn(origin: &str) -> Vec<HistoryEntry> {
    vec![
        user("hi"),
        thought(origin, rs(1)),
        tool_call(1, Some(raw(origin, fc(1)))),
        tool_result(1, vec![ContentPart::text("42")]),
        thought(origin, rs(2)),
        assistant_message("It is 42.", Some(raw(origin, msg("It is 42.")))),
    ]
}

#[test]
fn rule_2_nothing_is_stored_at_the_service_and_encrypted_reasoning_is_requested() {
    let body = |model: &str, history: Vec<HistoryEntry>, options: Value| {
        build_request(&turn(history, options), &RequestTarget { model, origin: HERE, store: false })
    };
    let asks = |body: Value| body["store"] == json!(false) && body["include"] == json!([INCLUDE_ENCRYPTED_REASONING]);
    for model in
        ["o1", "o3-mini", "gpt-5", "gpt-5.6", "gpt-12-pro", "codex-mini-latest", "openai/o4-mini", "ft:o4-mini:me::1"]
    {
        assert!(asks(body(model, vec![user("hi")], json!({}))), "{model}");
    }
    for model in ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "omni-moderation", "o", "llama-3", "gpt-oss-20b", ""] {
        let body = body(model, vec![user("hi")], json!({}));
        assert_eq!((&body["include"], &body["store"]), (&Value::Null, &json!(false)), "{model}");
    }
    assert!(asks(body("house-model", vec![user("hi")], json!({"reasoning": {"effort": "low"}}))));
    assert!(asks(body("house-model", whole_turn(HERE), json!({}))));
    assert!(!asks(body("house-model", whole_turn("elsewhere"), json!({}))));
    // An operator's option overrides it.
    assert_eq!(body("gpt-5", vec![user("hi")], json!({"include": null})).get("include"), None);
    let more = body("gpt-5", vec![user("hi")], json!({"include": ["message.output_text.logprobs"]}));
    assert_eq!(more["include"], json!([INCLUDE_ENCRYPTED_REASONING, "message.output_text.logprobs"]));
}

#[test]
fn rule_3_a_complete_group_is_sent_back_unchanged() {
    let expected = json!([user_item("hi"), rs(1), fc(1), output("p1", "42"), rs(2), msg("It is 42.")]);
    assert_eq!(sent(whole_turn(HERE)), expected);
}

#[test]
fn rule_4_another_origin_gets_no_reasoning_and_no_ids() {
    let plain_call = json!({"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"});
    let plain_words = json!({"type": "message", "role": "assistant", "content": "It is 42."});
    let expected = json!([user_item("hi"), plain_call, output("call_1", "42"), plain_words]);
    assert_eq!(sent(whole_turn("openai/gpt-4")), expected);
}

#[test]
fn rule_5_incomplete_reasoning_is_left_out_with_all_ids_of_its_group() {
    let words = json!({"type": "message", "role": "assistant", "content": "x", "phase": "final_answer"});
    let message = || assistant_message("x", Some(raw(HERE, msg("x"))));
    // Nothing follows it.
    assert_eq!(sent(vec![user("hi"), thought(HERE, rs(1))]), json!([user_item("hi")]));
    assert_eq!(sent(vec![message(), thought(HERE, rs(1)), user("hi")]), json!([words, user_item("hi")]));
    // It has no encrypted content, or an empty one, and the service does not store it.
    for blob in [Value::Null, "".into()] {
        let mut bare = rs(1);
        bare["encrypted_content"] = blob;
        assert_eq!(sent(vec![thought(HERE, bare), message()]), json!([words]));
    }
    // The item after it cannot be sent back.
    let shell = json!({"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed"});
    let hosted = HistoryEntry::Hosted { id: ItemId::from("hc_1"), name: "shell".to_owned(), raw: raw(HERE, shell) };
    assert_eq!(sent(vec![thought(HERE, rs(1)), hosted, message()]), json!([words]));
    let stone = json!({"type": "message", "id": "msg_1", "too_long": true});
    let cut = json!({"type": "message", "role": "assistant", "content": "x"});
    assert_eq!(sent(vec![thought(HERE, rs(1)), assistant_message("x", Some(raw(HERE, stone)))]), json!([cut]));
    // A call without a result gets one, and a result without a call is dropped.
    let answered = sent(vec![tool_call(1, Some(raw(HERE, fc(1)))), tool_result(9, vec![ContentPart::text("?")])]);
    assert_eq!(answered.as_array().map(Vec::len), Some(2));
    assert!(answered[1]["output"].as_str().unwrap().contains("interrupted"), "{answered}");
}

#[test]
fn rule_5_an_id_is_enough_for_a_service_that_stores_responses() {
    let mut bare = rs(1);
    bare["encrypted_content"] = Value::Null;
    let history = vec![thought(HERE, bare.clone()), assistant_message("x", Some(raw(HERE, msg("x"))))];
    let body = build_request(&turn(history, json!({})), &RequestTarget { model: "gpt-5", origin: HERE, store: true });
    assert_eq!((&body["input"], &body["store"]), (&json!([bare, msg("x")]), &json!(true)));
    assert_eq!(body.get("include"), None);
}

#[test]
fn rule_6_an_interrupted_turn_is_sent_as_text() {
    let cut = vec![
        user("hi"),
        assistant_message("I was abo", None),
        thought(HERE, rs(2)),
        assistant_message("x", Some(raw(HERE, msg("x")))),
    ];
    let words = json!({"type": "message", "role": "assistant", "content": "I was abo"});
    assert_eq!(sent(cut), json!([user_item("hi"), words, rs(2), msg("x")]));
}

#[test]
fn rule_7_after_a_refusal_the_request_is_resent_without_the_refused_items() {
    let refusal = br#"{"error": {"code": "invalid_encrypted_content", "message": "x"}}"#;
    assert_eq!(classify_error(400, refusal, None).error.code, "history_refused");
    let mut history = whole_turn(HERE);
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}});
    history.push(HistoryEntry::Hosted {
        id: ItemId::from("hc_1"),
        name: "web_search".to_owned(),
        raw: raw(HERE, search),
    });
    history.push(assistant_message("x", Some(raw(HERE, msg("x")))));
    let again = without_reasoning(body(history));
    let plain_call = json!({"type": "function_call", "call_id": "p1", "name": "look", "arguments": "{}"});
    let words = |text: &str| json!({"type": "message", "role": "assistant", "content": text, "phase": "final_answer"});
    let expected = json!([user_item("hi"), plain_call, output("p1", "42"), words("It is 42."), words("x")]);
    assert_eq!(again["input"], expected);
    assert_eq!(without_reasoning(again.clone()), again, "a second time changes nothing");
    assert_eq!(without_reasoning(json!({"input": [rs(1)]}))["input"].as_array().map(Vec::len), Some(1));
}

#[test]
fn rule_8_the_history_is_sent_once() {
    let wishes =
        json!({"previous_response_id": "resp_1", "conversation": "conv_1", "input": [], "stream": false, "model": "x"});
    let body =
        build_request(&turn(vec![user("hi")], wishes), &RequestTarget { model: "gpt-5", origin: HERE, store: false });
    assert_eq!((body.get("previous_response_id"), body.get("conversation")), (None, None));
    assert_eq!((&body["stream"], &body["model"]), (&json!(true), &json!("gpt-5")));
    assert_eq!(body["input"], json!([user_item("hi")]));
}

#[test]
fn rule_9_our_item_ids_are_not_sent() {
    for origin in [HERE, "elsewhere"] {
        let text = body(whole_turn(origin)).to_string();
        assert!(!text.contains("_ours") && !text.contains("task_1") && !text.contains("thr_1"), "{text}");
    }
}

#[test]
fn without_reasoning_text_and_calls_have_no_ids_and_the_rest_is_unchanged() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}});
    let hosted = HistoryEntry::Hosted {
        id: ItemId::from("hc_1"),
        name: "web_search".to_owned(),
        raw: raw(HERE, search.clone()),
    };
    let words = json!({"type": "message", "role": "assistant", "content": "x", "phase": "final_answer"});
    assert_eq!(sent(vec![hosted, assistant_message("x", Some(raw(HERE, msg("x"))))]), json!([search, words]));
}

#[test]
fn a_duplicate_call_id_is_replaced_by_ours() {
    let mut history = whole_turn(HERE);
    history.push(thought(HERE, rs(3)));
    // The service reuses call ids in each answer.
    history.push(HistoryEntry::Call {
        call_id: CallId::from("call_2"),
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some("p1".to_owned()),
        raw: Some(raw(HERE, fc(1))),
    });
    history.push(tool_result(2, vec![ContentPart::text("43")]));
    let ids: Vec<Value> =
        sent(history).as_array().unwrap().iter().filter_map(|item| item.get("call_id").cloned()).collect();
    assert_eq!(ids, ["call_1", "call_1", "call_2", "call_2"]);
}

#[test]
fn a_computer_call_is_answered_with_a_screenshot() {
    let checks = json!([{"id": "sc_1", "code": "malicious_instructions", "message": "x"}]);
    let call = json!({"type": "computer_call", "id": "cu_1", "call_id": "p1", "status": "completed",
        "action": {"type": "screenshot"}, "pending_safety_checks": checks});
    let computer_call = || tool_call(1, Some(raw(HERE, call.clone())));
    let seen = vec![ContentPart::text("done"), ContentPart::image("data:image/png;base64,AAAA")];
    let answer = json!({"type": "computer_call_output", "call_id": "p1", "acknowledged_safety_checks": checks,
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}});
    let history = vec![thought(HERE, rs(1)), computer_call(), tool_result(1, seen)];
    assert_eq!(sent(history.clone()), json!([rs(1), call, answer]));
    // Without an image it can only be described.
    let described =
        sent(vec![thought(HERE, rs(1)), computer_call(), tool_result(1, vec![ContentPart::text("no screen")])]);
    let plain = json!({"type": "function_call", "call_id": "p1", "name": "look", "arguments": "{}"});
    assert_eq!(described, json!([plain, output("p1", "no screen")]));
    let again = without_reasoning(body(history));
    assert_eq!(again["input"][0]["name"], "computer");
    assert_eq!(again["input"][1]["output"][0]["image_url"], "data:image/png;base64,AAAA");
}

#[test]
fn a_custom_call_is_answered_in_its_own_shape() {
    let call = json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "p1", "name": "look", "input": "any"});
    let history = vec![tool_call(1, Some(raw(HERE, call.clone()))), tool_result(1, vec![ContentPart::text("ok")])];
    let answer = json!({"type": "custom_tool_call_output", "call_id": "p1", "output": "ok"});
    let mut bare = call;
    bare.as_object_mut().unwrap().remove("id");
    assert_eq!(sent(history), json!([bare, answer]));
}

#[test]
fn an_edited_call_is_sent_with_the_arguments_that_ran() {
    let function =
        json!({"type": "function_call", "id": "fc_1", "call_id": "p1", "name": "look", "arguments": "{\"n\": 500}"});
    let custom = json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "p1", "name": "look", "input": "500"});
    let computer = json!({"type": "computer_call", "id": "cu_1", "call_id": "p1", "pending_safety_checks": [],
        "action": {"type": "wait"}});
    let actions = json!([{"type": "screenshot"}]);
    let cases = [
        (function, r#"{"n":7}"#.to_owned(), "arguments", json!(r#"{"n":7}"#)),
        (custom, r#"{"input":"7"}"#.to_owned(), "input", json!("7")),
        (computer, json!({"actions": actions, "pending_safety_checks": []}).to_string(), "actions", actions),
    ];
    for (item, arguments, member, expected) in cases {
        let call = HistoryEntry::Call {
            call_id: CallId::from("call_1"),
            name: "look".to_owned(),
            arguments,
            provider_call_id: Some("p1".to_owned()),
            raw: Some(raw(HERE, item.clone())),
        };
        let seen = vec![ContentPart::image("data:image/png;base64,AAAA")];
        let sent = sent(vec![thought(HERE, rs(1)), call, tool_result(1, seen)]);
        assert_eq!((&sent[1]["type"], &sent[1]["id"]), (&item["type"], &item["id"]), "{sent}");
        assert_eq!((&sent[1][member], &sent[1]["action"]), (&expected, &Value::Null), "{sent}");
    }
}

#[test]
fn images_and_files_are_sent_in_the_services_format() {
    let file = |name: Option<&str>, url: &str| ContentPart::File {
        file: FileRef { name: name.map(Into::into), url: Some(url.into()), ..FileRef::default() },
    };
    let stored = FileRef { bucket: Some("docs".into()), path: Some("b.pdf".into()), ..FileRef::default() };
    let content = vec![
        ContentPart::text("look"),
        ContentPart::image("https://x/y.png"),
        ContentPart::image("/v1/blobs/abc"),
        file(None, "https://x/y.pdf"),
        file(Some("b.pdf"), "data:application/pdf;base64,AAAA"),
        file(None, "data:application/pdf;base64,AAAA"),
        file(Some("b.png"), "data:image/png;base64,AAAA"),
        file(Some("b.zip"), "data:application/zip;base64,AAAA"),
        ContentPart::File { file: stored },
    ];
    let parts = json!([
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"},
        {"type": "input_text", "text": "[image]"},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {"type": "input_file", "filename": "b.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_text", "text": "[file b.zip]"},
        {"type": "input_text", "text": "[file docs/b.pdf]"},
    ]);
    let given =
        sent(vec![HistoryEntry::User { content: content.clone() }, tool_call(1, None), tool_result(1, content)]);
    assert_eq!(given[0]["content"], parts);
    assert_eq!(given[2]["output"], parts, "a result may hold the same");
}

#[test]
fn a_request_always_has_input_and_no_blank_text() {
    assert_eq!(sent(vec![]), json!([user_item("Go on.")]));
    assert_eq!(sent(vec![user(" "), assistant_message("\n", None)]), json!([user_item("Go on.")]));
    let summed = sent(vec![HistoryEntry::Summary { text: "They met.".to_owned() }, user("go on")]);
    assert_eq!(summed[0], user_item("Summary of the conversation so far:\n\nThey met."));
    let odd = HistoryEntry::Call {
        call_id: CallId::from("call_1"),
        name: "functions.look up!".to_owned(),
        arguments: "{\"a\":".to_owned(),
        provider_call_id: None,
        raw: None,
    };
    let call = sent(vec![odd])[0].clone();
    assert_eq!((&call["name"], &call["arguments"]), (&json!("functions_look_up_"), &json!("{\"a\":")));
}

#[test]
fn a_body_has_tools_and_instructions_and_operator_options_win() {
    let tool =
        |name: &str, parameters: Value| ToolSpec { name: name.to_owned(), description: "d".to_owned(), parameters };
    let mut turn = turn(vec![user("hi")], json!({"temperature": 0.5, "tools": [{"type": "web_search"}]}));
    turn.instructions = "Be brief.".to_owned();
    turn.tools = vec![tool("look", json!({"type": "object"})), tool("computer", json!(null))].into();
    let target = RequestTarget { model: "gpt-4.1", origin: HERE, store: false };
    let function = |name: &str| {
        let parameters = json!({"type": "object", "properties": {}});
        json!({"type": "function", "name": name, "description": "d", "parameters": parameters, "strict": false})
    };
    let expected = json!({
        "model": "gpt-4.1", "stream": true, "store": false, "instructions": "Be brief.", "temperature": 0.5,
        "input": [user_item("hi")], "tools": [function("look"), function("computer"), {"type": "web_search"}],
    });
    assert_eq!(build_request(&turn, &target), expected);
    turn.provider_options = json!({"tools": [{"type": "computer"}, {"type": "custom", "name": "look"}]})
        .as_object()
        .cloned()
        .unwrap()
        .into();
    assert_eq!(
        build_request(&turn, &target)["tools"],
        json!([{"type": "computer"}, {"type": "custom", "name": "look"}])
    );
}

/// The body for these settings, with one tool.
fn body_with_settings(wishes: ModelSettings, options: Value) -> Value {
    let spec = ToolSpec { name: "look".to_owned(), description: String::new(), parameters: Value::Null };
    let turn = ModelRequest {
        instructions: "Be brief.".to_owned(),
        tools: Arc::new([spec]),
        model_settings: Arc::new(wishes),
        ..turn(vec![user("hi")], options)
    };
    build_request(&turn, &RequestTarget { model: "gpt-4o", origin: HERE, store: false })
}

#[test]
fn model_settings_map_to_the_fields_of_responses() {
    let schema = json!({"type": "object"});
    let body = body_with_settings(
        ModelSettings {
            instructions: Some("Rhyme.".to_owned()),
            max_output_tokens: Some(99),
            temperature: Some(0.5),
            top_p: Some(0.25),
            stop: vec!["END".to_owned()],
            tool_choice: Some(ToolChoice::Tool { name: "look".to_owned() }),
            parallel_tool_calls: Some(false),
            effort: Some("high".to_owned()),
            format: Some(OutputFormat::Schema { name: "it".to_owned(), schema: schema.clone(), strict: Some(true) }),
            service_tier: Some("flex".to_owned()),
            logprobs: Some(Logprobs { include: true, top: Some(3) }),
        },
        json!({}),
    );
    let expected = json!({
        "model": "gpt-4o", "stream": true, "store": false, "include": [INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS],
        "instructions": "Be brief.\n\nRhyme.",
        "input": [user_item("hi")],
        "tools": [{"type": "function", "name": "look", "strict": false,
            "parameters": {"type": "object", "properties": {}}}],
        "max_output_tokens": 99, "temperature": 0.5, "top_p": 0.25,
        "tool_choice": {"type": "function", "name": "look"}, "parallel_tool_calls": false,
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "it", "schema": schema, "strict": true}},
        "service_tier": "flex", "top_logprobs": 3,
    });
    assert_eq!(body, expected);
    for (choice, word) in [(ToolChoice::Auto, "auto"), (ToolChoice::None, "none"), (ToolChoice::Required, "required")] {
        assert_eq!(
            body_with_settings(ModelSettings { tool_choice: Some(choice), ..ModelSettings::default() }, json!({}))["tool_choice"],
            word
        );
    }
    let any =
        body_with_settings(ModelSettings { format: Some(OutputFormat::Json), ..ModelSettings::default() }, json!({}));
    assert_eq!(any["text"], json!({"format": {"type": "json_object"}}));
}

#[test]
fn operator_options_override_the_callers_settings_and_keep_the_rest() {
    let wishes = || ModelSettings {
        temperature: Some(0.5),
        top_p: Some(0.5),
        effort: Some("low".to_owned()),
        ..ModelSettings::default()
    };
    let options = json!({"temperature": 0.0, "top_p": null, "reasoning": {"summary": "auto"}});
    let body = body_with_settings(wishes(), options);
    assert_eq!(body["temperature"], 0.0);
    assert_eq!(body.get("top_p"), None);
    assert_eq!(body["reasoning"], json!({"effort": "low", "summary": "auto"}));
    let body = body_with_settings(wishes(), json!({"reasoning": null}));
    assert_eq!((body.get("reasoning"), body.get("include")), (None, None));
}

#[test]
fn without_tools_no_tool_fields_are_sent() {
    let wishes = ModelSettings {
        tool_choice: Some(ToolChoice::Required),
        parallel_tool_calls: Some(true),
        instructions: Some(" ".to_owned()),
        ..ModelSettings::default()
    };
    let turn = ModelRequest { model_settings: Arc::new(wishes), ..turn(vec![user("hi")], json!({})) };
    let body = build_request(&turn, &RequestTarget { model: "gpt-4o", origin: HERE, store: false });
    assert_eq!(body, json!({"model": "gpt-4o", "stream": true, "store": false, "input": [user_item("hi")]}));
}

#[test]
fn client_instructions_keep_their_position() {
    let system = HistoryEntry::System { text: "Be kind.".to_owned() };
    let told = json!({"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be kind."}]});
    assert_eq!(sent(vec![user("hi"), system, user("you")]), json!([user_item("hi"), told, user_item("you")]));
    assert_eq!(without_reasoning(json!({"input": [told]})), json!({"input": [told]}));
}
