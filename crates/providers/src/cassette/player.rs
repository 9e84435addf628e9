//! Plays cassettes. Which one answers a turn is read from the turn alone, so a retry or a recovery hears the same again.

use super::{CASSETTE_FORMAT, CASSETTE_SUFFIX, CassetteLine, RecordedEvent, RecordedRequest, last_user_text};
use crate::failed_turn::failed_turn;
use crate::http::UpstreamDialect;
use ::upstream::Ingest;
use model::error::ErrorCode;
use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use sse;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How fast a cassette is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaybackSpeed {
    /// As the service spoke.
    #[default]
    Original,
    /// Without a pause.
    Fast,
}

/// Why a folder of cassettes cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// What.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// There is none.
    #[error("{0}: there is no cassette (*{CASSETTE_SUFFIX}) in this folder")]
    Empty(PathBuf),
}

/// A provider that plays what others recorded.
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
    /// How it failed, where it did.
    failure: Option<(u64, ModelFailure)>,
}

impl CassetteProvider {
    /// Reads every cassette of a folder, in the order of their names.
    ///
    /// # Errors
    /// When the folder or one of them cannot be read, or there is none.
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

    /// Those that answer this turn; of several, the one for this attempt, and the last for all later ones.
    fn find(&self, turn: &ModelRequest) -> Option<&Arc<RecordedExchange>> {
        let said = last_user_text(&turn.history);
        let fits =
            |exchange: &&Arc<RecordedExchange>| exchange.request.said == said && exchange.request.step == turn.step;
        let attempt = usize::try_from(turn.attempt).unwrap_or(usize::MAX);
        self.exchanges.iter().filter(fits).take(attempt).last()
    }
}

impl ModelClient for CassetteProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let Some(exchange) = self.find(&request).cloned() else {
            let (step, words) = (request.step, last_user_text(&request.history));
            return failed_turn(ErrorCode::NoCassette, format!("No cassette answers step {step} of `{words}`."));
        };
        let ingest = exchange.dialect.new_ingest(exchange.request.origin.clone(), &request);
        let play = CassettePlayback {
            exchange,
            ingest,
            speed: self.speed,
            started_at: Instant::now(),
            next_index: 0,
            pending_events: VecDeque::new(),
        };
        Box::pin(futures_util::stream::unfold(Some(play), |play| async move {
            let mut play = play?;
            let event = play.next().await;
            let over = !matches!(event, ModelEvent::Delta(_));
            Some((event, (!over).then_some(play)))
        }))
    }
}

/// A turn that is being played.
struct CassettePlayback {
    exchange: Arc<RecordedExchange>,
    ingest: Box<dyn Ingest>,
    speed: PlaybackSpeed,
    started_at: Instant,
    /// The next event.
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
                (Some(heard), _) => {
                    self.next_index += 1;
                    wait_until_due(self.speed, self.started_at, heard.at_ms).await;
                    let event = sse::SseEvent { id: None, event: heard.event.clone(), data: heard.data.clone() };
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

async fn wait_until_due(speed: PlaybackSpeed, began: Instant, at_ms: u64) {
    match speed {
        PlaybackSpeed::Original => sleep_until(began + Duration::from_millis(at_ms)).await,
        // A play that is always ready takes its turns with the runtime's other tasks all the same.
        PlaybackSpeed::Fast => tokio::task::coop::consume_budget().await,
    }
}

fn read_cassette(path: &Path) -> Result<RecordedExchange, CassetteError> {
    let text = std::fs::read_to_string(path).map_err(|source| CassetteError::Read { path: path.to_owned(), source })?;
    let wrong = |line: usize, why: String| CassetteError::Line { path: path.to_owned(), line, why };
    let mut lines = text.lines().enumerate();
    let asked = match lines.next().map(|(_, line)| serde_json::from_str(line)) {
        Some(Ok(CassetteLine::Asked(asked))) if asked.cassette == CASSETTE_FORMAT => asked,
        Some(Ok(CassetteLine::Asked(asked))) => {
            return Err(wrong(1, format!("this is format {}, and {CASSETTE_FORMAT} can be read", asked.cassette)));
        }
        Some(Err(error)) => return Err(wrong(1, error.to_string())),
        Some(Ok(_)) | None => return Err(wrong(1, "the first line has to say what was asked".to_owned())),
    };
    let kind = UpstreamDialect::ALL.into_iter().find(|kind| kind.config_name() == asked.kind);
    let kind = kind.ok_or_else(|| wrong(1, format!("the kind `{}` does not exist", asked.kind)))?;
    let mut exchange = RecordedExchange { dialect: kind, request: *asked, events: Vec::new(), failure: None };
    for (at, line) in lines {
        match serde_json::from_str(line).map_err(|error| wrong(at + 1, error.to_string()))? {
            CassetteLine::Event(heard) => exchange.events.push(heard),
            CassetteLine::Failed { at_ms, error, retry_after_ms } => {
                exchange.failure = Some((at_ms, ModelFailure { error, retry_after_ms }));
            }
            CassetteLine::End { .. } => {}
            CassetteLine::Asked(_) => return Err(wrong(at + 1, "only the first line says what was asked".to_owned())),
        }
    }
    Ok(exchange)
}
