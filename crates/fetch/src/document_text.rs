//! What a model can read of a file.
//!
//! Reading is work on somebody else's bytes, so it happens off the runtime's threads, a few files at a time, with a
//! time-out. Work that cannot be stopped keeps its place among the few until it is done.

mod html;
mod image_size;
pub(crate) mod pdf;
mod plain_text;

use crate::pdf_process::PdfProcess;
use crate::{DocumentFormat, FetchError, FetchedFile, document_format};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What a model is given.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentContent {
    /// Words.
    Text {
        /// In reading order.
        text: String,
        /// Whether there was more.
        truncated: bool,
    },
    /// A picture, passed on as it came.
    Image {
        /// By its bytes.
        content_type: &'static str,
        /// The file.
        bytes: Bytes,
    },
}

/// How much is read.
#[derive(Clone, Debug)]
pub struct ReadLimits {
    /// Of the text that comes out.
    pub text_bytes_max: usize,
    /// Of an image, all of its frames together.
    pub pixels_max: u64,
    /// For one file.
    pub timeout: Duration,
    /// How many PDFs are read at the same time, and how many of all other files.
    pub concurrent_reads_max: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            text_bytes_max: 1024 * 1024,
            pixels_max: 50_000_000,
            timeout: Duration::from_secs(10),
            concurrent_reads_max: 2,
        }
    }
}

/// Where PDFs are read.
#[derive(Clone, Debug)]
pub enum PdfReader {
    /// In this process. A file that is made for it can take a lot of memory.
    InProcess,
    /// In a process of their own, which such a file can only end.
    Subprocess(PdfProcess),
}

/// Reads files.
#[derive(Clone, Debug)]
pub struct DocumentReader {
    limits: ReadLimits,
    pdf: PdfReader,
    permits: Arc<Semaphore>,
    /// Of PDFs, for which nobody else waits: one can take all the time that it is given.
    pdf_permits: Arc<Semaphore>,
}

impl DocumentReader {
    /// A reader. Clones share its places.
    #[must_use]
    pub fn new(limits: ReadLimits, pdf: PdfReader) -> Self {
        let places = || Arc::new(Semaphore::new(limits.concurrent_reads_max.max(1)));
        let (places, pdf_places) = (places(), places());
        Self { limits, pdf, permits: places, pdf_permits: pdf_places }
    }

    /// Reads a file. Waiting for a place does not count as reading, but has the same limit.
    pub async fn read(&self, file: &FetchedFile) -> Result<DocumentContent, FetchError> {
        let places = if file.format == DocumentFormat::Pdf { &self.pdf_permits } else { &self.permits };
        let place = timeout(self.limits.timeout, Arc::clone(places).acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or(FetchError::ReadTimedOut)?;
        let reading = self.read_with_permit(place, file);
        timeout(self.limits.timeout, reading).await.unwrap_or(Err(FetchError::ReadTimedOut))
    }

    async fn read_with_permit(
        &self,
        place: OwnedSemaphorePermit,
        file: &FetchedFile,
    ) -> Result<DocumentContent, FetchError> {
        if let (DocumentFormat::Pdf, PdfReader::Subprocess(apart)) = (file.format, &self.pdf) {
            let (text, truncated) =
                apart.extract_text(&file.bytes, self.limits.text_bytes_max, self.limits.timeout).await?;
            return Ok(DocumentContent::Text { text, truncated });
        }
        let (file, limits) = (file.clone(), self.limits.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            extract_content(&file, &limits)
        });
        // A library that panics over a file has not read it, and nothing else happened.
        work.await.unwrap_or(Err(FetchError::Unreadable))
    }
}

fn extract_content(file: &FetchedFile, limits: &ReadLimits) -> Result<DocumentContent, FetchError> {
    let bytes_max = limits.text_bytes_max;
    let (text, truncated) = match file.format {
        DocumentFormat::Markdown | DocumentFormat::Csv | DocumentFormat::Plain => {
            plain_text::normalize_text(&plain_text::decode_text(&file.bytes, file.charset.as_deref()), bytes_max)
        }
        DocumentFormat::Html => {
            html::html_to_text(&html::decode_html(&file.bytes, file.charset.as_deref()), Some(&file.url), bytes_max)
        }
        DocumentFormat::Pdf => pdf::extract_pdf_text(&file.bytes, &pdf::PdfLimits::new(bytes_max, limits.timeout))?,
        DocumentFormat::Png | DocumentFormat::Jpeg | DocumentFormat::Gif | DocumentFormat::Webp => {
            image_size::check_image_size(&file.bytes, file.format, limits.pixels_max)?;
            return Ok(DocumentContent::Image { content_type: file.format.content_type(), bytes: file.bytes.clone() });
        }
    };
    Ok(DocumentContent::Text { text, truncated })
}

/// How names of pages end.
const HTML_EXTENSIONS: [&str; 4] = ["html", "htm", "xhtml", "xht"];

/// What a model reads of a text that was sent and not fetched, and whether there was more: of a page its words, of
/// anything else what stands in it.
#[must_use]
pub fn text_of_attachment(bytes: &[u8], name: &str, bytes_max: usize) -> (String, bool) {
    if is_html_file(bytes, name) {
        let (text, truncated) = html::html_to_text(&html::decode_html(bytes, None), None, bytes_max);
        // One that shows nothing to people has only its source.
        if !text.trim().is_empty() {
            return (text, truncated);
        }
    }
    let text = plain_text::decode_by_bom(bytes);
    let end = text.floor_char_boundary(bytes_max);
    (text.get(..end).unwrap_or_default().to_owned(), end < text.len())
}

/// Is a text that was sent a page? Its name says so; one that says nothing leaves it to the first bytes. Others are
/// believed, for many a source begins like a page.
#[must_use]
pub fn is_html_file(bytes: &[u8], name: &str) -> bool {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).unwrap_or_default();
    match end.as_str() {
        "" | "txt" => document_format::looks_like_html(bytes),
        end => HTML_EXTENSIONS.contains(&end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};
    use url::Url;

    #[test]
    fn of_a_page_that_was_sent_a_model_reads_the_words_and_of_anything_else_all_of_it() {
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
            assert_eq!(text_of_attachment(bytes, name, 1000), (words.to_owned(), false), "{name}");
        }
        assert_eq!(text_of_attachment(b"<meta charset=windows-1251><p>\xcf\xf0\xe8", "a.html", 1000).0, "При");
        assert_eq!(text_of_attachment(page.as_bytes(), "a.html", 8), ("T\n\nOne &".to_owned(), true));
        for (text, name) in [
            ("<script>\nimport x\n</script>", "App.vue"),
            ("<!-- by hand -->\n# Title\r\n", "README.md"),
            ("<!DOCTYPE html>,b\n", "a.csv"),
            ("<?xml version='1.0'?><svg/>", "file.txt"),
            ("<!DOCTYPE html><script>draw()</script>", "a.html"),
            ("about <html>", "a.txt"),
            ("", "a.html"),
        ] {
            assert_eq!(text_of_attachment(text.as_bytes(), name, 1000), (text.to_owned(), false), "{name}");
        }
        for (bytes, wanted) in [
            (&b"\xff\xfeh\0\xe9\0"[..], "hé"),
            (b"\xfe\xff\0h\0\xe9", "hé"),
            (b"\xef\xbb\xbfh\xc3\xa9", "hé"),
            (b"h\xe9", "h\u{fffd}"),
        ] {
            assert_eq!(text_of_attachment(bytes, "a.txt", 1000).0, wanted);
        }
    }

    /// What parsers trip over.
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
    fn whatever_the_bytes_are_nothing_panics_and_no_limit_is_passed() {
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
                        assert!(text.len() <= text_bytes_max, "SEED={seed} {kind:?}")
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
