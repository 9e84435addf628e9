//! Decodes the bytes of a simple font: by its named encoding and its differences.

use super::STREAM_BYTES_MAX;
use lopdf::{Dictionary, Document, Object};
use std::ops::RangeInclusive;

const STANDARD_ENCODINGS: [&[u8]; 4] =
    [b"StandardEncoding", b"MacRomanEncoding", b"MacExpertEncoding", b"WinAnsiEncoding"];
/// The Greek letters of the font `Symbol`, at the codes of the Latin ones.
const GREEK: &str = "ΑΒΧ∆ΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_ αβχδεφγηιϕκλμνοπθρστυϖωξψζ";

/// The text of each byte; empty for undefined ones.
pub(super) fn decode_simple_encoding(document: &Document, font: &Dictionary) -> Vec<String> {
    let encoding = font.get_deref(b"Encoding", document).ok();
    let changed = encoding.and_then(|encoding| encoding.as_dict().ok());
    let base = changed.map_or(encoding, |changed| changed.get_deref(b"BaseEncoding", document).ok());
    let mut meanings = match base.and_then(|base| base.as_name().ok()) {
        Some(base) if STANDARD_ENCODINGS.contains(&base) => named_encoding(base),
        _ => builtin_encoding(document, font),
    };
    let changes = changed.and_then(|changed| changed.get_deref(b"Differences", document).ok()?.as_array().ok());
    let mut code = 0;
    for change in changes.into_iter().flatten().filter_map(|change| document.dereference(change).ok()) {
        match change.1 {
            Object::Integer(at) => code = usize::try_from(*at).unwrap_or(usize::MAX),
            Object::Name(name) => {
                let Some(meaning) = meanings.get_mut(code) else { break };
                // A made-up name says nothing; the base encoding is the best guess.
                if let Some(text) = unicode_of_glyph_name(name) {
                    *meaning = text;
                }
                code += 1;
            }
            _ => {}
        }
    }
    meanings
}

/// The encoding of a font that names none.
fn builtin_encoding(document: &Document, font: &Dictionary) -> Vec<String> {
    let name = font.get_deref(b"BaseFont", document).and_then(Object::as_name).unwrap_or_default();
    let is = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    let is_true_type =
        font.get_deref(b"Subtype", document).and_then(Object::as_name).is_ok_and(|kind| kind == b"TrueType");
    let mut meanings = named_encoding(if is_true_type { b"WinAnsiEncoding" } else { b"StandardEncoding" });
    if name == b"Symbol" {
        let greek = meanings.iter_mut().skip(usize::from(b'A'));
        greek.zip(GREEK.chars()).for_each(|(meaning, c)| *meaning = c.to_string());
    } else if is(b"Dingbats") {
        // The same order as in Unicode.
        let signs = meanings.iter_mut().skip(usize::from(b'!')).take(94);
        signs.zip('\u{2701}'..).for_each(|(meaning, c)| *meaning = c.to_string());
        for (code, c) in [(b'H', '★'), (b'l', '●'), (b'n', '■'), (b'u', '◆')] {
            meanings.iter_mut().skip(usize::from(code)).take(1).for_each(|meaning| *meaning = c.to_string());
        }
    }
    meanings
}

fn named_encoding(encoding: &[u8]) -> Vec<String> {
    decode_codes(&font_dictionary(Object::Name(encoding.to_vec())), 0..=255)
}

/// The text of a glyph name: a standard name, a code point, or a sequence of these.
fn unicode_of_glyph_name(name: &[u8]) -> Option<String> {
    let name = name.split(|byte| *byte == b'.').next().filter(|name| !name.is_empty() && name.len() <= 64)?;
    let dictionary = font_dictionary(Object::Dictionary(Dictionary::from_iter([(
        "Differences",
        Object::Array(vec![Object::Integer(0), Object::Name(name.to_vec())]),
    )])));
    if let Some(known) = decode_codes(&dictionary, 0..=0).pop().filter(|known| !known.is_empty()) {
        return Some(known);
    }
    let text = std::str::from_utf8(name).ok()?;
    if text.contains('_') {
        return text.split('_').map(|part| unicode_of_glyph_name(part.as_bytes())).collect();
    }
    let digits = text.strip_prefix("uni").or_else(|| text.strip_prefix('u')).filter(|digits| digits.len() >= 4)?;
    let digits = digits.get(..if text.starts_with("uni") { 4 } else { digits.len() })?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?).map(String::from)
}

/// `lopdf` offers encodings and glyph names only through a font dictionary.
fn font_dictionary(encoding: Object) -> Dictionary {
    Dictionary::from_iter([("Type", Object::Name(b"Font".to_vec())), ("Encoding", encoding)])
}

fn decode_codes(font: &Dictionary, codes: RangeInclusive<u8>) -> Vec<String> {
    let document = Document::new();
    let encoding = font.get_font_encoding_with_limit(&document, STREAM_BYTES_MAX).ok();
    let meaning = |code| encoding.as_ref().and_then(|encoding| encoding.bytes_to_string(&[code]).ok());
    codes.map(|code| meaning(code).unwrap_or_default()).collect()
}
