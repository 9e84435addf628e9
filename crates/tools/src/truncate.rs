//! Excerpts of text that may be long.

use std::collections::VecDeque;

/// Keeps the last `bytes_max` bytes pushed.
pub(crate) struct TailBuffer {
    bytes: VecDeque<u8>,
    bytes_max: usize,
}

impl TailBuffer {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), bytes_max }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let from = chunk.len().saturating_sub(self.bytes_max);
        let chunk = chunk.get(from..).unwrap_or_default();
        let surplus = self.bytes.len().saturating_add(chunk.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..surplus.min(self.bytes.len()));
        self.bytes.extend(chunk);
    }

    pub(crate) fn to_text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

/// The end of a text, at most `bytes_max` bytes of whole characters.
pub(crate) fn last_bytes(text: &str, bytes_max: usize) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    text.get(from..).unwrap_or_default()
}

pub(crate) fn first_chars(text: &str, chars_max: usize) -> &str {
    let to = text.char_indices().nth(chars_max).map_or(text.len(), |(at, _)| at);
    text.get(..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};

    #[test]
    fn a_tail_is_the_end_of_the_input_in_any_chunking() {
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let limit = rng.below(20);
            let (mut tail, mut all) = (TailBuffer::new(limit), Vec::new());
            for _ in 0..rng.below(10) {
                let piece: Vec<u8> = (0..rng.below(30)).map(|_| b'a' + u8::try_from(rng.below(26)).unwrap()).collect();
                tail.push(&piece);
                all.extend(piece);
                let wanted = &all[all.len().saturating_sub(limit)..];
                assert_eq!(tail.to_text().as_bytes(), wanted, "SEED={seed}");
            }
        }
    }

    #[test]
    fn no_character_is_split() {
        assert_eq!(
            (last_bytes("aéé", 3), last_bytes("aéé", 4), last_bytes("a", 9), last_bytes("é", 1)),
            ("é", "éé", "a", "")
        );
        assert_eq!((first_chars("éaé", 2), first_chars("é", 2), first_chars("é", 0)), ("éa", "é", ""));
    }
}
