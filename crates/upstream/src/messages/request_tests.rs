//! The history in a request, rule by rule.

use super::*;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::history::RawItem;
use model::item::ResultStatus;
use model::model_settings::{Logprobs, ModelSettings, OutputFormat, ToolChoice};
use model::{CallId, ItemId, TaskId, ThreadId, UserId};
use std::sync::Arc;

const HERE: RequestTarget<'static> = RequestTarget { model: "claude-x", origin: "here", store: false };

fn turn(history: Vec<HistoryEntry>) -> ModelRequest {
    ModelRequest {
        user: UserId::from("user"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "anthropic/claude-x".to_owned(),
        instructions: String::new(),
        history: history.into(),
        tools: Arc::new([]),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

fn with(history: Vec<HistoryEntry>, options: &Value) -> Value {
    let options = Arc::new(options.as_object().cloned().unwrap());
    build_request(&ModelRequest { provider_options: options, ..turn(history) }, &HERE)
}

/// The messages without cache marks, which have a test of their own.
fn messages(history: Vec<HistoryEntry>) -> Value {
    unmarked(with(history, &json!({})))["messages"].take()
}

fn unmarked(mut body: Value) -> Value {
    match &mut body {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(|field| *field = unmarked(field.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|element| *element = unmarked(element.take())),
        _ => {}
    }
    body
}

fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

fn raw(block: &Value) -> RawItem {
    RawItem { origin: "here".to_owned(), item: json!([block]) }
}

fn says(text: &str) -> HistoryEntry {
    let raw = Some(raw(&json!({"type": "text", "text": text})));
    HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: text.to_owned(), raw }
}

fn thinks(thought: &str) -> HistoryEntry {
    let block = json!({"type": "thinking", "thinking": thought, "signature": format!("signed {thought}")});
    HistoryEntry::Reasoning { id: ItemId::from("rs_1"), raw: raw(&block) }
}

/// A call from the origin that the request goes to.
fn asks(id: &str) -> HistoryEntry {
    HistoryEntry::Call {
        call_id: CallId::from(format!("call_{id}").as_str()),
        name: "look".to_owned(),
        arguments: r#"{"at":1}"#.to_owned(),
        provider_call_id: Some(format!("toolu_{id}")),
        raw: Some(raw(&json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": "look", "input": {"at": 1}}))),
    }
}

fn gets(id: &str, status: ResultStatus, content: Vec<ContentPart>) -> HistoryEntry {
    let call_id = CallId::from(format!("call_{id}").as_str());
    HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
}

fn fine(id: &str) -> HistoryEntry {
    gets(id, ResultStatus::Completed, vec![ContentPart::text(format!("seen {id}"))])
}

/// The same entry from another provider.
fn foreign(mut entry: HistoryEntry) -> HistoryEntry {
    match &mut entry {
        HistoryEntry::Reasoning { raw, .. } | HistoryEntry::Hosted { raw, .. } => raw.origin = "there".to_owned(),
        HistoryEntry::Assistant { raw, .. } | HistoryEntry::Call { raw, .. } => {
            if let Some(raw) = raw {
                raw.origin = "there".to_owned();
            }
        }
        HistoryEntry::Summary { .. }
        | HistoryEntry::System { .. }
        | HistoryEntry::User { .. }
        | HistoryEntry::GeneratedImages { .. }
        | HistoryEntry::Result { .. } => {}
    }
    entry
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

fn thought(thought: &str) -> Value {
    json!({"type": "thinking", "thinking": thought, "signature": format!("signed {thought}")})
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": 1}})
}

fn tool_result(id: &str, words: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": [text(words)]})
}

#[test]
fn a_first_request_has_every_field() {
    let spec = ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"properties": {"at": {}}, "anyOf": []}),
    };
    let turn = ModelRequest { instructions: "Be brief.".to_owned(), tools: Arc::new([spec]), ..turn(vec![user("hi")]) };
    let mark = json!({"type": "ephemeral"});
    let expected = json!({
        "model": "claude-x",
        "stream": true,
        "max_tokens": 8192,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "tools": [{
            "name": "look", "description": "Looks.", "cache_control": mark,
            "input_schema": {"type": "object", "properties": {"at": {}}}
        }],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]}],
    });
    assert_eq!(build_request(&turn, &HERE), expected);
}

#[test]
fn deferred_tools_come_first_and_with_the_search_of_the_provider() {
    let spec = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({}) };
    let deferred_tools = Arc::new(["b".to_owned()].into());
    let turn = ModelRequest { tools: Arc::new([spec("a"), spec("b")]), deferred_tools, ..turn(vec![user("hi")]) };
    let schema = json!({"type": "object"});
    let search = json!({
        "type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25", "cache_control": {"type": "ephemeral"},
    });
    let expected = json!([
        {"name": "b", "input_schema": schema, "defer_loading": true}, {"name": "a", "input_schema": schema}, search,
    ]);
    assert_eq!(build_request(&turn, &HERE)["tools"], expected);
}

#[test]
fn operator_options_override_the_body_and_beta_features_stay_out_of_it() {
    let wishes = json!({"max_tokens": 9, "temperature": 0.5, "model": "other", "stream": false, "messages": [],
        "betas": ["b"], "tools": [{"type": "web_search_20250305", "name": "web_search"}]});
    let body = with(vec![user("hi")], &wishes);
    assert_eq!(body["max_tokens"], 9);
    assert_eq!(body["temperature"], 0.5);
    assert_eq!((&body["model"], &body["stream"]), (&json!("claude-x"), &json!(true)));
    assert_eq!(body["tools"], wishes["tools"]);
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body.get("betas"), None);
}

#[test]
fn max_tokens_includes_the_thinking_budget() {
    let body = with(vec![user("hi")], &json!({"thinking": {"type": "enabled", "budget_tokens": 30000}}));
    assert_eq!(body["max_tokens"], 38192);
}

#[test]
fn all_results_of_a_turn_come_first_in_one_message() {
    let history = vec![
        user("hi"),
        thinks("hm"),
        says("Looking."),
        asks("1"),
        asks("2"),
        fine("2"),
        gets("1", ResultStatus::Failed, vec![ContentPart::text("broken")]),
        user("hurry"),
    ];
    let mut failed = tool_result("toolu_1", "broken");
    failed["is_error"] = true.into();
    let expected = json!([
        {"role": "user", "content": [text("hi")]},
        {"role": "assistant", "content": [thought("hm"), text("Looking."), tool_use("toolu_1"), tool_use("toolu_2")]},
        {"role": "user", "content": [failed, tool_result("toolu_2", "seen 2"), text("hurry")]},
    ]);
    assert_eq!(messages(history), expected);
}

#[test]
fn output_of_another_model_is_sent_as_text_and_calls_with_our_ids() {
    let history = vec![user("hi"), foreign(thinks("hm")), foreign(says("Looking.")), foreign(asks("1")), fine("1")];
    let expected = json!([
        {"role": "user", "content": [text("hi")]},
        {"role": "assistant", "content": [text("Looking."), tool_use("call_1")]},
        {"role": "user", "content": [tool_result("call_1", "seen 1")]},
    ]);
    assert_eq!(messages(history), expected);
}

#[test]
fn missing_results_and_non_object_arguments_are_repaired() {
    let mut call = asks("1");
    if let HistoryEntry::Call { arguments, .. } = &mut call {
        *arguments = "{\"at\":".to_owned();
    }
    let told = messages(vec![user("hi"), call, user("go on")]);
    assert_eq!(told[1]["content"][0]["input"], json!({"_invalid": "{\"at\":"}));
    assert_eq!(told[2]["content"][0]["tool_use_id"], "toolu_1");
    assert_eq!(told[2]["content"][0]["is_error"], true);
    assert_eq!(told[2]["content"][1], text("go on"));
}

#[test]
fn the_user_is_first_and_last() {
    assert_eq!(messages(vec![]), json!([{"role": "user", "content": [text("Go on.")]}]));
    let expected = json!([
        {"role": "user", "content": [text("(What was said before this is not shown.)")]},
        {"role": "assistant", "content": [text("Well, ")]},
        {"role": "user", "content": [text("Go on.")]},
    ]);
    assert_eq!(messages(vec![says("Well, ")]), expected);
}

#[test]
fn consecutive_entries_of_one_role_are_one_message_and_a_summary_is_labelled() {
    let history = vec![HistoryEntry::Summary { text: "They met.".to_owned() }, user("hi"), user(" "), user("you")];
    let summary = text("Summary of the conversation so far:\n\nThey met.");
    assert_eq!(messages(history), json!([{"role": "user", "content": [summary, text("hi"), text("you")]}]));
}

#[test]
fn reasoning_is_never_last_in_a_message() {
    let history = vec![user("hi"), thinks("hm"), user("well?")];
    assert_eq!(messages(history), json!([{"role": "user", "content": [text("hi"), text("well?")]}]));
}

#[test]
fn hosted_tool_blocks_are_sent_back_complete_or_not_at_all() {
    let hosted = |blocks: Value| HistoryEntry::Hosted {
        id: ItemId::from("hc_1"),
        name: "web_search".to_owned(),
        raw: RawItem { origin: "here".to_owned(), item: blocks },
    };
    let call = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let result = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let cited = json!({"type": "text", "text": "so", "citations": [
        {"type": "web_search_result_location", "url": "u"}, {"type": "char_location", "document_index": 0}]});
    let said = HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: "so".to_owned(), raw: Some(raw(&cited)) };
    let whole = messages(vec![user("hi"), hosted(json!([call, result])), said.clone(), user("ok")]);
    let kept = json!({"type": "text", "text": "so", "citations": [{"type": "web_search_result_location", "url": "u"}]});
    assert_eq!(whole[1]["content"], json!([call, result, kept]));
    for half in [json!([call]), json!([result])] {
        let told = messages(vec![user("hi"), hosted(half), said.clone(), user("ok")]);
        assert_eq!(told[1]["content"], json!([text("so")]));
    }
    // The newest turn still waits for it: its result comes with the next answer.
    let told = messages(vec![user("hi"), hosted(json!([call])), asks("1"), fine("1")]);
    assert_eq!(told[1]["content"], json!([call, tool_use("toolu_1")]));
}

#[test]
fn an_open_turn_that_started_without_reasoning_continues_without() {
    let wish = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let began_elsewhere = vec![user("hi"), foreign(asks("1")), fine("1"), thinks("hm"), asks("2"), fine("2")];
    let body = with(began_elsewhere.clone(), &wish);
    assert_eq!(body.get("thinking"), None);
    assert!(!body.to_string().contains("signed"), "{body}");
    // The next turn reasons again.
    let mut over = began_elsewhere;
    over.extend([says("Done."), user("and now?")]);
    let body = with(over, &wish);
    assert_eq!(body["thinking"], wish["thinking"]);
    assert!(body.to_string().contains("signed hm"), "{body}");
}

#[test]
fn an_open_turn_that_started_with_reasoning_keeps_it() {
    // Without interleaved thinking only the first answer of a turn has any.
    let history = vec![user("hi"), thinks("hm"), asks("1"), fine("1"), asks("2"), fine("2")];
    let body = with(history.clone(), &json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}));
    assert_eq!(body["thinking"]["type"], "enabled");
    assert_eq!(unmarked(body)["messages"][1]["content"], json!([thought("hm"), tool_use("toolu_1")]));
    let off = with(history, &json!({"thinking": {"type": "disabled"}}));
    assert!(!off.to_string().contains("signed"), "{off}");
}

#[test]
fn user_text_next_to_a_result_starts_a_new_turn() {
    let wish = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let steered = |second: Vec<HistoryEntry>| {
        let mut history = vec![user("hi"), thinks("hm"), asks("1"), fine("1"), user("faster")];
        history.extend(second);
        history.extend([asks("2"), fine("2")]);
        with(history, &wish)
    };
    assert_eq!(steered(vec![]).get("thinking"), None);
    assert_eq!(steered(vec![thinks("ok")])["thinking"], wish["thinking"]);
}

#[test]
fn reasoning_without_a_signature_is_not_sent() {
    let unsigned =
        HistoryEntry::Reasoning { id: ItemId::from("rs_1"), raw: raw(&json!({"type": "thinking", "thinking": "x"})) };
    let told = messages(vec![user("hi"), unsigned, says("Hello."), user("ok")]);
    assert_eq!(told[1]["content"], json!([text("Hello.")]));
}

#[test]
fn a_request_can_be_rebuilt_without_reasoning() {
    let history = vec![user("hi"), thinks("hm"), asks("1"), fine("1")];
    let body = with(history, &json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5}));
    let again = without_reasoning(body);
    assert_eq!(again.get("thinking"), None);
    assert_eq!(again["top_k"], 5);
    assert_eq!(again["messages"][1]["content"], json!([tool_use("toolu_1")]));
}

#[test]
fn past_calls_are_declared_when_no_tools_are_available() {
    let body = with(vec![user("hi"), asks("1"), fine("1")], &json!({}));
    assert_eq!(body["tools"], json!([{"name": "look", "input_schema": {"type": "object"}}]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    assert_eq!(with(vec![user("hi")], &json!({})).get("tools"), None);
}

/// The positions of the cache marks: message and block.
fn marks(body: &Value) -> Vec<(usize, usize)> {
    let messages = body["messages"].as_array().unwrap();
    let places = messages.iter().enumerate().flat_map(|(place, message)| {
        let blocks = message["content"].as_array().unwrap().iter().enumerate();
        blocks.filter(|(_, block)| block.get("cache_control").is_some()).map(move |(block, _)| (place, block))
    });
    places.collect()
}

#[test]
fn cache_control_marks_the_newest_message_and_the_previous_user_message() {
    let history = vec![user("a"), says("b"), user("c"), says("d"), user("e"), user("f")];
    assert_eq!(marks(&with(history.clone(), &json!({}))), [(2, 0), (4, 1)]);
    for theirs in [json!({"cache_control": {"type": "ephemeral"}}), json!({"system": [{"cache_control": null}]})] {
        assert_eq!(marks(&with(history.clone(), &theirs)), []);
    }
}

#[test]
fn images_are_sent_with_text_and_results() {
    let picture = ContentPart::image("https://x/y.png");
    let history = vec![
        HistoryEntry::User { content: vec![ContentPart::text("look"), picture.clone()] },
        asks("1"),
        gets("1", ResultStatus::Completed, vec![picture]),
    ];
    let told = messages(history);
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}});
    assert_eq!(told[0]["content"], json!([text("look"), image]));
    assert_eq!(told[2]["content"][0]["content"], json!([image]));
}

/// The body for these settings, with one tool.
fn body_with_settings(wishes: ModelSettings, options: &Value) -> Value {
    let spec = ToolSpec { name: "look".to_owned(), description: String::new(), parameters: Value::Null };
    let turn = ModelRequest {
        instructions: "Be brief.".to_owned(),
        tools: Arc::new([spec]),
        provider_options: Arc::new(options.as_object().cloned().unwrap()),
        model_settings: Arc::new(wishes),
        ..turn(vec![user("hi")])
    };
    unmarked(build_request(&turn, &HERE))
}

fn much() -> ModelSettings {
    ModelSettings {
        instructions: Some("Rhyme.".to_owned()),
        max_output_tokens: Some(99),
        temperature: Some(1.5),
        top_p: Some(0.25),
        stop: vec!["END".to_owned(), "\n".to_owned()],
        tool_choice: Some(ToolChoice::Tool { name: "look".to_owned() }),
        parallel_tool_calls: Some(false),
        effort: Some("high".to_owned()),
        format: Some(OutputFormat::Schema { name: "it".to_owned(), schema: json!({"type": "object"}), strict: None }),
        service_tier: Some("flex".to_owned()),
        logprobs: Some(Logprobs { include: true, top: Some(3) }),
    }
}

#[test]
fn model_settings_map_to_the_fields_of_messages() {
    let expected = json!({
        "model": "claude-x", "stream": true, "max_tokens": 99,
        "system": [text("Be brief.\n\nRhyme.")],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": [text("hi")]}],
        "temperature": 1.0, "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": true},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    });
    assert_eq!(body_with_settings(much(), &json!({})), expected);
    assert_eq!(body_with_settings(ModelSettings { temperature: None, ..much() }, &json!({}))["top_p"], 0.25);
    assert_eq!(body_with_settings(much(), &json!({"temperature": null})).get("temperature"), None);
    assert_eq!(body_with_settings(much(), &json!({"max_tokens": 7}))["max_tokens"], 7);
    for format in
        [OutputFormat::Json, OutputFormat::Schema { name: String::new(), schema: json!({}), strict: Some(false) }]
    {
        let body = body_with_settings(ModelSettings { format: Some(format), ..ModelSettings::default() }, &json!({}));
        assert_eq!(body.get("output_config"), None);
    }
}

#[test]
fn tool_choice_and_parallelism_share_one_field() {
    use ToolChoice::{Auto, None as Nothing, Required};
    let choice = |tool_choice, parallel_tool_calls| {
        body_with_settings(ModelSettings { tool_choice, parallel_tool_calls, ..ModelSettings::default() }, &json!({}))["tool_choice"].take()
    };
    assert_eq!(choice(None, None), Value::Null);
    assert_eq!(choice(None, Some(true)), Value::Null);
    assert_eq!(choice(None, Some(false)), json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(choice(Some(Auto), Some(true)), json!({"type": "auto"}));
    assert_eq!(choice(Some(Nothing), Some(false)), json!({"type": "none"}));
    assert_eq!(choice(Some(Required), None), json!({"type": "any"}));
    let asked = ModelRequest { model_settings: Arc::new(much()), ..turn(vec![user("hi")]) };
    assert_eq!(build_request(&asked, &HERE).get("tool_choice"), None);
}

#[test]
fn settings_incompatible_with_thinking_are_omitted() {
    let options = json!({"thinking": {"type": "enabled", "budget_tokens": 2000}});
    let body = body_with_settings(much(), &options);
    assert_eq!(body["max_tokens"], 2099);
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    assert_eq!(body["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    let body = body_with_settings(much(), &json!({"thinking": {"type": "disabled"}}));
    assert_eq!((&body["temperature"], &body["tool_choice"]["type"]), (&json!(1.0), &json!("tool")));
}

#[test]
fn client_instructions_follow_the_agents() {
    let system = |words: &str| HistoryEntry::System { text: words.to_owned() };
    let history = vec![system("Be kind."), user("hi"), system(" "), says("Hello."), system("Be quick."), user("go")];
    let body = unmarked(build_request(&turn(history), &HERE));
    assert_eq!(body["system"], json!([text("Be kind."), text("Be quick.")]));
    let said = |role: &str, words: &str| json!({"role": role, "content": [text(words)]});
    assert_eq!(body["messages"], json!([said("user", "hi"), said("assistant", "Hello."), said("user", "go")]));
}
