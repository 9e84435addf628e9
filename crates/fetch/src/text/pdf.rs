//! The text of a PDF, in the order in which it is written.
//!
//! A PDF has no words, only strings that are put somewhere. So a string further down is a new line, and a gap within a line
//! is a space. A scanned page has no strings at all.

mod unicode;

use crate::FetchError;
use encoding_rs::{BIG5, EUC_JP, EUC_KR, GBK, SHIFT_JIS, UTF_8, UTF_16BE};
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Encoding, LoadOptions, Object, ObjectId};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use unicode::Unicode;

/// Of one stream, unpacked.
const STREAM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Of all streams that are read, unpacked.
const CONTENT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Forms within forms.
const FORM_DEPTH_MAX: usize = 8;
/// A move to the left of so many thousandths of the font's size, within a line, is a space.
const SPACE_THOUSANDTHS: f32 = 180.0;

/// How much is read.
pub(crate) struct Limits {
    text_bytes_max: usize,
    until: Instant,
}

impl Limits {
    pub(crate) fn new(text_bytes_max: usize, time_max: Duration) -> Self {
        Self { text_bytes_max, until: Instant::now() + time_max }
    }
}

/// The text, and whether there was more of it. It may panic or take a lot of memory over a file that is made for that; who
/// calls it is prepared for the one and may prevent the other (see [`crate::apart`]).
pub(crate) fn text(bytes: &[u8], limits: &Limits) -> Result<(String, bool), FetchError> {
    let options = LoadOptions { max_decompressed_size: Some(STREAM_BYTES_MAX), ..LoadOptions::default() };
    let document = Document::load_mem_with_options(bytes, options).map_err(|_| FetchError::Unreadable)?;
    if document.is_encrypted() {
        return Err(FetchError::Unreadable);
    }
    let mut pen = Pen::new(&document, limits);
    for page in document.page_iter() {
        if pen.is_done() {
            break;
        }
        pen.page(page);
    }
    let truncated = pen.is_cut || pen.is_done();
    let (text, cut) = super::plain::clean(pen.out.trim(), limits.text_bytes_max);
    if text.is_empty() { Err(FetchError::Unreadable) } else { Ok((text, truncated || cut)) }
}

/// Writes down what a page would show.
struct Pen<'a> {
    document: &'a Document,
    limits: &'a Limits,
    out: String,
    fonts: HashMap<ObjectId, Option<Rc<Font<'a>>>>,
    content_bytes: usize,
    is_cut: bool,
    line: Line,
}

/// Where the next string goes.
#[derive(Clone, Default)]
struct Line {
    size: f32,
    scale: f32,
    leading: f32,
    x: f32,
    y: f32,
    /// Where the last string was.
    written_at: Option<f32>,
    /// Whether the place was changed since.
    moved: bool,
}

impl<'a> Pen<'a> {
    fn new(document: &'a Document, limits: &'a Limits) -> Self {
        let (out, fonts, line) = (String::new(), HashMap::new(), Line::default());
        Self { document, limits, out, fonts, content_bytes: 0, is_cut: false, line }
    }

    fn is_done(&self) -> bool {
        self.out.len() > self.limits.text_bytes_max
            || self.content_bytes > CONTENT_BYTES_MAX
            || Instant::now() > self.limits.until
    }

    fn page(&mut self, page: ObjectId) {
        let document = self.document;
        let Ok((own, inherited)) = document.get_page_resources(page) else { return };
        let inherited = inherited.into_iter().filter_map(|id| document.get_dictionary(id).ok());
        let resources: Vec<&Dictionary> = own.into_iter().chain(inherited).collect();
        let Ok(content) = document.get_page_content_with_limit(page, STREAM_BYTES_MAX) else {
            self.is_cut = true;
            return;
        };
        if !self.out.is_empty() {
            self.out.truncate(self.out.trim_end().len());
            self.out.push_str("\n\n");
        }
        self.line = Line::default();
        self.run(&content, &resources, 0);
    }

    fn run(&mut self, content: &[u8], resources: &[&'a Dictionary], depth: usize) {
        self.content_bytes = self.content_bytes.saturating_add(content.len());
        let mut font = None;
        for (index, operation) in Content::decode_iter(content).enumerate() {
            let Ok(operation) = operation else {
                self.is_cut = true;
                return;
            };
            if index % 256 == 0 && self.is_done() {
                return;
            }
            match operation.operator.as_str() {
                "Tf" => {
                    font = self.font(&operation, resources);
                    self.line.size = number(&operation, 1).abs();
                }
                "Do" => self.form(&operation, resources, depth),
                _ => self.write(&operation, font.as_deref()),
            }
        }
    }

    fn write(&mut self, operation: &Operation, font: Option<&Font<'a>>) {
        let line = &mut self.line;
        match operation.operator.as_str() {
            "BT" => (line.x, line.y, line.scale, line.moved) = (0.0, 0.0, 1.0, true),
            "TL" => line.leading = number(operation, 0),
            "Td" => line.go(number(operation, 0), number(operation, 1)),
            "TD" => {
                line.leading = -number(operation, 1);
                line.go(number(operation, 0), number(operation, 1));
            }
            "T*" => line.go(0.0, -line.leading),
            "Tm" => line.put(number(operation, 3), number(operation, 4), number(operation, 5)),
            "'" | "\"" => {
                line.go(0.0, -line.leading);
                self.show(operation.operands.last(), font);
            }
            "Tj" => self.show(operation.operands.first(), font),
            "TJ" => {
                let pieces = operation.operands.first().and_then(|pieces| pieces.as_array().ok());
                for piece in pieces.into_iter().flatten() {
                    match piece.as_float() {
                        Ok(back) if back < -SPACE_THOUSANDTHS => self.space(),
                        Ok(_) => {}
                        Err(_) => self.show(Some(piece), font),
                    }
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, string: Option<&Object>, font: Option<&Font<'a>>) {
        let (Some(string), Some(font)) = (string.and_then(|string| string.as_str().ok()), font) else { return };
        let words = font.decode(string);
        if words.is_empty() {
            return;
        }
        let size = (self.line.size * self.line.scale).abs().max(1.0);
        match self.line.written_at {
            Some(y) if (y - self.line.y).abs() > 1.8 * size => self.part("\n\n"),
            Some(y) if (y - self.line.y).abs() > 0.5 * size => self.part("\n"),
            Some(_) if self.line.moved => self.space(),
            _ => {}
        }
        self.line.written_at = Some(self.line.y);
        self.line.moved = false;
        self.out.push_str(&words);
    }

    fn part(&mut self, gap: &str) {
        self.out.truncate(self.out.trim_end().len());
        self.out.push_str(gap);
    }

    fn space(&mut self) {
        if !self.out.ends_with(char::is_whitespace) {
            self.out.push(' ');
        }
    }

    /// A drawing that is used like a word: what is in it is shown here.
    fn form(&mut self, operation: &Operation, resources: &[&'a Dictionary], depth: usize) {
        let Some(Ok(name)) = operation.operands.first().map(Object::as_name) else { return };
        let Some(stream) = self.find(resources, b"XObject", name).and_then(|form| form.as_stream().ok()) else {
            return;
        };
        let is_form = stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|kind| kind == b"Form");
        if !is_form || depth >= FORM_DEPTH_MAX || self.is_done() {
            return;
        }
        let Ok(content) = stream.decompressed_content_with_limit(STREAM_BYTES_MAX) else {
            self.is_cut = true;
            return;
        };
        let own = self.document.get_dict_in_dict(&stream.dict, b"Resources").ok();
        let resources: Vec<&Dictionary> = own.into_iter().chain(resources.iter().copied()).collect();
        let line = self.line.clone();
        self.run(&content, &resources, depth + 1);
        self.line = Line { written_at: self.line.written_at, moved: true, ..line };
    }

    fn find(&self, resources: &[&'a Dictionary], kind: &[u8], name: &[u8]) -> Option<&'a Object> {
        let document = self.document;
        let found = |resources: &&'a Dictionary| document.get_dict_in_dict(resources, kind).ok()?.get(name).ok();
        let object = resources.iter().find_map(found)?;
        document.dereference(object).ok().map(|(_, object)| object)
    }

    /// Each font is looked at once.
    fn font(&mut self, operation: &Operation, resources: &[&'a Dictionary]) -> Option<Rc<Font<'a>>> {
        let name = operation.operands.first()?.as_name().ok()?;
        let document = self.document;
        let of = |resources: &&'a Dictionary| document.get_dict_in_dict(resources, b"Font").ok()?.get(name).ok();
        let object = resources.iter().find_map(of)?;
        let (id, font) = document.dereference(object).ok()?;
        let font = font.as_dict().ok()?;
        match id {
            Some(id) => self.fonts.entry(id).or_insert_with(|| Font::of(document, font)).clone(),
            None => Font::of(document, font),
        }
    }
}

/// How the codes of a font are read.
enum Font<'a> {
    Unicode(Unicode),
    Encoding(Encoding<'a>),
    /// The codes are characters of a set that others know, too.
    Characters(&'static encoding_rs::Encoding),
}

impl<'a> Font<'a> {
    /// What a font says about Unicode is believed before its encoding, which may use names that it made up.
    fn of(document: &'a Document, font: &'a Dictionary) -> Option<Rc<Self>> {
        let table = font.get_deref(b"ToUnicode", document).and_then(Object::as_stream);
        let table = table.and_then(|table| table.decompressed_content_with_limit(STREAM_BYTES_MAX)).ok();
        if let Some(unicode) = table.and_then(|table| Unicode::parse(&table)) {
            return Some(Rc::new(Self::Unicode(unicode)));
        }
        // The codes of a composite font are characters, or numbers of glyphs of which nobody has written down the meaning.
        let is_composite = font.get(b"Subtype").and_then(Object::as_name).is_ok_and(|kind| kind == b"Type0");
        if is_composite {
            let name = font.get_deref(b"Encoding", document).and_then(Object::as_name).ok()?;
            return characters(name).map(|set| Rc::new(Self::Characters(set)));
        }
        let encoding = font.get_font_encoding_with_limit(document, STREAM_BYTES_MAX).ok()?;
        Some(Rc::new(Self::Encoding(encoding)))
    }

    fn decode(&self, codes: &[u8]) -> String {
        let mut out = String::new();
        match self {
            Self::Unicode(unicode) => unicode.decode(codes, &mut out),
            // Codes that mean nothing are left out.
            Self::Encoding(encoding) => drop(encoding.write_to_string(codes, &mut out)),
            Self::Characters(set) => out.push_str(&set.decode_without_bom_handling(codes).0),
        }
        out
    }
}

/// The set of characters that a map of codes is named after. These maps come with no file: readers know them.
fn characters(map: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    let map = std::str::from_utf8(map).ok()?;
    let map = map.strip_suffix("-H").or_else(|| map.strip_suffix("-V"))?;
    match map {
        "GB-EUC" | "GBK-EUC" | "GBKp-EUC" | "GBK2K" | "GBpc-EUC" => Some(GBK),
        "B5pc" | "ETen-B5" | "ETenms-B5" | "HKscs-B5" => Some(BIG5),
        "83pv-RKSJ" | "90ms-RKSJ" | "90msp-RKSJ" | "90pv-RKSJ" | "Add-RKSJ" | "Ext-RKSJ" => Some(SHIFT_JIS),
        "EUC" => Some(EUC_JP),
        "KSC-EUC" | "KSCms-UHC" | "KSCms-UHC-HW" | "KSCpc-EUC" => Some(EUC_KR),
        _ => {
            let form = map.strip_prefix("Uni")?.split('-').nth(1)?;
            match form {
                "UCS2" | "UTF16" => Some(UTF_16BE),
                "UTF8" => Some(UTF_8),
                _ => None,
            }
        }
    }
}

impl Line {
    fn go(&mut self, x: f32, y: f32) {
        self.x += x * self.scale;
        self.y += y * self.scale;
        self.moved = true;
    }

    fn put(&mut self, scale: f32, x: f32, y: f32) {
        (self.scale, self.x, self.y, self.moved) = (scale, x, y, true);
    }
}

fn number(operation: &Operation, index: usize) -> f32 {
    let number = operation.operands.get(index).and_then(|number| number.as_float().ok());
    number.filter(|number| number.is_finite()).unwrap_or_default()
}
