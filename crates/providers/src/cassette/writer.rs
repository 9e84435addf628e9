//! Records a turn line by line while it runs, so that a crash leaves a readable cassette.

use super::{CASSETTE_SUFFIX, CassetteLine, RecordedEvent, RecordedRequest};
use model::model_turn::{ModelFailure, ModelRequest};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use tokio::time::Instant;

pub(crate) struct CassetteWriter {
    /// `None` after a failed write.
    file: Option<File>,
    started_at: Instant,
}

impl CassetteWriter {
    /// The file is named after the task, the step and the attempt.
    pub(crate) fn create(folder: &Path, turn: &ModelRequest, request: RecordedRequest) -> Self {
        let name = format!("{}-{}-{}{CASSETTE_SUFFIX}", turn.task, turn.step, turn.attempt);
        let created = fs::create_dir_all(folder).and_then(|()| File::create(folder.join(name)));
        let file = created.inspect_err(warn_not_recorded).ok();
        let mut writer = Self { file, started_at: Instant::now() };
        writer.write_line(&CassetteLine::Asked(Box::new(request)));
        writer
    }

    pub(crate) fn write_event(&mut self, event: &sse::SseEvent) {
        let at_ms = self.elapsed_ms();
        self.write_line(&CassetteLine::Event(RecordedEvent {
            at_ms,
            event: event.event.clone(),
            data: event.data.clone(),
        }));
    }

    pub(crate) fn write_end(&mut self) {
        let at_ms = self.elapsed_ms();
        self.write_line(&CassetteLine::End { at_ms });
    }

    pub(crate) fn write_failure(&mut self, failure: &ModelFailure) {
        let (at_ms, error) = (self.elapsed_ms(), failure.error.clone());
        self.write_line(&CassetteLine::Failed { at_ms, error, retry_after_ms: failure.retry_after_ms });
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn write_line(&mut self, line: &CassetteLine) {
        let Some(file) = &mut self.file else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            warn_not_recorded(&error);
            self.file = None;
        }
    }
}

fn warn_not_recorded(error: &std::io::Error) {
    tracing::warn!(%error, "cannot record the exchange with a provider");
}
