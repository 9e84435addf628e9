//! Glyph widths, in thousandths of an em.
//!
//! Needed to find the ends of words, because many programs position each letter separately. Widths come from the font
//! or, for the standard fonts, from a table.

use lopdf::{Dictionary, Document, Object};
use std::collections::HashMap;

const ENTRIES_MAX: usize = 70_000;

pub(super) struct GlyphWidths {
    by_code: HashMap<u32, f64>,
    default_width: Option<f64>,
    standard: StandardWidths,
}

/// Widths of the standard fonts.
enum StandardWidths {
    Fixed(f64),
    Latin(&'static [u16; 95]),
    /// Half an em for letters, a full em for ideographs.
    FullWidth,
}

impl GlyphWidths {
    /// For single-byte codes.
    pub(super) fn simple(document: &Document, font: &Dictionary) -> Self {
        let name = font.get_deref(b"BaseFont", document).and_then(Object::as_name).unwrap_or_default();
        let first = font.get_deref(b"FirstChar", document).and_then(Object::as_i64).unwrap_or_default();
        let list = font.get_deref(b"Widths", document).and_then(Object::as_array).ok();
        let list = list.into_iter().flatten().map(|width| finite_number(document, width));
        let codes = u32::try_from(first).unwrap_or_default()..=255;
        // Zero means unknown: some fonts contain only zeros.
        let each = codes.zip(list).filter_map(|(code, width)| Some((code, width.filter(|width| *width > 0.0)?)));
        let descriptor = font.get_deref(b"FontDescriptor", document).and_then(Object::as_dict).ok();
        let other = descriptor.and_then(|descriptor| finite_number(document, descriptor.get(b"MissingWidth").ok()?));
        Self {
            by_code: each.collect(),
            default_width: other.filter(|width| *width > 0.0),
            standard: StandardWidths::of_font_name(name),
        }
    }

    /// For glyph ids.
    pub(super) fn composite(document: &Document, font: &Dictionary) -> Self {
        let below = font.get_deref(b"DescendantFonts", document).and_then(Object::as_array).ok();
        let below = below.and_then(|below| document.dereference(below.first()?).ok()?.1.as_dict().ok());
        let other = below.and_then(|font| finite_number(document, font.get(b"DW").ok()?));
        let list = below.and_then(|font| font.get_deref(b"W", document).and_then(Object::as_array).ok());
        let mut widths = Self {
            by_code: HashMap::new(),
            default_width: other.or(Some(1000.0)),
            standard: StandardWidths::FullWidth,
        };
        if let Some(list) = list {
            widths.parse_width_array(document, list);
        }
        widths
    }

    /// For predefined character sets.
    pub(super) fn full_width() -> Self {
        Self { by_code: HashMap::new(), default_width: None, standard: StandardWidths::FullWidth }
    }

    /// Either a code followed by widths, or a range of codes and their common width.
    fn parse_width_array(&mut self, document: &Document, list: &[Object]) {
        let mut rest = list.iter().filter_map(|object| document.dereference(object).ok()).map(|(_, object)| object);
        // Repetitions count, so that they cannot be used to burn time.
        let mut room = ENTRIES_MAX;
        while let (Some(low), Some(next), 1..) = (rest.next(), rest.next(), room) {
            let low = glyph_code(low);
            if let Ok(each) = next.as_array() {
                let each = (low..).zip(each.iter().map(|width| finite_number(document, width)));
                self.insert(&mut room, each.filter_map(|(code, width)| Some((code, width?))));
            } else {
                let width = rest.next().and_then(|width| finite_number(document, width)).unwrap_or_default();
                self.insert(&mut room, (low..=glyph_code(next)).map(|code| (code, width)));
            }
        }
    }

    fn insert(&mut self, room: &mut usize, widths: impl Iterator<Item = (u32, f64)>) {
        for (code, width) in widths.take(*room) {
            self.by_code.insert(code, width);
            *room -= 1;
        }
    }

    pub(super) fn width_of(&self, code: u32, text: &str) -> f64 {
        let width = self.by_code.get(&code).copied().or(self.default_width);
        width.unwrap_or_else(|| text.chars().map(|c| self.standard.width(c)).sum())
    }

    pub(super) fn average(&self) -> Option<f64> {
        let count = u32::try_from(self.by_code.len()).ok().filter(|count| *count > 0)?;
        Some(self.by_code.values().sum::<f64>() / f64::from(count))
    }
}

impl StandardWidths {
    fn of_font_name(name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match (is(&["courier", "mono", "consol"]), is(&["times", "serif", "roman", "georgia"]), is(&["bold", "black"]))
        {
            (true, ..) => Self::Fixed(600.0),
            (_, true, true) => Self::Latin(&SERIF_BOLD),
            (_, true, false) => Self::Latin(&SERIF),
            (_, false, true) => Self::Latin(&SANS_BOLD),
            (_, false, false) => Self::Latin(&SANS),
        }
    }

    fn width(&self, c: char) -> f64 {
        match self {
            Self::Fixed(width) => *width,
            Self::Latin(letters) => {
                let index = usize::try_from(u32::from(c)).ok().and_then(|code| code.checked_sub(32));
                index.and_then(|index| letters.get(index)).map_or(556.0, |width| f64::from(*width))
            }
            Self::FullWidth if c < '\u{1100}' => 500.0,
            Self::FullWidth => 1000.0,
        }
    }
}

fn glyph_code(object: &Object) -> u32 {
    object.as_i64().ok().and_then(|code| u32::try_from(code).ok()).map_or(u32::MAX, |code| code.min(0xffff))
}

fn finite_number(document: &Document, object: &Object) -> Option<f64> {
    let number = document.dereference(object).ok()?.1.as_float().ok()?;
    number.is_finite().then_some(f64::from(number))
}

// From space to tilde.

const SANS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
];
const SANS_BOLD: [u16; 95] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611,
    556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389,
    280, 389, 584,
];
const SERIF: [u16; 95] = [
    250, 333, 408, 500, 500, 833, 778, 180, 333, 333, 500, 564, 250, 333, 250, 278, 500, 500, 500, 500, 500, 500, 500,
    500, 500, 500, 278, 278, 564, 564, 564, 444, 921, 722, 667, 667, 722, 611, 556, 722, 722, 333, 389, 722, 611, 889,
    722, 722, 556, 722, 667, 556, 611, 722, 722, 944, 722, 722, 611, 333, 278, 333, 469, 500, 333, 444, 500, 444, 500,
    444, 333, 500, 500, 278, 278, 500, 278, 778, 500, 500, 500, 500, 333, 389, 278, 500, 500, 722, 500, 500, 444, 480,
    200, 480, 541,
];
const SERIF_BOLD: [u16; 95] = [
    250, 333, 555, 500, 500, 1000, 833, 278, 333, 333, 500, 570, 250, 333, 250, 278, 500, 500, 500, 500, 500, 500, 500,
    500, 500, 500, 333, 333, 570, 570, 570, 500, 930, 722, 667, 722, 722, 667, 611, 778, 778, 389, 500, 778, 667, 944,
    722, 778, 611, 778, 722, 556, 667, 722, 722, 1000, 722, 722, 667, 333, 278, 333, 581, 500, 333, 500, 556, 444, 556,
    444, 333, 500, 556, 278, 333, 556, 278, 833, 556, 500, 556, 556, 444, 389, 333, 556, 500, 722, 500, 500, 444, 394,
    220, 394, 520,
];
