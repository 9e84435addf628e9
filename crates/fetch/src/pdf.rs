//! Extracts the text of a PDF, in the order in which it is drawn.
//!
//! A PDF contains positioned glyphs rather than words. `graphics_state` computes the positions, `font` the characters
//! and widths, and `text_line` builds words and lines from them: a glyph further down starts a line, a gap is a space.
//! A scanned page has no glyphs.

mod bidi;
mod font;
mod glyph_widths;
mod graphics_state;
mod simple_encoding;
mod text_line;
mod to_unicode;

use crate::error::FetchError;
use crate::plain_text::{ExtractedText, normalize_text};
use font::PdfFont;
use graphics_state::{GraphicsState, TransformMatrix, finite_or_zero, lower_left_corner};
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, LoadOptions, Object, ObjectId, Stream};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use text_line::TextLine;

/// Per stream, decompressed.
const STREAM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Of all streams together, decompressed.
const CONTENT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Nesting of form XObjects.
const FORM_DEPTH_MAX: usize = 8;
/// Depth of the graphics state stack.
const STATES_MAX: usize = 256;
/// Size of the font cache.
const FONTS_MAX: usize = 256;
const ACTUAL_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Ancestors of a page in the page tree.
const PARENTS_MAX: usize = 32;

pub(crate) struct PdfLimits {
    text_bytes_max: usize,
    deadline: Instant,
}

impl PdfLimits {
    pub(crate) fn new(text_bytes_max: usize, time_max: Duration) -> Self {
        Self { text_bytes_max, deadline: Instant::now() + time_max }
    }
}

/// Extracts text. May panic or exhaust memory on a malicious file: callers catch panics, and [`crate::pdf_process`]
/// limits memory.
pub(crate) fn extract_pdf_text(bytes: &[u8], limits: &PdfLimits) -> Result<ExtractedText, FetchError> {
    let options = LoadOptions { max_decompressed_size: Some(STREAM_BYTES_MAX), ..LoadOptions::default() };
    let document = Document::load_mem_with_options(bytes, options).map_err(|_| FetchError::Unreadable)?;
    if document.is_encrypted() {
        return Err(FetchError::Unreadable);
    }
    let mut extractor = PdfTextExtractor::new(&document, limits);
    for page in document.page_iter() {
        if extractor.is_done() {
            break;
        }
        extractor.extract_page(page);
    }
    extractor.line.flush("", &mut extractor.out);
    let mut extracted = normalize_text(extractor.out.trim(), limits.text_bytes_max);
    extracted.truncated |= extractor.is_truncated || extractor.is_done();
    if extracted.text.is_empty() { Err(FetchError::Unreadable) } else { Ok(extracted) }
}

struct PdfTextExtractor<'a> {
    document: &'a Document,
    limits: &'a PdfLimits,
    out: String,
    line: TextLine,
    fonts: HashMap<*const Dictionary, Option<Rc<PdfFont>>>,
    /// `ActualText` of the open marked-content sequences, taken when it is written.
    actual_texts: Vec<Option<String>>,
    content_bytes: usize,
    glyphs: usize,
    is_truncated: bool,
}

impl<'a> PdfTextExtractor<'a> {
    fn new(document: &'a Document, limits: &'a PdfLimits) -> Self {
        Self {
            document,
            limits,
            out: String::new(),
            line: TextLine::default(),
            fonts: HashMap::new(),
            actual_texts: Vec::new(),
            content_bytes: 0,
            glyphs: 0,
            is_truncated: false,
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() + self.line.len() > self.limits.text_bytes_max
    }

    fn is_done(&self) -> bool {
        self.is_full() || self.content_bytes > CONTENT_BYTES_MAX || Instant::now() > self.limits.deadline
    }

    fn extract_page(&mut self, page: ObjectId) {
        let Ok(page_entries) = self.document.get_dictionary(page) else { return };
        let resources = self.inherited_resources(page_entries);
        self.line.flush("\n\n", &mut self.out);
        self.actual_texts.clear();
        match self.document.get_page_content_with_limit(page, STREAM_BYTES_MAX) {
            Ok(content) => self.run_content(&content, &resources, GraphicsState::new(), 0),
            Err(_) => self.is_truncated = true,
        }
        self.draw_annotations(page_entries);
    }

    /// A page inherits the resources of its ancestors.
    fn inherited_resources(&self, page: &'a Dictionary) -> Vec<&'a Dictionary> {
        let above = |page: &&'a Dictionary| self.document.get_dict_in_dict(page, b"Parent").ok();
        let pages = std::iter::successors(Some(page), above).take(PARENTS_MAX);
        pages.filter_map(|page| self.document.get_dict_in_dict(page, b"Resources").ok()).collect()
    }

    fn run_content(&mut self, content: &[u8], resources: &[&'a Dictionary], mut state: GraphicsState, depth: usize) {
        self.content_bytes = self.content_bytes.saturating_add(content.len());
        let mut kept: Vec<GraphicsState> = Vec::new();
        for (index, operation) in Content::decode_iter(content).enumerate() {
            let Ok(operation) = operation else {
                self.is_truncated = true;
                return;
            };
            if index % 256 == 0 && self.is_done() {
                return;
            }
            match operation.operator.as_str() {
                "q" if kept.len() < STATES_MAX => kept.push(state.clone()),
                "Q" => state = kept.pop().unwrap_or(state),
                "Tf" => {
                    state.font = self.load_font(&operation, resources);
                    state.font_size = finite_or_zero(operation.operands.get(1));
                }
                "BMC" => self.actual_texts.push(None),
                "BDC" => self.begin_marked_content(&operation, resources),
                "EMC" => drop(self.actual_texts.pop()),
                "Do" => self.draw_xobject(&operation, resources, &state, depth),
                _ => {
                    state.apply(&operation);
                    self.show_text(&operation, &mut state);
                }
            }
        }
    }

    fn show_text(&mut self, operation: &Operation, state: &mut GraphicsState) {
        match operation.operator.as_str() {
            "Tj" | "'" | "\"" => self.show_string(operation.operands.last(), state),
            "TJ" => {
                let pieces = operation.operands.first().and_then(|pieces| pieces.as_array().ok());
                for piece in pieces.into_iter().flatten() {
                    match piece.as_float() {
                        Ok(_) => state.adjust_position(finite_or_zero(Some(piece))),
                        Err(_) => self.show_string(Some(piece), state),
                    }
                }
            }
            _ => {}
        }
    }

    fn show_string(&mut self, string: Option<&Object>, state: &mut GraphicsState) {
        let Some(font) = state.font.clone() else { return };
        let Some(string) = string.and_then(|string| string.as_str().ok()) else { return };
        font.for_each_glyph(string, |glyph| {
            let mut spot = state.place_glyph(&font, &glyph);
            // Letter-spaced text is one word, but pairs are not: some programs use the spacing of a pair as a space.
            if string.len() != 2 {
                spot.width += spot.gap;
            }
            match self.actual_texts.iter_mut().find_map(Option::as_mut) {
                Some(text) if text.is_empty() => self.line.extend_last_glyph(&spot),
                Some(text) => self.line.push_glyph(&std::mem::take(text), &spot, &mut self.out),
                None if spot.is_blank(glyph.text) => {}
                None => self.line.push_glyph(glyph.text, &spot, &mut self.out),
            }
            self.glyphs = self.glyphs.wrapping_add(1);
            !self.is_full() && (!self.glyphs.is_multiple_of(1024) || !self.is_done())
        });
    }

    /// Marked content may carry the text of its glyphs: for ligatures, or for a hyphen at the end of a line.
    fn begin_marked_content(&mut self, operation: &Operation, resources: &[&'a Dictionary]) {
        let properties = match operation.operands.get(1) {
            Some(Object::Dictionary(properties)) => Some(properties),
            Some(Object::Name(name)) => {
                self.find_resource(resources, b"Properties", name).and_then(|properties| properties.as_dict().ok())
            }
            _ => None,
        };
        let fits = |text: &&Object| text.as_str().is_ok_and(|text| (1..=ACTUAL_TEXT_BYTES_MAX).contains(&text.len()));
        let text = properties.and_then(|properties| properties.get_deref(b"ActualText", self.document).ok());
        let text = text.filter(fits).and_then(|text| lopdf::decode_text_string(text).ok());
        if self.actual_texts.len() < STATES_MAX {
            self.actual_texts.push(text);
        }
    }

    fn draw_xobject(
        &mut self,
        operation: &Operation,
        resources: &[&'a Dictionary],
        state: &GraphicsState,
        depth: usize,
    ) {
        let Some(Ok(name)) = operation.operands.first().map(Object::as_name) else { return };
        let Some(stream) = self.find_resource(resources, b"XObject", name).and_then(|form| form.as_stream().ok())
        else {
            return;
        };
        let is_form = stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|kind| kind == b"Form");
        if is_form {
            self.draw_form(stream, resources, state.clone(), depth);
        }
    }

    fn draw_form(&mut self, stream: &'a Stream, resources: &[&'a Dictionary], mut state: GraphicsState, depth: usize) {
        if depth >= FORM_DEPTH_MAX || self.is_done() {
            return;
        }
        let Ok(content) = stream.decompressed_content_with_limit(STREAM_BYTES_MAX) else {
            self.is_truncated = true;
            return;
        };
        let own = self.document.get_dict_in_dict(&stream.dict, b"Resources").ok();
        let resources: Vec<&Dictionary> = own.into_iter().chain(resources.iter().copied()).collect();
        let matrix = stream.dict.get_deref(b"Matrix", self.document).and_then(Object::as_array).ok();
        if let Some(matrix) = matrix.and_then(|matrix| TransformMatrix::from_operands(matrix)) {
            state.ctm = matrix.then(state.ctm);
        }
        self.run_content(&content, &resources, state, depth + 1);
    }

    /// Form fields, free text and stamps: not part of the page, but visible.
    fn draw_annotations(&mut self, page: &'a Dictionary) {
        let document = self.document;
        let annotations = page.get_deref(b"Annots", document).and_then(Object::as_array).ok();
        for annotation in annotations.into_iter().flatten() {
            if self.is_done() {
                return;
            }
            let Some((stream, position)) = annotation_appearance(document, annotation) else { continue };
            let mut state = GraphicsState::new();
            state.ctm = position;
            self.draw_form(stream, &[], state, 0);
        }
    }

    fn find_resource(&self, resources: &[&'a Dictionary], kind: &[u8], name: &[u8]) -> Option<&'a Object> {
        let document = self.document;
        let lookup = |resources: &&'a Dictionary| document.get_dict_in_dict(resources, kind).ok()?.get(name).ok();
        let object = resources.iter().find_map(lookup)?;
        document.dereference(object).ok().map(|(_, object)| object)
    }

    /// Fonts are parsed once.
    fn load_font(&mut self, operation: &Operation, resources: &[&'a Dictionary]) -> Option<Rc<PdfFont>> {
        let name = operation.operands.first()?.as_name().ok()?;
        let font = self.find_resource(resources, b"Font", name)?.as_dict().ok()?;
        if let Some(known) = self.fonts.get(&std::ptr::from_ref(font)) {
            return known.clone();
        }
        if self.is_done() {
            return None;
        }
        if self.fonts.len() >= FONTS_MAX {
            self.fonts.clear();
        }
        let parsed = PdfFont::parse(self.document, font).map(Rc::new);
        self.fonts.insert(font, parsed.clone());
        parsed
    }
}

/// The appearance stream of an annotation, and its position.
fn annotation_appearance<'a>(document: &'a Document, annotation: &'a Object) -> Option<(&'a Stream, TransformMatrix)> {
    let annotation = document.dereference(annotation).ok()?.1.as_dict().ok()?;
    let is_shown = annotation.get(b"F").and_then(Object::as_i64).map_or(true, |flags| flags & 0b10_0010 == 0);
    let kind = annotation.get(b"Subtype").and_then(Object::as_name).ok()?;
    if !is_shown || ![&b"Widget"[..], b"FreeText", b"Stamp"].contains(&kind) {
        return None;
    }
    let mut appearance = document.get_dict_in_dict(annotation, b"AP").ok()?.get_deref(b"N", document).ok()?;
    // A check box has an appearance for each state.
    if let Ok(states) = appearance.as_dict() {
        appearance = states.get_deref(annotation.get(b"AS").and_then(Object::as_name).ok()?, document).ok()?;
    }
    let stream = appearance.as_stream().ok()?;
    let (x, y) = lower_left_corner(document, annotation.get(b"Rect").ok()?)?;
    let (left, bottom) =
        stream.dict.get(b"BBox").ok().and_then(|bounds| lower_left_corner(document, bounds)).unwrap_or_default();
    Some((stream, TransformMatrix::translation(x - left, y - bottom)))
}
