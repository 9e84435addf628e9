//! How programs and endpoints ask people: one line that asks, and one that answers.
//!
//! A tool that writes `{"type":"question","message":…,"schema":…,"state":…}` is called again with
//! `{"type":"answer","action":"accept","content":…,"state":…}`; the action is `decline` or `cancel` if nobody answered.

use model::error::{ErrorCode, ErrorInfo};
use model::event::Question;
use model::question::{InputRequired, OnDecline, QuestionAnswer, ToolAnswers, ToolQuestion};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;

/// A call asks one question at a time.
const QUESTION_ID: &str = "question";
/// What servers accept as a header.
const HEADER_BYTES_MAX: usize = 8 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionLine {
    message: String,
    schema: Option<Value>,
    state: Option<String>,
}

impl QuestionLine {
    pub(crate) fn into_input_required(self) -> InputRequired {
        let question = Question { message: self.message, schema: self.schema, url: None };
        let questions = vec![ToolQuestion { id: QUESTION_ID.to_owned(), question }];
        InputRequired { questions, state: self.state, on_decline: OnDecline::CallAgain }
    }
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    r#type: &'static str,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a model::json::ExactValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
}

/// The answer to the question of a call, as JSON.
pub(crate) fn answer_line(answers: &ToolAnswers) -> Result<String, ErrorInfo> {
    let (action, content, message) = match answers.answers.get(QUESTION_ID) {
        Some(QuestionAnswer::Accepted(content)) => ("accept", Some(content), None),
        Some(QuestionAnswer::Declined(message)) => ("decline", None, message.as_deref()),
        Some(QuestionAnswer::Cancelled) | None => ("cancel", None, None),
    };
    let line = AnswerLine { r#type: "answer", action, content, message, state: answers.state.as_deref() };
    serde_json::to_string(&line).map_err(|error| ErrorInfo::new(ErrorCode::ToolError, error.to_string()))
}

/// The same as the value of a header, which is ASCII.
pub(crate) fn answer_header(answers: &ToolAnswers) -> Result<String, ErrorInfo> {
    let mut header = String::new();
    for letter in answer_line(answers)?.chars() {
        match letter {
            ' '..='~' => header.push(letter),
            _ => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(header, "\\u{unit:04x}")),
        }
    }
    if header.len() <= HEADER_BYTES_MAX {
        return Ok(header);
    }
    let message = format!("The answer has more than {HEADER_BYTES_MAX} bytes as a header. The tool was not called.");
    Err(ErrorInfo::new(ErrorCode::InvalidTool, message))
}
