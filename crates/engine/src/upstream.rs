//! Models and tools as streams of inputs. A stream that ends without its last word has failed, and says so.

use futures_core::Stream;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::SelectAll;
use machine::{EffectId, Input};
use model::delta::{ModelEvent, ModelFailure};
use model::event::ErrorInfo;
use model::ports::BoxStream;
use model::tool::{ToolEvent, ToolOutput};
use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Everything that a thread listens to.
#[derive(Default)]
pub(crate) struct Upstreams {
    streams: SelectAll<Abortable<Upstream>>,
    handles: HashMap<EffectId, AbortHandle>,
}

impl Upstreams {
    pub(crate) fn listen_to_model(&mut self, id: EffectId, events: BoxStream<'static, ModelEvent>) {
        self.listen(id, Source::Model(events));
    }

    pub(crate) fn listen_to_tool(&mut self, id: EffectId, events: BoxStream<'static, ToolEvent>, within: Duration) {
        let deadline = Box::pin(sleep_until(Instant::now() + within));
        self.listen(id, Source::Tool { events, deadline, within });
    }

    fn listen(&mut self, id: EffectId, source: Source) {
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id.clone(), handle);
        self.streams.push(Abortable::new(Upstream { id, source: Some(source) }, registration));
    }

    pub(crate) fn abort(&mut self, id: &EffectId) {
        if let Some(handle) = self.handles.remove(id) {
            handle.abort();
        }
    }

    /// Takes what has come, at most `max`.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>, max: usize, into: &mut Vec<Input>) -> Poll<()> {
        while into.len() < max {
            match Pin::new(&mut self.streams).poll_next(cx) {
                Poll::Ready(Some(input)) => {
                    if let Some(id) = ended(&input) {
                        self.handles.remove(id);
                    }
                    into.push(input);
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if into.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// The effect that an input is the last word of.
fn ended(input: &Input) -> Option<&EffectId> {
    match input {
        Input::Model { id, event: ModelEvent::End(_) | ModelEvent::Failed(_) }
        | Input::Tool { id, event: ToolEvent::End(_) } => Some(id),
        _ => None,
    }
}

struct Upstream {
    id: EffectId,
    /// Gone after its last word: dropping a source stops it.
    source: Option<Source>,
}

enum Source {
    Model(BoxStream<'static, ModelEvent>),
    Tool { events: BoxStream<'static, ToolEvent>, deadline: Pin<Box<Sleep>>, within: Duration },
}

impl Stream for Upstream {
    type Item = Input;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        let id = self.id.clone();
        let input = match &mut self.source {
            None => return Poll::Ready(None),
            Some(Source::Model(events)) => match events.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(event) => Input::Model { id, event: event.unwrap_or_else(model_broke_off) },
            },
            Some(Source::Tool { events, deadline, within }) => match events.as_mut().poll_next(cx) {
                Poll::Ready(event) => Input::Tool { id, event: event.unwrap_or_else(tool_broke_off) },
                Poll::Pending if deadline.as_mut().poll(cx).is_ready() => {
                    let message = format!("The tool did not end within {} ms and was stopped.", within.as_millis());
                    Input::Tool { id, event: ToolEvent::End(ToolOutput::failed("tool_timeout", message)) }
                }
                Poll::Pending => return Poll::Pending,
            },
        };
        if ended(&input).is_some() {
            self.source = None;
        }
        Poll::Ready(Some(input))
    }
}

fn model_broke_off() -> ModelEvent {
    let mut error = ErrorInfo::new("provider_error", "The provider's answer broke off.");
    error.retryable = Some(true);
    ModelEvent::Failed(ModelFailure { error, retry_after_ms: None })
}

fn tool_broke_off() -> ToolEvent {
    ToolEvent::End(ToolOutput::failed("tool_error", "The tool ended without a result."))
}
