//! The graphics state: the font, and the position of the next glyph.

use super::font::{Glyph, PdfFont};
use super::text_line::GlyphPosition;
use lopdf::content::Operation;
use lopdf::{Document, Object};
use std::rc::Rc;

/// An affine transformation.
#[derive(Clone, Copy)]
pub(super) struct TransformMatrix {
    a: f64,
    b: f64,
    c: f64,
    d: f64,
    e: f64,
    f: f64,
}

impl TransformMatrix {
    pub(super) const IDENTITY: Self = Self { a: 1.0, b: 0.0, c: 0.0, d: 1.0, e: 0.0, f: 0.0 };

    pub(super) fn translation(e: f64, f: f64) -> Self {
        Self { e, f, ..Self::IDENTITY }
    }

    pub(super) fn from_operands(numbers: &[Object]) -> Option<Self> {
        let mut numbers = numbers.iter().map(|number| finite_or_zero(Some(number)));
        let mut next = || numbers.next();
        Some(Self { a: next()?, b: next()?, c: next()?, d: next()?, e: next()?, f: next()? })
    }

    /// Applies `self`, then `that`.
    pub(super) fn then(self, that: Self) -> Self {
        let (e, f) = that.transform_point(self.e, self.f);
        Self {
            a: self.a * that.a + self.b * that.c,
            b: self.a * that.b + self.b * that.d,
            c: self.c * that.a + self.d * that.c,
            d: self.c * that.b + self.d * that.d,
            e,
            f,
        }
    }

    fn transform_point(self, x: f64, y: f64) -> (f64, f64) {
        (x * self.a + y * self.c + self.e, x * self.b + y * self.d + self.f)
    }
}

#[derive(Clone)]
pub(super) struct GraphicsState {
    pub(super) ctm: TransformMatrix,
    pub(super) font: Option<Rc<PdfFont>>,
    pub(super) font_size: f64,
    char_spacing: f64,
    word_spacing: f64,
    horizontal_scale: f64,
    leading: f64,
    rise: f64,
    line_matrix: TransformMatrix,
    text_matrix: TransformMatrix,
}

impl GraphicsState {
    pub(super) fn new() -> Self {
        let (page, line, text) = (TransformMatrix::IDENTITY, TransformMatrix::IDENTITY, TransformMatrix::IDENTITY);
        let (letter_gap, word_gap, leading, rise) = (0.0, 0.0, 0.0, 0.0);
        Self {
            ctm: page,
            font: None,
            font_size: 1.0,
            char_spacing: letter_gap,
            word_spacing: word_gap,
            horizontal_scale: 1.0,
            leading,
            rise,
            line_matrix: line,
            text_matrix: text,
        }
    }

    /// Applies an operator that changes the state.
    pub(super) fn apply(&mut self, operation: &Operation) {
        let number = |index: usize| finite_or_zero(operation.operands.get(index));
        match operation.operator.as_str() {
            "cm" => {
                if let Some(matrix) = TransformMatrix::from_operands(&operation.operands) {
                    self.ctm = matrix.then(self.ctm);
                }
            }
            "BT" => self.set_text_matrix(TransformMatrix::IDENTITY),
            "Tm" => {
                self.set_text_matrix(TransformMatrix::from_operands(&operation.operands).unwrap_or(self.line_matrix));
            }
            "Td" => self.move_line(number(0), number(1)),
            "TD" => {
                self.leading = -number(1);
                self.move_line(number(0), number(1));
            }
            "T*" | "'" => self.move_line(0.0, -self.leading),
            "\"" => {
                (self.word_spacing, self.char_spacing) = (number(0), number(1));
                self.move_line(0.0, -self.leading);
            }
            "TL" => self.leading = number(0),
            "Tc" => self.char_spacing = number(0),
            "Tw" => self.word_spacing = number(0),
            "Tz" => self.horizontal_scale = number(0) / 100.0,
            "Ts" => self.rise = number(0),
            _ => {}
        }
    }

    fn set_text_matrix(&mut self, matrix: TransformMatrix) {
        (self.line_matrix, self.text_matrix) = (matrix, matrix);
    }

    fn move_line(&mut self, x: f64, y: f64) {
        self.set_text_matrix(TransformMatrix::translation(x, y).then(self.line_matrix));
    }

    /// Moves back by thousandths of an em.
    pub(super) fn adjust_position(&mut self, thousandths: f64) {
        self.advance(-thousandths / 1000.0 * self.font_size);
    }

    /// The position of a glyph; advances to the next.
    pub(super) fn place_glyph(&mut self, font: &PdfFont, glyph: &Glyph<'_>) -> GlyphPosition {
        let at = self.text_matrix.then(self.ctm);
        let (x, y) = at.transform_point(0.0, self.rise);
        let along = if font.is_vertical {
            (-at.c, -at.d)
        } else {
            (at.a * self.horizontal_scale, at.b * self.horizontal_scale)
        };
        let length = along.0.hypot(along.1);
        let sign = self.font_size.signum() / if length > 0.0 { length } else { 1.0 };
        let gap = self.char_spacing + if glyph.is_word_space { self.word_spacing } else { 0.0 };
        self.advance(glyph.width * self.font_size + gap);
        let size = (self.font_size * font.em).abs();
        GlyphPosition {
            x,
            y,
            direction: (along.0 * sign, along.1 * sign),
            width: glyph.width * self.font_size.abs() * length,
            gap: gap * length * self.font_size.signum(),
            font_width: size * length,
            font_height: size * if font.is_vertical { at.a.hypot(at.b) } else { at.c.hypot(at.d) },
        }
    }

    fn advance(&mut self, step: f64) {
        let is_vertical = self.font.as_ref().is_some_and(|font| font.is_vertical);
        let shift = if is_vertical {
            TransformMatrix::translation(0.0, -step)
        } else {
            TransformMatrix::translation(step * self.horizontal_scale, 0.0)
        };
        self.text_matrix = shift.then(self.text_matrix);
    }
}

pub(super) fn lower_left_corner(document: &Document, rectangle: &Object) -> Option<(f64, f64)> {
    let [left, bottom, right, top] = document.dereference(rectangle).ok()?.1.as_array().ok()?.as_slice() else {
        return None;
    };
    let number = |object: &Object| finite_or_zero(document.dereference(object).ok().map(|(_, object)| object));
    Some((number(left).min(number(right)), number(bottom).min(number(top))))
}

pub(super) fn finite_or_zero(number: Option<&Object>) -> f64 {
    let number = number.and_then(|number| number.as_float().ok());
    number.filter(|number| number.is_finite()).map(f64::from).unwrap_or_default()
}
