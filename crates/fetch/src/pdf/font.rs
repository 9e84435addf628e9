//! Decodes the character codes of a font: their text and widths.

use super::STREAM_BYTES_MAX;
use super::glyph_widths::GlyphWidths;
use super::simple_encoding;
use super::to_unicode::ToUnicodeMap;
use encoding_rs::{BIG5, EUC_JP, EUC_KR, GBK, SHIFT_JIS, UTF_8, UTF_16BE};
use lopdf::{Dictionary, Document, Object};

pub(super) struct PdfFont {
    codes: CodeMap,
    widths: GlyphWidths,
    /// The em size at font size 1.
    pub(super) em: f64,
    /// A thousandth of an em at font size 1.
    unit: f64,
    pub(super) is_vertical: bool,
}

enum CodeMap {
    /// Single bytes.
    Bytes(Vec<String>),
    /// One or more bytes, mapped by the font's `ToUnicode` table.
    ToUnicode { unicode: ToUnicodeMap, length: Option<usize> },
    /// A predefined character set.
    Charset(&'static encoding_rs::Encoding),
}

pub(super) struct Glyph<'g> {
    pub(super) text: &'g str,
    /// At font size 1.
    pub(super) width: f64,
    /// Whether word spacing applies to it.
    pub(super) is_word_space: bool,
}

impl PdfFont {
    /// `ToUnicode` takes precedence over the encoding, which may use made-up glyph names.
    pub(super) fn parse(document: &Document, font: &Dictionary) -> Option<Self> {
        let table = font.get_deref(b"ToUnicode", document).and_then(Object::as_stream);
        let table = table.and_then(|table| table.decompressed_content_with_limit(STREAM_BYTES_MAX)).ok();
        let to_unicode = table.and_then(|table| ToUnicodeMap::parse(&table));
        match font.get_deref(b"Subtype", document).and_then(Object::as_name) {
            Ok(b"Type0") => Self::composite(document, font, to_unicode),
            Ok(b"Type3") => Some(Self::type3(document, font, to_unicode.as_ref())),
            _ => Some(Self::simple(document, font, to_unicode.as_ref())),
        }
    }

    fn simple(document: &Document, font: &Dictionary, to_unicode: Option<&ToUnicodeMap>) -> Self {
        let mut meanings = simple_encoding::decode_simple_encoding(document, font);
        for (code, meaning) in (0..).zip(&mut meanings) {
            if let Some(text) = to_unicode.and_then(|map| map.lookup_byte(code)) {
                text.clone_into(meaning);
            }
        }
        let widths = GlyphWidths::simple(document, font);
        Self { codes: CodeMap::Bytes(meanings), widths, em: 1.0, unit: 0.001, is_vertical: false }
    }

    /// The glyphs of a Type 3 font are drawings in a coordinate system of their own. The average glyph is half an em
    /// wide.
    fn type3(document: &Document, font: &Dictionary, to_unicode: Option<&ToUnicodeMap>) -> Self {
        let matrix = font.get_deref(b"FontMatrix", document).and_then(Object::as_array).ok();
        let unit =
            matrix.and_then(|matrix| matrix.first()?.as_float().ok()).map_or(0.001, |unit| f64::from(unit).abs());
        let simple = Self::simple(document, font, to_unicode);
        let em = simple.widths.average().map_or(1.0, |usual| 2.0 * usual * unit);
        Self { em, unit, ..simple }
    }

    /// The codes of a composite font are characters of a predefined set, or glyph ids without known meaning.
    fn composite(document: &Document, font: &Dictionary, to_unicode: Option<ToUnicodeMap>) -> Option<Self> {
        let map = font.get_deref(b"Encoding", document).and_then(Object::as_name).unwrap_or_default();
        let (codes, widths) = match to_unicode {
            Some(unicode) => {
                let length = map.starts_with(b"Identity").then_some(2);
                (CodeMap::ToUnicode { unicode, length }, GlyphWidths::composite(document, font))
            }
            None => (CodeMap::Charset(charset_of_cmap(map)?), GlyphWidths::full_width()),
        };
        Some(Self { codes, widths, em: 1.0, unit: 0.001, is_vertical: map.ends_with(b"-V") })
    }

    /// Calls `then` for each glyph until it returns false.
    pub(super) fn for_each_glyph(&self, mut codes: &[u8], mut then: impl FnMut(Glyph<'_>) -> bool) {
        let glyph = |code, text, is_space| Glyph { text, width: self.width(code, text), is_word_space: is_space };
        match &self.codes {
            CodeMap::Bytes(meanings) => {
                for byte in codes {
                    let text = meanings.get(usize::from(*byte)).map(String::as_str).unwrap_or_default();
                    if !then(glyph(u32::from(*byte), text, *byte == b' ')) {
                        return;
                    }
                }
            }
            CodeMap::ToUnicode { unicode, length } => {
                while let Some((taken, code, text)) = unicode.decode_next(codes, *length) {
                    codes = codes.get(taken..).unwrap_or_default();
                    if !then(glyph(code, text, taken == 1 && code == 32)) {
                        return;
                    }
                }
            }
            CodeMap::Charset(set) => {
                let text = set.decode_without_bom_handling(codes).0;
                for (at, c) in text.char_indices() {
                    let text = text.get(at..at + c.len_utf8()).unwrap_or_default();
                    if !then(glyph(u32::MAX, text, false)) {
                        return;
                    }
                }
            }
        }
    }

    /// In vertical writing, a glyph advances by the height of the font.
    fn width(&self, code: u32, text: &str) -> f64 {
        if self.is_vertical { 1.0 } else { self.widths.width_of(code, text) * self.unit }
    }
}

/// The charset of a predefined CMap, which files name but do not contain.
fn charset_of_cmap(map: &[u8]) -> Option<&'static encoding_rs::Encoding> {
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
