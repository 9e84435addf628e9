//! What is in force while a page is drawn: the font, and where the next glyph goes.

use super::font::{Font, Glyph};
use super::line::Spot;
use lopdf::content::Operation;
use lopdf::{Document, Object};
use std::rc::Rc;

/// From one grid to another.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    a: f64,
    b: f64,
    c: f64,
    d: f64,
    e: f64,
    f: f64,
}

impl Matrix {
    pub(super) const ONE: Self = Self { a: 1.0, b: 0.0, c: 0.0, d: 1.0, e: 0.0, f: 0.0 };

    pub(super) fn shift(e: f64, f: f64) -> Self {
        Self { e, f, ..Self::ONE }
    }

    pub(super) fn of(numbers: &[Object]) -> Option<Self> {
        let mut numbers = numbers.iter().map(|number| finite(Some(number)));
        let mut next = || numbers.next();
        Some(Self { a: next()?, b: next()?, c: next()?, d: next()?, e: next()?, f: next()? })
    }

    /// First this one, then that one.
    pub(super) fn then(self, that: Self) -> Self {
        let (e, f) = that.at(self.e, self.f);
        Self {
            a: self.a * that.a + self.b * that.c,
            b: self.a * that.b + self.b * that.d,
            c: self.c * that.a + self.d * that.c,
            d: self.c * that.b + self.d * that.d,
            e,
            f,
        }
    }

    fn at(self, x: f64, y: f64) -> (f64, f64) {
        (x * self.a + y * self.c + self.e, x * self.b + y * self.d + self.f)
    }
}

/// What is in force.
#[derive(Clone)]
pub(super) struct State {
    pub(super) page: Matrix,
    pub(super) font: Option<Rc<Font>>,
    pub(super) size: f64,
    letter_gap: f64,
    word_gap: f64,
    stretch: f64,
    leading: f64,
    rise: f64,
    line: Matrix,
    text: Matrix,
}

impl State {
    pub(super) fn new() -> Self {
        let (page, line, text) = (Matrix::ONE, Matrix::ONE, Matrix::ONE);
        let (letter_gap, word_gap, leading, rise) = (0.0, 0.0, 0.0, 0.0);
        Self { page, font: None, size: 1.0, letter_gap, word_gap, stretch: 1.0, leading, rise, line, text }
    }

    /// Does what an operation says about all that follows.
    pub(super) fn change(&mut self, operation: &Operation) {
        let number = |index: usize| finite(operation.operands.get(index));
        match operation.operator.as_str() {
            "cm" => {
                if let Some(matrix) = Matrix::of(&operation.operands) {
                    self.page = matrix.then(self.page);
                }
            }
            "BT" => self.put(Matrix::ONE),
            "Tm" => self.put(Matrix::of(&operation.operands).unwrap_or(self.line)),
            "Td" => self.go(number(0), number(1)),
            "TD" => {
                self.leading = -number(1);
                self.go(number(0), number(1));
            }
            "T*" | "'" => self.go(0.0, -self.leading),
            "\"" => {
                (self.word_gap, self.letter_gap) = (number(0), number(1));
                self.go(0.0, -self.leading);
            }
            "TL" => self.leading = number(0),
            "Tc" => self.letter_gap = number(0),
            "Tw" => self.word_gap = number(0),
            "Tz" => self.stretch = number(0) / 100.0,
            "Ts" => self.rise = number(0),
            _ => {}
        }
    }

    fn put(&mut self, place: Matrix) {
        (self.line, self.text) = (place, place);
    }

    fn go(&mut self, x: f64, y: f64) {
        self.put(Matrix::shift(x, y).then(self.line));
    }

    /// Goes back by so many thousandths of the font's size.
    pub(super) fn back(&mut self, thousandths: f64) {
        self.step(-thousandths / 1000.0 * self.size);
    }

    /// Where a glyph goes. The next one goes behind it.
    pub(super) fn place(&mut self, font: &Font, glyph: &Glyph<'_>) -> Spot {
        let at = self.text.then(self.page);
        let (x, y) = at.at(0.0, self.rise);
        let along = if font.is_vertical { (-at.c, -at.d) } else { (at.a * self.stretch, at.b * self.stretch) };
        let length = along.0.hypot(along.1);
        let sign = self.size.signum() / if length > 0.0 { length } else { 1.0 };
        let gap = self.letter_gap + if glyph.is_space { self.word_gap } else { 0.0 };
        self.step(glyph.width * self.size + gap);
        let size = (self.size * font.em).abs();
        Spot {
            x,
            y,
            toward: (along.0 * sign, along.1 * sign),
            width: glyph.width * self.size.abs() * length,
            gap: gap * length * self.size.signum(),
            wide: size * length,
            high: size * if font.is_vertical { at.a.hypot(at.b) } else { at.c.hypot(at.d) },
        }
    }

    fn step(&mut self, step: f64) {
        let is_vertical = self.font.as_ref().is_some_and(|font| font.is_vertical);
        let shift = if is_vertical { Matrix::shift(0.0, -step) } else { Matrix::shift(step * self.stretch, 0.0) };
        self.text = shift.then(self.text);
    }
}

/// The lower left corner of a rectangle.
pub(super) fn corner(document: &Document, rectangle: &Object) -> Option<(f64, f64)> {
    let [left, bottom, right, top] = document.dereference(rectangle).ok()?.1.as_array().ok()?.as_slice() else {
        return None;
    };
    let number = |object: &Object| finite(document.dereference(object).ok().map(|(_, object)| object));
    Some((number(left).min(number(right)), number(bottom).min(number(top))))
}

pub(super) fn finite(number: Option<&Object>) -> f64 {
    let number = number.and_then(|number| number.as_float().ok());
    number.filter(|number| number.is_finite()).map(f64::from).unwrap_or_default()
}
