use super::*;
use crate::client_input::{InputKind, NewInput};
use crate::responses::InputItems;
use model::command::StartCommand;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use model::history::HistoryEntry;
use serde_json::json;

fn read(body: &Value) -> Result<ResponsesRequest, InvalidField> {
    parse_responses_request(body.as_object().unwrap())
}

fn start(input: &[ContentPart]) -> StartCommand {
    let start = json!({"task_id": "task_1", "agent": "demo", "input": input, "previous": null, "tools": [],
        "metadata": {}, "display_mode": "agent", "client": null});
    serde_json::from_value(start).unwrap()
}

#[test]
fn a_plain_text_input_is_a_user_message() {
    let asked = read(&json!({"model": "demo", "input": "hello", "stream": true, "store": false, "later": 1})).unwrap();
    assert_eq!(asked.input, [ClientInput { id: None, kind: InputKind::User(vec![ContentPart::text("hello")]) }]);
    assert!(asked.stream && !asked.store && !asked.background);
    assert_eq!(asked.request_echo, *json!({"model": "demo", "store": false}).as_object().unwrap());
    assert_eq!(read(&json!({"input": null})).unwrap().input, []);
}

#[test]
fn prior_history_is_separated_from_new_input() {
    let asked = read(&json!({"input": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
        {"type": "mcp_call", "id": "mcp_1", "name": "g", "arguments": "{}", "server_label": "headwater", "output": "ok"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "It is 42."}]},
        {"type": "message", "role": "user", "content": "Thanks."},
        {"role": "user", "content": "And now?"},
    ]}))
    .unwrap();
    let NewInput { history: before, input, .. } = NewInput::from_client_input(&asked.input);
    assert_eq!(input, [ContentPart::text("Thanks."), ContentPart::text("And now?")]);
    let kinds: Vec<&str> = before
        .iter()
        .map(|entry| match entry {
            HistoryEntry::System { .. } => "system",
            HistoryEntry::User { .. } => "user",
            HistoryEntry::Assistant { .. } => "assistant",
            HistoryEntry::Call { .. } => "call",
            HistoryEntry::Result { .. } => "result",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["system", "user", "call", "result", "call", "result", "assistant"]);
}

#[test]
fn files_have_names_and_echoed_files_parse_again() {
    let content = json!([
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_image", "image_url": "/v1/blobs/00"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
        {"type": "input_file", "file_data": "AA"},
        {"type": "input_file", "file_url": "/v1/blobs/00", "filename": "b.pdf"},
        {"type": "input_file", "file_url": "https://x/c.pdf"},
        {"type": "input_file", "file_url": "file:///etc/passwd"},
    ]);
    let file = |url: &str, name: Option<&str>| ContentPart::File {
        file: FileRef { url: Some(url.to_owned()), name: name.map(str::to_owned), ..FileRef::default() },
    };
    let image_url = ImageUrl { url: "data:image/png;base64,AA".to_owned(), detail: Some(ImageDetail::Low) };
    let parts = vec![
        ContentPart::ImageUrl { image_url, id: None },
        ContentPart::image("/v1/blobs/00"),
        file("data:application/pdf;base64,AA", Some("a.pdf")),
        file("data:application/octet-stream;base64,AA", None),
        file("/v1/blobs/00", Some("b.pdf")),
        file("https://x/c.pdf", None),
        file("file:///etc/passwd", None),
    ];
    let said =
        |items: &Value| parse_conversation_items(items).unwrap().into_iter().map(|said| said.kind).collect::<Vec<_>>();
    assert_eq!(said(&json!([{"role": "user", "content": content}])), [InputKind::User(parts.clone())]);
    assert_eq!(said(&Value::Array(InputItems::of_start_command(&start(&parts)))), [InputKind::User(parts)]);
}

#[test]
fn images_of_system_messages_and_foreign_models_are_kept() {
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let whats =
        |items: &Value| parse_conversation_items(items).unwrap().into_iter().map(|said| said.kind).collect::<Vec<_>>();
    for role in ["system", "developer"] {
        let items = json!([{"role": role, "content": [image, {"type": "input_text", "text": "Our logo."}]}]);
        let shown = InputKind::User(vec![ContentPart::image("data:image/png;base64,AA")]);
        assert_eq!(whats(&items), [InputKind::System("Our logo.".to_owned()), shown]);
    }
    let drawn = json!([{"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA"}]);
    assert_eq!(whats(&drawn), [InputKind::GeneratedImages(vec![ContentPart::image("data:image/png;base64,AA")])]);
    let linked = json!([{"type": "image_generation_call", "id": "ig_1", "result": "https://files.example/x.png"}]);
    assert_eq!(whats(&linked), [InputKind::GeneratedImages(vec![ContentPart::image("https://files.example/x.png")])]);
    let named = json!([{"type": "image_generation_call", "id": "ig_1"}]);
    assert_eq!(whats(&named), [InputKind::ItemReference]);
    let wrong = parse_conversation_items(&json!([{"role": "assistant", "content": [image]}])).unwrap_err();
    assert_eq!(wrong.field, "items[0].content");
}

#[test]
fn a_stored_file_is_shown_by_its_name() {
    let file = |name: Option<&str>| ContentPart::File {
        file: FileRef {
            bucket: Some("b".to_owned()),
            path: Some("agent-inputs/u/1.pdf".to_owned()),
            url: None,
            size: None,
            name: name.map(str::to_owned),
        },
    };
    let shown = json!([{"type": "input_file", "filename": "x.pdf"}, {"type": "input_file", "filename": "1.pdf"}]);
    assert_eq!(InputItems::of_start_command(&start(&[file(Some("x.pdf")), file(None)]))[0]["content"], shown);
}

#[test]
fn our_ids_contain_their_run() {
    let run = "0123456789abcdef0123456789abcdef";
    let asked = read(&json!({"input": [
        {"type": "item_reference", "id": format!("msg_{run}3")},
        {"id": format!("rs_{run}1")},
        {"type": "function_call_output", "call_id": format!("call_{run}2"), "output": "x"},
        {"type": "mcp_approval_response", "approval_request_id": format!("apr_{run}4"), "approve": false, "reason": "no"},
        {"type": "message", "role": "user", "content": "new"},
    ]}))
    .unwrap();
    let runs: Vec<Option<String>> =
        asked.input.iter().map(|said| said.run_id().map(|run| run.as_str().to_owned())).collect();
    let ours = Some(format!("task_{run}"));
    assert_eq!(runs, [ours.clone(), ours.clone(), ours.clone(), ours, None]);
}

#[test]
fn a_credential_for_an_mcp_server_is_parsed_and_not_echoed() {
    let server = json!({"type": "mcp", "server_label": "wiki", "authorization": "s3cret-token"});
    let asked = read(&json!({"input": "x", "tools": [{"type": "web_search"}, server]})).unwrap();
    let wanted = RequestedMcpServer {
        field: "tools[1].server_label".to_owned(),
        label: "wiki".to_owned(),
        url: None,
        authorization: Some("s3cret-token".to_owned()),
    };
    assert_eq!(asked.mcp_servers, [wanted]);
    assert_eq!(asked.request_echo["tools"], json!([{"type": "web_search"}, {"type": "mcp", "server_label": "wiki"}]));
    assert!(!format!("{asked:?}").contains("s3cret"), "{asked:?}");
}

#[test]
fn model_settings_are_parsed_and_echoed() {
    let body = json!({
        "instructions": "Short.", "max_output_tokens": 100, "temperature": 0, "top_p": 0.5,
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false, "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search"},
            {"type": "mcp", "server_label": "headwater", "server_url": "x"}],
    });
    let asked = read(&body).unwrap();
    let schema = OutputFormat::Schema { name: "n".to_owned(), schema: json!({"type": "object"}), strict: Some(true) };
    let wishes = ModelSettings {
        instructions: Some("Short.".to_owned()),
        max_output_tokens: Some(100),
        temperature: Some(0.0),
        top_p: Some(0.5),
        tool_choice: Some(ToolChoice::Tool { name: "f".to_owned() }),
        parallel_tool_calls: Some(false),
        effort: Some("low".to_owned()),
        format: Some(schema),
        ..ModelSettings::default()
    };
    assert_eq!(asked.model_settings, wishes);
    assert_eq!(asked.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["f"]);
    assert_eq!(Value::Object(asked.request_echo), body);
}

#[test]
fn allowed_tools_restrict_the_tools() {
    let asked = read(&json!({
        "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
    }))
    .unwrap();
    assert_eq!(asked.model_settings.tool_choice, Some(ToolChoice::Required));
    assert_eq!(asked.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["g"]);
}

#[test]
fn errors_name_the_field() {
    for (body, field) in [
        (json!({"model": 7}), "model"),
        (json!({"input": 7}), "input"),
        (json!({"input": ["x"]}), "input[0]"),
        (json!({"input": [{}]}), "input[0].type"),
        (json!({"input": [{"role": "robot", "content": "x"}]}), "input[0].role"),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}), "input[0].content[0].type"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]}]}),
            "input[0].content[0].image_url",
        ),
        (
            json!({"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": "/v1/blobs/00", "detail": "all"}]}]}),
            "input[0].content[0].detail",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}),
            "input[0].content[0].image_url",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            "input[0].content[0]",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": ""}]}]}),
            "input[0].content[0].file_data",
        ),
        (
            json!({"input": [{"type": "computer_call_output", "call_id": "c", "output": {}}]}),
            "input[0].output.image_url",
        ),
        (json!({"input": [{"type": "function_call_output", "output": "x"}]}), "input[0].call_id"),
        (json!({"input": [{"type": "mcp_approval_response", "approval_request_id": "a"}]}), "input[0].approve"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tools": [{"type": "mcp"}]}), "tools[0].server_label"),
        (json!({"tools": [{"type": "mcp", "server_label": "wiki", "headers": {"X": "y"}}]}), "tools[0].headers"),
        (json!({"tools": [{"type": "custom", "name": "x"}]}), "tools[0].type"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"conversation": 7}), "conversation"),
        (json!({"metadata": []}), "metadata"),
        (json!({"background": true, "store": false}), "background"),
        (json!({"conversation": "conv_1", "previous_response_id": "resp_1"}), "previous_response_id"),
    ] {
        assert_eq!(read(&body).map_err(|wrong| wrong.field), Err(field.to_owned()), "{body}");
    }
}

#[test]
fn log_probabilities_and_the_tier_are_settings_of_the_model() {
    let settings = |body: Value| read(&body).map(|request| request.model_settings);
    let asked = json!({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 3,
        "service_tier": "flex"});
    let asked = settings(asked).unwrap();
    assert_eq!(asked.logprobs, Some(Logprobs { include: true, top: Some(3) }));
    assert_eq!(asked.service_tier.as_deref(), Some("flex"));
    let unasked = settings(json!({"include": [], "top_logprobs": 0})).unwrap();
    assert_eq!((unasked.logprobs, unasked.service_tier), (None, None));
    let wrong = [("top_logprobs", json!({"top_logprobs": 21})), ("include", json!({"include": "x"}))];
    for (field, body) in wrong {
        assert_eq!(settings(body).unwrap_err().field, field);
    }
}

#[test]
fn a_computer_call_and_its_output_are_a_call_and_a_result() {
    let said =
        |items: &Value| parse_conversation_items(items).map(|items| items.into_iter().map(|said| said.kind).collect());
    let check = json!({"id": "sc_1", "code": "c", "message": "m"});
    let output = |checks: Value| {
        json!([{"type": "computer_call_output", "call_id": "p1", "acknowledged_safety_checks": checks,
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}}])
    };
    let result = |acknowledged_checks: Vec<Value>| InputKind::ToolResult {
        call_id: "p1".to_owned(),
        content: vec![ContentPart::image("data:image/png;base64,AA")],
        failed: false,
        acknowledged_checks,
    };
    let kinds: Result<Vec<InputKind>, _> = said(&output(json!([check])));
    assert_eq!(kinds.unwrap(), [result(vec![check.clone()])]);
    assert_eq!(said(&output(Value::Null)).unwrap(), [result(Vec::new())]);
    for wrong in [json!("all"), json!([7]), json!([{"code": "c"}]), Value::Array(vec![check; 65])] {
        let error = said(&output(wrong)).unwrap_err();
        assert_eq!(error.field, "items[0].acknowledged_safety_checks");
    }
    let call = json!([{"type": "computer_call", "id": "cu_1", "call_id": "p1", "action": {"type": "wait"},
        "actions": null, "pending_safety_checks": [], "status": "completed"}]);
    let arguments = r#"{"action":{"type":"wait"},"pending_safety_checks":[]}"#.to_owned();
    let expected = InputKind::ToolCall { call_id: "p1".to_owned(), name: "computer".to_owned(), arguments };
    assert_eq!(said(&call).unwrap(), [expected]);
}

#[test]
fn tools_of_mcp_servers_are_named_as_the_model_knows_them() {
    let read = read(&json!({
        "input": [{"type": "mcp_call", "id": "mcp_1", "name": "read", "server_label": "files", "output": "ok"},
            {"type": "mcp_list_tools", "id": "hc_1", "server_label": "files", "tools": []}],
        "tools": [{"type": "mcp", "server_label": "headwater"}, {"type": "mcp", "server_label": "files"}],
        "tool_choice": {"type": "mcp", "server_label": "files", "name": "read"},
    }))
    .unwrap();
    let [named] = read.mcp_servers.as_slice() else { panic!("{:?}", read.mcp_servers.len()) };
    assert_eq!((named.field.as_str(), named.label.as_str()), ("tools[1].server_label", "files"));
    assert_eq!(read.model_settings.tool_choice, Some(ToolChoice::Tool { name: "files__read".to_owned() }));
    assert!(matches!(&read.input[0].kind, InputKind::ToolCall { name, .. } if name == "files__read"));
}

#[test]
fn a_compaction_item_stays_sealed_and_a_trigger_is_refused() {
    let items = json!([{"role": "user", "content": "a"}, {"type": "compaction", "encrypted_content": "x"}]);
    let items = parse_conversation_items(&items).unwrap();
    let sealed = InputKind::SealedSummary { field: "items[1].encrypted_content".to_owned(), sealed: "x".to_owned() };
    assert_eq!(items[1].kind, sealed);
    for (item, field) in [
        (json!({"type": "compaction"}), "items[0].encrypted_content"),
        (json!({"type": "compaction_trigger"}), "items[0].type"),
    ] {
        assert_eq!(parse_conversation_items(&json!([item])).unwrap_err().field, field);
    }
}
