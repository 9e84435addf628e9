//! Replays cassettes. The turn alone selects the cassette, so a retry or a recovery gets the same response.

use super::{CASSETTE_FORMAT, CASSETTE_SUFFIX, CassetteLine, RecordedEvent, RecordedRequest};
use crate::dialect::UpstreamDialect;
use crate::failed_turn::failed_turn;
use crate::user_text::last_user_message;
use model::error::ErrorCode;
use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use upstream::Ingest;

/// The timing of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaybackSpeed {
    #[default]
    Original,
    /// Without pauses.
    Fast,
}

/// Why a folder of cassettes cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}: {why}")]
    Line {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        why: String,
    },
    #[error("{0}: no cassette (*{CASSETTE_SUFFIX}) in this folder")]
    Empty(PathBuf),
}

/// A provider that replays recorded turns.
#[derive(Clone, Debug)]
pub struct CassetteProvider {
    exchanges: Arc<[Arc<RecordedExchange>]>,
    speed: PlaybackSpeed,
}

#[derive(Debug)]
struct RecordedExchange {
    dialect: UpstreamDialect,
    request: RecordedRequest,
    events: Vec<RecordedEvent>,
    /// With its time, from the request on.
    failure: Option<(u64, ModelFailure)>,
}

impl CassetteProvider {
    /// Reads every cassette of a folder, sorted by name.
    pub fn open(folder: &Path, speed: PlaybackSpeed) -> Result<Self, CassetteError> {
        let unreadable = |source| CassetteError::Read { path: folder.to_owned(), source };
        let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(unreadable)?.collect();
        let entries = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.to_string_lossy().ends_with(CASSETTE_SUFFIX)).collect();
        paths.sort();
        let exchanges: Vec<_> = paths.iter().map(|path| read_cassette(path).map(Arc::new)).collect::<Result<_, _>>()?;
        if exchanges.is_empty() {
            return Err(CassetteError::Empty(folder.to_owned()));
        }
        Ok(Self { exchanges: exchanges.into(), speed })
    }

    /// Of several cassettes for a turn, each attempt gets its own, and later attempts get the last.
    fn find(&self, turn: &ModelRequest) -> Option<&Arc<RecordedExchange>> {
        let text = last_user_message(&turn.history).text;
        let matches =
            |exchange: &&Arc<RecordedExchange>| exchange.request.said == text && exchange.request.step == turn.step;
        let attempt = usize::try_from(turn.attempt).unwrap_or(usize::MAX);
        self.exchanges.iter().filter(matches).take(attempt).last()
    }
}

impl ModelClient for CassetteProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let Some(exchange) = self.find(&request).cloned() else {
            let (step, text) = (request.step, last_user_message(&request.history).text);
            return failed_turn(ErrorCode::NoCassette, format!("No cassette has step {step} of `{text}`."));
        };
        let ingest = exchange.dialect.new_ingest(exchange.request.origin.clone(), &request);
        let playback = CassettePlayback {
            exchange,
            ingest,
            speed: self.speed,
            started_at: Instant::now(),
            next_index: 0,
            pending_events: VecDeque::new(),
        };
        Box::pin(futures_util::stream::unfold(Some(playback), |playback| async move {
            let mut playback = playback?;
            let event = playback.next().await;
            let is_last = !matches!(event, ModelEvent::Delta(_));
            Some((event, (!is_last).then_some(playback)))
        }))
    }
}

struct CassettePlayback {
    exchange: Arc<RecordedExchange>,
    ingest: Box<dyn Ingest>,
    speed: PlaybackSpeed,
    started_at: Instant,
    next_index: usize,
    pending_events: VecDeque<ModelEvent>,
}

impl CassettePlayback {
    async fn next(&mut self) -> ModelEvent {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return event;
            }
            let mut out = Vec::new();
            let exchange = Arc::clone(&self.exchange);
            match (exchange.events.get(self.next_index), &exchange.failure) {
                (Some(recorded), _) => {
                    self.next_index += 1;
                    wait_until_due(self.speed, self.started_at, recorded.at_ms).await;
                    let event = sse::SseEvent { id: None, event: recorded.event.clone(), data: recorded.data.clone() };
                    self.ingest.on_event(&event, &mut out);
                }
                (None, Some((at_ms, failure))) => {
                    wait_until_due(self.speed, self.started_at, *at_ms).await;
                    out.push(ModelEvent::Failed(failure.clone()));
                }
                (None, None) => self.ingest.on_end(&mut out),
            }
            self.pending_events.extend(out);
        }
    }
}

async fn wait_until_due(speed: PlaybackSpeed, started_at: Instant, at_ms: u64) {
    match speed {
        PlaybackSpeed::Original => sleep_until(started_at + Duration::from_millis(at_ms)).await,
        // A stream that is always ready still has to yield to other tasks.
        PlaybackSpeed::Fast => tokio::task::coop::consume_budget().await,
    }
}

fn read_cassette(path: &Path) -> Result<RecordedExchange, CassetteError> {
    let text = std::fs::read_to_string(path).map_err(|source| CassetteError::Read { path: path.to_owned(), source })?;
    let invalid = |line: usize, why: String| CassetteError::Line { path: path.to_owned(), line, why };
    let mut lines = text.lines().enumerate();
    let request = match lines.next().map(|(_, line)| serde_json::from_str(line)) {
        Some(Ok(CassetteLine::Asked(request))) if request.cassette == CASSETTE_FORMAT => request,
        Some(Ok(CassetteLine::Asked(request))) => {
            return Err(invalid(1, format!("unsupported format {}; expected {CASSETTE_FORMAT}", request.cassette)));
        }
        Some(Err(error)) => return Err(invalid(1, error.to_string())),
        Some(Ok(_)) | None => return Err(invalid(1, "the first line has to be the request".to_owned())),
    };
    let dialect = UpstreamDialect::ALL.into_iter().find(|dialect| dialect.config_name() == request.kind);
    let dialect = dialect.ok_or_else(|| invalid(1, format!("unknown kind `{}`", request.kind)))?;
    let mut exchange = RecordedExchange { dialect, request: *request, events: Vec::new(), failure: None };
    for (index, line) in lines {
        match serde_json::from_str(line).map_err(|error| invalid(index + 1, error.to_string()))? {
            CassetteLine::Event(event) => exchange.events.push(event),
            CassetteLine::Failed { at_ms, error, retry_after_ms } => {
                exchange.failure = Some((at_ms, ModelFailure { error, retry_after_ms }));
            }
            CassetteLine::End { .. } => {}
            CassetteLine::Asked(_) => {
                return Err(invalid(index + 1, "only the first line may be the request".to_owned()));
            }
        }
    }
    Ok(exchange)
}
