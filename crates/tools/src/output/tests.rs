use super::*;
use model::content::{ImageBlock, ImageUrl, TextBlock};
use model::error::ErrorCode;
use model::item::plain_text;
use serde_json::json;

/// The text of a text-only result.
fn text_of(text: &str) -> String {
    let output = parse_output(text, None).unwrap();
    let [ContentPart::Text { text, .. }] = output.message_content.as_slice() else { panic!("{output:?}") };
    assert_eq!(output, text_output(text));
    text.clone()
}

fn refused(json: &Value) -> String {
    let error = parse_output(&json.to_string(), None).unwrap_err();
    assert_eq!(error.code, "invalid_output");
    error.message
}

#[test]
fn text_stays_unchanged_and_other_json_loses_only_white_space() {
    let cases = [
        ("hello\n", "hello"),
        ("  two\nlines  \r\n", "  two\nlines  "),
        ("{not json", "{not json"),
        ("\"a \\\"string\\\"\\n\"", "a \"string\"\n"),
        ("[1, 2,\n {\"b\" : \"x \\\" y\", \"a\": 1.50e3} ]", "[1,2,{\"b\":\"x \\\" y\",\"a\":1.50e3}]"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("null", "null"),
        ("{ }", "{}"),
        ("{\"summary\": 1, \"other\": 2}", "{\"summary\":1,\"other\":2}"),
        ("{\"a\":1}\n{\"a\":2}", "{\"a\":1}\n{\"a\":2}"),
    ];
    for (text, wanted) in cases {
        assert_eq!(text_of(text), wanted);
    }
}

#[test]
fn an_empty_result_is_described_in_text() {
    let blank = json!({"message_content": [{"type": "text", "text": " "}], "summary": null}).to_string();
    for text in ["", "\n", " \t ", "\"\"", "{\"message_content\":[]}", "{\"error\":null}", &blank] {
        assert_eq!(text_of(text), "(no output)", "{text:?}");
    }
}

#[test]
fn an_object_with_the_fields_of_an_output_is_parsed_as_one() {
    let whole = json!({
        "message_content": [{"type": "text", "text": "for the model", "tags": ["added_by_reference_manager"]}],
        "block_list": [{"type": "text", "text": "for people", "id": 1}, {"type": "image", "image_url": {"url": "data:,"}}],
        "summary": "short",
        "artifact": [1],
        "ui_hints": {"colour": "red"},
        "error": {"code": "c", "message": "m"},
    });
    let output = parse_output(&whole.to_string(), None).unwrap();
    let image = ImageBlock { image_url: ImageUrl::new("data:,"), id: None };
    let wanted = ToolOutput {
        message_content: vec![ContentPart::text("for the model")],
        block_list: vec![Block::Text(TextBlock { id: Some(1), ..TextBlock::new("for people") }), Block::Image(image)],
        summary: Some("short".to_owned()),
        artifact: Some(json!([1])),
        ui_hints: Some([("colour".to_owned(), json!("red"))].into_iter().collect()),
        error: Some(ErrorInfo::external("c", "m")),
    };
    assert_eq!(output, wanted);
}

#[test]
fn content_and_error_may_be_plain_text() {
    let output = parse_output(r#"{"message_content":"hi"}"#, None).unwrap();
    assert_eq!(output, text_output("hi"));
    let output = parse_output(r#"{"error":"no such city"}"#, None).unwrap();
    assert_eq!(output, ToolOutput::failed(ErrorCode::ToolFailed, "no such city"));
}

#[test]
fn without_content_the_model_gets_the_blocks() {
    assert_eq!(parse_output(r#"{"summary":"short"}"#, None).unwrap().message_content, [ContentPart::text("short")]);
    let shown = parse_output(r#"{"block_list":[{"type":"text","text":"x"}]}"#, None).unwrap();
    assert_eq!(shown.message_content, []);
}

#[test]
fn fields_of_the_wrong_type_are_refused() {
    assert!(refused(&json!({"summary": 1})).contains("invalid type"));
    assert!(refused(&json!({"error": {"message": "m"}})).contains("missing field `code`"));
}

#[test]
fn a_block_that_is_neither_text_nor_image_is_kept_as_its_json() {
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    for block in
        [message, reasoning, json!({"type": "video", "url": "v"}), json!({"type": "text"}), json!("bare"), json!(7)]
    {
        let result =
            json!({"message_content": "for the model", "block_list": [block, {"type": "text", "text": "after"}]});
        let output = parse_output(&result.to_string(), None).unwrap();
        let texts: Vec<String> =
            output.block_list.iter().map(|block| plain_text(std::slice::from_ref(block))).collect();
        assert_eq!(texts, [block.to_string(), "after".to_owned()]);
        assert_eq!(output.message_content, [ContentPart::text("for the model")]);
    }
}

#[test]
fn the_example_of_the_requirement_is_a_result() {
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA"}, "id": 1});
    let text = json!({"type": "text", "text": "{\"temperature\":\"15C\"}", "id": 1});
    let result = json!({"message_content": [text, image], "block_list": [text, image]});
    let output = parse_output(&result.to_string(), None).unwrap();
    assert_eq!(output.message_content.len(), 2);
    let [Block::Text(text), Block::Image(image)] = output.block_list.as_slice() else { panic!("{output:?}") };
    assert_eq!((text.id, image.id), (Some(1), Some(1)));
    assert!(image.image_url.url.starts_with("data:image/png"));
}

#[test]
fn a_json_pointer_selects_the_result() {
    let body = r#"{"data":[{"a/b":{"m~n": 12345678901234567890123 }},"x"],"out":{"message_content":"hi"}}"#;
    let cases = [
        ("", body),
        ("/data/0/a~1b/m~0n", "12345678901234567890123"),
        ("/data/1", "x"),
        ("/out", "hi"),
        ("/out/message_content", "hi"),
    ];
    for (pointer, wanted) in cases {
        let output = parse_output(body, Some(pointer)).unwrap();
        let wanted = if pointer.is_empty() { compact_json(wanted) } else { wanted.to_owned() };
        assert_eq!(output, text_output(&wanted), "{pointer}");
    }
}

#[test]
fn a_json_pointer_without_a_target_is_an_error() {
    for pointer in ["/nope", "/data/2", "/data/x", "data", "/data/0/0/0"] {
        let error = parse_output(r#"{"data":[{},{}]}"#, Some(pointer)).unwrap_err();
        assert!(error.message.ends_with(&format!("the response has nothing at `{pointer}`")), "{}", error.message);
    }
    let error = parse_output("hello", Some("/a")).unwrap_err();
    assert!(error.message.contains("the response is not JSON"), "{}", error.message);
}
