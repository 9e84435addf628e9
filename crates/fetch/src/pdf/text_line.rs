//! A line under construction. Spaces are inserted once the line is complete.

use super::bidi;
use std::borrow::Cow;

/// The smallest gap that counts as a space, in ems.
const SPACE_EM: f64 = 0.15;
/// The same between ideographs, which are set apart.
const IDEOGRAPH_SPACE_EM: f64 = 0.5;
/// Longer lines are split.
const GLYPHS_MAX: usize = 50_000;
/// How far back to look for a glyph that is drawn twice.
const DUPLICATE_LOOKBACK_MAX: usize = 300;

#[derive(Clone, Copy)]
pub(super) struct GlyphPosition {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The unit vector of the writing direction.
    pub(super) direction: (f64, f64),
    /// The glyph's width, and the distance from its end to the next glyph.
    pub(super) width: f64,
    pub(super) gap: f64,
    /// The font size along and across the line.
    pub(super) font_width: f64,
    pub(super) font_height: f64,
}

impl GlyphPosition {
    /// Whether there is nothing to read. A space of zero width only joins letters.
    pub(super) fn is_blank(&self, text: &str) -> bool {
        text.is_empty() || text == " " && self.width + self.gap.min(0.0) < 0.05 * self.font_width
    }
}

struct PlacedGlyph {
    /// The end of its text within the text of the line.
    end: usize,
    start: f64,
    end_position: f64,
    across: f64,
    font_width: f64,
}

#[derive(Default)]
pub(super) struct TextLine {
    text: String,
    glyphs: Vec<PlacedGlyph>,
    direction: (f64, f64),
    /// Of the last glyph.
    font_height: f64,
    /// What separates this line from the one before.
    separator: &'static str,
}

impl TextLine {
    /// The size of the text that is not written yet.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds a glyph, after a line break if it is not on this line.
    pub(super) fn push_glyph(&mut self, text: &str, spot: &GlyphPosition, out: &mut String) {
        if let Some(gap) = self.line_break_before(spot) {
            self.flush(gap, out);
        }
        if self.glyphs.is_empty() {
            self.direction = spot.direction;
        }
        let (from, across) = self.project(spot);
        if self.is_duplicate(text, from, across, spot.font_width) {
            return;
        }
        self.font_height = spot.font_height;
        self.text.push_str(text);
        self.glyphs.push(PlacedGlyph {
            end: self.text.len(),
            start: from,
            end_position: from + spot.width,
            across,
            font_width: spot.font_width,
        });
    }

    /// Extends the last glyph to the end of this one, which has no text of its own.
    pub(super) fn extend_last_glyph(&mut self, spot: &GlyphPosition) {
        let (from, _) = self.project(spot);
        if let Some(last) = self.glyphs.last_mut() {
            last.end_position = last.end_position.max(from + spot.width);
            last.start = last.start.min(from);
        }
    }

    pub(super) fn flush(&mut self, gap: &'static str, out: &mut String) {
        let line = self.to_text();
        let line = line.trim();
        if !line.is_empty() {
            out.truncate(out.trim_end().len());
            // A soft hyphen at the end of a line.
            let is_parted = out.ends_with('\u{ad}') && self.separator == "\n";
            if is_parted {
                out.pop();
            } else if !out.is_empty() {
                out.push_str(self.separator);
            }
            out.push_str(line);
            self.separator = gap;
        } else if gap.len() > self.separator.len() {
            self.separator = gap;
        }
        self.text.clear();
        self.glyphs.clear();
    }

    /// The position along and across the line.
    fn project(&self, spot: &GlyphPosition) -> (f64, f64) {
        let (x, y) = self.direction;
        (spot.x * x + spot.y * y, spot.y * x - spot.x * y)
    }

    /// The line break before a glyph that is not on this line.
    fn line_break_before(&self, spot: &GlyphPosition) -> Option<&'static str> {
        let last = self.glyphs.last()?;
        let is_turned = self.direction.0 * spot.direction.0 + self.direction.1 * spot.direction.1 < 0.95;
        let off = (self.project(spot).1 - last.across).abs();
        let high = self.font_height.max(spot.font_height);
        if is_turned || off > 1.8 * high {
            Some("\n\n")
        } else if off > 0.5 * high || self.glyphs.len() >= GLYPHS_MAX {
            Some("\n")
        } else {
            None
        }
    }

    /// Bold text and shadows are made by drawing a glyph twice.
    fn is_duplicate(&self, text: &str, from: f64, across: f64, wide: f64) -> bool {
        let is_back = self.glyphs.last().is_some_and(|last| from < last.end_position - 0.1 * wide);
        let near = |a: f64, b: f64| (a - b).abs() < 0.1 * wide;
        let is_same = |(index, glyph): (usize, &PlacedGlyph)| {
            near(glyph.start, from) && near(glyph.across, across) && self.text_of(index) == text
        };
        is_back && self.glyphs.iter().enumerate().rev().take(DUPLICATE_LOOKBACK_MAX).any(is_same)
    }

    fn text_of(&self, index: usize) -> &str {
        let end_of = |index: usize| self.glyphs.get(index).map(|glyph| glyph.end);
        let start = index.checked_sub(1).and_then(end_of).unwrap_or_default();
        end_of(index).and_then(|end| self.text.get(start..end)).unwrap_or_default()
    }

    fn to_text(&self) -> String {
        let space = self.space_threshold();
        let mut glyphs: Vec<(&PlacedGlyph, &str)> = Vec::with_capacity(self.glyphs.len());
        glyphs.extend(self.glyphs.iter().enumerate().map(|(index, glyph)| (glyph, self.text_of(index))));
        let is_mixed = glyphs.iter().any(|(_, text)| bidi::is_right_to_left(text));
        // Programs write mixed lines in either direction, or word by word.
        if is_mixed {
            glyphs.sort_by(|(one, _), (other, _)| one.start.total_cmp(&other.start));
        }
        let mut words: Vec<Cow<'_, str>> = Vec::with_capacity(glyphs.len() * 5 / 4);
        let mut last: Option<(&PlacedGlyph, &str)> = None;
        for (glyph, text) in glyphs {
            let accented = last.and_then(|before| compose_overlaid_accent(before, (glyph, text)));
            if accented.is_some() {
                words.pop();
            } else if last.is_some_and(|before| is_space_between(before, (glyph, text), space)) {
                words.push(" ".into());
            }
            words.push(accented.map_or(text.into(), |both| both.to_string().into()));
            last = Some((glyph, text));
        }
        if is_mixed {
            bidi::to_logical_order(&mut words);
        }
        bidi::join_normalized(&words)
    }

    /// The smallest gap that is a space. In letter-spaced text, words are even further apart.
    fn space_threshold(&self) -> f64 {
        let (mut smallest, mut largest, mut letters, mut spaces) = (f64::MAX, 0.0_f64, 0, 0);
        for (index, pair) in self.glyphs.windows(2).enumerate() {
            let [before, glyph] = pair else { continue };
            let is_letter = |text: &str| text.chars().all(char::is_alphabetic);
            let (before_text, text) = (self.text_of(index), self.text_of(index + 1));
            let gap = (glyph.start - before.end_position) / glyph.font_width;
            if before_text.trim().is_empty() || text.trim().is_empty() {
                spaces += 1;
            } else {
                letters += i32::from(is_letter(before_text) && is_letter(text));
                (smallest, largest) = (smallest.min(gap), largest.max(gap));
            }
        }
        let is_spaced = letters >= 5 && smallest > 0.8 * SPACE_EM && smallest < 1.0;
        if is_spaced && (spaces > 0 || largest > smallest + SPACE_EM) { smallest + SPACE_EM } else { SPACE_EM }
    }
}

/// Composes a letter with an accent that was drawn before it.
fn compose_overlaid_accent(
    (before, accent): (&PlacedGlyph, &str),
    (glyph, letter): (&PlacedGlyph, &str),
) -> Option<char> {
    let is_over = glyph.start < (before.start + before.end_position) / 2.0;
    is_over.then(|| bidi::compose_accent(accent, letter)).flatten()
}

fn is_space_between(
    (before, before_text): (&PlacedGlyph, &str),
    (glyph, text): (&PlacedGlyph, &str),
    space: f64,
) -> bool {
    if before_text.ends_with(char::is_whitespace) || text.starts_with(char::is_whitespace) {
        return false;
    }
    let wide = glyph.font_width.max(before.font_width * 0.5);
    let is_square = |c: char| c >= '\u{2e80}' && !bidi::is_right_to_left(c.encode_utf8(&mut [0; 4]));
    let squares = before_text.ends_with(is_square) && text.starts_with(is_square);
    let space = if squares { IDEOGRAPH_SPACE_EM.max(space) } else { space };
    let gap = glyph.start - before.end_position;
    // An accent overlaps its letter; anything further back is something else.
    gap > space * wide || gap < -wide.max(before.end_position - before.start)
}
