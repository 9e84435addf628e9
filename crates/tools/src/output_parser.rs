//! Splits the bytes of a tool into events, one JSON object per line, and its result.
//!
//! A line that begins with `{` and is a `text`, `image`, `progress`, `state` or `custom` object is an event and is emitted
//! immediately. The last `question` stands for the result: the tool is called again with the answer. Every other line belongs
//! to the result, and so does an unterminated last line, unless it is a piece like others before it. The nested lines of a
//! pretty-printed result are indented, so they are never mistaken for events. Of a stream of server-sent events, `data` is
//! such a line.

use crate::output::{self, failed_output, output_too_large};
use crate::pieces::{ImageLine, PieceReader, TextLine};
use crate::question_line::QuestionLine;
use crate::secrets::CallSecrets;
use model::error::ErrorInfo;
use model::json::JsonObject;
use model::limits::RECORD_BYTES_MAX;
use model::question::InputRequired;
use model::tool::{ProgressUpdate, StateChange, ToolEvent};
use serde::Deserialize;
use serde_json::Value;
use sse::{DecodeLimits, Decoder, SseEvent};
use std::collections::VecDeque;
use std::sync::Arc;

/// An event has to fit a record together with the record's other fields.
const EVENT_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// The last event of services that mark the end of a stream.
const END_OF_STREAM: &str = "[DONE]";

/// Takes chunks of any size.
pub(crate) struct ToolOutputParser {
    mode: ParseMode,
    /// The current, unterminated line.
    line: Vec<u8>,
    result: Vec<u8>,
    events: VecDeque<ToolEvent>,
    pieces: PieceReader,
    question: Option<InputRequired>,
    received_bytes: usize,
    bytes_max: usize,
    result_pointer: Option<String>,
    secrets: Arc<CallSecrets>,
}

enum ParseMode {
    EventLines,
    ServerSentEvents(Box<Decoder>),
    ResultOnly,
}

impl ToolOutputParser {
    /// Events line by line, then a result. `bytes_max` bounds their sum. The secrets of the call are redacted: what a tool
    /// returns is stored and shown.
    pub(crate) fn new(bytes_max: usize, secrets: Arc<CallSecrets>) -> Self {
        Self {
            mode: ParseMode::EventLines,
            line: Vec::new(),
            result: Vec::new(),
            events: VecDeque::new(),
            pieces: PieceReader::new(Arc::clone(&secrets)),
            question: None,
            received_bytes: 0,
            bytes_max,
            result_pointer: None,
            secrets,
        }
    }

    /// Everything is the result.
    pub(crate) fn result_only(bytes_max: usize, secrets: Arc<CallSecrets>) -> Self {
        Self { mode: ParseMode::ResultOnly, ..Self::new(bytes_max, secrets) }
    }

    /// The data of each event is a line.
    pub(crate) fn server_sent_events(bytes_max: usize, secrets: Arc<CallSecrets>) -> Self {
        let decoder = Decoder::new(DecodeLimits { line_bytes_max: bytes_max, event_bytes_max: bytes_max });
        Self { mode: ParseMode::ServerSentEvents(Box::new(decoder)), ..Self::new(bytes_max, secrets) }
    }

    /// Reduces the result to what this JSON pointer names.
    pub(crate) fn with_result_pointer(self, pointer: Option<String>) -> Self {
        Self { result_pointer: pointer, ..self }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), ErrorInfo> {
        self.received_bytes = self.received_bytes.saturating_add(chunk.len());
        if self.received_bytes > self.bytes_max {
            return Err(output_too_large(self.bytes_max));
        }
        match &mut self.mode {
            ParseMode::ResultOnly => self.result.extend_from_slice(chunk),
            ParseMode::ServerSentEvents(decoder) => {
                let (mut rest, mut lines) = (chunk, Vec::new());
                while let Some(event) = decoder.decode(&mut rest).map_err(|_| output_too_large(self.bytes_max))? {
                    lines.extend(event_line(&event));
                }
                for line in lines {
                    self.line = line.into_bytes();
                    self.end_line()?;
                }
            }
            ParseMode::EventLines => {
                for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                    self.line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        self.end_line()?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn next_event(&mut self) -> Option<ToolEvent> {
        self.events.pop_front()
    }

    /// Ends the input and parses the result: the last event. Returns those that are left before it, too.
    pub(crate) fn finish(mut self) -> (VecDeque<ToolEvent>, ToolEvent) {
        let has_lines = !matches!(self.mode, ParseMode::ResultOnly);
        let is_question = has_lines && matches!(parse_line(&self.line, &self.secrets), Some(EventLine::Question(_)));
        if (is_question || self.pieces.has_pieces()) && self.end_line().is_err() {
            let limit = self.bytes_max;
            return (self.events, ToolEvent::End(failed_output(output_too_large(limit))));
        }
        self.pieces.flush(&mut self.events);
        if let Some(question) = self.question {
            return (self.events, ToolEvent::InputRequired(question));
        }
        self.result.append(&mut self.line);
        let text = self.secrets.redact_json(&String::from_utf8_lossy(&self.result));
        let parse = if self.pieces.has_pieces() { output::parse_rest } else { output::parse_output };
        let output = parse(&text, self.result_pointer.as_deref()).unwrap_or_else(failed_output);
        (self.events, ToolEvent::End(output))
    }

    fn end_line(&mut self) -> Result<(), ErrorInfo> {
        let line = std::mem::take(&mut self.line);
        let is_event = match parse_line(&line, &self.secrets) {
            // Pieces are cut to fit records, and images stored elsewhere.
            Some(EventLine::Text(piece)) => {
                self.pieces.push_text(&piece, &mut self.events);
                true
            }
            Some(EventLine::Image(image)) => self.pieces.push_image(&image, &mut self.events),
            Some(EventLine::Question(_)) if line.len() > EVENT_BYTES_MAX => {
                return Err(output_too_large(EVENT_BYTES_MAX));
            }
            Some(EventLine::Question(question)) => {
                self.question = Some(question.into_input_required());
                true
            }
            Some(other) => match other.into_event() {
                Some(_) if line.len() > EVENT_BYTES_MAX => return Err(output_too_large(EVENT_BYTES_MAX)),
                Some(event) => {
                    self.events.push_back(event);
                    true
                }
                None => false,
            },
            None => false,
        };
        if !is_event {
            self.result.extend_from_slice(&line);
        }
        Ok(())
    }
}

/// The data of an event as a line. An event may have its type as its name instead.
fn event_line(event: &SseEvent) -> Option<String> {
    const TYPES: [&str; 6] = ["text", "image", "progress", "state", "custom", "question"];
    if event.data.is_empty() || event.data == END_OF_STREAM {
        return None;
    }
    let named = event.event.as_deref().filter(|name| TYPES.contains(name)).and_then(|name| {
        let mut object: JsonObject = serde_json::from_str(&event.data).ok()?;
        object.entry("type").or_insert_with(|| name.into());
        Some(Value::Object(object).to_string())
    });
    Some(named.unwrap_or_else(|| event.data.clone()) + "\n")
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventLine {
    Text(TextLine),
    Image(ImageLine),
    Question(QuestionLine),
    Progress(ProgressUpdate),
    State(StateLine),
    Custom {
        name: String,
        #[serde(default)]
        value: Value,
    },
}

#[derive(Deserialize)]
struct StateLine {
    snapshot: Option<Value>,
    delta: Option<Vec<Value>>,
}

impl EventLine {
    /// `None` for what is no event, and for pieces and questions.
    fn into_event(self) -> Option<ToolEvent> {
        match self {
            Self::Progress(progress) => Some(ToolEvent::Progress(progress)),
            Self::State(StateLine { snapshot: Some(state), delta: None }) => {
                Some(ToolEvent::State(StateChange::Snapshot(state)))
            }
            Self::State(StateLine { snapshot: None, delta: Some(delta) }) => {
                Some(ToolEvent::State(StateChange::Delta(delta)))
            }
            Self::Custom { name, value } => Some(ToolEvent::Custom { name, value }),
            Self::State(_) | Self::Text(_) | Self::Image(_) | Self::Question(_) => None,
        }
    }
}

fn parse_line(line: &[u8], secrets: &CallSecrets) -> Option<EventLine> {
    if !line.starts_with(b"{") {
        return None;
    }
    serde_json::from_str(&secrets.redact_json(str::from_utf8(line).ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::tool::ToolOutput;
    use model_testing::{Rng, test_seeds};
    use serde_json::json;

    const STORY: &str = concat!(
        "{\"type\":\"progress\",\"message\":\"é\",\"progress\":1,\"total\":2.5}\n",
        "{\"type\":\"state\",\"snapshot\":{\"a\":[1]}}\r\n",
        "some words\n",
        "{\"type\":\"state\",\"delta\":[{\"op\":\"remove\",\"path\":\"/a\"}]}\n",
        "\n",
        "{\"type\":\"custom\",\"name\":\"n\",\"value\":null}\n",
        "{\"type\":\"progress\"}\n",
        " {\"type\":\"progress\"}\n",
        "{\"type\":\"other\"}\n",
        "{\"type\":\"progress\",\"progress\":\"much\"}\n",
        "{\"type\":\"state\"}\n",
        "{\"type\":\"progress\"}",
    );

    fn read(mut lines: ToolOutputParser, pieces: &[&[u8]]) -> (Vec<ToolEvent>, Option<String>) {
        let mut events = Vec::new();
        for piece in pieces {
            lines.push(piece).unwrap();
            events.extend(std::iter::from_fn(|| lines.next_event()));
        }
        let (left, last) = lines.finish();
        events.extend(left);
        (events, text(&output_of(last)))
    }

    fn output_of(last: ToolEvent) -> ToolOutput {
        match last {
            ToolEvent::End(output) => output,
            other => panic!("{other:?}"),
        }
    }

    fn text(output: &ToolOutput) -> Option<String> {
        match output.message_content.as_slice() {
            [model::content::ContentPart::Text { text, .. }] => Some(text.clone()),
            _ => None,
        }
    }

    #[test]
    fn events_are_extracted_and_the_rest_is_the_result() {
        let (events, result) = read(ToolOutputParser::new(10_000, Arc::default()), &[STORY.as_bytes()]);
        let progress = ProgressUpdate { message: Some("é".to_owned()), progress: Some(1.0), total: Some(2.5) };
        let wanted = [
            ToolEvent::Progress(progress),
            ToolEvent::State(StateChange::Snapshot(json!({"a": [1]}))),
            ToolEvent::State(StateChange::Delta(vec![json!({"op": "remove", "path": "/a"})])),
            ToolEvent::Custom { name: "n".to_owned(), value: Value::Null },
            ToolEvent::Progress(ProgressUpdate::default()),
        ];
        assert_eq!(events, wanted);
        let rest = concat!(
            "some words\n\n {\"type\":\"progress\"}\n{\"type\":\"other\"}\n",
            "{\"type\":\"progress\",\"progress\":\"much\"}\n{\"type\":\"state\"}\n{\"type\":\"progress\"}"
        );
        assert_eq!(result.as_deref(), Some(rest));
    }

    #[test]
    fn parsing_does_not_depend_on_chunking() {
        let whole = read(ToolOutputParser::new(10_000, Arc::default()), &[STORY.as_bytes()]);
        for seed in test_seeds() {
            let (mut rng, mut pieces, mut rest) = (Rng::new(seed), Vec::new(), STORY.as_bytes());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rng.below(40).min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            assert_eq!(read(ToolOutputParser::new(10_000, Arc::default()), &pieces), whole, "SEED={seed}");
        }
    }

    #[test]
    fn a_response_parsed_as_one_value_has_no_events() {
        let (events, result) =
            read(ToolOutputParser::result_only(10_000, Arc::default()), &[b"{\"type\":\"progress\"}\n", b"[1,\n2]"]);
        assert_eq!((events, result.as_deref()), (vec![], Some("{\"type\":\"progress\"}\n[1,\n2]")));
    }

    #[test]
    fn events_count_towards_the_size_limit() {
        let line = b"{\"type\":\"progress\"}\n";
        let mut lines = ToolOutputParser::new(line.len() * 2, Arc::default());
        assert_eq!(lines.push(line), Ok(()));
        assert_eq!(lines.push(line), Ok(()));
        assert_eq!(lines.push(b"x").map_err(|error| error.code), Err("output_too_large".to_owned()));
    }

    #[test]
    fn an_event_that_fits_no_record_is_too_large() {
        let line =
            |bytes: usize| format!("{{\"type\":\"custom\",\"name\":\"n\",\"value\":\"{}\"}}\n", "x".repeat(bytes));
        let mut lines = ToolOutputParser::new(10_000_000, Arc::default());
        assert_eq!(lines.push(line(100_000).as_bytes()), Ok(()));
        let error = lines.push(line(EVENT_BYTES_MAX).as_bytes()).unwrap_err();
        assert_eq!(error.code, "output_too_large");
    }

    #[test]
    fn a_question_stands_for_the_result() {
        let ask = r#"{"type":"question","message":"Which?","schema":{"type":"object"},"state":"s"}"#;
        for output in [format!("thinking\n{ask}\n"), format!("{{\"type\":\"progress\"}}\n{ask}"), ask.to_owned()] {
            let mut lines = ToolOutputParser::new(10_000, Arc::default());
            lines.push(output.as_bytes()).unwrap();
            let ToolEvent::InputRequired(input) = lines.finish().1 else { panic!("{output} asks") };
            assert_eq!(input.questions[0].question.message, "Which?");
            assert_eq!(input.questions[0].question.schema, Some(json!({"type": "object"})));
            assert_eq!(input.state.as_deref(), Some("s"));
        }
        // Where the body is one value, and where it says more than a question does, it is the result.
        let mut body = ToolOutputParser::result_only(10_000, Arc::default());
        body.push(ask.as_bytes()).unwrap();
        assert_eq!(text(&output_of(body.finish().1)).as_deref(), Some(ask));
        let other = r#"{"type":"question","message":"Which?","score":7}"#;
        assert_eq!(read(ToolOutputParser::new(10_000, Arc::default()), &[other.as_bytes()]).1.as_deref(), Some(other));
    }
}
