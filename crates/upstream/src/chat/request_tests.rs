use super::*;
use model::content::{ImageDetail, ImageUrl};
use model::history::HistoryEntry;
use model::history::RawItem;
use model::item::ResultStatus;
use model::model_settings::{Logprobs, ModelSettings, OutputFormat, ToolChoice};
use model::{CallId, ItemId, TaskId, ThreadId, UserId};
use std::sync::Arc;

const HERE: RequestTarget<'static> = RequestTarget { model: "m", origin: "here", store: false };

fn turn(history: Vec<HistoryEntry>) -> ModelRequest {
    ModelRequest {
        user: UserId::from("user"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "provider/m".to_owned(),
        instructions: String::new(),
        history: history.into(),
        tools: Arc::new([]),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

fn messages(history: Vec<HistoryEntry>) -> Value {
    build_request(&turn(history), &HERE)["messages"].take()
}

fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

fn says(text: &str) -> HistoryEntry {
    HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: text.to_owned(), raw: None }
}

fn raw(item: Value) -> RawItem {
    RawItem { origin: "here".to_owned(), item }
}

fn thinks(item: Value) -> HistoryEntry {
    HistoryEntry::Reasoning { id: ItemId::from("rs_1"), raw: raw(item) }
}

/// A call from the origin that the request goes to.
fn asks(id: &str, name: &str, arguments: &str) -> HistoryEntry {
    HistoryEntry::Call {
        call_id: CallId::from(format!("call_{id}").as_str()),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        provider_call_id: Some(id.to_owned()),
        raw: Some(raw(json!({"id": id, "type": "function"}))),
    }
}

fn gets(id: &str, content: Vec<ContentPart>) -> HistoryEntry {
    let call_id = CallId::from(format!("call_{id}").as_str());
    HistoryEntry::Result { call_id, status: ResultStatus::Completed, content, acknowledged_checks: None }
}

#[test]
fn a_body_has_every_field_and_operator_options_win() {
    let spec = |name: &str, parameters| ToolSpec { name: name.to_owned(), description: "d".to_owned(), parameters };
    let options = json!({"temperature": 0, "model": "other", "stream_options": null, "tools": [{"type": "own"}]});
    let body = build_request(
        &ModelRequest {
            instructions: "Be brief.".to_owned(),
            tools: Arc::new([spec("t", Value::Null)]),
            provider_options: Arc::new(options.as_object().unwrap().clone()),
            ..turn(vec![user("hi")])
        },
        &HERE,
    );
    let parameters = json!({"type": "object", "properties": {}});
    let expected = json!({
        "model": "m",
        "stream": true,
        "temperature": 0,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [
            {"type": "function", "function": {"name": "t", "description": "d", "parameters": parameters}},
            {"type": "own"},
        ],
    });
    assert_eq!(body, expected);
    let plain = build_request(&turn(vec![user("hi")]), &HERE);
    assert_eq!(plain["stream_options"], json!({"include_usage": true}));
    assert_eq!(plain.get("tools"), None);
}

#[test]
fn the_output_of_a_step_is_one_message_and_its_results_follow_in_order() {
    let told = messages(vec![
        user("weather?"),
        thinks(json!({"reasoning": "hm"})),
        says("I will look."),
        asks("a", "get", "{\"c\":1}"),
        asks("b", "get", "{\"c\":2}"),
        gets("b", vec![ContentPart::text("two")]),
        gets("a", vec![ContentPart::text("one"), ContentPart::text("more")]),
        says("Fine."),
        user("thanks"),
    ]);
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "get", "arguments": arguments}});
    let expected = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "I will look.", "tool_calls": [call("a", "{\"c\":1}"), call("b", "{\"c\":2}")]},
        {"role": "tool", "tool_call_id": "a", "content": "one\nmore"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "assistant", "content": "Fine."},
        {"role": "user", "content": "thanks"},
    ]);
    assert_eq!(told, expected);
}

#[test]
fn roles_alternate_and_the_user_is_first_and_last_in_chat() {
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    assert_eq!(messages(vec![]), json!([said("user", CONTINUE_PROMPT)]));
    let summary = HistoryEntry::Summary { text: "much".to_owned() };
    let told = messages(vec![summary, user("a"), user("b"), thinks(json!({"reasoning": "x"})), user("c")]);
    let words = "Summary of the conversation so far:\n\nmuch\n\na\n\nb\n\nc";
    assert_eq!(told, json!([said("user", words)]));
    let told = messages(vec![says("one"), says("two")]);
    assert_eq!(
        told,
        json!([said("user", CONTINUE_PROMPT), said("assistant", "one\n\ntwo"), said("user", CONTINUE_PROMPT)])
    );
}

#[test]
fn reasoning_is_sent_back_in_the_configured_fields_to_its_origin_only() {
    let thoughts = json!({"reasoning_content": "I think", "reasoning": "I think", "thinking": "x"});
    let fragments = |item: Value| thinks(json!({"reasoning_details": [item]}));
    let told = messages(vec![
        user("q"),
        thinks(thoughts),
        fragments(json!({"type": "reasoning.text", "text": "I think", "index": 0})),
        fragments(json!({"type": "reasoning.text", "signature": "s", "index": 0})),
        says("a"),
        user("q"),
    ]);
    let details = json!([{"type": "reasoning.text", "text": "I think", "signature": "s", "index": 0}]);
    let back =
        json!({"role": "assistant", "content": "a", "reasoning_content": "I think", "reasoning_details": details});
    assert_eq!(told[1], back);
    let elsewhere = RawItem { origin: "there".to_owned(), item: json!({"reasoning_content": "secret"}) };
    let foreign = HistoryEntry::Reasoning { id: ItemId::from("rs_1"), raw: elsewhere };
    assert_eq!(
        messages(vec![user("q"), foreign, says("a"), user("q")])[1],
        json!({"role": "assistant", "content": "a"})
    );
}

#[test]
fn a_signed_call_is_sent_back_signed() {
    let extra = json!({"google": {"thought_signature": "s"}});
    let call = HistoryEntry::Call {
        call_id: CallId::from("call_R1"),
        name: "t".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some("fc-1".to_owned()),
        raw: Some(raw(json!({"id": "fc-1", "extra_content": extra}))),
    };
    let told = messages(vec![user("q"), call]);
    assert_eq!(told[1]["tool_calls"][0]["extra_content"], extra);
    assert_eq!(told[1]["tool_calls"][0]["id"], "fc-1");
    assert_eq!(told[1]["content"], Value::Null);
    assert_eq!(told[2]["tool_call_id"], "fc-1");
}

#[test]
fn reasoning_that_a_service_refuses_can_be_left_out() {
    let thoughts = || thinks(json!({"reasoning_content": "x", "reasoning_details": [{"text": "x"}]}));
    let signed = |item: Value| HistoryEntry::Call {
        call_id: CallId::from("call_R1"),
        name: "t".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some("p".to_owned()),
        raw: Some(raw(item)),
    };
    let full = vec![user("q"), thoughts(), says("a"), signed(json!({"id": "p", "extra_content": {"google": {}}}))];
    let plain = vec![user("q"), says("a"), signed(json!({"id": "p"}))];
    assert_eq!(without_reasoning(build_request(&turn(full), &HERE)), build_request(&turn(plain), &HERE));
}

#[test]
fn calls_of_other_origins_get_portable_and_stable_ids() {
    let call = |number: u32| HistoryEntry::Call {
        call_id: CallId::numbered("019a8c0b6d5f7e0a9b1c2d3e4f50617283", number),
        name: "t".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some("toolu_1".to_owned()),
        raw: Some(RawItem { origin: "there".to_owned(), item: json!({"id": "toolu_1"}) }),
    };
    let first = messages(vec![user("q"), call(1), call(2)]);
    let names: Vec<&str> = (0..2).map(|place| first[1]["tool_calls"][place]["id"].as_str().unwrap()).collect();
    assert_ne!(names[0], names[1]);
    for (place, name) in names.iter().enumerate() {
        assert!(name.len() == 9 && name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
        assert_eq!(first[place + 2]["tool_call_id"], *name);
    }
    let later = messages(vec![user("q"), call(1), call(2), user("more"), call(3)]);
    assert_eq!(later[1], first[1], "a name that changes costs the provider's cache");
}

#[test]
fn colliding_call_ids_are_made_unique() {
    let taken = short_call_id("call_R2", 0);
    let theirs = HistoryEntry::Call {
        call_id: CallId::from("call_R1"),
        name: "t".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: Some(taken.clone()),
        raw: Some(raw(json!({ "id": taken }))),
    };
    let (call_id, name, arguments) = (CallId::from("call_R2"), "t".to_owned(), "{}".to_owned());
    let ours = HistoryEntry::Call { call_id, name, arguments, provider_call_id: None, raw: None };
    let told = messages(vec![user("q"), theirs, ours]);
    assert_eq!(told[1]["tool_calls"][0]["id"], taken);
    assert_ne!(told[1]["tool_calls"][1]["id"], taken);
}

#[test]
fn arguments_are_an_object_and_tool_names_are_plain() {
    let cases = [
        ("", "{}"),
        (" null ", "{}"),
        ("{\"a\": 1}", "{\"a\": 1}"),
        ("{\"a\":", r#"{"_invalid":"{\"a\":"}"#),
        ("[1]", r#"{"_invalid":"[1]"}"#),
    ];
    for (said, expected) in cases {
        let told = messages(vec![user("q"), asks("a", "get weather.now/é", said)]);
        let function = &told[1]["tool_calls"][0]["function"];
        assert_eq!(*function, json!({"name": "get_weather_now__", "arguments": expected}));
    }
    assert_eq!(sanitize_tool_name("", UNNAMED_TOOL), "unknown");
    assert_eq!(sanitize_tool_name(&"x".repeat(100), UNNAMED_TOOL).len(), 64);
}

#[test]
fn images_and_files_are_sent_or_described() {
    let file = |name: Option<&str>, url: Option<&str>| ContentPart::File {
        file: FileRef { name: name.map(str::to_owned), url: url.map(str::to_owned), ..FileRef::default() },
    };
    let closely = |url: &str| {
        let image_url = ImageUrl { url: url.to_owned(), detail: Some(ImageDetail::High) };
        ContentPart::ImageUrl { image_url, id: None }
    };
    let parts = vec![
        ContentPart::text("look"),
        ContentPart::text("here"),
        ContentPart::image("https://x/y.png"),
        closely("https://x/z.png"),
        ContentPart::image("/v1/blobs/1"),
        file(Some("b.pdf"), Some("data:application/pdf;base64,AAAA")),
        file(Some("b.png"), Some("data:image/png;base64,AAAA")),
        file(Some("b.zip"), Some("data:application/zip;base64,AAAA")),
        file(None, Some("https://x/y.pdf")),
    ];
    let expected = json!([
        {"type": "text", "text": "look\nhere"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image_url", "image_url": {"url": "https://x/z.png", "detail": "high"}},
        {"type": "text", "text": "[image /v1/blobs/1]"},
        {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "[file b.zip]\n[file https://x/y.pdf]"},
    ]);
    assert_eq!(messages(vec![HistoryEntry::User { content: parts }]), json!([{"role": "user", "content": expected}]));
}

#[test]
fn images_in_results_follow_all_results() {
    let url = "data:image/png;base64,AAAA";
    let told = messages(vec![
        user("draw"),
        asks("a", "draw", "{}"),
        asks("b", "draw", "{}"),
        gets("a", vec![ContentPart::text("done"), ContentPart::image(url)]),
        gets("b", vec![ContentPart::text("failed")]),
        user("and?"),
    ]);
    let shown = json!([
        {"type": "text", "text": "What draw gave beside its text:"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "and?"},
    ]);
    let expected = [
        json!({"role": "tool", "tool_call_id": "a", "content": "done\n[image]"}),
        json!({"role": "tool", "tool_call_id": "b", "content": "failed"}),
        json!({"role": "user", "content": shown}),
    ];
    assert_eq!(told.as_array().unwrap()[2..], expected);
}

/// The body for these settings, with one tool.
fn body_with_settings(wishes: ModelSettings, model: &str, options: &Value) -> Value {
    let spec = ToolSpec { name: "look".to_owned(), description: String::new(), parameters: Value::Null };
    let turn = ModelRequest {
        instructions: "Be brief.".to_owned(),
        tools: Arc::new([spec]),
        provider_options: Arc::new(options.as_object().cloned().unwrap()),
        model_settings: Arc::new(wishes),
        ..turn(vec![user("hi")])
    };
    build_request(&turn, &RequestTarget { model, ..HERE })
}

#[test]
fn model_settings_map_to_the_fields_of_chat() {
    let schema = json!({"type": "object"});
    let mut body = body_with_settings(
        ModelSettings {
            instructions: Some("Rhyme.".to_owned()),
            max_output_tokens: Some(99),
            temperature: Some(0.5),
            top_p: Some(0.25),
            stop: vec!["END".to_owned()],
            tool_choice: Some(ToolChoice::Tool { name: "look".to_owned() }),
            parallel_tool_calls: Some(false),
            effort: Some("high".to_owned()),
            format: Some(OutputFormat::Schema { name: "it".to_owned(), schema: schema.clone(), strict: None }),
            service_tier: Some("flex".to_owned()),
            logprobs: Some(Logprobs { include: true, top: Some(3) }),
        },
        "m",
        &json!({}),
    );
    body.as_object_mut().unwrap().remove("tools");
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "Be brief.\n\nRhyme."}, {"role": "user", "content": "hi"}],
        "max_tokens": 99, "temperature": 0.5, "top_p": 0.25, "stop": ["END"], "reasoning_effort": "high",
        "tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": false,
        "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}},
        "service_tier": "flex", "logprobs": true, "top_logprobs": 3,
    });
    assert_eq!(body, expected);
    for (choice, word) in [(ToolChoice::Auto, "auto"), (ToolChoice::None, "none"), (ToolChoice::Required, "required")] {
        let wishes = ModelSettings { tool_choice: Some(choice), ..ModelSettings::default() };
        assert_eq!(body_with_settings(wishes, "m", &json!({}))["tool_choice"], word);
    }
    let any = body_with_settings(
        ModelSettings { format: Some(OutputFormat::Json), ..ModelSettings::default() },
        "m",
        &json!({}),
    );
    assert_eq!(any["response_format"], json!({"type": "json_object"}));
}

#[test]
fn the_token_limit_has_the_field_name_of_the_model_unless_the_operator_set_one() {
    let limits = |model: &str, options: Value| {
        let body = body_with_settings(
            ModelSettings { max_output_tokens: Some(9), ..ModelSettings::default() },
            model,
            &options,
        );
        [body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64()]
    };
    for model in ["o3-mini", "gpt-5", "openai/gpt-5-mini", "gpt-5-chat-latest"] {
        assert_eq!(limits(model, json!({})), [None, Some(9)], "{model}");
    }
    for model in ["gpt-4o", "mistral-large", "gpt-oss-20b", "deepseek-chat"] {
        assert_eq!(limits(model, json!({})), [Some(9), None], "{model}");
    }
    assert_eq!(limits("gpt-5", json!({"max_tokens": 5})), [Some(5), None]);
    assert_eq!(limits("m", json!({"max_completion_tokens": 5})), [None, Some(5)]);
}

#[test]
fn without_tools_no_tool_fields_are_sent() {
    let wishes = ModelSettings {
        tool_choice: Some(ToolChoice::Required),
        parallel_tool_calls: Some(true),
        instructions: Some(" ".to_owned()),
        ..ModelSettings::default()
    };
    let asked = ModelRequest { model_settings: Arc::new(wishes), ..turn(vec![user("hi")]) };
    assert_eq!(build_request(&asked, &HERE), build_request(&turn(vec![user("hi")]), &HERE));
}

#[test]
fn client_instructions_are_in_the_single_system_message() {
    let system = |text: &str| HistoryEntry::System { text: text.to_owned() };
    let history = vec![system("Be kind."), user("hi"), says("Hello,"), system("Be quick."), says("you."), user("go")];
    let turn = ModelRequest { instructions: "Be brief.".to_owned(), ..turn(history) };
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let expected = json!([
        said("system", "Be brief.\n\nBe kind.\n\nBe quick."),
        said("user", "hi"),
        said("assistant", "Hello,\n\nyou."),
        said("user", "go"),
    ]);
    assert_eq!(build_request(&turn, &HERE)["messages"], expected);
}
