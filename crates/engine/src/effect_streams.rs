//! Models, tools and files as streams of inputs. A stream that ends without its final event becomes a failure.

use futures_util::FutureExt as _;
use machine::{EffectId, MachineInput};
use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::{BoxFuture, BoxStream, FileReadOutcome, ModelClient};
use model::tool::{ToolEvent, ToolOutput};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A model turn that starts after a wait. Dropping it before that leaves nothing behind.
pub(crate) fn delayed_turn(
    wait: Duration,
    models: Arc<dyn ModelClient>,
    request: ModelRequest,
) -> BoxStream<'static, ModelEvent> {
    let due = sleep_until(Instant::now() + wait);
    let started = async move {
        due.await;
        models.stream_turn(request)
    };
    Box::pin(started.flatten_stream())
}

/// The running effects of a thread. There are few, so all are polled whenever one wakes.
#[derive(Default)]
pub(crate) struct EffectStreams {
    streams: Vec<EffectStream>,
    /// Whether one started or was stopped since the last [`EffectStreams::take_changed`].
    is_changed: bool,
}

impl EffectStreams {
    pub(crate) fn push_model(&mut self, id: EffectId, events: BoxStream<'static, ModelEvent>) {
        self.push(id, EffectSource::Model(events));
    }

    pub(crate) fn push_tool(&mut self, id: EffectId, events: BoxStream<'static, ToolEvent>, timeout: Duration) {
        let deadline = Box::pin(sleep_until(Instant::now() + timeout));
        self.push(id, EffectSource::Tool { events, deadline, timeout, open_question: None });
    }

    /// The question of a tool is answered: its time goes on.
    pub(crate) fn resume_tool(&mut self, id: &EffectId, question: &str) {
        let stream = self.streams.iter_mut().find(|stream| stream.id == *id);
        if let Some(EffectSource::Tool { deadline, open_question, .. }) = stream.map(|stream| &mut stream.source)
            && open_question.as_ref().is_some_and(|open| open.id == question)
        {
            extend_deadline(deadline, open_question);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream started or was stopped: then those that are polled by index may have moved.
    pub(crate) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    pub(crate) fn push_file(&mut self, id: EffectId, answer: BoxFuture<'static, FileReadOutcome>) {
        self.push(id, EffectSource::File(answer));
    }

    fn push(&mut self, id: EffectId, source: EffectSource) {
        self.streams.push(EffectStream { id, source });
        self.is_changed = true;
    }

    /// Dropping the source stops the effect.
    pub(crate) fn abort(&mut self, id: &EffectId) {
        self.streams.retain(|stream| stream.id != *id);
        self.is_changed = true;
    }

    /// The next input of the stream at this index, which is dropped after its final event.
    pub(crate) fn poll_stream(&mut self, index: usize, cx: &mut Context<'_>) -> Poll<MachineInput> {
        let Some(stream) = self.streams.get_mut(index) else { return Poll::Pending };
        let polled = stream.poll(cx);
        if let Poll::Ready(input) = &polled
            && is_final_input(input)
        {
            self.streams.remove(index);
            self.is_changed = true;
        }
        polled
    }
}

const fn is_final_input(input: &MachineInput) -> bool {
    matches!(
        input,
        MachineInput::Model { event: ModelEvent::End(_) | ModelEvent::Failed(_), .. }
            | MachineInput::Tool { event: ToolEvent::End(_) | ToolEvent::InputRequired(_) | ToolEvent::Lost(_), .. }
            | MachineInput::File { .. }
    )
}

struct EffectStream {
    id: EffectId,
    source: EffectSource,
}

enum EffectSource {
    Model(BoxStream<'static, ModelEvent>),
    Tool {
        events: BoxStream<'static, ToolEvent>,
        deadline: Pin<Box<Sleep>>,
        timeout: Duration,
        /// What the tool waits for. Meanwhile its time stands still.
        open_question: Option<OpenQuestion>,
    },
    File(BoxFuture<'static, FileReadOutcome>),
}

struct OpenQuestion {
    /// The tool's name of it.
    id: String,
    asked_at: Instant,
}

impl EffectStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<MachineInput> {
        // Most polls find nothing, so the id is cloned only for an input.
        let id = || self.id.clone();
        match &mut self.source {
            EffectSource::Model(events) => events
                .as_mut()
                .poll_next(cx)
                .map(|event| MachineInput::Model { id: id(), event: event.unwrap_or_else(truncated_model_stream) }),
            EffectSource::Tool { events, deadline, timeout, open_question } => match events.as_mut().poll_next(cx) {
                Poll::Ready(event) => {
                    let event = event.unwrap_or_else(truncated_tool_stream);
                    match &event {
                        ToolEvent::Question(asked) => {
                            *open_question = Some(OpenQuestion { id: asked.id.clone(), asked_at: Instant::now() });
                        }
                        ToolEvent::QuestionWithdrawn => extend_deadline(deadline, open_question),
                        _ => {}
                    }
                    Poll::Ready(MachineInput::Tool { id: id(), event })
                }
                Poll::Pending if open_question.is_some() => Poll::Pending,
                Poll::Pending => deadline.as_mut().poll(cx).map(|()| {
                    let message = format!("The tool did not end within {} ms and was stopped.", timeout.as_millis());
                    MachineInput::Tool {
                        id: id(),
                        event: ToolEvent::End(ToolOutput::failed(ErrorCode::ToolTimeout, message)),
                    }
                }),
            },
            EffectSource::File(answer) => {
                answer.as_mut().poll(cx).map(|answer| MachineInput::File { id: id(), answer })
            }
        }
    }
}

/// The time that a person took does not count for the tool.
fn extend_deadline(deadline: &mut Pin<Box<Sleep>>, question: &mut Option<OpenQuestion>) {
    if let Some(question) = question.take() {
        let at = deadline.deadline() + question.asked_at.elapsed();
        deadline.as_mut().reset(at);
    }
}

fn truncated_model_stream() -> ModelEvent {
    let mut error = ErrorInfo::new(ErrorCode::ProviderError, "The provider's answer broke off.");
    error.retryable = Some(true);
    ModelEvent::Failed(ModelFailure { error, retry_after_ms: None })
}

fn truncated_tool_stream() -> ToolEvent {
    ToolEvent::End(ToolOutput::failed(ErrorCode::ToolError, "The tool ended without a result."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, stream};
    use model::CallId;
    use model::event::Question;
    use model::question::ToolQuestion;
    use std::future::poll_fn;
    use tokio::time::timeout;

    async fn next(streams: &mut EffectStreams) -> MachineInput {
        poll_fn(|cx| streams.poll_stream(0, cx)).await
    }

    /// The time that people take does not count, and the rest of the tool's own time does.
    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_tool_stands_still_while_its_question_is_open() {
        let mut streams = EffectStreams::default();
        let id = EffectId::Tool { call: CallId::from("call_1"), attempt: 1 };
        let asked = ToolQuestion { id: "q".to_owned(), question: Question::default() };
        let events = stream::iter([ToolEvent::Question(asked)]).chain(stream::pending());
        streams.push_tool(id.clone(), Box::pin(events), Duration::from_secs(60));
        let asked = next(&mut streams).await;
        assert!(matches!(asked, MachineInput::Tool { event: ToolEvent::Question(_), .. }), "{asked:?}");
        let hours = Duration::from_secs(7200);
        assert!(timeout(hours, next(&mut streams)).await.is_err(), "people may think");
        streams.resume_tool(&id, "another");
        assert!(timeout(hours, next(&mut streams)).await.is_err(), "that was another question");
        streams.resume_tool(&id, "q");
        assert!(timeout(Duration::from_secs(59), next(&mut streams)).await.is_err(), "it still has its minute");
        let ended = timeout(Duration::from_secs(2), next(&mut streams)).await.expect("its time is up");
        assert!(matches!(ended, MachineInput::Tool { event: ToolEvent::End(_), .. }), "{ended:?}");
        assert!(streams.is_empty());
    }
}
