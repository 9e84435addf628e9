//! Pieces of a result, as a tool writes them: which block each belongs to, and without secrets, also where one is split
//! over two pieces.

use crate::secrets::CallSecrets;
use model::tool::{PiecePlace, ResultPiece, ToolEvent};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// A line with a piece of text.
#[derive(Deserialize)]
pub(crate) struct TextLine {
    text: String,
    /// Another number than that of the piece before it begins a block.
    block: Option<u64>,
}

/// A line with an image: by URL, or in base64.
#[derive(Deserialize)]
pub(crate) struct ImageLine {
    url: Option<String>,
    data: Option<String>,
    media_type: Option<String>,
    /// A preview, by its number.
    partial: Option<u32>,
    block: Option<u64>,
}

impl ImageLine {
    /// `None` if the line has no image.
    fn url(&self) -> Option<String> {
        let media_type = self.media_type.as_deref().unwrap_or("image/png");
        let inline = || self.data.as_ref().map(|data| format!("data:{media_type};base64,{data}"));
        self.url.clone().or_else(inline).filter(|url| !url.is_empty())
    }
}

/// Turns lines into pieces. The end of a text waits if it may be the beginning of a secret.
pub(crate) struct PieceReader {
    secrets: Arc<CallSecrets>,
    held_text: String,
    block: Option<u64>,
    place: PiecePlace,
    has_pieces: bool,
}

impl PieceReader {
    pub(crate) const fn new(secrets: Arc<CallSecrets>) -> Self {
        Self { secrets, held_text: String::new(), block: None, place: PiecePlace::OpenBlock, has_pieces: false }
    }

    pub(crate) const fn has_pieces(&self) -> bool {
        self.has_pieces
    }

    pub(crate) fn push_text(&mut self, line: &TextLine, out: &mut VecDeque<ToolEvent>) {
        self.enter_block(line.block, out);
        self.held_text.push_str(&line.text);
        let (ready, held) = self.secrets.redact_growing_text(&self.held_text);
        self.held_text = held;
        self.push_piece(ResultPiece::Text(ready), out);
    }

    /// Returns false if the line has no image.
    pub(crate) fn push_image(&mut self, line: &ImageLine, out: &mut VecDeque<ToolEvent>) -> bool {
        let Some(url) = line.url() else { return false };
        self.enter_block(line.block, out);
        self.flush(out);
        self.push_piece(ResultPiece::Image { url, partial: line.partial }, out);
        true
    }

    /// Nothing follows that could complete a secret.
    pub(crate) fn flush(&mut self, out: &mut VecDeque<ToolEvent>) {
        let text = std::mem::take(&mut self.held_text);
        self.push_piece(ResultPiece::Text(text), out);
    }

    fn enter_block(&mut self, block: Option<u64>, out: &mut VecDeque<ToolEvent>) {
        if self.has_pieces && block != self.block {
            self.flush(out);
            self.place = PiecePlace::NewBlock;
        }
        (self.block, self.has_pieces) = (block, true);
    }

    fn push_piece(&mut self, piece: ResultPiece, out: &mut VecDeque<ToolEvent>) {
        if piece.bytes() > 0 {
            out.push_back(ToolEvent::Piece { piece, place: std::mem::take(&mut self.place) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};

    const SECRET: &str = "s3cr3t-é-v4lue";

    fn text(words: &str, block: Option<u64>) -> TextLine {
        TextLine { text: words.to_owned(), block }
    }

    fn shown(events: impl IntoIterator<Item = ToolEvent>) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        for event in events {
            let ToolEvent::Piece { piece: ResultPiece::Text(text), place } = event else { panic!("{event:?}") };
            match blocks.last_mut().filter(|_| place == PiecePlace::OpenBlock) {
                Some(last) => last.push_str(&text),
                None => blocks.push(text),
            }
        }
        blocks
    }

    #[test]
    fn a_secret_is_redacted_wherever_the_pieces_are_cut() {
        let secrets = Arc::new(CallSecrets::with_value("env:KEY", SECRET));
        let whole = format!("a {SECRET} s3cr3t {SECRET}{SECRET} s3cr3t-é-v4lu");
        for seed in test_seeds() {
            let (mut rng, mut out) = (Rng::new(seed), VecDeque::new());
            let mut reader = PieceReader::new(Arc::clone(&secrets));
            let mut rest = whole.as_str();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.ceil_char_boundary(rng.below(9) + 1));
                reader.push_text(&text(piece, None), &mut out);
                rest = behind;
            }
            reader.flush(&mut out);
            let expected = "a [env:KEY] s3cr3t [env:KEY][env:KEY] s3cr3t-é-v4lu";
            assert_eq!(shown(out), [expected], "SEED={seed}");
        }
    }

    #[test]
    fn text_that_cannot_be_a_secret_does_not_wait() {
        let mut reader = PieceReader::new(Arc::new(CallSecrets::with_value("env:KEY", SECRET)));
        let mut out = VecDeque::new();
        reader.push_text(&text("no s3c", None), &mut out);
        assert_eq!(shown(std::mem::take(&mut out)), ["no "]);
        reader.push_text(&text("ret", None), &mut out);
        assert_eq!(shown(out), ["s3cret"]);
    }

    #[test]
    fn another_number_begins_a_block() {
        let (mut reader, mut out) = (PieceReader::new(Arc::default()), VecDeque::new());
        for (words, block) in [("a", None), ("b", None), ("c", Some(1)), ("", Some(1)), ("d", Some(1)), ("e", None)] {
            reader.push_text(&text(words, block), &mut out);
        }
        assert_eq!(shown(out), ["ab", "cd", "e"]);
        assert!(reader.has_pieces());
    }

    #[test]
    fn an_image_is_a_url_or_base64() {
        let image = |json: &str| serde_json::from_str::<ImageLine>(json).unwrap().url();
        assert_eq!(image(r#"{"url":"https://example.org/a.png"}"#).as_deref(), Some("https://example.org/a.png"));
        assert_eq!(image(r#"{"data":"AAAA"}"#).as_deref(), Some("data:image/png;base64,AAAA"));
        let webp = image(r#"{"data":"AAAA","media_type":"image/webp"}"#);
        assert_eq!(webp.as_deref(), Some("data:image/webp;base64,AAAA"));
        assert_eq!((image("{}"), image(r#"{"url":""}"#)), (None, None));
    }
}
