//! Questions of tools to people.
//!
//! A tool asks in one of two ways. It ends with questions and is called again with the answers: nothing runs while people
//! think, and a crash loses nothing. Or it waits for the answer while it runs: such a question is withdrawn when the call
//! ends or is lost. At most one question of a call is open.

use crate::calls;
use crate::effect::Effect;
use crate::output::{RunWriter, json_size};
use crate::state::RunState;
use crate::{outstanding, pending, tool_lookup, tool_result};
use model::CallId;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Initiator, Question};
use model::item::ResultStatus;
use model::limits::{QUESTION_BYTES_MAX, QUESTION_ROUNDS_MAX, QUESTIONS_PER_ROUND_MAX};
use model::question::{InputRequired, QuestionContext, ToolQuestion};
use schema::SchemaCache;
use serde_json::Value;

/// The tool has ended with questions: asks the first one.
pub(crate) fn on_input_required(writer: &mut RunWriter<'_>, call: &CallId, input: InputRequired) {
    let checked = check_questions(&writer.run.schemas, &input).and_then(|()| next_round(writer.run, call));
    let round = match checked {
        Ok(round) => round,
        Err(error) => return tool_result::finish_call(writer, call, calls::error_output(error)),
    };
    let InputRequired { mut questions, state, on_decline } = input;
    let ToolQuestion { id, question } = questions.remove(0);
    ask(writer, call, question, QuestionContext { id, round, live: false, state, on_decline, next: questions });
}

/// The tool asks and waits. A question that cannot be asked ends the call.
pub(crate) fn on_live_question(writer: &mut RunWriter<'_>, call: &CallId, asked: ToolQuestion) {
    let input = InputRequired { questions: vec![asked.clone()], ..InputRequired::default() };
    let checked = check_questions(&writer.run.schemas, &input).and_then(|()| next_round(writer.run, call));
    let ToolQuestion { id, question } = asked;
    match checked {
        Ok(round) => {
            ask(writer, call, question, QuestionContext { id, round, live: true, ..QuestionContext::default() });
        }
        Err(error) => {
            if let Some(effect) = outstanding::started_tool(writer.run, call) {
                writer.out.push_effect(Effect::Abort(effect));
            }
            tool_result::finish_call(writer, call, calls::error_output(error));
        }
    }
}

/// Closes the question of a call that needs no answer any more, also while the run is paused.
pub(crate) fn withdraw_live_question(writer: &mut RunWriter<'_>, call: &CallId) {
    pending::resume_run(writer, Initiator::System);
    pending::withdraw_approval(writer, call);
}

/// Asks the next question of the round.
pub(crate) fn ask_next(writer: &mut RunWriter<'_>, call: &CallId) {
    let fold = writer.run.task_of_call(call).and_then(|task| task.call(call)).map(|(fold, _)| fold);
    let Some(fold) = fold.and_then(|fold| fold.question.clone()) else { return };
    let mut next = fold.next;
    if next.is_empty() {
        return;
    }
    let ToolQuestion { id, question } = next.remove(0);
    let (round, state, on_decline) = (fold.round, fold.state, fold.on_decline);
    ask(writer, call, question, QuestionContext { id, round, live: false, state, on_decline, next });
}

fn ask(writer: &mut RunWriter<'_>, call: &CallId, question: Question, context: QuestionContext) {
    let Some(task) = writer.run.task_of_call(call) else { return };
    let Some((_, item)) = task.call(call) else { return };
    let arguments = item.arguments.clone().unwrap_or_default();
    match tool_lookup::resolve_tool(writer.run, task, item) {
        Ok(tool) => pending::request_answer(writer, call, &tool, &arguments, (question, context)),
        Err(output) => tool_result::write_result(writer, call, ResultStatus::Failed, *output),
    }
}

/// The number of the next round, unless the tool has asked often enough.
fn next_round(run: &RunState, call: &CallId) -> Result<u32, ErrorInfo> {
    let fold = run.task_of_call(call).and_then(|task| task.call(call)).map(|(fold, _)| fold);
    let last = fold.and_then(|fold| fold.question.as_ref().filter(|question| question.attempt == fold.attempts));
    let round = last.map_or(0, |last| last.round) + 1;
    if round <= QUESTION_ROUNDS_MAX {
        return Ok(round);
    }
    let message = format!("The tool asked {QUESTION_ROUNDS_MAX} times and asks again. It was stopped.");
    Err(ErrorInfo::new(ErrorCode::TooManyQuestions, message))
}

fn check_questions(schemas: &SchemaCache, input: &InputRequired) -> Result<(), ErrorInfo> {
    let refuse = |why: String| Err(ErrorInfo::new(ErrorCode::InvalidQuestion, format!("The tool asks {why}.")));
    let count = input.questions.len();
    if !(1..=QUESTIONS_PER_ROUND_MAX).contains(&count) {
        return refuse(format!("{count} questions at once; it may ask 1 to {QUESTIONS_PER_ROUND_MAX}"));
    }
    if json_size(input) > QUESTION_BYTES_MAX {
        return refuse(format!("with more than {QUESTION_BYTES_MAX} bytes"));
    }
    for schema in input.questions.iter().filter_map(|asked| asked.question.schema.as_ref()) {
        if !may_be_object(schema) {
            return refuse("for something that is not an object: `type` of the schema must be `object`".to_owned());
        }
        if let Err(error) = schemas.compile(schema) {
            return refuse(format!("with a schema that cannot be used: {error}"));
        }
    }
    Ok(())
}

fn may_be_object(schema: &Value) -> bool {
    match schema.get("type") {
        None => schema.is_object(),
        Some(kind) => kind == "object",
    }
}
