//! Content parts, calls and results as content blocks.

use crate::content_parts::{ImageSource, file_name_or_default, file_placeholder};
use crate::history::{PromptCall, PromptResult};
use crate::json;
use crate::tool_name::sanitize_tool_name;
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::item::ResultStatus;
use serde_json::{Value, json};

const IMAGE_EXTENSIONS: [&str; 5] = [".jpg", ".jpeg", ".png", ".gif", ".webp"];
const TITLE_CHARS_MAX: usize = 255;
/// The name of a tool that the model called without one.
const UNNAMED_TOOL: &str = "_";
/// Holds arguments that are not an object.
const INVALID_ARGUMENTS_KEY: &str = "_invalid";

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn part_block(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text, .. } => text_block(text),
        ContentPart::ImageUrl { image_url, .. } => {
            image_block(&image_url.url).unwrap_or_else(|| text_block(&image_url.placeholder()))
        }
        ContentPart::File { file } => file_block(file).unwrap_or_else(|| text_block(&file_placeholder(file))),
    }
}

/// A part as text, with a placeholder for images and files.
fn part_text_block(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text, .. } => text_block(text),
        ContentPart::ImageUrl { image_url, .. } => text_block(&image_url.placeholder()),
        ContentPart::File { file } => text_block(&file_placeholder(file)),
    }
}

/// `None` if the provider cannot read the image. It fetches nothing over plain HTTP.
fn image_block(url: &str) -> Option<Value> {
    let source = match ImageSource::from_url(url) {
        ImageSource::Remote(url) if url.starts_with("https://") => json!({"type": "url", "url": url}),
        ImageSource::Inline { media_type, base64, .. } if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            json!({"type": "base64", "media_type": media_type, "data": base64})
        }
        ImageSource::Remote(_) | ImageSource::Inline { .. } | ImageSource::Unavailable => return None,
    };
    Some(json!({"type": "image", "source": source}))
}

/// `None` unless the file is a PDF or an image: the provider refuses others.
fn file_block(file: &FileRef) -> Option<Value> {
    let url = file.url.as_deref()?;
    let source = match ImageSource::from_url(url) {
        ImageSource::Remote(_) => {
            let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
            if IMAGE_EXTENSIONS.iter().any(|end| path.ends_with(end)) {
                return image_block(url);
            }
            (path.starts_with("https://") && path.ends_with(".pdf")).then(|| json!({"type": "url", "url": url}))?
        }
        ImageSource::Inline { media_type: media_type @ "application/pdf", base64, .. } => {
            json!({"type": "base64", "media_type": media_type, "data": base64})
        }
        ImageSource::Inline { .. } => return image_block(url),
        ImageSource::Unavailable => return None,
    };
    let mut block = json!({"type": "document", "source": source});
    if let (Some(_), Some(block)) = (&file.name, block.as_object_mut()) {
        let title: String = file_name_or_default(file).chars().take(TITLE_CHARS_MAX).collect();
        block.insert("title".to_owned(), title.into());
    }
    Some(block)
}

/// A call. Other fields of the block as it came stay, for a toolset wants its own back.
pub(super) fn tool_use_block(call: &PromptCall<'_>) -> Value {
    let raw = call
        .raw
        .and_then(|raw| raw_blocks(raw).first())
        .filter(|block| json::str_field(block, "type") == Some("tool_use"));
    let mut block = raw.and_then(Value::as_object).cloned().unwrap_or_default();
    block.insert("type".to_owned(), "tool_use".into());
    block.insert("id".to_owned(), call.id.into());
    block.insert("name".to_owned(), sanitize_tool_name(call.name, UNNAMED_TOOL).into());
    block.insert("input".to_owned(), arguments_object(call.arguments));
    Value::Object(block)
}

/// The arguments as an object. If they are not one, the model sees its mistake.
fn arguments_object(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    model::json::parse_lenient_json(arguments)
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({ INVALID_ARGUMENTS_KEY: arguments }))
}

/// The provider accepts only text in failed results.
pub(super) fn tool_result_block(result: &PromptResult<'_>) -> Value {
    let is_error = !matches!(result.status, ResultStatus::Completed | ResultStatus::InProgress);
    let to_block = if is_error { part_text_block } else { part_block };
    let content: Vec<Value> = result.content.iter().map(to_block).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call.id, "content": content});
    if let Some(block) = block.as_object_mut().filter(|_| is_error) {
        block.insert("is_error".to_owned(), true.into());
    }
    block
}

pub(super) fn raw_blocks(raw: &Value) -> &[Value] {
    raw.as_array().map_or_else(|| std::slice::from_ref(raw), Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(url: &str) -> ContentPart {
        ContentPart::File { file: FileRef { url: Some(url.to_owned()), ..FileRef::default() } }
    }

    #[test]
    fn images_are_sent_as_url_data_or_note() {
        let url = |url: &str| json!({"type": "image", "source": {"type": "url", "url": url}});
        assert_eq!(part_block(&ContentPart::image("https://x/a")), url("https://x/a"));
        let data = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
        assert_eq!(part_block(&ContentPart::image("data:image/png;base64,AAAA")), data);
        assert_eq!(part_block(&ContentPart::image("data:image/tiff;base64,AAAA")), text_block("[image]"));
        assert_eq!(part_block(&ContentPart::image("http://x/a")), text_block("[image http://x/a]"));
        assert_eq!(part_block(&ContentPart::image("/v1/blobs/7")), text_block("[image /v1/blobs/7]"));
    }

    #[test]
    fn files_are_documents_images_or_notes() {
        let pdf = json!({"type": "document", "source": {"type": "url", "url": "https://x/A.PDF?v=1"}});
        assert_eq!(part_block(&file("https://x/A.PDF?v=1")), pdf);
        let source = json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"});
        assert_eq!(
            part_block(&file("data:application/pdf;base64,AAAA")),
            json!({"type": "document", "source": source})
        );
        assert_eq!(part_block(&file("https://x/a.png")), part_block(&ContentPart::image("https://x/a.png")));
        assert_eq!(part_block(&file("https://x/a.zip")), text_block("[file https://x/a.zip]"));
        let named = |url: &str| {
            let (url, name) = (Some(url.to_owned()), Some("a".repeat(300)));
            part_block(&ContentPart::File { file: FileRef { url, name, ..FileRef::default() } })
        };
        assert_eq!(named("data:application/pdf;base64,AAAA")["title"], "a".repeat(TITLE_CHARS_MAX));
        assert_eq!(named("data:application/zip;base64,AAAA"), text_block(&format!("[file {}]", "a".repeat(300))));
        assert_eq!(part_block(&file("data:application/zip;base64,AAAA")), text_block("[file]"));
        let stored = FileRef { bucket: Some("b".to_owned()), path: Some("p".to_owned()), ..FileRef::default() };
        assert_eq!(part_block(&ContentPart::File { file: stored }), text_block("[file b/p]"));
    }

    #[test]
    fn arguments_are_always_an_object() {
        assert_eq!(arguments_object(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(arguments_object("  "), json!({}));
        for broken in ["{\"a\": ", "[1]", "7", "null"] {
            assert_eq!(arguments_object(broken), json!({ "_invalid": broken }));
        }
    }

    #[test]
    fn a_failed_result_is_text_only() {
        let called = PromptCall { id: "c", name: "t", arguments: "", raw: None };
        let told = |status| {
            let (call, content) = (called.clone(), vec![ContentPart::image("https://x/a")]);
            PromptResult { call, status, content, acknowledged_checks: None }
        };
        let whole = tool_result_block(&told(ResultStatus::Completed));
        assert_eq!(whole["content"][0]["type"], "image");
        assert_eq!(whole.get("is_error"), None);
        for status in [ResultStatus::Failed, ResultStatus::Rejected, ResultStatus::Incomplete, ResultStatus::Unknown] {
            let failed = tool_result_block(&told(status));
            assert_eq!(failed["content"], json!([text_block("[image https://x/a]")]));
            assert_eq!(failed["is_error"], true);
        }
    }
}
