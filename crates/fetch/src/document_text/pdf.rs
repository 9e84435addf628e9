//! The text of a PDF, in the order in which it is written.
//!
//! A PDF has no words, only glyphs that are put somewhere. [`state`] knows where they go, [`font`] what they mean and how
//! wide they are, and [`line`] makes words and lines of them: a glyph further down is a new line, and a gap within a line
//! is a space. A scanned page has no glyphs at all.

mod bidi;
mod font;
mod glyph_widths;
mod graphics_state;
mod simple_encoding;
mod text_line;
mod to_unicode;

use crate::FetchError;
use font::PdfFont;
use graphics_state::{GraphicsState, TransformMatrix, finite_or_zero, lower_left_corner};
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, LoadOptions, Object, ObjectId, Stream};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use text_line::TextLine;

/// Of one stream, unpacked.
const STREAM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Of all streams that are read, unpacked.
const CONTENT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Forms within forms.
const FORM_DEPTH_MAX: usize = 8;
/// States that are kept for later.
const STATES_MAX: usize = 256;
/// Fonts that are kept for later.
const FONTS_MAX: usize = 256;
/// What a mark says that its glyphs mean.
const ACTUAL_TEXT_BYTES_MAX: usize = 64 * 1024;
/// From a page up to the root of all pages.
const PARENTS_MAX: usize = 32;

/// How much is read.
pub(crate) struct PdfLimits {
    text_bytes_max: usize,
    deadline: Instant,
}

impl PdfLimits {
    pub(crate) fn new(text_bytes_max: usize, time_max: Duration) -> Self {
        Self { text_bytes_max, deadline: Instant::now() + time_max }
    }
}

/// The text, and whether there was more of it. It may panic or take a lot of memory over a file that is made for that; who
/// calls it is prepared for the one and may prevent the other (see [`crate::apart`]).
pub(crate) fn extract_pdf_text(bytes: &[u8], limits: &PdfLimits) -> Result<(String, bool), FetchError> {
    let options = LoadOptions { max_decompressed_size: Some(STREAM_BYTES_MAX), ..LoadOptions::default() };
    let document = Document::load_mem_with_options(bytes, options).map_err(|_| FetchError::Unreadable)?;
    if document.is_encrypted() {
        return Err(FetchError::Unreadable);
    }
    let mut pen = PdfTextExtractor::new(&document, limits);
    for page in document.page_iter() {
        if pen.is_done() {
            break;
        }
        pen.extract_page(page);
    }
    pen.line.flush("", &mut pen.out);
    let truncated = pen.is_truncated || pen.is_done();
    let (text, cut) = super::plain_text::normalize_text(pen.out.trim(), limits.text_bytes_max);
    if text.is_empty() { Err(FetchError::Unreadable) } else { Ok((text, truncated || cut)) }
}

/// Writes down what a page would show.
struct PdfTextExtractor<'a> {
    document: &'a Document,
    limits: &'a PdfLimits,
    out: String,
    line: TextLine,
    fonts: HashMap<*const Dictionary, Option<Rc<PdfFont>>>,
    /// What the marks that are open say that their glyphs mean. It is said once.
    actual_texts: Vec<Option<String>>,
    content_bytes: usize,
    glyphs: usize,
    is_truncated: bool,
}

impl<'a> PdfTextExtractor<'a> {
    fn new(document: &'a Document, limits: &'a PdfLimits) -> Self {
        let (out, line, fonts, marks) = (String::new(), TextLine::default(), HashMap::new(), Vec::new());
        Self {
            document,
            limits,
            out,
            line,
            fonts,
            actual_texts: marks,
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

    /// A page has what all pages above it have.
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
            // Letters that stand apart are a word, but not when there are two: some programs make a space of that.
            if string.len() != 2 {
                spot.width += spot.gap;
            }
            match self.actual_texts.iter_mut().find_map(Option::as_mut) {
                Some(said) if said.is_empty() => self.line.extend_last_glyph(&spot),
                Some(said) => self.line.push_glyph(&std::mem::take(said), &spot, &mut self.out),
                None if spot.is_blank(glyph.text) => {}
                None => self.line.push_glyph(glyph.text, &spot, &mut self.out),
            }
            self.glyphs = self.glyphs.wrapping_add(1);
            !self.is_full() && (!self.glyphs.is_multiple_of(1024) || !self.is_done())
        });
    }

    /// What follows may mean something else than its glyphs: one glyph for two letters, or a hyphen at the end of a line.
    fn begin_marked_content(&mut self, operation: &Operation, resources: &[&'a Dictionary]) {
        let about = match operation.operands.get(1) {
            Some(Object::Dictionary(about)) => Some(about),
            Some(Object::Name(name)) => {
                self.find_resource(resources, b"Properties", name).and_then(|about| about.as_dict().ok())
            }
            _ => None,
        };
        let said = about.and_then(|about| about.get_deref(b"ActualText", self.document).ok());
        let said =
            said.filter(|said| said.as_str().is_ok_and(|said| (1..=ACTUAL_TEXT_BYTES_MAX).contains(&said.len())));
        let said = said.and_then(|said| lopdf::decode_text_string(said).ok());
        if self.actual_texts.len() < STATES_MAX {
            self.actual_texts.push(said);
        }
    }

    /// A drawing that is used like a word: what is in it is shown here.
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

    /// What was filled in or stuck on: it is not part of the page, but looks like it.
    fn draw_annotations(&mut self, page: &'a Dictionary) {
        let document = self.document;
        let notes = page.get_deref(b"Annots", document).and_then(Object::as_array).ok();
        for note in notes.into_iter().flatten() {
            if self.is_done() {
                return;
            }
            let Some((stream, place)) = annotation_appearance(document, note) else { continue };
            let mut state = GraphicsState::new();
            state.ctm = place;
            self.draw_form(stream, &[], state, 0);
        }
    }

    fn find_resource(&self, resources: &[&'a Dictionary], kind: &[u8], name: &[u8]) -> Option<&'a Object> {
        let document = self.document;
        let found = |resources: &&'a Dictionary| document.get_dict_in_dict(resources, kind).ok()?.get(name).ok();
        let object = resources.iter().find_map(found)?;
        document.dereference(object).ok().map(|(_, object)| object)
    }

    /// Each font is looked at once.
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
        let read = PdfFont::parse(self.document, font).map(Rc::new);
        self.fonts.insert(font, read.clone());
        read
    }
}

/// How a note looks, and where.
fn annotation_appearance<'a>(document: &'a Document, note: &'a Object) -> Option<(&'a Stream, TransformMatrix)> {
    let note = document.dereference(note).ok()?.1.as_dict().ok()?;
    let is_shown = note.get(b"F").and_then(Object::as_i64).map_or(true, |flags| flags & 0b10_0010 == 0);
    let kind = note.get(b"Subtype").and_then(Object::as_name).ok()?;
    if !is_shown || ![&b"Widget"[..], b"FreeText", b"Stamp"].contains(&kind) {
        return None;
    }
    let mut look = document.get_dict_in_dict(note, b"AP").ok()?.get_deref(b"N", document).ok()?;
    // A box that can be ticked has a look for each of its states.
    if let Ok(looks) = look.as_dict() {
        look = looks.get_deref(note.get(b"AS").and_then(Object::as_name).ok()?, document).ok()?;
    }
    let stream = look.as_stream().ok()?;
    let (x, y) = lower_left_corner(document, note.get(b"Rect").ok()?)?;
    let (left, bottom) =
        stream.dict.get(b"BBox").ok().and_then(|bounds| lower_left_corner(document, bounds)).unwrap_or_default();
    Some((stream, TransformMatrix::translation(x - left, y - bottom)))
}
