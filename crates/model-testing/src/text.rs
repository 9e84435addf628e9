//! Difficult text: every kind of line break, characters of every width, truncated markers, and text that would forge a
//! frame if it were not escaped.

use super::rng::Rng;

/// Inputs that break careless codecs, splitters and character counters.
const WORDS: &[&str] = &[
    "The ",
    "weather ",
    "in ",
    "Paris ",
    "is ",
    "sunny. ",
    "naïve ",
    "日本語 ",
    "Ωμέγα ",
    "🚀",
    "👩‍👩‍👧 ",
    "e\u{301} ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\u{2028}",
    "\u{2029}",
    "\u{85}",
    "\u{feff}",
    "\u{fffd}",
    "\u{0}",
    "\u{1b}[0m",
    "\u{7f}",
    "\"quoted\" ",
    "back\\slash ",
    "</script> ",
    "[1] ",
    "[^",
    "[^x] ",
    "^1] ",
    "\n\nevent: task.completed\ndata: {}\n\n",
    "{\"type\":\"task.failed\"} ",
    "<referencable-item>\nID: 1 ",
];

/// More than a `done` event repeats.
const LONG_BYTES: usize = model::limits::DONE_REPEAT_BYTES_MAX + 1024;

/// A few words and markers. Most markers cite a group of the pool `1..=references`, a few cite none.
pub(super) fn random_text(rng: &mut Rng, references: u32, words_max: u32) -> String {
    let mut text = String::new();
    for _ in 0..rng.between(0, words_max) {
        if rng.chance(15) {
            let number = if rng.chance(80) { rng.between(1, references.max(1)) } else { references.saturating_add(7) };
            text.push_str(&format!("[^{number}]"));
        } else {
            text.push_str(rng.choose("and ", WORDS));
        }
    }
    text
}

/// Text that is too long to be repeated in a `done` event.
pub(super) fn random_long_text(rng: &mut Rng, references: u32) -> String {
    let mut text = String::with_capacity(LONG_BYTES);
    while text.len() < LONG_BYTES {
        text.push_str(&random_text(rng, references, 12));
        text.push_str(&"all work and no play ".repeat(40));
    }
    text
}

/// Splits text as a model may stream it: by characters, by words, or not at all.
pub(super) fn split_randomly(rng: &mut Rng, text: &str) -> Vec<String> {
    // A character has at most four bytes, so 8,000 of them fit into the largest delta.
    let max = if text.len() > 4096 { 8000 } else { rng.choose(40, &[2, 8, 8, 1000]) };
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut left = rng.between(1, max);
    for character in text.chars() {
        if left == 0 {
            pieces.push(std::mem::take(&mut piece));
            left = rng.between(1, max);
        }
        piece.push(character);
        left = left.saturating_sub(1);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}
