//! Plays cassettes. Which one answers a turn is read from the turn alone, so a retry or a recovery hears the same again.

use super::{Asked, FORMAT, Heard, Line, SUFFIX, said};
use crate::failure::failed;
use crate::upstream::Kind;
use ::upstream::Ingest;
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
pub enum Speed {
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
    #[error("{0}: there is no cassette (*{SUFFIX}) in this folder")]
    Empty(PathBuf),
}

/// A provider that plays what others recorded.
#[derive(Clone, Debug)]
pub struct Cassettes {
    exchanges: Arc<[Arc<Exchange>]>,
    speed: Speed,
}

#[derive(Debug)]
struct Exchange {
    kind: Kind,
    asked: Asked,
    heard: Vec<Heard>,
    /// How it failed, where it did.
    failed: Option<(u64, ModelFailure)>,
}

impl Cassettes {
    /// Reads every cassette of a folder, in the order of their names.
    ///
    /// # Errors
    /// When the folder or one of them cannot be read, or there is none.
    pub fn open(folder: &Path, speed: Speed) -> Result<Self, CassetteError> {
        let unreadable = |source| CassetteError::Read { path: folder.to_owned(), source };
        let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(unreadable)?.collect();
        let entries = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(SUFFIX)).collect();
        paths.sort();
        let exchanges: Vec<_> = paths.iter().map(|path| read(path).map(Arc::new)).collect::<Result<_, _>>()?;
        if exchanges.is_empty() {
            return Err(CassetteError::Empty(folder.to_owned()));
        }
        Ok(Self { exchanges: exchanges.into(), speed })
    }

    /// Those that answer this turn; of several, the one for this attempt, and the last for all later ones.
    fn find(&self, turn: &ModelRequest) -> Option<&Arc<Exchange>> {
        let said = said(&turn.history);
        let fits = |exchange: &&Arc<Exchange>| exchange.asked.said == said && exchange.asked.step == turn.step;
        let attempt = usize::try_from(turn.attempt).unwrap_or(usize::MAX);
        self.exchanges.iter().filter(fits).take(attempt).last()
    }
}

impl ModelClient for Cassettes {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let Some(exchange) = self.find(&request).cloned() else {
            let (step, words) = (request.step, said(&request.history));
            return failed("no_cassette", format!("No cassette answers step {step} of `{words}`."));
        };
        let ingest = exchange.kind.ingest(exchange.asked.origin.clone(), &request);
        let play = Play { exchange, ingest, speed: self.speed, began: Instant::now(), at: 0, ready: VecDeque::new() };
        Box::pin(futures_util::stream::unfold(Some(play), |play| async move {
            let mut play = play?;
            let event = play.next().await;
            let over = !matches!(event, ModelEvent::Delta(_));
            Some((event, (!over).then_some(play)))
        }))
    }
}

/// A turn that is being played.
struct Play {
    exchange: Arc<Exchange>,
    ingest: Box<dyn Ingest>,
    speed: Speed,
    began: Instant,
    /// The next event.
    at: usize,
    ready: VecDeque<ModelEvent>,
}

impl Play {
    async fn next(&mut self) -> ModelEvent {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let mut out = Vec::new();
            let exchange = Arc::clone(&self.exchange);
            match (exchange.heard.get(self.at), &exchange.failed) {
                (Some(heard), _) => {
                    self.at += 1;
                    wait(self.speed, self.began, heard.at_ms).await;
                    let event = sse::Event { id: None, event: heard.event.clone(), data: heard.data.clone() };
                    self.ingest.event(&event, &mut out);
                }
                (None, Some((at_ms, failure))) => {
                    wait(self.speed, self.began, *at_ms).await;
                    out.push(ModelEvent::Failed(failure.clone()));
                }
                (None, None) => self.ingest.end(&mut out),
            }
            self.ready.extend(out);
        }
    }
}

async fn wait(speed: Speed, began: Instant, at_ms: u64) {
    match speed {
        Speed::Original => sleep_until(began + Duration::from_millis(at_ms)).await,
        // A play that is always ready takes its turns with the runtime's other tasks all the same.
        Speed::Fast => tokio::task::coop::consume_budget().await,
    }
}

fn read(path: &Path) -> Result<Exchange, CassetteError> {
    let text = std::fs::read_to_string(path).map_err(|source| CassetteError::Read { path: path.to_owned(), source })?;
    let wrong = |line: usize, why: String| CassetteError::Line { path: path.to_owned(), line, why };
    let mut lines = text.lines().enumerate();
    let asked = match lines.next().map(|(_, line)| serde_json::from_str(line)) {
        Some(Ok(Line::Asked(asked))) if asked.cassette == FORMAT => asked,
        Some(Ok(Line::Asked(asked))) => {
            return Err(wrong(1, format!("this is format {}, and {FORMAT} can be read", asked.cassette)));
        }
        Some(Err(error)) => return Err(wrong(1, error.to_string())),
        Some(Ok(_)) | None => return Err(wrong(1, "the first line has to say what was asked".to_owned())),
    };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == asked.kind);
    let kind = kind.ok_or_else(|| wrong(1, format!("the kind `{}` does not exist", asked.kind)))?;
    let mut exchange = Exchange { kind, asked: *asked, heard: Vec::new(), failed: None };
    for (at, line) in lines {
        match serde_json::from_str(line).map_err(|error| wrong(at + 1, error.to_string()))? {
            Line::Event(heard) => exchange.heard.push(heard),
            Line::Failed { at_ms, error, retry_after_ms } => {
                exchange.failed = Some((at_ms, ModelFailure { error, retry_after_ms }));
            }
            Line::End { .. } => {}
            Line::Asked(_) => return Err(wrong(at + 1, "only the first line says what was asked".to_owned())),
        }
    }
    Ok(exchange)
}
