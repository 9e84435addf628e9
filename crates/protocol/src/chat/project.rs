//! A segment of a run as an answer of this protocol.
//!
//! There is one text: what the model says between its tools is joined by blank lines, and so is what it thinks
//! (`reasoning_content`). The protocol has no words for tools that the server runs: nothing is told of them, and
//! `tool_calls` is for tools of the client's own. What the text refers to comes at its end, all at once, for clients
//! cannot collect it piece by piece.

use crate::burst::Burst;
use crate::stateless::telling::{End, Part, Telling, Told};
use crate::stateless::{Failure, FailureKind, name};
use model::block::{Annotation, JsonObject};
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{Record, TaskId};
use serde_json::{Value, json};

/// What stands between two messages, or two thoughts.
const BETWEEN: &str = "\n\n";

/// One segment of a run as a completion.
#[derive(Clone, Debug)]
pub struct Answer {
    telling: Telling,
    include_usage: bool,
}

/// Where a part's text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Content,
    Refusal,
    Reasoning,
}

impl Channel {
    const fn field(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Refusal => "refusal",
            Self::Reasoning => "reasoning_content",
        }
    }
}

impl Answer {
    /// The `segment`-th answer of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    #[must_use]
    pub fn new(run: TaskId, segment: u32, include_usage: bool) -> Self {
        Self { telling: Telling::new(run, segment), include_usage }
    }

    /// Has all been told?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.telling.end().is_some()
    }

    /// Why there is no answer, where there is none.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.telling.failure()
    }

    /// The completion as far as it is: what a client collects from the chunks, without what was cut and said anew.
    #[must_use]
    pub fn object(&self) -> Value {
        let parts: Vec<&Part> = self.telling.kept().collect();
        let mut message = JsonObject::new();
        message.insert("role".to_owned(), "assistant".into());
        for channel in [Channel::Content, Channel::Refusal] {
            message.insert(channel.field().to_owned(), self.joined(&parts, channel).map_or(Value::Null, Value::String));
        }
        if let Some(thoughts) = self.joined(&parts, Channel::Reasoning) {
            message.insert(Channel::Reasoning.field().to_owned(), thoughts.into());
        }
        let annotations = self.annotations(&parts);
        if !annotations.is_empty() {
            message.insert("annotations".to_owned(), annotations.into());
        }
        let calls: Vec<Value> = parts.iter().filter_map(|part| call(part)).collect();
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish_reason()});
        let mut object = self.envelope("chat.completion", &[choice]);
        object.insert("usage".to_owned(), tokens(self.telling.usage()));
        Value::Object(object)
    }

    fn envelope(&self, kind: &str, choices: &[Value]) -> JsonObject {
        let (run, segment) = self.telling.run();
        let mut envelope = JsonObject::new();
        envelope.insert("id".to_owned(), name("chatcmpl-", run, segment).into());
        envelope.insert("object".to_owned(), kind.into());
        envelope.insert("created".to_owned(), (self.telling.began() / 1_000).into());
        envelope.insert("model".to_owned(), self.telling.model().into());
        envelope.insert("choices".to_owned(), choices.into());
        envelope
    }

    fn finish_reason(&self) -> Option<&'static str> {
        match self.telling.end()? {
            End::Done | End::Refused => Some("stop"),
            End::Calls => Some("tool_calls"),
            End::Length => Some("length"),
            End::Filtered => Some("content_filter"),
            End::Failed(_) => None,
        }
    }

    fn channel(&self, part: &Part) -> Option<Channel> {
        match part {
            Part::Thought { .. } => Some(Channel::Reasoning),
            Part::Words { .. } => match self.telling.words(part).and_then(|block| block.refusal) {
                Some(true) => Some(Channel::Refusal),
                _ => Some(Channel::Content),
            },
            Part::Picture { .. } => Some(Channel::Content),
            Part::Call { .. } | Part::Used { .. } | Part::Given { .. } => None,
        }
    }

    fn joined(&self, parts: &[&Part], channel: Channel) -> Option<String> {
        let of_channel = parts.iter().filter(|part| self.channel(part) == Some(channel));
        let texts: Vec<String> = of_channel.map(|part| self.telling.text(part)).collect();
        (!texts.is_empty()).then(|| texts.join(BETWEEN))
    }

    /// What the content refers to; places are counted in the whole of it.
    fn annotations(&self, parts: &[&Part]) -> Vec<Value> {
        let mut all = Vec::new();
        let mut begins = 0_usize;
        for part in parts.iter().filter(|part| self.channel(part) == Some(Channel::Content)) {
            let cited = self.telling.words(part).and_then(|block| block.annotations.as_deref()).unwrap_or_default();
            all.extend(cited.iter().filter_map(|cited| self.annotation(cited, begins)));
            begins += self.telling.text(part).chars().count() + BETWEEN.len();
        }
        all
    }

    fn annotation(&self, cited: &Annotation, begins: usize) -> Option<Value> {
        let (url, title, start, end) = match cited {
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                (url.clone(), title.clone().unwrap_or_default(), *start_index, *end_index)
            }
            Annotation::ReferenceToBlock { reference_id, start_index, end_index } => {
                (self.telling.reference(*reference_id), format!("[{reference_id}]"), *start_index, *end_index)
            }
            // This protocol refers to addresses alone.
            Annotation::FileCitation { .. } => return None,
        };
        let (start, end) = (begins + start as usize, begins + end as usize);
        let citation = json!({"url": url, "title": title, "start_index": start, "end_index": end});
        Some(json!({"type": "url_citation", "url_citation": citation}))
    }

    fn frame(&self, told: &Told, out: &mut Burst) {
        match told {
            Told::Begun => self.chunk(&json!({"role": "assistant", "content": null}), out),
            Told::Opened(place) => self.opened(*place, out),
            Told::Grew(place, more) => {
                let part = self.telling.part(*place).map(|shown| &shown.part);
                if let Some(channel) = part.and_then(|part| self.channel(part)) {
                    self.chunk(&json!({ channel.field(): more }), out);
                }
            }
            Told::Cited(..) | Told::Closed(_) => {}
            Told::Over => self.over(out),
        }
    }

    fn opened(&self, place: usize, out: &mut Burst) {
        let Some(part) = self.telling.part(place).map(|shown| &shown.part) else { return };
        if let Some(channel) = self.channel(part)
            && self.telling.before(place).any(|before| self.channel(before) == Some(channel))
        {
            self.chunk(&json!({ channel.field(): BETWEEN }), out);
        }
        match part {
            Part::Picture { .. } => self.chunk(&json!({"content": self.telling.text(part)}), out),
            Part::Call { call_id, name, arguments } => {
                let index = self.telling.before(place).filter(|part| matches!(part, Part::Call { .. })).count();
                let function = json!({"name": name, "arguments": ""});
                let head = json!({"index": index, "id": call_id, "type": "function", "function": function});
                self.chunk(&json!({"tool_calls": [head]}), out);
                let more = json!({"index": index, "function": {"arguments": arguments}});
                self.chunk(&json!({"tool_calls": [more]}), out);
            }
            Part::Thought { .. } | Part::Words { .. } | Part::Used { .. } | Part::Given { .. } => {}
        }
    }

    fn over(&self, out: &mut Burst) {
        if let Some(failure) = self.failure() {
            let (kind, code) = match failure.kind {
                FailureKind::RateLimited => ("rate_limit_error", "rate_limited"),
                FailureKind::Overloaded => ("server_error", "overloaded"),
                FailureKind::Cancelled => ("server_error", "cancelled"),
                FailureKind::Other => ("server_error", "run_failed"),
            };
            let error = json!({"message": failure.message, "type": kind, "param": null, "code": code});
            out.push("", &json!({ "error": error }));
            return;
        }
        let parts: Vec<&Part> = self.telling.told().collect();
        let annotations = self.annotations(&parts);
        if !annotations.is_empty() {
            self.chunk(&json!({ "annotations": annotations }), out);
        }
        let choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": self.finish_reason()});
        self.choices(&[choice], Value::Null, out);
        if self.include_usage {
            self.choices(&[], tokens(self.telling.usage()), out);
        }
    }

    fn chunk(&self, delta: &Value, out: &mut Burst) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        self.choices(&[choice], Value::Null, out);
    }

    fn choices(&self, choices: &[Value], usage: Value, out: &mut Burst) {
        let mut chunk = self.envelope("chat.completion.chunk", choices);
        if self.include_usage {
            chunk.insert("usage".to_owned(), usage);
        }
        // These events have no name.
        out.push("", &chunk);
    }
}

impl Projection for Answer {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let told = self.telling.take(record);
        let mut burst = Burst::default();
        told.iter().for_each(|told| self.frame(told, &mut burst));
        burst.write_without_ids(record, out);
        if self.is_over() {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

fn call(part: &Part) -> Option<Value> {
    let Part::Call { call_id, name, arguments } = part else { return None };
    Some(json!({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// What it cost.
fn tokens(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
