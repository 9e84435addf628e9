//! The `ToUnicode` table of a font.
//!
//! Programs write these tables in many ways, so only the essential tokens are parsed: code ranges, and pairs of codes
//! and characters.

use std::collections::{BTreeSet, HashMap};

const ENTRIES_MAX: usize = 100_000;

/// Length in bytes, and value.
type Code = (usize, u32);

#[derive(Debug, Default)]
pub(super) struct ToUnicodeMap {
    by_code: HashMap<Code, String>,
    code_lengths: BTreeSet<usize>,
}

enum CMapToken<'a> {
    Hex(Vec<u8>),
    Open,
    Close,
    Other(&'a [u8]),
}

impl ToUnicodeMap {
    /// `None` if the table contains nothing usable.
    pub(super) fn parse(table: &[u8]) -> Option<Self> {
        let mut unicode = Self::default();
        let mut operands: Vec<Vec<u8>> = Vec::new();
        let mut list_at = None;
        for word in cmap_tokens(table) {
            match word {
                CMapToken::Hex(bytes) => operands.push(bytes),
                CMapToken::Open => list_at = Some(operands.len()),
                // A list of texts, one for each code of the preceding range.
                CMapToken::Close => {
                    let meanings = list_at.take().map(|at: usize| operands.split_off(at.min(operands.len())));
                    let range = operands.split_off(operands.len().saturating_sub(2));
                    if let ([low, _], Some(meanings)) = (range.as_slice(), meanings) {
                        unicode.insert_each(low, &meanings);
                    }
                }
                CMapToken::Other(b"endcodespacerange") => {
                    unicode
                        .code_lengths
                        .extend(operands.drain(..).map(|code| code.len()).filter(|length| (1..=4).contains(length)));
                }
                CMapToken::Other(b"endbfchar") => {
                    for pair in operands.chunks_exact(2) {
                        if let [code, meaning] = pair {
                            unicode.insert_each(code, std::slice::from_ref(meaning));
                        }
                    }
                    operands.clear();
                }
                CMapToken::Other(b"endbfrange") => {
                    for range in operands.chunks_exact(3) {
                        if let [low, high, meaning] = range {
                            unicode.insert_range(low, high, meaning);
                        }
                    }
                    operands.clear();
                }
                CMapToken::Other(other) => {
                    if other.starts_with(b"begin") {
                        operands.clear();
                    }
                }
            }
        }
        unicode.code_lengths.extend(unicode.by_code.keys().map(|(length, _)| *length));
        (!unicode.by_code.is_empty()).then_some(unicode)
    }

    /// Decodes the first code: its length, its value and its text.
    pub(super) fn decode_next(&self, codes: &[u8], length: Option<usize>) -> Option<(usize, u32, &str)> {
        let shortest = self.code_lengths.first().copied().unwrap_or(1);
        let known = |length: usize| {
            let code = code_number(codes.get(..length)?);
            Some((length, code, self.by_code.get(&(length, code))?.as_str()))
        };
        let found = match length {
            Some(length) => known(length),
            None => self.code_lengths.iter().find_map(|length| known(*length)),
        };
        found.or_else(|| {
            let length = length.unwrap_or(shortest).min(codes.len());
            (length > 0).then(|| (length, codes.get(..length).map(code_number).unwrap_or_default(), ""))
        })
    }

    /// The text of a single-byte code, whatever code length the table declares.
    pub(super) fn lookup_byte(&self, code: u32) -> Option<&str> {
        let meaning = (1..=4).find_map(|length| self.by_code.get(&(length, code)))?;
        Some(meaning.as_str()).filter(|meaning| !meaning.is_empty() && *meaning != "\0")
    }

    fn insert_each(&mut self, low: &[u8], meanings: &[Vec<u8>]) {
        for (code, meaning) in (code_number(low)..).zip(meanings) {
            self.insert((low.len(), code), decode_utf16(meaning));
        }
    }

    /// The first code of the range has this text, each further one the next character.
    fn insert_range(&mut self, low: &[u8], high: &[u8], meaning: &[u8]) {
        let meaning = decode_utf16(meaning);
        let Some(last) = meaning.chars().next_back() else { return };
        let before = meaning.strip_suffix(last).unwrap_or_default();
        for (code, step) in (code_number(low)..=code_number(high)).zip(0..) {
            if self.by_code.len() >= ENTRIES_MAX {
                return;
            }
            if let Some(last) = u32::from(last).checked_add(step).and_then(char::from_u32) {
                self.insert((low.len(), code), format!("{before}{last}"));
            }
        }
    }

    fn insert(&mut self, code: Code, meaning: String) {
        if (1..=4).contains(&code.0) && self.by_code.len() < ENTRIES_MAX {
            self.by_code.insert(code, meaning);
        }
    }
}

fn code_number(code: &[u8]) -> u32 {
    code.iter().fold(0, |number: u32, byte| number.wrapping_shl(8) | u32::from(*byte))
}

fn decode_utf16(meaning: &[u8]) -> String {
    // Five digits are not UTF-16: some programs write the code point itself.
    if let [high, middle, low] = meaning {
        let code = u32::from_be_bytes([0, *high, *middle, *low]) >> 4;
        return char::from_u32(code).map(String::from).unwrap_or_default();
    }
    encoding_rs::UTF_16BE.decode_without_bom_handling(meaning).0.into_owned()
}

fn cmap_tokens(table: &[u8]) -> impl Iterator<Item = CMapToken<'_>> {
    let mut rest = table;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        let (first, behind) = rest.split_first()?;
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b"<>[]/%()".contains(byte);
        let (word, left) = match first {
            b'[' => (CMapToken::Open, behind),
            b']' => (CMapToken::Close, behind),
            b'<' if behind.first() != Some(&b'<') => {
                let end = behind.iter().position(|byte| *byte == b'>').unwrap_or(behind.len());
                let (digits, left) = behind.split_at_checked(end)?;
                (CMapToken::Hex(decode_hex(digits)), left.get(1..).unwrap_or_default())
            }
            b'%' => {
                let end = behind.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(behind.len());
                (CMapToken::Other(b""), behind.get(end..)?)
            }
            _ => {
                let end = behind.iter().position(ends).unwrap_or(behind.len()) + 1;
                let (word, left) = rest.split_at_checked(end)?;
                (CMapToken::Other(word), left)
            }
        };
        rest = left;
        Some(word)
    })
}

fn decode_hex(digits: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = digits.iter().filter_map(|digit| char::from(*digit).to_digit(16)?.try_into().ok()).collect();
    digits.chunks(2).map(|pair| pair.iter().chain(&[0]).take(2).fold(0, |byte, digit| byte << 4 | digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};

    fn decode(table: &str, codes: &[u8]) -> Option<String> {
        let (mut out, mut rest) = (String::new(), codes);
        let unicode = ToUnicodeMap::parse(table.as_bytes())?;
        while let Some((length, _, decode)) = unicode.decode_next(rest, None) {
            out.push_str(decode);
            rest = &rest[length..];
        }
        Some(out)
    }

    #[test]
    fn a_cmap_parses_in_every_notation() {
        let tidy = "1 begincodespacerange\n<00> <ff>\nendcodespacerange\n2 beginbfchar\n<01> <0041>\n<02> <D83DDE00>\nendbfchar";
        assert_eq!(decode(tidy, &[1, 2, 9, 1]).as_deref(), Some("A😀A"));
        let tight = "%c <\n/A/B def<<>> 1 beginbfrange<0001><0003><0061>endbfrange 1 beginbfrange<0010><0011>[<0078><00660069>]endbfrange";
        assert_eq!(decode(tight, &[0, 1, 0, 3, 0, 0x10, 0, 0x11, 0, 9]).as_deref(), Some("acxfi"));
        let numbered = "1 beginbfchar <01> <1F600> endbfchar 1 beginbfrange <05> <06> <1F680> endbfrange";
        assert_eq!(decode(numbered, &[1, 6]).as_deref(), Some("😀🚁"));
        for nothing in ["", "begincmap endcmap", "1 beginbfchar <01> endbfchar", "<", "[", "]", "endbfrange"] {
            assert_eq!(decode(nothing, &[1]), None, "{nothing}");
        }
    }

    #[test]
    fn a_code_of_known_length_is_found_despite_a_wrong_declared_length() {
        let wide = ToUnicodeMap::parse(b"1 beginbfchar <0041> <0061> endbfchar").unwrap();
        assert_eq!((wide.lookup_byte(0x41), wide.lookup_byte(0x42)), (Some("a"), None));
        let mixed = ToUnicodeMap::parse(b"2 beginbfchar <00> <0062> <0041> <0061> endbfchar").unwrap();
        assert_eq!(mixed.decode_next(&[0, 0x41], Some(2)), Some((2, 0x41, "a")));
        assert_eq!(mixed.decode_next(&[7], Some(2)), Some((1, 7, "")));
        assert_eq!(mixed.decode_next(&[], Some(2)), None);
    }

    #[test]
    fn a_huge_range_stays_small_in_memory() {
        let all = "1 beginbfrange <00000000> <ffffffff> <0000> endbfrange";
        assert!(ToUnicodeMap::parse(all.as_bytes()).unwrap().by_code.len() <= ENTRIES_MAX);
    }

    #[test]
    fn arbitrary_cmaps_never_panic() {
        let pieces = [
            "<",
            ">",
            "<00>",
            "<0041>",
            "[",
            "]",
            "endbfchar ",
            "endbfrange ",
            "beginbfrange ",
            "endcodespacerange ",
            "%",
            "\n",
        ];
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let table: String = (0..rng.between(0, 40)).map(|_| rng.choose(" ", &pieces)).collect();
            println!("SEED={seed} {table:?}");
            let _ = decode(&table, &[0, 1, 0x41]);
        }
    }
}
