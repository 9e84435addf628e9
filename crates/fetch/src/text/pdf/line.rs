//! A line in the making: glyphs and where they are. What is between two of them is only seen when the line is whole.

use super::order;
use std::borrow::Cow;

/// A gap of so much of the font's size is a space.
const SPACE: f64 = 0.15;
/// Between ideographs, which stand apart.
const WIDE_SPACE: f64 = 0.5;
/// A line that has more glyphs is parted.
const GLYPHS_MAX: usize = 50_000;
/// So far back a glyph is looked for that is drawn a second time.
const AGAIN_MAX: usize = 300;

/// Where a glyph goes.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The way that its line goes: one step.
    pub(super) toward: (f64, f64),
    /// How wide it is, and how far it is from there to the next glyph.
    pub(super) width: f64,
    pub(super) gap: f64,
    /// The size of the font, along the line and across it.
    pub(super) wide: f64,
    pub(super) high: f64,
}

impl Spot {
    /// Is it nothing to read? A space without room is only there to bring letters together.
    pub(super) fn is_nothing(&self, text: &str) -> bool {
        text.is_empty() || text == " " && self.width + self.gap.min(0.0) < 0.05 * self.wide
    }
}

/// A glyph that is there.
struct Piece {
    /// Where its text ends in the text of the line.
    end: usize,
    from: f64,
    to: f64,
    across: f64,
    wide: f64,
}

/// The line.
#[derive(Default)]
pub(super) struct Line {
    text: String,
    pieces: Vec<Piece>,
    toward: (f64, f64),
    /// The size of the last glyph's font.
    high: f64,
    /// What stands between this line and the one before.
    before: &'static str,
}

impl Line {
    /// How much text there is that is not yet written.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Puts a glyph there, after a new line if it is not on this one.
    pub(super) fn put(&mut self, text: &str, spot: &Spot, out: &mut String) {
        if let Some(gap) = self.gap(spot) {
            self.end(gap, out);
        }
        if self.pieces.is_empty() {
            self.toward = spot.toward;
        }
        let (from, across) = self.place(spot);
        if self.is_again(text, from, across, spot.wide) {
            return;
        }
        self.high = spot.high;
        self.text.push_str(text);
        self.pieces.push(Piece { end: self.text.len(), from, to: from + spot.width, across, wide: spot.wide });
    }

    /// Makes the last glyph end behind this one, which has no text of its own.
    pub(super) fn stretch(&mut self, spot: &Spot) {
        let (from, _) = self.place(spot);
        if let Some(last) = self.pieces.last_mut() {
            last.to = last.to.max(from + spot.width);
            last.from = last.from.min(from);
        }
    }

    /// Writes the line.
    pub(super) fn end(&mut self, gap: &'static str, out: &mut String) {
        let line = self.written();
        let line = line.trim();
        if !line.is_empty() {
            out.truncate(out.trim_end().len());
            // A hyphen that is only there because the line ends.
            let is_parted = out.ends_with('\u{ad}') && self.before == "\n";
            if is_parted {
                out.pop();
            } else if !out.is_empty() {
                out.push_str(self.before);
            }
            out.push_str(line);
            self.before = gap;
        } else if gap.len() > self.before.len() {
            self.before = gap;
        }
        self.text.clear();
        self.pieces.clear();
    }

    /// Along the line and across it.
    fn place(&self, spot: &Spot) -> (f64, f64) {
        let (x, y) = self.toward;
        (spot.x * x + spot.y * y, spot.y * x - spot.x * y)
    }

    /// What is between the line and a glyph that is not on it.
    fn gap(&self, spot: &Spot) -> Option<&'static str> {
        let last = self.pieces.last()?;
        let is_turned = self.toward.0 * spot.toward.0 + self.toward.1 * spot.toward.1 < 0.95;
        let off = (self.place(spot).1 - last.across).abs();
        let high = self.high.max(spot.high);
        if is_turned || off > 1.8 * high {
            Some("\n\n")
        } else if off > 0.5 * high || self.pieces.len() >= GLYPHS_MAX {
            Some("\n")
        } else {
            None
        }
    }

    /// Letters are made bold, or given a shadow, by drawing them twice.
    fn is_again(&self, text: &str, from: f64, across: f64, wide: f64) -> bool {
        let is_back = self.pieces.last().is_some_and(|last| from < last.to - 0.1 * wide);
        let near = |a: f64, b: f64| (a - b).abs() < 0.1 * wide;
        let is_same = |(index, piece): (usize, &Piece)| {
            near(piece.from, from) && near(piece.across, across) && self.text_of(index) == text
        };
        is_back && self.pieces.iter().enumerate().rev().take(AGAIN_MAX).any(is_same)
    }

    fn text_of(&self, index: usize) -> &str {
        let end_of = |index: usize| self.pieces.get(index).map(|piece| piece.end);
        let start = index.checked_sub(1).and_then(end_of).unwrap_or_default();
        end_of(index).and_then(|end| self.text.get(start..end)).unwrap_or_default()
    }

    /// The line with its spaces.
    fn written(&self) -> String {
        let space = self.space();
        let mut glyphs: Vec<(&Piece, &str)> = Vec::with_capacity(self.pieces.len());
        glyphs.extend(self.pieces.iter().enumerate().map(|(index, piece)| (piece, self.text_of(index))));
        let is_mixed = glyphs.iter().any(|(_, text)| order::is_leftward(text));
        // Some programs write these from the left, some from the right, and some each word from another side.
        if is_mixed {
            glyphs.sort_by(|(one, _), (other, _)| one.from.total_cmp(&other.from));
        }
        let mut words: Vec<Cow<'_, str>> = Vec::with_capacity(glyphs.len() * 5 / 4);
        let mut last: Option<(&Piece, &str)> = None;
        for (piece, text) in glyphs {
            let accented = last.and_then(|before| accented(before, (piece, text)));
            if accented.is_some() {
                words.pop();
            } else if last.is_some_and(|before| is_parted(before, (piece, text), space)) {
                words.push(" ".into());
            }
            words.push(accented.map_or(text.into(), |both| both.to_string().into()));
            last = Some((piece, text));
        }
        if is_mixed {
            order::logical(&mut words);
        }
        order::joined(&words)
    }

    /// From which gap on there is a space. Where all letters stand apart, words stand further apart.
    fn space(&self) -> f64 {
        let (mut smallest, mut largest, mut letters, mut spaces) = (f64::MAX, 0.0_f64, 0, 0);
        for (index, pair) in self.pieces.windows(2).enumerate() {
            let [before, piece] = pair else { continue };
            let is_letter = |text: &str| text.chars().all(char::is_alphabetic);
            let (said, text) = (self.text_of(index), self.text_of(index + 1));
            let gap = (piece.from - before.to) / piece.wide;
            if said.trim().is_empty() || text.trim().is_empty() {
                spaces += 1;
            } else {
                letters += i32::from(is_letter(said) && is_letter(text));
                (smallest, largest) = (smallest.min(gap), largest.max(gap));
            }
        }
        let is_spaced = letters >= 5 && smallest > 0.8 * SPACE && smallest < 1.0;
        if is_spaced && (spaces > 0 || largest > smallest + SPACE) { smallest + SPACE } else { SPACE }
    }
}

/// A letter whose accent was drawn before it, over it.
fn accented((before, accent): (&Piece, &str), (piece, letter): (&Piece, &str)) -> Option<char> {
    let is_over = piece.from < (before.from + before.to) / 2.0;
    is_over.then(|| order::accented(accent, letter)).flatten()
}

/// Is there a space between these two?
fn is_parted((before, said): (&Piece, &str), (piece, text): (&Piece, &str), space: f64) -> bool {
    if said.ends_with(char::is_whitespace) || text.starts_with(char::is_whitespace) {
        return false;
    }
    let wide = piece.wide.max(before.wide * 0.5);
    let is_square = |c: char| c >= '\u{2e80}' && !order::is_leftward(c.encode_utf8(&mut [0; 4]));
    let squares = said.ends_with(is_square) && text.starts_with(is_square);
    let space = if squares { WIDE_SPACE.max(space) } else { space };
    let gap = piece.from - before.to;
    // An accent is drawn over its letter; anything that is further back is something else.
    gap > space * wide || gap < -wide.max(before.to - before.from)
}
