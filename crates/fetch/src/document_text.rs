//! Extracts what a model can read from a file.
//!
//! The bytes are untrusted, so extraction runs off the async threads, a few files at a time, with a time-out. Work that
//! cannot be stopped keeps its permit until it ends.

mod html;

use crate::document_format::{self, DocumentFormat};
use crate::error::FetchError;
use crate::fetcher::FetchedFile;
use crate::pdf::{self, PdfLimits};
use crate::pdf_process::PdfProcess;
use crate::plain_text::{self, ExtractedText};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

#[derive(Clone, Debug, PartialEq)]
pub enum DocumentContent {
    Text {
        /// In reading order.
        text: String,
        truncated: bool,
    },
    /// An image, passed on unchanged. The caller checks its dimensions.
    Image {
        /// Detected from the bytes.
        content_type: &'static str,
        bytes: Bytes,
    },
}

#[derive(Clone, Debug)]
pub struct ReadLimits {
    /// Size of the extracted text.
    pub text_bytes_max: usize,
    /// Per file.
    pub timeout: Duration,
    /// Concurrent reads of PDFs, and of all other files.
    pub concurrent_reads_max: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { text_bytes_max: 1024 * 1024, timeout: Duration::from_secs(10), concurrent_reads_max: 2 }
    }
}

#[derive(Clone, Debug)]
pub enum PdfReader {
    /// A malicious file can exhaust the server's memory.
    InProcess,
    /// A malicious file can only end the process.
    Subprocess(PdfProcess),
}

#[derive(Clone, Debug)]
pub struct DocumentReader {
    limits: ReadLimits,
    pdf: PdfReader,
    permits: Arc<Semaphore>,
    /// Separate, because a malicious PDF can take all the time it is given.
    pdf_permits: Arc<Semaphore>,
}

impl DocumentReader {
    /// Clones share the permits.
    #[must_use]
    pub fn new(limits: ReadLimits, pdf: PdfReader) -> Self {
        let permits = || Arc::new(Semaphore::new(limits.concurrent_reads_max.max(1)));
        let (permits, pdf_permits) = (permits(), permits());
        Self { limits, pdf, permits, pdf_permits }
    }

    /// Waiting for a permit has the same time-out as the extraction, and does not count towards it.
    pub async fn read(&self, file: &FetchedFile) -> Result<DocumentContent, FetchError> {
        let permits = if file.format == DocumentFormat::Pdf { &self.pdf_permits } else { &self.permits };
        let permit = timeout(self.limits.timeout, Arc::clone(permits).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(FetchError::ReadTimedOut)?;
        let read = self.read_with_permit(permit, file);
        timeout(self.limits.timeout, read).await.unwrap_or(Err(FetchError::ReadTimedOut))
    }

    async fn read_with_permit(
        &self,
        permit: OwnedSemaphorePermit,
        file: &FetchedFile,
    ) -> Result<DocumentContent, FetchError> {
        if let (DocumentFormat::Pdf, PdfReader::Subprocess(process)) = (file.format, &self.pdf) {
            let extracted = process.extract_text(&file.bytes, self.limits.text_bytes_max, self.limits.timeout).await?;
            return Ok(extracted.into());
        }
        let (file, limits) = (file.clone(), self.limits.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            extract_content(&file, &limits)
        });
        // A panic of a parser means that the file is unreadable.
        work.await.unwrap_or(Err(FetchError::Unreadable))
    }
}

impl From<ExtractedText> for DocumentContent {
    fn from(extracted: ExtractedText) -> Self {
        Self::Text { text: extracted.text, truncated: extracted.truncated }
    }
}

fn extract_content(file: &FetchedFile, limits: &ReadLimits) -> Result<DocumentContent, FetchError> {
    let (bytes, charset, bytes_max) = (&file.bytes, file.charset.as_deref(), limits.text_bytes_max);
    let extracted = match file.format {
        DocumentFormat::Markdown | DocumentFormat::Csv | DocumentFormat::Plain => {
            plain_text::normalize_text(&plain_text::decode_text(bytes, charset), bytes_max)
        }
        DocumentFormat::Html => html::html_to_text(&html::decode_html(bytes, charset), Some(&file.url), bytes_max),
        DocumentFormat::Pdf => pdf::extract_pdf_text(bytes, &PdfLimits::new(bytes_max, limits.timeout))?,
        DocumentFormat::Png | DocumentFormat::Jpeg | DocumentFormat::Gif | DocumentFormat::Webp => {
            return Ok(DocumentContent::Image { content_type: file.format.content_type(), bytes: bytes.clone() });
        }
    };
    Ok(extracted.into())
}

const HTML_EXTENSIONS: [&str; 4] = ["html", "htm", "xhtml", "xht"];

/// The text of an attachment: of HTML its visible text, of other files the whole content.
#[must_use]
pub fn text_of_attachment(bytes: &[u8], name: &str, bytes_max: usize) -> ExtractedText {
    if is_html_file(bytes, name) {
        let extracted = html::html_to_text(&html::decode_html(bytes, None), None, bytes_max);
        // A page without visible text is shown as source.
        if !extracted.text.trim().is_empty() {
            return extracted;
        }
    }
    let text = plain_text::decode_by_bom(bytes);
    let end = text.floor_char_boundary(bytes_max);
    ExtractedText { text: text.get(..end).unwrap_or_default().to_owned(), truncated: end < text.len() }
}

/// Whether an attachment is HTML, by its extension. Without one, or with `.txt`, the content decides; other extensions
/// are trusted, because many sources look like HTML.
#[must_use]
pub fn is_html_file(bytes: &[u8], name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "" | "txt" => document_format::looks_like_html(bytes),
        extension => HTML_EXTENSIONS.contains(&extension),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};
    use url::Url;

    #[test]
    fn html_is_reduced_to_its_text_and_other_text_is_kept() {
        let page =
            "<!DOCTYPE html><title>T</title><p>One &amp; <a href='/x'>two</a>, <a href='https://a.example/'>three</a>";
        let words = "T\n\nOne & two, [three](https://a.example/)";
        let xhtml =
            format!("<?xml version='1.0'?>\n<!-- a --><html xmlns='x'>{}", page.trim_start_matches("<!DOCTYPE html>"));
        let wide: Vec<u8> = format!("\u{feff}{page}").encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (bytes, name) in [
            (page.as_bytes(), "a.html"),
            (page.as_bytes(), "A.HTM"),
            (page.as_bytes(), "file.txt"),
            (page.as_bytes(), "page"),
            (page.trim_start_matches("<!DOCTYPE html>").as_bytes(), "a.html"),
            (xhtml.as_bytes(), "a.xhtml"),
            (xhtml.as_bytes(), "file.txt"),
            (&wide, "a.html"),
        ] {
            let wanted = ExtractedText { text: words.to_owned(), truncated: false };
            assert_eq!(text_of_attachment(bytes, name, 1000), wanted, "{name}");
        }
        assert_eq!(text_of_attachment(b"<meta charset=windows-1251><p>\xcf\xf0\xe8", "a.html", 1000).text, "При");
        let wanted = ExtractedText { text: "T\n\nOne &".to_owned(), truncated: true };
        assert_eq!(text_of_attachment(page.as_bytes(), "a.html", 8), wanted);
        for (text, name) in [
            ("<script>\nimport x\n</script>", "App.vue"),
            ("<!-- by hand -->\n# Title\r\n", "README.md"),
            ("<!DOCTYPE html>,b\n", "a.csv"),
            ("<?xml version='1.0'?><svg/>", "file.txt"),
            ("<!DOCTYPE html><script>draw()</script>", "a.html"),
            ("about <html>", "a.txt"),
            ("", "a.html"),
        ] {
            let wanted = ExtractedText { text: text.to_owned(), truncated: false };
            assert_eq!(text_of_attachment(text.as_bytes(), name, 1000), wanted, "{name}");
        }
        for (bytes, wanted) in [
            (&b"\xff\xfeh\0\xe9\0"[..], "hé"),
            (b"\xfe\xff\0h\0\xe9", "hé"),
            (b"\xef\xbb\xbfh\xc3\xa9", "hé"),
            (b"h\xe9", "h\u{fffd}"),
        ] {
            assert_eq!(text_of_attachment(bytes, "a.txt", 1000).text, wanted);
        }
    }

    /// Inputs that are hard to parse.
    const PIECES: &[&[u8]] = &[
        b"<a href='",
        b"<ul>",
        b"</ul>",
        b"<li>",
        b"<pre>",
        b"</pre>",
        b"<svg>",
        b"</svg>",
        b"<script>",
        b"</a>",
        b"<td>",
        b"&#x1F600;",
        b"&lt",
        b"<!--",
        b"-->",
        b"\r\n",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"ANMF",
        b"acTL",
        b"IDAT",
        b"\x2c",
        b"\x21\xf9",
        b"\xff\xff\xff\xff",
        b"\xff\xd8",
        b"\xff\xc0",
        b"<title>",
        b"<meta charset=",
        b"utf-16",
        b"word ",
    ];

    const BEGINNINGS: &[(DocumentFormat, &[u8])] = &[
        (DocumentFormat::Html, b"<!DOCTYPE html>"),
        (DocumentFormat::Markdown, b"# "),
        (DocumentFormat::Csv, b"a,b\n"),
        (DocumentFormat::Plain, b""),
        (DocumentFormat::Png, b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x10\0\0\0\x10\x08\x02\0\0\0crc_"),
        (DocumentFormat::Jpeg, b"\xff\xd8\xff\xe0\0\x10JFIF\0"),
        (DocumentFormat::Gif, b"GIF89a\x10\0\x10\0\x80\0\0abcdef"),
        (DocumentFormat::Webp, b"RIFF\xff\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x10\0\0\x10\0\0"),
    ];

    fn random(rng: &mut Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..rng.between(0, 60) {
            match rng.pick(PIECES) {
                Some(piece) if rng.chance(70) => bytes.extend_from_slice(piece),
                _ => bytes.push(u8::try_from(rng.below(256)).unwrap()),
            }
        }
        bytes
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_stay_within_limits() {
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            for (kind, beginning) in BEGINNINGS {
                let bytes = [*beginning, &random(&mut rng)].concat();
                let text_bytes_max = rng.below(400);
                let file = FetchedFile {
                    url: Url::parse("http://h.example/").unwrap(),
                    name: String::new(),
                    format: *kind,
                    charset: rng.chance(30).then(|| "utf-16be".to_owned()),
                    bytes: bytes.clone().into(),
                };
                let _ = DocumentFormat::sniff(&bytes, "text/html", "a.md");
                let limits = ReadLimits { text_bytes_max, ..ReadLimits::default() };
                match extract_content(&file, &limits) {
                    Ok(DocumentContent::Text { text, .. }) => {
                        assert!(text.len() <= text_bytes_max, "SEED={seed} {kind:?}");
                    }
                    Ok(DocumentContent::Image { content_type, .. }) => {
                        assert_eq!(content_type, kind.content_type(), "SEED={seed}");
                    }
                    Err(_) => {}
                }
            }
        }
    }
}
