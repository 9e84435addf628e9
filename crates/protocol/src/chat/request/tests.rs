use super::*;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use serde_json::json;

fn read(body: &Value) -> Result<StatelessRequest, InvalidField> {
    parse_chat_request(body.as_object().unwrap())
}

fn with(fields: &Value) -> Result<StatelessRequest, InvalidField> {
    let mut body = json!({"model": "demo", "messages": [{"role": "user", "content": "Hi."}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    read(&body)
}

fn input_of_kind(what: InputKind) -> ClientInput {
    ClientInput { id: None, kind: what }
}

#[test]
fn request_fields_become_provider_neutral_settings() {
    let schema = json!({"type": "object", "properties": {}});
    let asked = with(&json!({
        "max_tokens": 5,
        "max_completion_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "END",
        "stream": true,
        "stream_options": {"include_usage": true, "include_obfuscation": false},
        "metadata": {"k": "v"},
        "reasoning_effort": "high",
        "parallel_tool_calls": false,
        "tool_choice": {"type": "function", "function": {"name": "find"}},
        "tools": [
            {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": schema, "strict": true}},
            {"type": "function", "function": {"name": "bare"}},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "shape", "schema": schema, "strict": true}},
        "seed": 1,
        "something_new": {},
    }))
    .unwrap();
    assert_eq!((asked.model.as_str(), asked.stream, asked.include_usage), ("demo", true, true));
    assert_eq!(
        asked.model_settings,
        ModelSettings {
            instructions: None,
            max_output_tokens: Some(100),
            temperature: Some(0.5),
            top_p: Some(0.9),
            stop: vec!["END".to_owned()],
            tool_choice: Some(ToolChoice::Tool { name: "find".to_owned() }),
            parallel_tool_calls: Some(false),
            effort: Some("high".to_owned()),
            format: Some(OutputFormat::Schema { name: "shape".to_owned(), schema: schema.clone(), strict: Some(true) }),
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
    for (choice, means) in [("auto", ToolChoice::Auto), ("none", ToolChoice::None), ("required", ToolChoice::Required)]
    {
        assert_eq!(with(&json!({"tool_choice": choice})).unwrap().model_settings.tool_choice, Some(means));
    }
    assert_eq!(with(&json!({"stop": ["a", "b"]})).unwrap().model_settings.stop, ["a", "b"]);
    assert_eq!(
        with(&json!({"response_format": {"type": "json_object"}})).unwrap().model_settings.format,
        Some(OutputFormat::Json)
    );
    assert_eq!(with(&json!({"response_format": {"type": "text"}, "stop": null})).unwrap().model_settings.format, None);
}

#[test]
fn leading_system_messages_are_instructions_and_later_ones_are_history() {
    let asked = with(&json!({"messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be short."}]},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "refusal": "No."},
        {"role": "assistant", "content": "b", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{\"n\":1}"}},
        ]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "here"}]},
        {"role": "system", "content": "Now in French."},
        {"role": "user", "content": [
            {"type": "text", "text": "d"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BB"}},
            {"type": "file", "file": {"filename": "b.pdf", "file_data": "BB"}},
        ]},
    ]}))
    .unwrap();
    assert_eq!(asked.model_settings.instructions.as_deref(), Some("Be kind.\n\nBe short."));
    let (call_id, name) = ("c".to_owned(), "find".to_owned());
    let url = |url: &str| Some(url.to_owned());
    assert_eq!(
        asked.input,
        [
            input_of_kind(InputKind::User(vec![ContentPart::text("a")])),
            input_of_kind(InputKind::Assistant("No.".to_owned())),
            input_of_kind(InputKind::Assistant("b".to_owned())),
            input_of_kind(InputKind::ToolCall { call_id: call_id.clone(), name, arguments: r#"{"n":1}"#.to_owned() }),
            input_of_kind(InputKind::ToolResult {
                call_id,
                content: vec![ContentPart::text("here")],
                failed: false,
                acknowledged_checks: Vec::new()
            }),
            input_of_kind(InputKind::System("Now in French.".to_owned())),
            input_of_kind(InputKind::User(vec![
                ContentPart::text("d"),
                ContentPart::ImageUrl {
                    image_url: ImageUrl { url: "data:image/png;base64,AA".to_owned(), detail: Some(ImageDetail::Low) },
                    id: None
                },
                ContentPart::File {
                    file: FileRef {
                        url: url("data:application/pdf;base64,BB"),
                        name: url("a.pdf"),
                        ..FileRef::default()
                    },
                },
                ContentPart::File {
                    file: FileRef {
                        url: url("data:application/octet-stream;base64,BB"),
                        name: url("b.pdf"),
                        ..FileRef::default()
                    },
                },
            ])),
        ]
    );
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    let part = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let call = json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}]});
    let user = json!({"role": "user", "content": "a"});
    for (fields, name) in [
        (json!({"model": null}), "model"),
        (json!({"n": 2}), "n"),
        (json!({"functions": []}), "functions"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"stop": 1}), "stop"),
        (json!({"stream": 1}), "stream"),
        (json!({"stream_options": {"include_usage": "yes"}}), "stream_options.include_usage"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"type": "custom"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name"),
        (json!({"tool_choice": "perhaps"}), "tool_choice"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema", "json_schema": {}}}), "response_format.json_schema.name"),
        (json!({"messages": [{"role": "system", "content": "alone"}]}), "messages"),
        (json!({"messages": [user, call]}), "messages"),
        (json!({"messages": [user, call, user]}), "messages"),
        (json!({"messages": [user, {"role": "assistant", "content": "And so"}]}), "messages"),
        (json!({"messages": [{"role": "judge"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), "messages[0].tool_call_id"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
        (part(json!({"type": "input_audio"})), "messages[0].content[0].type"),
        (part(json!({"type": "file", "file": {"file_id": "f"}})), "messages[0].content[0].file.file_data"),
        (part(json!({"type": "image_url", "image_url": {"url": "ftp://a"}})), "messages[0].content[0].image_url.url"),
        (
            part(json!({"type": "image_url", "image_url": {"url": "https://a", "detail": "all"}})),
            "messages[0].content[0].image_url.detail",
        ),
        (part(json!({"type": "image_url", "image_url": "https://a"})), "messages[0].content[0].image_url"),
        (part(json!({"type": "file", "file": "a"})), "messages[0].content[0].file"),
    ] {
        assert_eq!(with(&fields).map_err(|wrong| wrong.field), Err(name.to_owned()), "{fields}");
    }
}
