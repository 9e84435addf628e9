//! Detects the format of a file by its bytes; the declared type matters only where the bytes are ambiguous.
//!
//! A signature takes precedence. Text has none, so the declared type decides which kind of text it is; but text that
//! was declared as an image, an archive or a document is refused.

use crate::error::FetchError;
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

const SIGNATURE_BYTES: usize = 1024;
/// Larger for markup, because pages and sources may start with a long comment.
const MARKUP_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentFormat {
    Html,
    Markdown,
    Csv,
    Plain,
    Pdf,
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl DocumentFormat {
    pub const fn is_image(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::Gif | Self::Webp)
    }

    /// Detects the format. `declared` is the content type of the response, `name` the file's name.
    pub fn sniff(bytes: &[u8], declared: &str, name: &str) -> Result<Self, FetchError> {
        let declared = DeclaredType::parse(declared);
        if let Some(format) = format_by_signature(bytes, &declared) {
            return Ok(format);
        }
        if !looks_like_text(bytes, &declared) {
            return Err(FetchError::UnsupportedType);
        }
        match detect_markup(bytes) {
            Markup::Html => declared.allows_text().then_some(Self::Html),
            Markup::Xml => (declared.essence == "application/xhtml+xml").then_some(Self::Html),
            Markup::None => declared.text_format(name),
        }
        .ok_or(FetchError::UnsupportedType)
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html",
            Self::Markdown => "text/markdown",
            Self::Csv => "text/csv",
            Self::Plain => "text/plain",
            Self::Pdf => "application/pdf",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

fn format_by_signature(bytes: &[u8], declared: &DeclaredType) -> Option<DocumentFormat> {
    let head = bytes.get(..SIGNATURE_BYTES).unwrap_or(bytes);
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(DocumentFormat::Png),
        [0xff, 0xd8, 0xff, ..] => Some(DocumentFormat::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(DocumentFormat::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(DocumentFormat::Webp),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some(DocumentFormat::Pdf),
        // Mail gateways and printers put bytes before the header. In declared text it may as well be a quotation.
        _ => (!declared.is_text() && head.windows(5).any(|window| window == b"%PDF-")).then_some(DocumentFormat::Pdf),
    }
}

enum Markup {
    Html,
    Xml,
    None,
}

/// Whether the bytes are HTML or XHTML.
pub(crate) fn looks_like_html(bytes: &[u8]) -> bool {
    matches!(detect_markup(bytes), Markup::Html)
}

/// Tells HTML from other XML, which may be a drawing with active content.
fn detect_markup(bytes: &[u8]) -> Markup {
    let head = bytes.get(..MARKUP_BYTES).unwrap_or(bytes);
    detect_markup_in(&String::from_utf8_lossy(head).replace(['\0', '\u{feff}', '\u{fffd}'], "").to_ascii_lowercase())
}

fn detect_markup_in(head: &str) -> Markup {
    let (mut head, mut is_xml) = (head.trim_start(), false);
    loop {
        let comment = head.strip_prefix("<!--").and_then(|comment| comment.split_once("-->"));
        let prolog = head.strip_prefix("<?xml").and_then(|prolog| prolog.split_once("?>"));
        let Some((_, rest)) = comment.or(prolog) else { break };
        is_xml |= prolog.is_some();
        head = rest.trim_start();
    }
    let begins = |starts: &[&str]| starts.iter().any(|start| head.starts_with(start));
    let is_page = is_html_doctype(head) || begins(&["<html"]);
    if is_page || !is_xml && begins(&["<head", "<body", "<title", "<meta", "<script", "<style", "<!--"]) {
        Markup::Html
    } else if is_xml || begins(&["<?xml", "<svg", "<!doctype", "<!entity"]) {
        Markup::Xml
    } else {
        Markup::None
    }
}

fn is_html_doctype(head: &str) -> bool {
    let name = head.strip_prefix("<!doctype").and_then(|rest| rest.trim_start().strip_prefix("html"));
    name.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

fn looks_like_text(bytes: &[u8], declared: &DeclaredType) -> bool {
    if declared.is_utf16 || bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return true;
    }
    let head = bytes.get(..SIGNATURE_BYTES).unwrap_or(bytes);
    let binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    !head.iter().any(binary)
}

struct DeclaredType {
    essence: String,
    is_utf16: bool,
}

impl DeclaredType {
    fn parse(declared: &str) -> Self {
        let declared = declared.to_ascii_lowercase();
        let essence = declared.split(';').next().unwrap_or_default().trim().to_owned();
        let encoding = charset_of_content_type(&declared).and_then(|label| Encoding::for_label(label.as_bytes()));
        Self { is_utf16: encoding.is_some_and(|encoding| encoding == UTF_16LE || encoding == UTF_16BE), essence }
    }

    fn is_text(&self) -> bool {
        self.essence.starts_with("text/")
    }

    /// Whether text is compatible with the declared type.
    fn allows_text(&self) -> bool {
        let says_nothing = ["", "application/octet-stream", "binary/octet-stream", "application/x-download"];
        let text = ["application/json", "application/yaml", "application/x-ndjson", "application/xhtml+xml"];
        says_nothing.contains(&self.essence.as_str())
            || text.contains(&self.essence.as_str())
            || self.essence.ends_with("+json")
            || (self.is_text() && self.essence != "text/xml")
    }

    /// The format of text without markup.
    fn text_format(&self, name: &str) -> Option<DocumentFormat> {
        let ends = |ends: &[&str]| {
            let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).unwrap_or_default();
            ends.contains(&end.as_str())
        };
        match self.essence.as_str() {
            "text/html" | "application/xhtml+xml" => Some(DocumentFormat::Html),
            "text/markdown" | "text/x-markdown" => Some(DocumentFormat::Markdown),
            "text/csv" | "text/tab-separated-values" | "application/csv" => Some(DocumentFormat::Csv),
            // Sent for CSV by machines with a spreadsheet program.
            "application/vnd.ms-excel" => Some(DocumentFormat::Csv),
            _ if !self.allows_text() => None,
            _ if ends(&["md", "markdown"]) => Some(DocumentFormat::Markdown),
            _ if ends(&["csv", "tsv"]) => Some(DocumentFormat::Csv),
            _ if ends(&["htm", "html"]) => Some(DocumentFormat::Html),
            _ => Some(DocumentFormat::Plain),
        }
    }
}

pub(crate) fn charset_of_content_type(declared: &str) -> Option<String> {
    let mut parameters = declared.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charset_is_found_in_header_and_document() {
        assert_eq!(charset_of_content_type("text/html; charset=ISO-8859-1"), Some("ISO-8859-1".to_owned()));
        assert_eq!(charset_of_content_type("text/html; a=b; Charset=\"utf-8\""), Some("utf-8".to_owned()));
        assert_eq!(charset_of_content_type("text/html"), None);
        assert_eq!(charset_of_content_type(""), None);
    }

    #[test]
    fn content_after_a_long_comment_is_inspected() {
        let after = |rest: &str| format!("<!-- {} -->\n{rest}", "All rights reserved. ".repeat(200));
        for (rest, declared, wanted) in [
            ("# Notes", "text/markdown", Some(DocumentFormat::Markdown)),
            ("<!doctype html><p>hi", "text/html", Some(DocumentFormat::Html)),
            ("<svg>", "text/html", None),
        ] {
            assert_eq!(DocumentFormat::sniff(after(rest).as_bytes(), declared, "").ok(), wanted, "{rest}");
        }
    }

    #[test]
    fn every_label_of_utf_16_is_known() {
        for charset in ["utf-16", "UTF-16LE", "ucs-2", "unicode"] {
            let declared = format!("text/plain; charset={charset}");
            assert_eq!(DocumentFormat::sniff(b"h\0i\0", &declared, ""), Ok(DocumentFormat::Plain), "{charset}");
        }
        assert_eq!(DocumentFormat::sniff(b"h\0i\0", "text/plain; charset=utf-8", ""), Err(FetchError::UnsupportedType));
    }

    #[test]
    fn bytes_win_over_the_declared_type() {
        let cases: &[(&[u8], &str, &str, Option<DocumentFormat>)] = &[
            (b"\x89PNG\r\n\x1a\n....", "text/html", "a.html", Some(DocumentFormat::Png)),
            (b"\xff\xd8\xff\xe0", "image/png", "a.png", Some(DocumentFormat::Jpeg)),
            (b"GIF89a", "", "", Some(DocumentFormat::Gif)),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", "", Some(DocumentFormat::Webp)),
            (b"junk\n%PDF-1.7\n", "application/octet-stream", "", Some(DocumentFormat::Pdf)),
            (b"# Files\n\nA PDF begins with\n%PDF-1.7\n", "text/markdown", "a.md", Some(DocumentFormat::Markdown)),
            (b"<html><!-- %PDF-1.7 --><p>hi", "text/html", "", Some(DocumentFormat::Html)),
            (b"%PDF-1.7\n", "text/plain", "", Some(DocumentFormat::Pdf)),
            (b"<!DOCTYPE html><p>hi", "image/png", "a.png", None),
            (b"<html>sign in", "application/pdf", "a.pdf", None),
            (b"<html>sign in", "application/octet-stream", "", Some(DocumentFormat::Html)),
            (b"  <!-- a --> <html>", "text/plain", "", Some(DocumentFormat::Html)),
            (b"<svg xmlns='x'><image href='file:///etc/passwd'/></svg>", "image/svg+xml", "a.svg", None),
            (
                b"<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><svg/>",
                "text/plain",
                "",
                None,
            ),
            (b"<?xml version='1.0'?><html xmlns='x'/>", "application/xhtml+xml", "", Some(DocumentFormat::Html)),
            (b"<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC 'x'><html>", "text/html", "", Some(DocumentFormat::Html)),
            (b"<?xml version='1.0'?><?xml-stylesheet href='x'?><!-- a --><html>", "", "", Some(DocumentFormat::Html)),
            (b"<?xml version='1.0'?><html>", "text/xml", "", None),
            (b"{\"a\": 1}", "application/ld+json", "", Some(DocumentFormat::Plain)),
            (b"<?xml version='1.0'?><svg><html>", "text/html", "", None),
            (b"<!DOCTYPE  \n html><p>hi", "text/html", "", Some(DocumentFormat::Html)),
            (b"<!DOCTYPE htmlx [<!ENTITY a 'b'>]>", "text/html", "", None),
            (b"<p>no doctype", "text/html", "", Some(DocumentFormat::Html)),
            (b"PK\x03\x04\x14\0", "text/plain", "a.txt", None),
            (b"\x7fELF\x02\x01", "text/plain", "", None),
            (b"\x1f\x8b\x08\0", "text/plain", "", None),
            (b"a,b\n1,2\n", "text/csv; charset=utf-8", "", Some(DocumentFormat::Csv)),
            (b"a,b\n1,2\n", "application/octet-stream", "t.CSV", Some(DocumentFormat::Csv)),
            (b"a,b\n1,2\n", "application/csv", "", Some(DocumentFormat::Csv)),
            (b"a,b\n1,2\n", "application/vnd.ms-excel", "t.csv", Some(DocumentFormat::Csv)),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "application/vnd.ms-excel", "t.xls", None),
            (b"# Title", "text/plain", "README.md", Some(DocumentFormat::Markdown)),
            (b"# Title", "text/markdown", "", Some(DocumentFormat::Markdown)),
            (b"{\"a\":1}", "application/json", "", Some(DocumentFormat::Plain)),
            (b"plain", "", "", Some(DocumentFormat::Plain)),
            (b"plain", "video/mp4", "", None),
            (b"plain", "application/zip", "a.zip", None),
            (b"h\0i\0", "text/plain; charset=utf-16le", "", Some(DocumentFormat::Plain)),
            (b"\xff\xfeh\0i\0", "text/plain", "", Some(DocumentFormat::Plain)),
            (b"h\0i\0", "text/plain", "", None),
            (b"", "text/plain", "", Some(DocumentFormat::Plain)),
        ];
        for (bytes, declared, name, wanted) in cases {
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(
                DocumentFormat::sniff(bytes, declared, name).ok(),
                *wanted,
                "{shown:?} as {declared:?} called {name:?}"
            );
        }
    }
}
