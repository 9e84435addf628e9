//! The citations of texts, for clients that count UTF-16 code units.
//!
//! The log counts code points. Clients in JavaScript count code units: a character outside the Basic Multilingual Plane
//! counts twice.

use model::content::{Annotation, TextBlock};
use model::item::{Block, Message};
use serde::Serialize;
use serde_with::skip_serializing_none;

/// A citation in a text. Ends are exclusive.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextCitation<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The thread's reference group.
    pub(crate) reference: Option<u32>,
    pub(crate) url: Option<&'a str>,
    pub(crate) title: Option<&'a str>,
    /// The provider's id of a file.
    pub(crate) file_id: Option<&'a str>,
    pub(crate) filename: Option<&'a str>,
    /// The passage of the file.
    pub(crate) quote: Option<&'a str>,
}

/// The citations of one text block.
pub(crate) fn block_citations(block: &TextBlock) -> Vec<TextCitation<'_>> {
    let annotations = block.annotations.as_deref().unwrap_or_default();
    if annotations.is_empty() {
        return Vec::new();
    }
    let offsets = Utf16Offsets::of(block.text());
    annotations.iter().map(|annotation| citation(annotation, &offsets)).collect()
}

/// The citations of a message whose text blocks are lines of one text.
pub(crate) fn message_citations(message: &Message) -> Vec<TextCitation<'_>> {
    let mut citations = Vec::new();
    let mut before = 0;
    for block in message.block_list.iter().flatten() {
        let Block::Text(block) = block else { continue };
        let shifted = block_citations(block).into_iter().map(|citation| TextCitation {
            start: citation.start + before,
            end: citation.end + before,
            ..citation
        });
        citations.extend(shifted);
        before += block.text().encode_utf16().count() + "\n".len();
    }
    citations
}

fn citation<'a>(annotation: &'a Annotation, offsets: &Utf16Offsets) -> TextCitation<'a> {
    let (start, end) = match annotation {
        Annotation::ReferenceToBlock { start_index, end_index, .. }
        | Annotation::UrlCitation { start_index, end_index, .. }
        | Annotation::ContainerFileCitation { start_index, end_index, .. }
        | Annotation::FileCitation { start_index: Some(start_index), end_index: Some(end_index), .. } => {
            (*start_index, *end_index)
        }
        Annotation::FileCitation { index, .. } | Annotation::FilePath { index, .. } => (*index, *index),
    };
    let (url, title) = match annotation {
        Annotation::UrlCitation { url, title, .. } => (Some(url.as_str()), title.as_deref()),
        _ => (None, None),
    };
    let file = annotation.file();
    TextCitation {
        start: offsets.at(start),
        end: offsets.at(end),
        reference: annotation.reference_id(),
        url,
        title,
        file_id: file.map(|file| file.file_id),
        filename: file.and_then(|file| file.filename),
        quote: file.and_then(|file| file.quote),
    }
}

/// Converts offsets in code points to offsets in UTF-16 code units.
enum Utf16Offsets {
    /// Of a text in ASCII the two are the same, up to its length.
    Ascii(usize),
    /// The offset of every code point, and of the end.
    Table(Vec<usize>),
}

impl Utf16Offsets {
    fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self::Ascii(text.len());
        }
        let mut units = 0;
        let mut table = vec![0];
        table.extend(text.chars().map(|character| {
            units += character.len_utf16();
            units
        }));
        Self::Table(table)
    }

    /// An offset after the end is the end: providers report the numbers.
    fn at(&self, code_points: u32) -> usize {
        let code_points = code_points as usize;
        match self {
            Self::Ascii(end) => code_points.min(*end),
            Self::Table(table) => table.get(code_points).or(table.last()).copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn message(blocks: &Value) -> Message {
        let message = json!({"id": "msg_R1", "role": "assistant", "block_list": blocks});
        serde_json::from_value(message).unwrap()
    }

    fn block(text: &str, annotations: &Value) -> Value {
        json!({"type": "text", "text": text, "annotations": annotations})
    }

    #[test]
    fn offsets_count_utf_16_code_units_over_the_lines_of_the_text() {
        let reference = json!({"type": "reference_to_block", "reference_id": 7, "start_index": 2, "end_index": 4});
        let page = json!({"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 99});
        let picture = json!({"type": "image", "image_url": {"url": "/v1/blobs/a"}});
        let message = message(&json!([block("a😀bcd", &json!([reference])), picture, block("é😀", &json!([page]))]));
        let citations = serde_json::to_value(message_citations(&message)).unwrap();
        let expected =
            json!([{"start": 3, "end": 5, "reference": 7}, {"start": 7, "end": 10, "url": "u", "title": "t"}]);
        assert_eq!(citations, expected);
    }

    #[test]
    fn a_file_is_cited_at_a_range_or_at_an_offset() {
        let ranged = json!({"type": "file_citation", "file_id": "f", "index": 1, "start_index": 0, "end_index": 2});
        let placed = json!({"type": "file_citation", "file_id": "f", "filename": "a.md", "index": 3, "quote": "q"});
        let written = json!({"type": "file_path", "file_id": "g", "index": 1});
        let message = message(&json!([block("abcd", &json!([ranged, placed, written]))]));
        let citations = serde_json::to_value(message_citations(&message)).unwrap();
        let expected = json!([
            {"start": 0, "end": 2, "fileId": "f"},
            {"start": 3, "end": 3, "fileId": "f", "filename": "a.md", "quote": "q"},
            {"start": 1, "end": 1, "fileId": "g"},
        ]);
        assert_eq!(citations, expected);
    }
}
