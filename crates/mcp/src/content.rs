//! The result of a call, as a tool's output.

use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::tool_list::clean_text;
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::tool::ToolOutput;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Reads a result. What is larger than `bytes_max` is an error.
pub(crate) fn read_result(result: CallToolResult, bytes_max: usize) -> ToolOutput {
    let mut parts: Vec<ContentPart> = result.content.into_iter().map(read_block).collect();
    // Servers repeat structured content as text for clients that do not read it.
    if let (true, Some(structured)) = (parts.is_empty(), &result.structured_content) {
        parts.push(ContentPart::text(structured.to_string()));
    }
    let size: usize = parts.iter().map(part_bytes).sum();
    if size > bytes_max {
        let message = format!("The tool's output exceeds {bytes_max} bytes. Ask it for less.");
        return ToolOutput::failed(ErrorCode::OutputTooLarge, message);
    }
    let error = (result.is_error == Some(true)).then(|| {
        let texts: Vec<&str> = parts.iter().filter_map(part_text).collect();
        let message = clean_text(&texts.join("\n"), ERROR_TEXT_BYTES_MAX);
        let message = if message.trim().is_empty() { "The tool reported an error.".to_owned() } else { message };
        ErrorInfo::new(ErrorCode::ToolFailed, message)
    });
    ToolOutput { message_content: parts, error, ..ToolOutput::default() }
}

fn read_block(block: ContentBlock) -> ContentPart {
    match block {
        ContentBlock::Text(text) => ContentPart::text(text.text),
        ContentBlock::Image(image) => match image_url(&image.mime_type, &image.data) {
            Some(url) => ContentPart::image(url),
            None => ContentPart::text("[an image that cannot be shown]"),
        },
        ContentBlock::Audio(_) => ContentPart::text("[audio, which is not supported]"),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => ContentPart::text(text),
            ResourceContents::BlobResourceContents { uri, .. } => ContentPart::text(format!("[a file: {uri}]")),
            _ => ContentPart::text("[a resource that is not supported]"),
        },
        ContentBlock::ResourceLink(link) => {
            ContentPart::text(format!("{} ({})", link.title.as_deref().unwrap_or(&link.name), link.uri))
        }
        _ => ContentPart::text("[content that is not supported]"),
    }
}

/// The bytes are checked and stored where images of all tools are.
fn image_url(mime_type: &str, data: &str) -> Option<String> {
    let subtype = mime_type.strip_prefix("image/")?;
    let is_plain =
        |text: &str, more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
    let is_valid = !subtype.is_empty() && is_plain(subtype, b".+-") && is_plain(data, b"+/=");
    is_valid.then(|| format!("data:image/{subtype};base64,{data}"))
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
    use serde_json::{Value, json};

    fn read(result: Value) -> ToolOutput {
        read_result(serde_json::from_value(result).unwrap(), 1000)
    }

    #[test]
    fn every_kind_of_content_is_something_for_the_model() {
        let output = read(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png;x,<script>"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "title": "C"},
        ]}));
        let wanted = [
            ContentPart::text("one"),
            ContentPart::image("data:image/png;base64,aGk="),
            ContentPart::text("[an image that cannot be shown]"),
            ContentPart::text("[audio, which is not supported]"),
            ContentPart::text("inside"),
            ContentPart::text("[a file: file:///b]"),
            ContentPart::text("C (file:///c)"),
        ];
        assert_eq!((output.message_content.as_slice(), output.error), (&wanted[..], None));
    }

    #[test]
    fn structured_content_counts_where_there_is_no_other() {
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(read(structured).message_content, [ContentPart::text("{\"a\":1}")]);
        let both = json!({"content": [{"type": "text", "text": "a is 1"}], "structuredContent": {"a": 1}});
        assert_eq!(read(both).message_content, [ContentPart::text("a is 1")]);
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
