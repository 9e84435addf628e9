//! What a server returns, as a tool's output: text and images for the model and people, files that are stored, and structured
//! content and links in the artifact.

use crate::limits::{ARTIFACT_BYTES_MAX, ERROR_TEXT_BYTES_MAX};
use crate::tool_list::clean_text;
use model::content::{ContentPart, FileRef};
use model::error::{ErrorCode, ErrorInfo};
use model::json::JsonObject;
use model::tool::ToolOutput;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use schema::ToolSchema;
use serde_json::{Value, json};

/// Characters of a file's name.
const FILE_NAME_CHARS_MAX: usize = 100;

/// Reads a result. What is larger than `bytes_max` is an error, and so is structured content that is not what the server
/// promised. Validation may take a while.
pub(crate) fn read_result(result: CallToolResult, promised: Option<&ToolSchema>, bytes_max: usize) -> ToolOutput {
    let has_failed = result.is_error == Some(true);
    if let (false, Some(schema)) = (has_failed, promised)
        && let Err(why) = check_structured(schema, result.structured_content.as_ref())
    {
        let message = format!("The tool's result is not what the MCP server promises: {why}");
        return ToolOutput::failed(ErrorCode::InvalidOutput, message);
    }
    let artifact = read_artifact(&result);
    let mut parts: Vec<ContentPart> = result.content.into_iter().map(read_block).collect();
    // Servers repeat structured content as text for clients that do not read it.
    if let (true, Some(structured)) = (parts.is_empty(), &result.structured_content) {
        parts.push(ContentPart::text(structured.to_string()));
    }
    let error = has_failed.then(|| {
        let texts: Vec<&str> = parts.iter().filter_map(part_text).collect();
        let message = clean_text(&texts.join("\n"), ERROR_TEXT_BYTES_MAX);
        let message = if message.trim().is_empty() { "The tool reported an error.".to_owned() } else { message };
        ErrorInfo::new(ErrorCode::ToolFailed, message)
    });
    match bounded_output(parts, bytes_max) {
        failed @ ToolOutput { error: Some(_), .. } => failed,
        output => ToolOutput { artifact, error, ..output },
    }
}

/// Parts as an output, unless they are too large.
pub(crate) fn bounded_output(parts: Vec<ContentPart>, bytes_max: usize) -> ToolOutput {
    let size: usize = parts.iter().map(part_bytes).sum();
    if size > bytes_max {
        let message = format!("The tool's output exceeds {bytes_max} bytes. Ask it for less.");
        return ToolOutput::failed(ErrorCode::OutputTooLarge, message);
    }
    ToolOutput { message_content: parts, ..ToolOutput::default() }
}

fn check_structured(schema: &ToolSchema, structured: Option<&Value>) -> Result<(), String> {
    let structured = structured.ok_or("it has no structured content")?;
    schema.validate(structured).map_err(|error| clean_text(&error.to_string(), ERROR_TEXT_BYTES_MAX))
}

/// What a front end can use that people and the model read as text.
fn read_artifact(result: &CallToolResult) -> Option<Value> {
    let mut artifact = JsonObject::new();
    if let Some(structured) = &result.structured_content {
        artifact.insert("structured_content".to_owned(), structured.clone());
    }
    let links = result.content.iter().filter_map(|block| match block {
        ContentBlock::ResourceLink(link) => Some(link_json(link)),
        _ => None,
    });
    let links: Vec<Value> = links.collect();
    if !links.is_empty() {
        artifact.insert("resource_links".to_owned(), links.into());
    }
    let artifact = Some(Value::Object(artifact)).filter(|artifact| artifact != &json!({}));
    artifact.filter(|artifact| artifact.to_string().len() <= ARTIFACT_BYTES_MAX)
}

pub(crate) fn link_json(link: &Resource) -> Value {
    let mut json = JsonObject::from_iter([
        ("uri".to_owned(), link.uri.as_str().into()),
        ("name".to_owned(), link.name.as_str().into()),
    ]);
    let more = [("title", &link.title), ("description", &link.description), ("mime_type", &link.mime_type)];
    for (name, value) in more {
        if let Some(value) = value {
            json.insert(name.to_owned(), value.as_str().into());
        }
    }
    json.into()
}

pub(crate) fn read_block(block: ContentBlock) -> ContentPart {
    match block {
        ContentBlock::Text(text) => ContentPart::text(text.text),
        ContentBlock::Image(image) => match data_url(&image.mime_type, &image.data) {
            Some(url) if image.mime_type.starts_with("image/") => ContentPart::image(url),
            _ => ContentPart::text("[an image that cannot be shown]"),
        },
        ContentBlock::Audio(audio) => file_part("audio", &audio.mime_type, &audio.data)
            .unwrap_or_else(|| ContentPart::text("[audio that cannot be kept]")),
        ContentBlock::Resource(resource) => read_resource(resource.resource),
        ContentBlock::ResourceLink(link) => {
            ContentPart::text(format!("{} ({})", link.title.as_deref().unwrap_or(&link.name), link.uri))
        }
        _ => ContentPart::text("[content that is not supported]"),
    }
}

/// A resource: text as it is, an image as one, anything else as a file.
pub(crate) fn read_resource(resource: ResourceContents) -> ContentPart {
    match resource {
        ResourceContents::TextResourceContents { text, .. } => ContentPart::text(text),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
            let image = data_url(mime_type, &blob).filter(|_| mime_type.starts_with("image/"));
            let name = uri.rsplit('/').find(|part| !part.is_empty()).unwrap_or("file");
            let part = image.map(ContentPart::image).or_else(|| file_part(name, mime_type, &blob));
            part.unwrap_or_else(|| ContentPart::text(format!("[a file: {uri}]")))
        }
        _ => ContentPart::text("[a resource that is not supported]"),
    }
}

/// A file; without an extension of its own it has that of its type.
fn file_part(name: &str, mime_type: &str, data: &str) -> Option<ContentPart> {
    let url = data_url(mime_type, data)?;
    let mut name: String = clean_text(name, FILE_NAME_CHARS_MAX).replace(['\n', '\t'], " ");
    let subtype = mime_type.split_once('/').map_or("", |(_, subtype)| subtype);
    if !name.contains('.') && !subtype.is_empty() && subtype.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        name = format!("{name}.{subtype}");
    }
    Some(ContentPart::File { file: FileRef { url: Some(url), name: Some(name), ..FileRef::default() } })
}

/// The bytes are checked and stored where files of all tools are.
fn data_url(mime_type: &str, data: &str) -> Option<String> {
    let (kind, subtype) = mime_type.split_once('/')?;
    let is_plain =
        |text: &str, more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
    let is_name = |text: &str| !text.is_empty() && is_plain(text, b".+-");
    (is_name(kind) && is_name(subtype) && is_plain(data, b"+/=")).then(|| format!("data:{mime_type};base64,{data}"))
}

fn part_text(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text, .. } => Some(text),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    }
}

fn part_bytes(part: &ContentPart) -> usize {
    part_text(part).or_else(|| part.url()).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(result: Value) -> ToolOutput {
        read_result(serde_json::from_value(result).unwrap(), None, 1000)
    }

    fn file(name: &str, url: &str) -> ContentPart {
        let (url, name) = (Some(url.to_owned()), Some(name.to_owned()));
        ContentPart::File { file: FileRef { url, name, ..FileRef::default() } }
    }

    #[test]
    fn every_kind_of_content_is_something_for_the_model() {
        let output = read(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png;x,<script>"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "audio", "data": "<>", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///dir/b.bin", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk=", "mimeType": "image/png"}},
            {"type": "resource", "resource": {"uri": "file:///d", "blob": "no base64"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "title": "C", "mimeType": "text/plain"},
        ]}));
        let wanted = [
            ContentPart::text("one"),
            ContentPart::image("data:image/png;base64,aGk="),
            ContentPart::text("[an image that cannot be shown]"),
            file("audio.wav", "data:audio/wav;base64,aGk="),
            ContentPart::text("[audio that cannot be kept]"),
            ContentPart::text("inside"),
            file("b.bin", "data:application/octet-stream;base64,aGk="),
            ContentPart::image("data:image/png;base64,aGk="),
            ContentPart::text("[a file: file:///d]"),
            ContentPart::text("C (file:///c)"),
        ];
        assert_eq!((output.message_content.as_slice(), output.error), (&wanted[..], None));
        let link = json!({"uri": "file:///c", "name": "c", "title": "C", "mime_type": "text/plain"});
        assert_eq!(output.artifact, Some(json!({"resource_links": [link]})));
    }

    #[test]
    fn structured_content_is_in_the_artifact_and_text_where_there_is_no_other() {
        let structured = read(json!({"content": [], "structuredContent": {"a": 1}}));
        assert_eq!(structured.message_content, [ContentPart::text("{\"a\":1}")]);
        assert_eq!(structured.artifact, Some(json!({"structured_content": {"a": 1}})));
        let both = read(json!({"content": [{"type": "text", "text": "a is 1"}], "structuredContent": {"a": 1}}));
        assert_eq!(both.message_content, [ContentPart::text("a is 1")]);
        assert_eq!(both.artifact, structured.artifact);
        let large = json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": "x".repeat(ARTIFACT_BYTES_MAX)}});
        assert_eq!(read(large).artifact, None, "the record of a result has no room for it");
    }

    #[test]
    fn a_result_that_is_not_what_was_promised_is_an_error() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        let schema = ToolSchema::compile(&schema).unwrap();
        let read = |result: Value| read_result(serde_json::from_value(result).unwrap(), Some(&schema), 1000);
        let text = json!([{"type": "text", "text": "a is 1"}]);
        assert_eq!(read(json!({"content": text, "structuredContent": {"a": 1}})).error, None);
        for lie in [json!({"content": text, "structuredContent": {"a": "one"}}), json!({ "content": text })] {
            let output = read(lie);
            assert_eq!(output.error.as_ref().unwrap().code, "invalid_output", "{output:?}");
            assert_eq!(output.artifact, None);
        }
        let failed = read(json!({"content": text, "isError": true}));
        assert_eq!(failed.error.unwrap().code, "tool_failed", "an error has no such content");
    }

    #[test]
    fn an_error_of_the_tool_is_one_and_too_much_is_one() {
        let failed = read(json!({"content": [{"type": "text", "text": "no such file"}], "isError": true}));
        assert_eq!(failed.error, Some(ErrorInfo::new(ErrorCode::ToolFailed, "no such file")));
        assert_eq!(failed.message_content, [ContentPart::text("no such file")]);
        let silent = read(json!({"content": [], "isError": true}));
        assert_eq!(silent.error.unwrap().message, "The tool reported an error.");
        let long = read(json!({"content": [{"type": "text", "text": "x".repeat(1001)}]}));
        assert_eq!(long.error.unwrap().code, "output_too_large");
    }
}
