//! The protocols of viewers: how to open a stream, to go on from a cursor, and to recognise its end.

use crate::http_client::{ApiRequest, StreamEvent};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Task,
    Thread,
    RunItems,
    Responses,
    AgentRuns,
    /// No cursor: the request that started the run is sent again, with its idempotency key, and gets the whole stream.
    Messages,
    Chat,
}

/// The protocols in which every run can be watched.
pub(crate) const WATCHED: [Protocol; 5] =
    [Protocol::Task, Protocol::Thread, Protocol::RunItems, Protocol::Responses, Protocol::AgentRuns];

/// A run that a node has acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcknowledgedRun {
    pub(crate) number: usize,
    pub(crate) task: String,
    pub(crate) thread: String,
    /// The request that started it.
    pub(crate) start: ApiRequest,
}

impl AcknowledgedRun {
    /// The id without its prefix, which other protocols share.
    fn bare_id(&self) -> &str {
        self.task.strip_prefix("task_").unwrap_or(&self.task)
    }
}

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Thread => "thread",
            Self::RunItems => "run items",
            Self::Responses => "responses",
            Self::AgentRuns => "agent runs",
            Self::Messages => "messages",
            Self::Chat => "chat completions",
        }
    }

    pub(crate) const fn has_cursors(self) -> bool {
        !matches!(self, Self::Messages | Self::Chat)
    }

    /// The request for the stream of a run, from its beginning or after a cursor.
    pub(crate) fn request(self, run: &AcknowledgedRun, cursor: Option<&str>) -> ApiRequest {
        let path = match self {
            Self::Task => format!("/v1/tasks/{}/events", run.task),
            Self::Thread => format!("/v1/threads/{}/events", run.thread),
            Self::RunItems => format!("/v1/tasks/{}/events?format=run-items", run.task),
            Self::AgentRuns => format!("/api/v1/agent/runs/{}/events", run.thread),
            Self::Responses => {
                let after = cursor.map(|cursor| format!("&starting_after={cursor}")).unwrap_or_default();
                return ApiRequest::get(format!("/v1/responses/resp_{}?stream=true{after}", run.bare_id()));
            }
            Self::Messages | Self::Chat => return run.start.clone(),
        };
        ApiRequest { last_event_id: cursor.map(str::to_owned), ..ApiRequest::get(path) }
    }

    /// Where to go on after an event; none if the client cannot tell.
    pub(crate) fn cursor_after(self, event: &StreamEvent) -> Option<String> {
        match self {
            Self::Responses => {
                let data: Value = serde_json::from_str(&event.data).ok()?;
                data.get("sequence_number").and_then(Value::as_u64).map(|number| number.to_string())
            }
            Self::Messages | Self::Chat => None,
            _ => Some(event.id.clone()).filter(|id| !id.is_empty()),
        }
    }

    /// Whether the event is one of the log: `[DONE]` belongs to the connection.
    pub(crate) fn is_frame(self, event: &StreamEvent) -> bool {
        event.data != "[DONE]" || self == Self::Chat
    }

    /// Whether a stream of the run has nothing after this event.
    pub(crate) fn is_last(self, run: &AcknowledgedRun, event: &StreamEvent) -> bool {
        let of_run = |member: &str| event.data.contains(&format!("\"{member}\":\"{}\"", run.task));
        match self {
            Self::Task | Self::Thread => is_terminal(&event.name) && of_run("task_id"),
            Self::RunItems => event.name == "run_ended",
            Self::Responses => {
                matches!(event.name.as_str(), "response.completed" | "response.incomplete" | "response.failed")
            }
            Self::AgentRuns => matches!(event.name.as_str(), "RUN_FINISHED" | "RUN_ERROR") && of_run("runId"),
            Self::Messages => matches!(event.name.as_str(), "message_stop" | "error"),
            Self::Chat => event.data == "[DONE]" || event.data.starts_with("{\"error\""),
        }
    }
}

pub(crate) fn is_terminal(event: &str) -> bool {
    matches!(event, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled")
}

/// How a run is started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StartMethod {
    Task,
    /// `"wait": true`: the answer comes when the run has ended.
    TaskWait,
    TaskStream,
    ResponsesStream,
    ResponsesBackground,
    MessagesStream,
    ChatStream,
}

impl StartMethod {
    /// The request, which may be sent to any node any number of times.
    pub(crate) fn request(self, input: &str, key: String) -> ApiRequest {
        let native = |body: Value| ApiRequest::post("/v1/tasks", body);
        let messages = json!([{"role": "user", "content": input}]);
        let request = match self {
            Self::Task => native(json!({"model": "writer", "input": input})),
            Self::TaskWait => native(json!({"model": "writer", "input": input, "wait": true})),
            Self::TaskStream => native(json!({"model": "writer", "input": input, "stream": true})),
            Self::ResponsesStream | Self::ResponsesBackground => {
                let is_stream = self == Self::ResponsesStream;
                let body = json!({"model": "writer", "input": input, "stream": is_stream, "background": !is_stream});
                ApiRequest::post("/v1/responses", body)
            }
            Self::MessagesStream => {
                let body = json!({"model": "writer", "max_tokens": 10_000, "stream": true, "messages": messages});
                ApiRequest::post("/v1/messages", body)
            }
            Self::ChatStream => ApiRequest::post(
                "/v1/chat/completions",
                json!({"model": "writer", "stream": true, "messages": messages}),
            ),
        };
        request.with_key(key)
    }

    /// The protocol of the stream that answers; none for an answer without a stream.
    pub(crate) const fn stream_protocol(self) -> Option<Protocol> {
        match self {
            Self::Task | Self::TaskWait | Self::ResponsesBackground => None,
            Self::TaskStream => Some(Protocol::Task),
            Self::ResponsesStream => Some(Protocol::Responses),
            Self::MessagesStream => Some(Protocol::Messages),
            Self::ChatStream => Some(Protocol::Chat),
        }
    }

    /// The id of the run, from an answer or from the first event of a stream.
    pub(crate) fn task_id(self, answer: &Value) -> Option<String> {
        let (pointer, prefix) = match self {
            Self::Task | Self::TaskWait | Self::TaskStream => ("/task_id", "task_"),
            Self::ResponsesStream => ("/response/id", "resp_"),
            Self::ResponsesBackground => ("/id", "resp_"),
            Self::MessagesStream => ("/message/id", "msg_"),
            Self::ChatStream => ("/id", "chatcmpl-"),
        };
        let bare = answer.pointer(pointer)?.as_str()?.strip_prefix(prefix)?;
        Some(format!("task_{bare}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &Value) -> StreamEvent {
        StreamEvent { id: "a-1".into(), name: name.into(), data: data.to_string() }
    }

    #[test]
    fn only_the_end_of_the_run_itself_is_the_last_event() {
        let start = ApiRequest::default();
        let run = AcknowledgedRun { number: 1, task: "task_1".into(), thread: "thr_1".into(), start };
        let mine = event("task.completed", &json!({"task_id": "task_1"}));
        assert!(Protocol::Thread.is_last(&run, &mine));
        assert!(!Protocol::Thread.is_last(&run, &event("task.completed", &json!({"task_id": "call_1"}))));
        assert!(!Protocol::Task.is_last(&run, &event("task.paused", &json!({"task_id": "task_1"}))));
    }

    #[test]
    fn responses_are_resumed_by_number_and_others_by_id() {
        let numbered = event("response.created", &json!({"sequence_number": 3}));
        assert_eq!(Protocol::Responses.cursor_after(&numbered), Some("3".to_owned()));
        assert_eq!(Protocol::Task.cursor_after(&numbered), Some("a-1".to_owned()));
        assert_eq!(Protocol::Chat.cursor_after(&numbered), None);
    }

    #[test]
    fn every_protocol_names_the_same_run() {
        let ids = [
            StartMethod::TaskStream.task_id(&json!({"task_id": "task_7"})),
            StartMethod::ResponsesStream.task_id(&json!({"response": {"id": "resp_7"}})),
            StartMethod::MessagesStream.task_id(&json!({"message": {"id": "msg_7"}})),
            StartMethod::ChatStream.task_id(&json!({"id": "chatcmpl-7"})),
        ];
        assert!(ids.iter().all(|id| id.as_deref() == Some("task_7")), "{ids:?}");
    }
}
