use super::*;
use model::content::{ContentPart, FileRef};
use model::json::ExactObject;
use serde_json::json;

fn read(body: &Value) -> Result<StatelessRequest, InvalidField> {
    parse_messages_request(body.as_object().unwrap())
}

fn with(fields: &Value) -> Result<StatelessRequest, InvalidField> {
    let mut body = json!({"model": "demo", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi."}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    read(&body)
}

fn user(parts: Vec<ContentPart>) -> ClientInput {
    ClientInput { id: None, kind: InputKind::User(parts) }
}

fn call(id: &str, arguments: &str) -> ClientInput {
    let what = InputKind::ToolCall { call_id: id.to_owned(), name: "find".to_owned(), arguments: arguments.to_owned() };
    ClientInput { id: None, kind: what }
}

fn result(id: &str, text: &str, failed: bool) -> ClientInput {
    ClientInput {
        id: None,
        kind: InputKind::ToolResult {
            call_id: id.to_owned(),
            content: vec![ContentPart::text(text)],
            failed,
            acknowledged_checks: Vec::new(),
        },
    }
}

#[test]
fn request_fields_become_provider_neutral_settings() {
    let schema = json!({"type": "object", "properties": {}});
    let asked = with(&json!({
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be short."}],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop_sequences": ["END"],
        "stream": true,
        "metadata": {"user_id": "u"},
        "tool_choice": {"type": "tool", "name": "find", "disable_parallel_tool_use": true},
        "tools": [
            {"name": "find", "description": "Finds.", "input_schema": schema, "cache_control": {"type": "ephemeral"}},
            {"type": "custom", "name": "bare"},
            {"type": "mcp_toolset", "mcp_server_name": "headwater"},
        ],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "something_new": [1],
    }))
    .unwrap();
    assert_eq!((asked.model.as_str(), asked.stream), ("demo", true));
    assert_eq!(
        asked.model_settings,
        ModelSettings {
            instructions: Some("Be kind.\n\nBe short.".to_owned()),
            max_output_tokens: Some(100),
            temperature: Some(0.5),
            top_p: Some(0.9),
            stop: vec!["END".to_owned()],
            tool_choice: Some(ToolChoice::Tool { name: "find".to_owned() }),
            parallel_tool_calls: Some(false),
            effort: Some("low".to_owned()),
            format: Some(OutputFormat::Schema {
                name: "answer".to_owned(),
                schema: schema.clone(),
                strict: Some(true)
            }),
            service_tier: None,
            logprobs: None,
        }
    );
    let tool = |name: &str, description: &str, parameters: Value| ClientTool {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    };
    assert_eq!(asked.tools, [tool("find", "Finds.", schema), tool("bare", "", json!({"type": "object"}))]);
    assert_eq!(asked.metadata, ExactObject::from([("user_id".to_owned(), json!("u").into())]));
}

#[test]
fn a_history_is_one_list_and_ends_with_the_user() {
    let asked = read(&json!({"model": "demo", "max_tokens": 1, "messages": [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "rs_0"},
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."},
            {"type": "mcp_tool_use", "id": "a", "name": "find", "server_name": "headwater", "input": {"n": 1}},
            {"type": "mcp_tool_result", "tool_use_id": "a", "is_error": true, "content": [{"type": "text", "text": "no"}]},
            {"type": "tool_use", "id": "b", "name": "find", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "text", "text": "Quick!"},
            {"type": "tool_result", "tool_use_id": "b", "content": "here"},
        ]},
    ]}))
    .unwrap();
    assert_eq!(
        asked.input,
        [
            user(vec![ContentPart::text("Find it.")]),
            ClientInput { id: Some("rs_0".to_owned()), kind: InputKind::ItemReference },
            ClientInput { id: None, kind: InputKind::Assistant("I look.".to_owned()) },
            call("a", r#"{"n":1}"#),
            ClientInput { id: Some("a".to_owned()), ..result("a", "no", true) },
            call("b", "{}"),
            result("b", "here", false),
            user(vec![ContentPart::text("Quick!")]),
        ]
    );
}

#[test]
fn images_and_documents_are_parts() {
    let file = |url: &str, name: Option<&str>| ContentPart::File {
        file: FileRef { url: Some(url.to_owned()), name: name.map(str::to_owned), ..FileRef::default() },
    };
    let content = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "url", "url": "/v1/blobs/00"}},
        {"type": "document", "title": "T", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": {"type": "url", "url": "file:///etc/passwd"}},
        {"type": "document", "title": "P", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
        {"type": "search_result", "title": "S", "source": "https://s", "content": [{"type": "text", "text": "found"}]},
    ]);
    let asked = with(&json!({"messages": [{"role": "user", "content": content}]})).unwrap();
    assert_eq!(
        asked.input,
        [user(vec![
            ContentPart::image("data:image/png;base64,AAAA"),
            ContentPart::image("https://example.com/a.png"),
            ContentPart::image("/v1/blobs/00"),
            file("data:application/pdf;base64,BBBB", Some("T")),
            file("https://example.com/a.pdf", None),
            file("file:///etc/passwd", None),
            ContentPart::text("P"),
            ContentPart::text("plain"),
            ContentPart::text("inner"),
            ContentPart::text("S"),
            ContentPart::text("https://s"),
            ContentPart::text("found"),
        ])]
    );
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let source = |source: Value| block(json!({"type": "image", "source": source}));
    let ends_with = |content: Value| json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]});
    let open_call = json!([{"type": "tool_use", "id": "c", "name": "n", "input": {}}]);
    for (fields, name) in [
        (json!({"model": 7}), "model"),
        (json!({"model": ""}), "model"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": "many"}), "max_tokens"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"stop_sequences": [1]}), "stop_sequences"),
        (json!({"system": 1}), "system"),
        (json!({"system": [{"type": "image"}]}), "system[0].type"),
        (json!({"tools": [{"name": "a", "input_schema": []}]}), "tools[0].input_schema"),
        (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "other"}]}), "tools[0].type"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tool_choice": {"type": "tool"}}), "tool_choice.name"),
        (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "user", "content": ""}]}), "messages"),
        (json!({"messages": [{"role": "judge", "content": "a"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": {}}]}), "messages[0].content"),
        (json!({"messages": ["a"]}), "messages[0]"),
        (ends_with(json!("And so")), "messages"),
        (ends_with(open_call), "messages"),
        (block(json!({"type": "text"})), "messages[0].content[0].text"),
        (block(json!({"type": "video"})), "messages[0].content[0].type"),
        (block(json!({"type": "tool_result", "content": "a"})), "messages[0].content[0].tool_use_id"),
        (source(json!({"type": "file", "file_id": "f"})), "messages[0].content[0].source.type"),
        (source(json!({"type": "url", "url": "file:///etc"})), "messages[0].content[0].source.url"),
        (
            source(json!({"type": "base64", "media_type": "text/html", "data": "A"})),
            "messages[0].content[0].source.media_type",
        ),
    ] {
        assert_eq!(with(&fields).map_err(|wrong| wrong.field), Err(name.to_owned()), "{fields}");
    }
}

#[test]
fn text_next_to_tool_results_becomes_input() {
    let ours = format!("call_{:032x}1", 7);
    for (id, is_ours) in [(ours.as_str(), true), ("toolu_1", false)] {
        let call = json!({"type": "tool_use", "id": id, "name": "find", "input": {}});
        let given =
            json!([{"type": "tool_result", "tool_use_id": id, "content": "here"}, {"type": "text", "text": "Quick!"}]);
        let messages = json!([{"role": "user", "content": "Find it."}, {"role": "assistant", "content": [call]},
            {"role": "user", "content": given}]);
        let said = with(&json!({ "messages": messages })).unwrap().input;
        let content = |said: &ClientInput| match &said.kind {
            InputKind::User(content) | InputKind::ToolResult { content, .. } => content.clone(),
            _ => Vec::new(),
        };
        let last: Vec<Vec<ContentPart>> = said.iter().skip(2).map(content).collect();
        let (here, quick) = (ContentPart::text("here"), ContentPart::text("Quick!"));
        let wanted = if is_ours { vec![vec![here, quick]] } else { vec![vec![here], vec![quick]] };
        assert_eq!(last, wanted);
        // A later request resends them with the answer and the new input.
        let mut messages = messages;
        let more = [json!({"role": "assistant", "content": "Done."}), json!({"role": "user", "content": "Thanks."})];
        messages.as_array_mut().unwrap().extend(more);
        let said = with(&json!({ "messages": messages })).unwrap().input;
        let again: Vec<Vec<ContentPart>> = said.iter().skip(2).map(content).take(wanted.len()).collect();
        assert_eq!((again, said.len()), (wanted.clone(), 4 + wanted.len()));
    }
}

#[test]
fn the_context_of_a_document_comes_before_it() {
    let sources = [
        json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}),
        json!({"type": "url", "url": "https://x.example/a.pdf"}),
        json!({"type": "text", "media_type": "text/plain", "data": "words"}),
        json!({"type": "content", "content": [{"type": "text", "text": "words"}]}),
    ];
    for source in sources {
        let document = json!({"type": "document", "title": "T", "context": "From last year.", "source": source});
        let said = with(&json!({"messages": [{"role": "user", "content": [document]}]})).unwrap().input;
        let [ClientInput { kind: InputKind::User(parts), .. }] = said.as_slice() else { panic!("{said:?}") };
        let place = parts.iter().position(|part| *part == ContentPart::text("From last year."));
        assert_eq!(place, Some(parts.len() - 2), "{parts:?}");
    }
}

#[test]
fn images_and_files_of_an_assistant_leave_a_note() {
    for block in [
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}),
    ] {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [block]},
            {"role": "user", "content": "b"}]);
        assert_eq!(with(&json!({ "messages": messages })).unwrap_err().field, "messages[1].content[0].type");
    }
}

#[test]
fn a_result_of_a_server_tool_is_no_client_result() {
    let blocks = json!([
        {"type": "mcp_tool_use", "id": "a", "name": "find", "server_name": "headwater", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "a", "is_error": false, "content": "here"},
    ]);
    let messages = json!([{"role": "user", "content": "Find it."}, {"role": "assistant", "content": blocks}]);
    assert_eq!(with(&json!({ "messages": messages })).unwrap_err().field, "messages");
}
