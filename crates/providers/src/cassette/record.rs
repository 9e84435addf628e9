//! Writes a cassette as its turn goes on, line by line: what a crash cut short can still be read.

use super::{Asked, Heard, Line, SUFFIX};
use model::model_turn::{ModelFailure, ModelRequest};
use sse;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use tokio::time::Instant;

/// A cassette that is being written.
pub(crate) struct Tape {
    /// None after a line could not be written.
    file: Option<File>,
    began: Instant,
}

impl Tape {
    /// Begins one for this turn, named after its task, step and attempt.
    pub(crate) fn begin(folder: &Path, turn: &ModelRequest, asked: Asked) -> Self {
        let name = format!("{}-{}-{}{SUFFIX}", turn.task, turn.step, turn.attempt);
        let made = fs::create_dir_all(folder).and_then(|()| File::create(folder.join(name)));
        let file = made.inspect_err(warn).ok();
        let mut tape = Self { file, began: Instant::now() };
        tape.write(&Line::Asked(Box::new(asked)));
        tape
    }

    /// The service sent an event.
    pub(crate) fn event(&mut self, event: &sse::Event) {
        let at_ms = self.now();
        self.write(&Line::Event(Heard { at_ms, event: event.event.clone(), data: event.data.clone() }));
    }

    /// The turn ended by itself.
    pub(crate) fn end(&mut self) {
        let at_ms = self.now();
        self.write(&Line::End { at_ms });
    }

    /// It failed.
    pub(crate) fn failed(&mut self, failure: &ModelFailure) {
        let (at_ms, error) = (self.now(), failure.error.clone());
        self.write(&Line::Failed { at_ms, error, retry_after_ms: failure.retry_after_ms });
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.file else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            warn(&error);
            self.file = None;
        }
    }
}

fn warn(error: &std::io::Error) {
    tracing::warn!(%error, "an exchange with a provider is not recorded");
}
