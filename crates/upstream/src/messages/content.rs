//! What people, tools and the model said, as content blocks.

use crate::history::{ToldCall, ToldResult};
use crate::json;
use crate::parts::{Picture, file_name, file_note};
use model::block::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::item::ResultStatus;
use serde_json::{Value, json};

/// The ends of the names of pictures that the provider can look at.
const IMAGE_ENDS: [&str; 5] = [".jpg", ".jpeg", ".png", ".gif", ".webp"];
/// The longest title of a document.
const TITLE_CHARS_MAX: usize = 255;
/// The longest name of a tool.
const NAME_CHARS_MAX: usize = 64;
/// Where arguments go that are no object.
const INVALID: &str = "_invalid";

/// Words.
pub(super) fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

/// A part of what a person or a tool gave.
pub(super) fn part(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text: words, .. } => text(words),
        ContentPart::ImageUrl { image_url, .. } => {
            image(&image_url.url).unwrap_or_else(|| text(&image_url.placeholder()))
        }
        ContentPart::File { file } => file_block(file).unwrap_or_else(|| text(&file_note(file))),
    }
}

/// A part in words alone.
fn part_as_text(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text: words, .. } => text(words),
        ContentPart::ImageUrl { image_url, .. } => text(&image_url.placeholder()),
        ContentPart::File { file } => text(&file_note(file)),
    }
}

/// A picture. The provider fetches nothing over plain http.
fn image(url: &str) -> Option<Value> {
    let source = match Picture::at(url) {
        Picture::Web(url) if url.starts_with("https://") => json!({"type": "url", "url": url}),
        Picture::Data { media_type, base64, .. } if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            json!({"type": "base64", "media_type": media_type, "data": base64})
        }
        Picture::Web(_) | Picture::Data { .. } | Picture::Hidden => return None,
    };
    Some(json!({"type": "image", "source": source}))
}

/// A file that the provider can read: a PDF, or a picture. Others it refuses.
fn file_block(file: &FileRef) -> Option<Value> {
    let url = file.url.as_deref()?;
    let source = match Picture::at(url) {
        Picture::Web(_) => {
            let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
            if IMAGE_ENDS.iter().any(|end| path.ends_with(end)) {
                return image(url);
            }
            (path.starts_with("https://") && path.ends_with(".pdf")).then(|| json!({"type": "url", "url": url}))?
        }
        Picture::Data { media_type: media_type @ "application/pdf", base64, .. } => {
            json!({"type": "base64", "media_type": media_type, "data": base64})
        }
        Picture::Data { .. } => return image(url),
        Picture::Hidden => return None,
    };
    let mut block = json!({"type": "document", "source": source});
    if let (Some(_), Some(block)) = (&file.name, block.as_object_mut()) {
        let title: String = file_name(file).chars().take(TITLE_CHARS_MAX).collect();
        block.insert("title".to_owned(), title.into());
    }
    Some(block)
}

/// A call. Other fields of the block as it came stay, for a toolset wants its own back.
pub(super) fn call(call: &ToldCall<'_>) -> Value {
    let raw =
        call.raw.and_then(|raw| blocks(raw).first()).filter(|block| json::text(block, "type") == Some("tool_use"));
    let mut block = raw.and_then(Value::as_object).cloned().unwrap_or_default();
    block.insert("type".to_owned(), "tool_use".into());
    block.insert("id".to_owned(), call.id.into());
    block.insert("name".to_owned(), name(call.name).into());
    block.insert("input".to_owned(), input(call.arguments));
    Value::Object(block)
}

/// A tool's name as the provider takes it. A model may have asked for one that no tool can have.
pub(super) fn name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// The arguments as an object, which they may not be: the model's own mistake is shown to it as such.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    model::json::parse_lenient_json(arguments)
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({ INVALID: arguments }))
}

/// What a tool gave. Of one that failed the provider takes words alone.
pub(super) fn result(result: &ToldResult<'_>) -> Value {
    let is_error = !matches!(result.status, ResultStatus::Completed | ResultStatus::InProgress);
    let as_block = if is_error { part_as_text } else { part };
    let content: Vec<Value> = result.content.iter().map(as_block).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call.id, "content": content});
    if let Some(block) = block.as_object_mut().filter(|_| is_error) {
        block.insert("is_error".to_owned(), true.into());
    }
    block
}

/// The blocks of a raw item.
pub(super) fn blocks(raw: &Value) -> &[Value] {
    raw.as_array().map_or_else(|| std::slice::from_ref(raw), Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(url: &str) -> ContentPart {
        ContentPart::File { file: FileRef { url: Some(url.to_owned()), ..FileRef::default() } }
    }

    #[test]
    fn pictures_go_as_an_address_as_data_or_as_a_note() {
        let url = |url: &str| json!({"type": "image", "source": {"type": "url", "url": url}});
        assert_eq!(part(&ContentPart::image("https://x/a")), url("https://x/a"));
        let data = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
        assert_eq!(part(&ContentPart::image("data:image/png;base64,AAAA")), data);
        assert_eq!(part(&ContentPart::image("data:image/tiff;base64,AAAA")), text("[image]"));
        assert_eq!(part(&ContentPart::image("http://x/a")), text("[image http://x/a]"));
        assert_eq!(part(&ContentPart::image("/v1/blobs/7")), text("[image /v1/blobs/7]"));
    }

    #[test]
    fn files_are_documents_pictures_or_named() {
        let pdf = json!({"type": "document", "source": {"type": "url", "url": "https://x/A.PDF?v=1"}});
        assert_eq!(part(&file("https://x/A.PDF?v=1")), pdf);
        let source = json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"});
        assert_eq!(part(&file("data:application/pdf;base64,AAAA")), json!({"type": "document", "source": source}));
        assert_eq!(part(&file("https://x/a.png")), part(&ContentPart::image("https://x/a.png")));
        assert_eq!(part(&file("https://x/a.zip")), text("[file https://x/a.zip]"));
        let named = |url: &str| {
            let (url, name) = (Some(url.to_owned()), Some("a".repeat(300)));
            part(&ContentPart::File { file: FileRef { url, name, ..FileRef::default() } })
        };
        assert_eq!(named("data:application/pdf;base64,AAAA")["title"], "a".repeat(TITLE_CHARS_MAX));
        assert_eq!(named("data:application/zip;base64,AAAA"), text(&format!("[file {}]", "a".repeat(300))));
        assert_eq!(part(&file("data:application/zip;base64,AAAA")), text("[file]"));
        let stored = FileRef { bucket: Some("b".to_owned()), path: Some("p".to_owned()), ..FileRef::default() };
        assert_eq!(part(&ContentPart::File { file: stored }), text("[file b/p]"));
    }

    #[test]
    fn arguments_are_always_an_object() {
        assert_eq!(input(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(input("  "), json!({}));
        for broken in ["{\"a\": ", "[1]", "7", "null"] {
            assert_eq!(input(broken), json!({ "_invalid": broken }));
        }
    }

    #[test]
    fn a_failed_result_is_words_alone() {
        let called = ToldCall { id: "c", name: "t", arguments: "", raw: None };
        let told =
            |status| ToldResult { call: called.clone(), status, content: vec![ContentPart::image("https://x/a")] };
        let whole = result(&told(ResultStatus::Completed));
        assert_eq!(whole["content"][0]["type"], "image");
        assert_eq!(whole.get("is_error"), None);
        for status in [ResultStatus::Failed, ResultStatus::Rejected, ResultStatus::Incomplete, ResultStatus::Unknown] {
            let failed = result(&told(status));
            assert_eq!(failed["content"], json!([text("[image https://x/a]")]));
            assert_eq!(failed["is_error"], true);
        }
    }

    #[test]
    fn a_name_is_one_that_the_provider_takes() {
        assert_eq!(name("get_weather-2"), "get_weather-2");
        assert_eq!(name("functions.get wéather"), "functions_get_w_ather");
        assert_eq!(name(""), "_");
        assert_eq!(name(&"x".repeat(200)).len(), NAME_CHARS_MAX);
    }
}
