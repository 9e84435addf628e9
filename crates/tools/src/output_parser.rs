//! Splits the bytes of a tool into events, one JSON object per line, and its result.
//!
//! A line that begins with `{` and is a `progress`, `state` or `custom` object is an event and is emitted immediately. The
//! last `question` stands for the result: the tool is called again with the answer.
//! Every other line belongs to the result, and so does an unterminated last line. The nested lines of a pretty-printed
//! result are indented, so they are never mistaken for events.

use crate::output::{self, failed_output, output_too_large};
use crate::question_line::QuestionLine;
use crate::secrets::CallSecrets;
use model::error::ErrorInfo;
use model::limits::RECORD_BYTES_MAX;
use model::question::InputRequired;
use model::tool::{ProgressUpdate, StateChange, ToolEvent};
use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// An event has to fit a record together with the record's other fields.
const EVENT_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// Takes chunks of any size.
pub(crate) struct ToolOutputParser {
    mode: ParseMode,
    /// The current, unterminated line.
    line: Vec<u8>,
    result: Vec<u8>,
    events: VecDeque<ToolEvent>,
    question: Option<InputRequired>,
    received_bytes: usize,
    bytes_max: usize,
    result_pointer: Option<String>,
    secrets: Arc<CallSecrets>,
}

enum ParseMode {
    EventLines,
    ResultOnly,
}

impl ToolOutputParser {
    /// Events line by line, then a result. `bytes_max` bounds their sum. The secrets of the call are redacted: what a tool
    /// returns is stored and shown.
    pub(crate) const fn new(bytes_max: usize, secrets: Arc<CallSecrets>) -> Self {
        Self {
            mode: ParseMode::EventLines,
            line: Vec::new(),
            result: Vec::new(),
            events: VecDeque::new(),
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

    /// Reduces the result to what this JSON pointer names.
    pub(crate) fn with_result_pointer(self, pointer: Option<String>) -> Self {
        Self { result_pointer: pointer, ..self }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), ErrorInfo> {
        self.received_bytes = self.received_bytes.saturating_add(chunk.len());
        if self.received_bytes > self.bytes_max {
            return Err(output_too_large(self.bytes_max));
        }
        match self.mode {
            ParseMode::ResultOnly => self.result.extend_from_slice(chunk),
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

    /// Ends the input and parses the result: the last event.
    pub(crate) fn finish(mut self) -> ToolEvent {
        if matches!(self.mode, ParseMode::EventLines)
            && let Some(question @ ParsedLine::Question(_)) = parse_line(&self.line, &self.secrets)
        {
            self.line.clear();
            self.add_line(question);
        }
        if let Some(question) = self.question {
            return ToolEvent::InputRequired(question);
        }
        self.result.append(&mut self.line);
        let text = self.secrets.redact_json(&String::from_utf8_lossy(&self.result));
        ToolEvent::End(output::parse_output(&text, self.result_pointer.as_deref()).unwrap_or_else(failed_output))
    }

    fn add_line(&mut self, parsed: ParsedLine) {
        match parsed {
            ParsedLine::Event(event) => self.events.push_back(event),
            ParsedLine::Question(question) => self.question = Some(question),
        }
    }

    fn end_line(&mut self) -> Result<(), ErrorInfo> {
        let line = std::mem::take(&mut self.line);
        match parse_line(&line, &self.secrets) {
            Some(_) if line.len() > EVENT_BYTES_MAX => Err(output_too_large(EVENT_BYTES_MAX)),
            Some(parsed) => {
                self.add_line(parsed);
                Ok(())
            }
            None => {
                self.result.extend_from_slice(&line);
                Ok(())
            }
        }
    }
}

/// What a line says that is not part of the result.
enum ParsedLine {
    Event(ToolEvent),
    Question(InputRequired),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventLine {
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

fn parse_line(line: &[u8], secrets: &CallSecrets) -> Option<ParsedLine> {
    if !line.starts_with(b"{") {
        return None;
    }
    Some(ParsedLine::Event(match serde_json::from_str(&secrets.redact_json(str::from_utf8(line).ok()?)).ok()? {
        EventLine::Question(question) => return Some(ParsedLine::Question(question.into_input_required())),
        EventLine::Progress(progress) => ToolEvent::Progress(progress),
        EventLine::State(StateLine { snapshot: Some(state), delta: None }) => {
            ToolEvent::State(StateChange::Snapshot(state))
        }
        EventLine::State(StateLine { snapshot: None, delta: Some(delta) }) => {
            ToolEvent::State(StateChange::Delta(delta))
        }
        EventLine::State(_) => return None,
        EventLine::Custom { name, value } => ToolEvent::Custom { name, value },
    }))
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
        (events, text(&finish(lines)))
    }

    fn finish(lines: ToolOutputParser) -> ToolOutput {
        match lines.finish() {
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
            let ToolEvent::InputRequired(input) = lines.finish() else { panic!("{output} asks") };
            assert_eq!(input.questions[0].question.message, "Which?");
            assert_eq!(input.questions[0].question.schema, Some(json!({"type": "object"})));
            assert_eq!(input.state.as_deref(), Some("s"));
        }
        // Where the body is one value, and where it says more than a question does, it is the result.
        let mut body = ToolOutputParser::result_only(10_000, Arc::default());
        body.push(ask.as_bytes()).unwrap();
        assert_eq!(text(&finish(body)).as_deref(), Some(ask));
        let other = r#"{"type":"question","message":"Which?","score":7}"#;
        assert_eq!(read(ToolOutputParser::new(10_000, Arc::default()), &[other.as_bytes()]).1.as_deref(), Some(other));
    }
}
