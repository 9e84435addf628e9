//! The check of the fuzz targets `ingest_…`: whatever a provider sends, its turn ends once, and the chunks of the stream do
//! not affect the events.
//!
//! Stable Rust with no dependency but the crates under test, because `cargo test -p upstream` includes this file.

use model::history::SharedHistory;
use model::model_turn::{ModelEvent, ModelRequest};
use model::{TaskId, ThreadId, UserId};
use sse::{DecodeLimits, Decoder};
use std::sync::Arc;
use upstream::Ingest;

/// The `new_ingest` of a dialect.
pub(crate) type NewIngest = fn(String, &ModelRequest) -> Box<dyn Ingest>;

/// Reads `bytes` as a response, in one chunk and byte by byte.
pub(crate) fn a_turn_ends_once(new_ingest: NewIngest, bytes: &[u8]) {
    let whole = read(new_ingest, [bytes]);
    let ends = |event: &ModelEvent| !matches!(event, ModelEvent::Delta(_));
    assert!(whole.last().is_some_and(ends), "{whole:?}");
    assert_eq!(whole.iter().filter(|event| ends(event)).count(), 1, "{whole:?}");
    assert_eq!(read(new_ingest, bytes.chunks(1)), whole, "byte by byte");
}

fn read<'a>(new_ingest: NewIngest, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<ModelEvent> {
    let mut ingest = new_ingest("here".to_owned(), &turn());
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut out = Vec::new();
    for mut rest in chunks {
        while let Ok(Some(event)) = decoder.decode(&mut rest) {
            ingest.on_event(&event, &mut out);
        }
    }
    ingest.on_end(&mut out);
    out
}

fn turn() -> ModelRequest {
    ModelRequest {
        user: UserId::from("user"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "provider/m".to_owned(),
        instructions: String::new(),
        history: SharedHistory::default(),
        tools: Arc::new([]),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}
