//! Pauses: a run that waits for decisions or answers ends with interrupts, one that waits for tools of the client with
//! their calls.
//!
//! Clients refuse to start a run while an interrupt has no answer, and the result of a tool is sent by starting one. A run
//! that waits for both therefore names the calls first; the interrupts follow when it pauses again.

use super::{AgUiOptions, EventProjector, subagent_id};
use crate::agui::AgUiVersion;
use crate::agui::wire::{AgUiDetails, AgUiEvent, AgUiInterrupt, AgUiOutcome, AgUiValue};
use jiff::Timestamp;
use model::Millis;
use model::event::{ApprovalRequested, PendingKind, PendingRequest};
use model::fold::RunFold;
use model::item::{CallKind, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Several interrupts in the event of clients that know no outcome.
#[derive(Serialize)]
struct LegacyInterrupts<'a> {
    interrupts: &'a [AgUiInterrupt<'a>],
}

impl EventProjector<'_, '_> {
    pub(super) fn pause(&mut self) {
        let root = self.task;
        let interrupts = interrupts(self.run, &root.pending, self.options.version);
        let children = self.run.tasks.iter().skip(1).filter(|task| !task.status.is_terminal());
        for child in children.rev() {
            let own = root.pending.iter().filter(|pending| pending.task_id == child.id);
            let ids: Vec<&str> = own.filter_map(|pending| Some(pending.key.as_ref()?.as_str())).collect();
            let interrupt_ids = Some(ids).filter(|ids| !ids.is_empty() && !interrupts.is_empty());
            self.push(AgUiEvent {
                subagent_run_id: subagent_id(child),
                outcome: Some(AgUiOutcome::Suspended { interrupt_ids }),
                ..AgUiEvent::new("SUBAGENT_FINISHED")
            });
        }
        let usage = self.state.token_usage();
        let run_id = self.state.run_id.clone();
        for event in pause_events(self.run, self.options, &run_id) {
            let usage = usage.clone().filter(|_| event.event_type == "RUN_FINISHED");
            self.push(AgUiEvent { usage, ..event });
        }
        self.state.has_interrupts = !interrupts.is_empty();
        self.state.is_over = true;
    }
}

/// The end of a segment that paused, as its client is told.
pub(in crate::agui) fn pause_events<'a>(
    run: &'a RunFold,
    options: &'a AgUiOptions,
    run_id: &'a str,
) -> Vec<AgUiEvent<'a>> {
    let pending = run.root().map(|root| root.pending.as_slice()).unwrap_or_default();
    let finished =
        AgUiEvent { thread_id: Some(&options.thread_name), run_id: Some(run_id), ..AgUiEvent::new("RUN_FINISHED") };
    let interrupts = interrupts(run, pending, options.version);
    if interrupts.is_empty() {
        let calls = client_calls(pending).map(|pending| pending.call_id.as_str()).collect();
        let pending_tool_call_ids = (options.version == AgUiVersion::V1).then_some(calls);
        return vec![AgUiEvent { outcome: Some(AgUiOutcome::Success { pending_tool_call_ids }), ..finished }];
    }
    let legacy = (options.version == AgUiVersion::V0_0_59).then(|| AgUiEvent {
        name: Some("on_interrupt"),
        value: Some(match interrupts.as_slice() {
            [only] => AgUiValue::new(only),
            interrupts => AgUiValue::new(&LegacyInterrupts { interrupts }),
        }),
        ..AgUiEvent::new("CUSTOM")
    });
    let finished = AgUiEvent { outcome: Some(AgUiOutcome::Interrupt { interrupts }), ..finished };
    legacy.into_iter().chain([finished]).collect()
}

fn client_calls(pending: &[PendingRequest]) -> impl Iterator<Item = &PendingRequest> {
    pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool)
}

/// None while the run waits for tools of the client.
fn interrupts<'a>(run: &'a RunFold, pending: &'a [PendingRequest], version: AgUiVersion) -> Vec<AgUiInterrupt<'a>> {
    if client_calls(pending).next().is_some() {
        return Vec::new();
    }
    pending.iter().filter_map(|pending| interrupt(run, pending, version)).collect()
}

fn interrupt<'a>(run: &'a RunFold, pending: &'a PendingRequest, version: AgUiVersion) -> Option<AgUiInterrupt<'a>> {
    let task = run.task(&pending.task_id)?;
    let (_, call) = task.call(&pending.call_id)?;
    let key = pending.key.as_ref()?;
    let (request, _) = task.approvals.iter().rev().find(|(request, _)| request.key == *key)?;
    let question = request.question.as_ref();
    let (reason, message, response_schema) = match (pending.kind, question) {
        (PendingKind::Question, Some(question)) => {
            ("input_required", question.message.clone(), question.schema.as_ref().map(Cow::Borrowed))
        }
        (PendingKind::Approval | PendingKind::Question | PendingKind::ClientTool, _) => {
            ("tool_call", approval_message(request, call), Some(Cow::Owned(approval_schema(request, call))))
        }
    };
    let details = AgUiDetails {
        action_requests: question.is_none().then_some(request.action_requests.as_slice()),
        expires_at: Some(request.expires_at),
        url: question.and_then(|question| question.url.as_deref()),
        ..AgUiDetails::default()
    };
    Some(AgUiInterrupt {
        id: key.as_str(),
        reason,
        message,
        tool_call_id: call.call_id.as_str(),
        response_schema,
        // Once it has passed, clients of 0.0.59 refuse every later run of the thread.
        expires_at: (version == AgUiVersion::V1).then(|| format_time(request.expires_at)),
        subagent_run_id: subagent_id(task),
        metadata: details.into(),
    })
}

/// The question for people, with what they should know before they decide.
fn approval_message(request: &ApprovalRequested, call: &ToolCall) -> String {
    let tool = call.display_name.as_deref().unwrap_or(&call.name);
    let notes = request.action_requests.iter().filter_map(|action| action.note.clone());
    let lines: Vec<String> = std::iter::once(format!("Approve the call of {tool}?")).chain(notes).collect();
    lines.join("\n")
}

/// The shape of a decision. Clients render it only if they know all of its keywords.
fn approval_schema(request: &ApprovalRequested, call: &ToolCall) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "reason": {"type": "string"},
            "editedArgs": {"type": "object"},
            "always": {"type": "boolean"},
        },
        "required": ["approved"],
    });
    let is_fixed = request.action_requests.iter().any(|action| action.editable == Some(false));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
        && (is_fixed || call.kind == Some(CallKind::Hosted))
    {
        properties.remove("editedArgs");
    }
    schema
}

fn format_time(at: Millis) -> String {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}
