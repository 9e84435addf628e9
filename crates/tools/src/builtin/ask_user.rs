//! `ask_user`: a question to the person behind the run. Nothing runs until it is answered.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::{invalid_arguments_output, text_output};
use model::definition::Tool;
use model::error::ErrorCode;
use model::event::Question;
use model::question::{InputRequired, OnDecline, QuestionAnswer, ToolAnswers, ToolQuestion};
use model::tool::{ToolEvent, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const NAME: &str = "ask_user";

/// There is one question.
const QUESTION_ID: &str = "question";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    message: String,
    schema: Option<Value>,
}

pub(super) fn definition() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "message": { "type": "string", "minLength": 1, "description": "The question, as the user reads it." },
            "schema": {
                "type": "object",
                "description": "A JSON Schema of the answer, which is an object. Without it the answer is a text: {\"answer\": \"…\"}."
            }
        },
        "required": ["message"],
        "additionalProperties": false
    });
    let description = "Asks the user a question and waits for the answer. Use it when you cannot go on without \
                       something that only the user knows or may decide.";
    new_builtin(NAME, "Ask the user", description, parameters)
}

/// Asks, or returns what was answered.
pub(super) fn run(arguments: &str, answers: Option<ToolAnswers>) -> ToolEvent {
    match answers.and_then(|mut answers| answers.answers.remove(QUESTION_ID)) {
        None => ask(arguments),
        Some(QuestionAnswer::Accepted(answer)) => {
            let output = text_output(answer.to_string());
            ToolEvent::End(ToolOutput { artifact: Some(answer.to_value()), ..output })
        }
        // The run answers these calls itself.
        Some(QuestionAnswer::Declined(_) | QuestionAnswer::Cancelled) => {
            ToolEvent::End(ToolOutput::failed(ErrorCode::Rejected, "The question was declined."))
        }
    }
}

fn ask(arguments: &str) -> ToolEvent {
    let Arguments { message, schema } = match parse_arguments(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return ToolEvent::End(invalid_arguments_output(error)),
    };
    let question = Question { message, schema: Some(schema.unwrap_or_else(text_schema)), url: None };
    ToolEvent::InputRequired(InputRequired {
        questions: vec![ToolQuestion { id: QUESTION_ID.to_owned(), question }],
        state: None,
        on_decline: OnDecline::Reject,
    })
}

fn text_schema() -> Value {
    json!({ "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"] })
}
