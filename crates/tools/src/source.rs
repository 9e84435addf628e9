//! From bytes to events: what tools behind an address and tools that are programs have in common.
//!
//! A [`Source`] is read until it ends, its deadline comes or it gave too much. Dropping it stops whatever is behind it,
//! so there is one way to stop, whoever wants it.

use crate::lines::Lines;
use bytes::Bytes;
use futures_util::stream;
use model::block::ContentPart;
use model::event::ErrorInfo;
use model::ports::{BoxStream, Clock};
use model::seq::Millis;
use model::tool::{ToolEvent, ToolOutput};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Further ahead than this a timer need not look.
const DEADLINE_MS_MAX: Millis = 365 * 24 * 60 * 60 * 1000;

/// Where an answer comes from, piece by piece.
pub(crate) trait Source: Send + 'static {
    /// The next piece; `None` when that was all and all went well.
    fn read(&mut self) -> impl Future<Output = Result<Option<Bytes>, ErrorInfo>> + Send;
}

/// When it must have ended.
pub(crate) struct Deadline {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) at: Millis,
}

/// An answer that has begun, and how it is read.
pub(crate) struct Answer<S> {
    pub(crate) source: S,
    pub(crate) lines: Lines,
}

/// The events of a tool. Nothing begins before the stream is polled.
pub(crate) fn events<S, F>(deadline: Deadline, start: F) -> BoxStream<'static, ToolEvent>
where
    S: Source,
    F: Future<Output = Result<Answer<S>, ErrorInfo>> + Send + 'static,
{
    Box::pin(stream::unfold(State::Waiting(deadline, Box::pin(start)), next))
}

type Start<S> = Pin<Box<dyn Future<Output = Result<Answer<S>, ErrorInfo>> + Send>>;

enum State<S> {
    Waiting(Deadline, Start<S>),
    Reading(Box<Answer<S>>, Limit),
    Over,
}

/// A deadline that runs.
struct Limit {
    at: Instant,
    within_ms: Millis,
}

async fn next<S: Source>(mut state: State<S>) -> Option<(ToolEvent, State<S>)> {
    loop {
        let step = match state {
            State::Waiting(deadline, start) => begin(deadline, start).await,
            State::Reading(mut answer, limit) => match answer.lines.next_event() {
                Some(event) => return Some((event, State::Reading(answer, limit))),
                None => read_on(answer, limit).await,
            },
            State::Over => return None,
        };
        match step {
            Step::On(next) => state = next,
            Step::End(output) => return Some((ToolEvent::End(output), State::Over)),
        }
    }
}

enum Step<S> {
    On(State<S>),
    End(ToolOutput),
}

async fn begin<S: Source>(deadline: Deadline, start: Start<S>) -> Step<S> {
    let within_ms = deadline.at.saturating_sub(deadline.clock.now()).min(DEADLINE_MS_MAX);
    let limit = Limit { at: Instant::now() + Duration::from_millis(within_ms), within_ms };
    if within_ms == 0 {
        return Step::End(too_late(&limit));
    }
    match timeout_at(limit.at, start).await {
        Ok(Ok(answer)) => Step::On(State::Reading(Box::new(answer), limit)),
        Ok(Err(error)) => Step::End(failed(error)),
        Err(_) => Step::End(too_late(&limit)),
    }
}

/// What ends here drops the source, which stops it.
async fn read_on<S: Source>(mut answer: Box<Answer<S>>, limit: Limit) -> Step<S> {
    match timeout_at(limit.at, answer.source.read()).await {
        Ok(Ok(Some(piece))) => match answer.lines.push(&piece) {
            Ok(()) => Step::On(State::Reading(answer, limit)),
            Err(error) => Step::End(failed(error)),
        },
        Ok(Ok(None)) => Step::End(answer.lines.finish()),
        Ok(Err(error)) => Step::End(failed(error)),
        Err(_) => Step::End(too_late(&limit)),
    }
}

/// Everything that a source gives, as long as it is no more than this.
pub(crate) async fn gather(mut source: impl Source, bytes_max: usize) -> Result<Vec<u8>, ErrorInfo> {
    let mut all = Vec::new();
    while let Some(piece) = source.read().await? {
        if all.len().saturating_add(piece.len()) > bytes_max {
            return Err(too_large(bytes_max));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// The model reads what went wrong.
pub(crate) fn failed(error: ErrorInfo) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(&error.message)], error: Some(error), ..ToolOutput::default() }
}

pub(crate) fn too_large(bytes_max: usize) -> ErrorInfo {
    ErrorInfo::new("output_too_large", format!("The tool gave more than {bytes_max} bytes and was stopped."))
}

fn too_late(limit: &Limit) -> ToolOutput {
    ToolOutput::failed("tool_timeout", format!("The tool did not end within {} ms and was stopped.", limit.within_ms))
}
