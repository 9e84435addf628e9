//! From bytes to events: what tools behind an address and tools that are programs have in common.
//!
//! A [`Source`] is read until it ends, its deadline comes or it gave too much. Dropping it stops whatever is behind it,
//! so there is one way to stop, whoever wants it.

use crate::output_parser::ToolOutputParser;
use bytes::Bytes;
use futures_util::stream;
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
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
pub(crate) trait ByteSource: Send + 'static {
    /// The next piece; `None` when that was all and all went well.
    fn next_chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, ErrorInfo>> + Send;
}

/// When it must have ended.
pub(crate) struct CallDeadline {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) at_ms: Millis,
}

/// An answer that has begun, and how it is read.
pub(crate) struct ToolResponse<S> {
    pub(crate) source: S,
    pub(crate) parser: ToolOutputParser,
}

/// The events of a tool. Nothing begins before the stream is polled.
pub(crate) fn stream_events<S, F>(deadline: CallDeadline, start: F) -> BoxStream<'static, ToolEvent>
where
    S: ByteSource,
    F: Future<Output = Result<ToolResponse<S>, ErrorInfo>> + Send + 'static,
{
    Box::pin(stream::unfold(StreamState::Starting(deadline, Box::pin(start)), next_event))
}

type StartFuture<S> = Pin<Box<dyn Future<Output = Result<ToolResponse<S>, ErrorInfo>> + Send>>;

enum StreamState<S> {
    Starting(CallDeadline, StartFuture<S>),
    Reading(Box<ToolResponse<S>>, ActiveDeadline),
    Finished,
}

/// A deadline that runs.
struct ActiveDeadline {
    at: Instant,
    timeout_ms: Millis,
}

async fn next_event<S: ByteSource>(mut state: StreamState<S>) -> Option<(ToolEvent, StreamState<S>)> {
    loop {
        let step = match state {
            StreamState::Starting(deadline, start) => start_source(deadline, start).await,
            StreamState::Reading(mut answer, limit) => match answer.parser.next_event() {
                Some(event) => return Some((event, StreamState::Reading(answer, limit))),
                None => read_next_chunk(answer, limit).await,
            },
            StreamState::Finished => return None,
        };
        match step {
            StreamStep::Continue(next) => state = next,
            StreamStep::End(output) => return Some((ToolEvent::End(output), StreamState::Finished)),
        }
    }
}

enum StreamStep<S> {
    Continue(StreamState<S>),
    End(ToolOutput),
}

async fn start_source<S: ByteSource>(deadline: CallDeadline, start: StartFuture<S>) -> StreamStep<S> {
    let within_ms = deadline.at_ms.saturating_sub(deadline.clock.now()).min(DEADLINE_MS_MAX);
    let limit = ActiveDeadline { at: Instant::now() + Duration::from_millis(within_ms), timeout_ms: within_ms };
    if within_ms == 0 {
        return StreamStep::End(timeout_output(&limit));
    }
    match timeout_at(limit.at, start).await {
        Ok(Ok(answer)) => StreamStep::Continue(StreamState::Reading(Box::new(answer), limit)),
        Ok(Err(error)) => StreamStep::End(failed_output(error)),
        Err(_) => StreamStep::End(timeout_output(&limit)),
    }
}

/// What ends here drops the source, which stops it.
async fn read_next_chunk<S: ByteSource>(mut answer: Box<ToolResponse<S>>, limit: ActiveDeadline) -> StreamStep<S> {
    match timeout_at(limit.at, answer.source.next_chunk()).await {
        Ok(Ok(Some(piece))) => match answer.parser.push(&piece) {
            Ok(()) => StreamStep::Continue(StreamState::Reading(answer, limit)),
            Err(error) => StreamStep::End(failed_output(error)),
        },
        Ok(Ok(None)) => StreamStep::End(answer.parser.finish()),
        Ok(Err(error)) => StreamStep::End(failed_output(error)),
        Err(_) => StreamStep::End(timeout_output(&limit)),
    }
}

/// Everything that a source gives, as long as it is no more than this.
pub(crate) async fn read_to_end(mut source: impl ByteSource, bytes_max: usize) -> Result<Vec<u8>, ErrorInfo> {
    let mut all = Vec::new();
    while let Some(piece) = source.next_chunk().await? {
        if all.len().saturating_add(piece.len()) > bytes_max {
            return Err(output_too_large(bytes_max));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// The model reads what went wrong.
pub(crate) fn failed_output(error: ErrorInfo) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(&error.message)], error: Some(error), ..ToolOutput::default() }
}

pub(crate) fn output_too_large(bytes_max: usize) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::OutputTooLarge, format!("The tool gave more than {bytes_max} bytes and was stopped."))
}

fn timeout_output(limit: &ActiveDeadline) -> ToolOutput {
    ToolOutput::failed(
        ErrorCode::ToolTimeout,
        format!("The tool did not end within {} ms and was stopped.", limit.timeout_ms),
    )
}
