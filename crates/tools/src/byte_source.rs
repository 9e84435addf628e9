//! Turns a stream of bytes into tool events: what HTTP tools and command tools have in common.
//!
//! A [`ByteSource`] is read until it ends, its deadline passes or its output exceeds the limit. Dropping it stops the
//! request or the program, so there is one way to stop a call, whatever the reason.

use crate::output::{failed_output, output_too_large};
use crate::output_parser::ToolOutputParser;
use bytes::Bytes;
use futures_util::stream;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{BoxStream, Clock};
use model::seq::Millis;
use model::tool::{ToolEvent, ToolOutput};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Timers are not set further ahead than this.
const DEADLINE_MS_MAX: Millis = 365 * 24 * 60 * 60 * 1000;

/// A response body or the output of a program.
pub(crate) trait ByteSource: Send + 'static {
    /// `None` after the last chunk of a call that succeeded.
    fn next_chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, ErrorInfo>> + Send;
}

pub(crate) struct CallDeadline {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) at_ms: Millis,
}

/// A call that has started, and the parser for its output.
pub(crate) struct ToolResponse<S> {
    pub(crate) source: S,
    pub(crate) parser: ToolOutputParser,
}

/// Nothing starts before the stream is polled.
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
    /// The events that are left, then the last one.
    Ending(VecDeque<ToolEvent>, Box<ToolEvent>),
    Finished,
}

struct ActiveDeadline {
    at: Instant,
    timeout_ms: Millis,
}

async fn next_event<S: ByteSource>(mut state: StreamState<S>) -> Option<(ToolEvent, StreamState<S>)> {
    loop {
        let step = match state {
            StreamState::Starting(deadline, start) => start_source(deadline, start).await,
            StreamState::Reading(mut response, deadline) => match response.parser.next_event() {
                Some(event) => return Some((event, StreamState::Reading(response, deadline))),
                None => read_next_chunk(response, deadline).await,
            },
            StreamState::Ending(mut events, last) => match events.pop_front() {
                Some(event) => return Some((event, StreamState::Ending(events, last))),
                None => StreamStep::End(*last),
            },
            StreamState::Finished => return None,
        };
        match step {
            StreamStep::Continue(next) => state = next,
            StreamStep::End(event) => return Some((event, StreamState::Finished)),
        }
    }
}

enum StreamStep<S> {
    Continue(StreamState<S>),
    /// The last event.
    End(ToolEvent),
}

async fn start_source<S: ByteSource>(deadline: CallDeadline, start: StartFuture<S>) -> StreamStep<S> {
    let timeout_ms = deadline.at_ms.saturating_sub(deadline.clock.now()).min(DEADLINE_MS_MAX);
    let deadline = ActiveDeadline { at: Instant::now() + Duration::from_millis(timeout_ms), timeout_ms };
    if timeout_ms == 0 {
        return StreamStep::End(ToolEvent::End(timeout_output(&deadline)));
    }
    match timeout_at(deadline.at, start).await {
        Ok(Ok(response)) => StreamStep::Continue(StreamState::Reading(Box::new(response), deadline)),
        Ok(Err(error)) => StreamStep::End(ToolEvent::End(failed_output(error))),
        Err(_) => StreamStep::End(ToolEvent::End(timeout_output(&deadline))),
    }
}

/// Ending the stream drops the source, which stops the call.
async fn read_next_chunk<S: ByteSource>(mut response: Box<ToolResponse<S>>, deadline: ActiveDeadline) -> StreamStep<S> {
    match timeout_at(deadline.at, response.source.next_chunk()).await {
        Ok(Ok(Some(chunk))) => match response.parser.push(&chunk) {
            Ok(()) => StreamStep::Continue(StreamState::Reading(response, deadline)),
            Err(error) => StreamStep::End(ToolEvent::End(failed_output(error))),
        },
        Ok(Ok(None)) => {
            let (events, last) = response.parser.finish();
            StreamStep::Continue(StreamState::Ending(events, Box::new(last)))
        }
        Ok(Err(error)) => StreamStep::End(ToolEvent::End(failed_output(error))),
        Err(_) => StreamStep::End(ToolEvent::End(timeout_output(&deadline))),
    }
}

/// Reads a source whole, up to `bytes_max`.
pub(crate) async fn read_to_end(mut source: impl ByteSource, bytes_max: usize) -> Result<Vec<u8>, ErrorInfo> {
    let mut bytes = Vec::new();
    while let Some(chunk) = source.next_chunk().await? {
        if bytes.len().saturating_add(chunk.len()) > bytes_max {
            return Err(output_too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn timeout_output(deadline: &ActiveDeadline) -> ToolOutput {
    ToolOutput::failed(
        ErrorCode::ToolTimeout,
        format!("The tool did not finish within {} ms and was stopped.", deadline.timeout_ms),
    )
}
