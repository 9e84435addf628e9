//! Questions of servers to people.
//!
//! A server of 2026-07-28 ends a call with its questions and is called again with the answers (`read_input_required`,
//! `input_responses`). A server of 2025-11-25 asks in the middle of a call, with a request of its own: [`OpenElicitations`]
//! is what a call has to do with those, and [`AnswerDesk`] brings it the answers.

use crate::limits::{ELICITATIONS_WAITING_MAX, LIVE_QUESTIONS_PER_USER_MAX, QUESTION_MESSAGE_BYTES_MAX};
use crate::link::{ConnectionLink, Elicitation, ElicitationEvent, ElicitationSender, lock};
use crate::tool_list::clean_text;
use model::error::{ErrorCode, ErrorInfo};
use model::event::Question;
use model::question::{InputRequired, OnDecline, QuestionAnswer, ToolAnswers, ToolQuestion};
use model::{CallId, UserId};
use rmcp::model::{ElicitRequestParams, InputRequest, InputRequiredResult, InputResponses, RequestId};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The questions of a call that ended with them; none if the server only wants to be called again.
pub(crate) fn read_input_required(server: &str, result: InputRequiredResult) -> Result<InputRequired, ErrorInfo> {
    let requests = result.input_requests.unwrap_or_default();
    let questions = requests.into_iter().map(|(id, request)| match request {
        InputRequest::Elicitation(request) => {
            read_question(request.params).map(|question| ToolQuestion { id, question })
        }
        _ => None,
    });
    let questions = questions.collect::<Option<Vec<_>>>().ok_or_else(|| {
        let message =
            format!("The MCP server `{server}` asks for something other than the answer of a person to a form.");
        ErrorInfo::new(ErrorCode::McpUnsupported, message)
    })?;
    Ok(InputRequired { questions, state: result.request_state, on_decline: OnDecline::CallAgain })
}

/// `None` for anything but a form: no other capability was declared.
pub(crate) fn read_question(params: ElicitRequestParams) -> Option<Question> {
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params else { return None };
    let message = clean_text(&message, QUESTION_MESSAGE_BYTES_MAX);
    Some(Question { message, schema: Some(serde_json::to_value(requested_schema).ok()?), url: None })
}

/// The answers, as the server expects them in its next call.
pub(crate) fn input_responses(answers: &ToolAnswers) -> InputResponses {
    answers.answers.iter().map(|(id, answer)| (id.clone(), elicit_result(answer))).collect()
}

pub(crate) fn elicit_result(answer: &QuestionAnswer) -> Value {
    match answer {
        QuestionAnswer::Accepted(content) => json!({ "action": "accept", "content": content.to_value() }),
        QuestionAnswer::Declined(_) => json!({ "action": "decline" }),
        QuestionAnswer::Cancelled => json!({ "action": "cancel" }),
    }
}

/// Where calls that wait for answers get them. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct AnswerDesk(Arc<Mutex<HashMap<CallId, WaitingCall>>>);

struct WaitingCall {
    user: UserId,
    question: String,
    answer: mpsc::Sender<QuestionAnswer>,
}

impl AnswerDesk {
    /// An answer to a question that is not open is dropped.
    pub(crate) fn answer(&self, call: &CallId, question: &str, answer: QuestionAnswer) {
        let waiting = lock(&self.0);
        if let Some(waiting) = waiting.get(call).filter(|waiting| waiting.question == question) {
            // There is room for the first answer, and no other counts.
            let _full = waiting.answer.try_send(answer);
        }
    }

    /// `None` if the user has as many open questions of this kind as there may be: each keeps its run in memory.
    fn wait_for(&self, call: &CallId, user: &UserId, question: String) -> Option<AnswerSlot> {
        let mut waiting = lock(&self.0);
        if waiting.values().filter(|waiting| waiting.user == *user).count() >= LIVE_QUESTIONS_PER_USER_MAX {
            return None;
        }
        let (answer, answers) = mpsc::channel(1);
        waiting.insert(call.clone(), WaitingCall { user: user.clone(), question, answer });
        Some(AnswerSlot { desk: self.clone(), call: call.clone(), answers })
    }
}

/// Dropping it closes the question at the desk.
struct AnswerSlot {
    desk: AnswerDesk,
    call: CallId,
    answers: mpsc::Receiver<QuestionAnswer>,
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        lock(&self.desk.0).remove(&self.call);
    }
}

/// The questions of one call: at most one is asked at a time.
pub(crate) struct OpenElicitations {
    call: CallId,
    user: UserId,
    desk: AnswerDesk,
    events: mpsc::Receiver<ElicitationEvent>,
    waiting: VecDeque<Elicitation>,
    open: Option<OpenElicitation>,
    count: u32,
}

struct OpenElicitation {
    id: RequestId,
    asked_at: Instant,
    slot: AnswerSlot,
}

/// What a call reports about its questions.
pub(crate) enum ElicitationStep {
    Ask(ToolQuestion),
    Withdraw,
    /// A person took this long.
    Answered(Duration),
}

impl OpenElicitations {
    pub(crate) fn new(call: &CallId, user: &UserId, desk: AnswerDesk) -> (ElicitationSender, Self) {
        let (sender, events) = mpsc::channel(ELICITATIONS_WAITING_MAX);
        let (call, user) = (call.clone(), user.clone());
        (sender, Self { call, user, desk, events, waiting: VecDeque::new(), open: None, count: 0 })
    }

    pub(crate) const fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// The next step. It is safe to drop the future: what it has taken is kept in `self`.
    pub(crate) async fn next_step(&mut self, link: &ConnectionLink) -> ElicitationStep {
        loop {
            if let Some(step) = self.ask_next(link) {
                return step;
            }
            let answer = async {
                match &mut self.open {
                    Some(open) => open.slot.answers.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answer => {
                    let Some(open) = self.open.take() else { continue };
                    link.answer_request(&open.id, &elicit_result(&answer.unwrap_or(QuestionAnswer::Cancelled)));
                    return ElicitationStep::Answered(open.asked_at.elapsed());
                }
                event = self.events.recv() => match event {
                    Some(ElicitationEvent::Asked(elicitation)) => self.waiting.push_back(elicitation),
                    Some(ElicitationEvent::Withdrawn(id)) => {
                        self.waiting.retain(|waiting| waiting.id != id);
                        if self.open.as_ref().is_some_and(|open| open.id == id) {
                            self.open = None;
                            return ElicitationStep::Withdraw;
                        }
                    }
                    // The route of the call is gone: nothing more will be asked.
                    None => std::future::pending().await,
                },
            }
        }
    }

    fn ask_next(&mut self, link: &ConnectionLink) -> Option<ElicitationStep> {
        while self.open.is_none() {
            let Elicitation { id, question } = self.waiting.pop_front()?;
            self.count += 1;
            let name = format!("{}#{id}", self.count);
            let Some(slot) = self.desk.wait_for(&self.call, &self.user, name.clone()) else {
                link.answer_request(&id, &elicit_result(&QuestionAnswer::Cancelled));
                continue;
            };
            self.open = Some(OpenElicitation { id, asked_at: Instant::now(), slot });
            return Some(ElicitationStep::Ask(ToolQuestion { id: name, question }));
        }
        None
    }
}
