//! Events beside the items: state, input in mid-run, custom events of applications, and ours, which change no message.

use super::EventProjector;
use crate::agui::wire::{AgUiContent, AgUiDelta, AgUiEvent, AgUiValue, input_text};
use model::ItemId;
use model::Millis;
use model::error::ErrorInfo;
use model::event::{ApprovalDecision, CancelMode, CustomEvent, Event, Initiator, InputMessage};
use model::item::Role;
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// The custom event that sets or patches an activity.
const ACTIVITY_EVENT: &str = "ag-ui.activity";
/// The operations of RFC 6902.
const PATCH_OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

/// The value of one of our events. Each kind has some of the members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventDetails<'a> {
    tool_call_id: Option<&'a str>,
    message: Option<&'a str>,
    progress: Option<f64>,
    total: Option<f64>,
    step: Option<u32>,
    attempt: Option<u32>,
    not_before: Option<Millis>,
    error: Option<&'a ErrorInfo>,
    agent: Option<&'a str>,
    from: Option<&'a str>,
    interrupt_id: Option<&'a str>,
    decisions: Option<&'a [ApprovalDecision]>,
    /// The items of the turn that runs again.
    cut: Option<&'a [ItemId]>,
    mode: Option<CancelMode>,
    by: Option<Initiator>,
}

/// An activity as an application sends it.
struct CustomActivity<'a> {
    message_id: &'a str,
    activity_type: &'a str,
    change: ActivityChange<'a>,
}

enum ActivityChange<'a> {
    Snapshot { content: &'a Value, replace: bool },
    Patch(&'a [Value]),
}

impl<'a> EventProjector<'a, '_> {
    pub(super) fn on_other_event(&mut self, event: &'a Event) {
        let none = EventDetails::default();
        match event {
            Event::StateSnapshot(e) => {
                self.push_tagged(AgUiEvent { snapshot: Some(&e.state), ..AgUiEvent::new("STATE_SNAPSHOT") });
            }
            Event::StateDelta(e) => {
                let delta = Some(AgUiDelta::Patch(&e.delta));
                self.push_tagged(AgUiEvent { delta, ..AgUiEvent::new("STATE_DELTA") });
            }
            Event::Custom(e) => self.on_custom(e),
            Event::ProviderEvent(e) => {
                let (event, source) = (Some(&e.event), Some("provider"));
                self.push_tagged(AgUiEvent { event, source, ..AgUiEvent::new("RAW") });
            }
            Event::InputAdded(e) => e.input.iter().for_each(|message| self.push_input(message)),
            Event::ToolProgress(e) => {
                let (tool_call_id, message) = (Some(e.call_id.as_str()), e.message.as_deref());
                let details = EventDetails { tool_call_id, message, progress: e.progress, total: e.total, ..none };
                self.push_details("headwater.tool_progress", &details);
            }
            Event::Retrying(e) => {
                let (step, attempt, not_before) = (Some(e.step), Some(e.attempt), Some(e.not_before));
                let details = EventDetails { step, attempt, not_before, error: Some(&e.error), ..none };
                self.push_details("headwater.retrying", &details);
            }
            Event::AgentUpdated(e) => {
                let details = EventDetails { agent: Some(&e.agent), from: Some(&e.from), ..none };
                self.push_details("headwater.agent_updated", &details);
            }
            Event::ApprovalResolved(e) => {
                let (interrupt_id, decisions) = (Some(e.key.as_str()), Some(e.decisions.as_slice()));
                let details = EventDetails { interrupt_id, decisions, by: Some(e.by), ..none };
                self.push_details("headwater.approval_resolved", &details);
            }
            Event::Recovered(e) => {
                let (step, attempt, cut) = (Some(e.step), Some(e.attempt), Some(e.cut.as_slice()));
                self.push_details("headwater.recovered", &EventDetails { step, attempt, cut, ..none });
            }
            Event::Cancelling(e) => {
                let details = EventDetails { mode: Some(e.mode), by: Some(e.by), ..none };
                self.push_details("headwater.cancelling", &details);
            }
            // `on_item_event` is exhaustive: it passes the events above.
            _ => {}
        }
    }

    fn push_details(&mut self, name: &str, details: &EventDetails<'_>) {
        self.push_custom(name, AgUiValue::new(details));
    }

    pub(super) fn push_custom(&mut self, name: &str, value: AgUiValue<'_>) {
        self.push_tagged(AgUiEvent { name: Some(name), value: Some(value), ..AgUiEvent::new("CUSTOM") });
    }

    /// An activity begins with its first snapshot in a run: a snapshot of messages is made run by run, so that a change may
    /// not depend on an earlier one.
    fn on_custom(&mut self, e: &'a CustomEvent) {
        let activity = (e.name == ACTIVITY_EVENT).then(|| CustomActivity::parse(&e.value)).flatten();
        let is_known = activity.as_ref().is_some_and(|activity| self.state.activities.contains(activity.message_id));
        let activity =
            activity.filter(|activity| is_known || matches!(activity.change, ActivityChange::Snapshot { .. }));
        let Some(CustomActivity { message_id, activity_type, change }) = activity else {
            return self.push_custom(&e.name, AgUiValue::Own(&e.value));
        };
        let event = AgUiEvent {
            message_id: Some(message_id.into()),
            activity_type: Some(activity_type),
            ..AgUiEvent::default()
        };
        match change {
            ActivityChange::Snapshot { content, replace } => {
                let content = Some(AgUiContent::Object(Cow::Borrowed(content)));
                let is_first = self.state.activities.insert(message_id.to_owned());
                let replace = Some(replace || is_first);
                self.push_tagged(AgUiEvent { event_type: "ACTIVITY_SNAPSHOT", content, replace, ..event });
            }
            // Without the name of a sub-agent: clients reject a run in which one agent changes the activity of another.
            ActivityChange::Patch(patch) => {
                self.push(AgUiEvent { event_type: "ACTIVITY_DELTA", patch: Some(patch), ..event });
            }
        }
    }

    /// A message that arrived in mid-run. Texts are all that such a message can have.
    fn push_input(&mut self, message: &'a InputMessage) {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "system",
        };
        let message_id = || Some(message.id.as_str().into());
        let (role, text) = (Some(role), input_text(&message.content));
        self.push_tagged(AgUiEvent { message_id: message_id(), role, ..AgUiEvent::new("TEXT_MESSAGE_START") });
        if !text.is_empty() {
            let delta = Some(AgUiDelta::Text(&text));
            self.push_tagged(AgUiEvent { message_id: message_id(), delta, ..AgUiEvent::new("TEXT_MESSAGE_CONTENT") });
        }
        self.push_tagged(AgUiEvent { message_id: message_id(), ..AgUiEvent::new("TEXT_MESSAGE_END") });
    }
}

impl<'a> CustomActivity<'a> {
    /// `None` for a value that clients would reject.
    fn parse(value: &'a Value) -> Option<Self> {
        let text = |name: &str| value.get(name)?.as_str();
        let change = match (value.get("content"), value.get("patch")) {
            (Some(content), None) if content.is_object() => {
                let replace = value.get("replace").map_or(Some(true), Value::as_bool)?;
                ActivityChange::Snapshot { content, replace }
            }
            (None, Some(Value::Array(patch))) if patch.iter().all(is_patch_operation) => ActivityChange::Patch(patch),
            _ => return None,
        };
        Some(Self { message_id: text("messageId")?, activity_type: text("activityType")?, change })
    }
}

fn is_patch_operation(operation: &Value) -> bool {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let is_escaped = |rest: &str| rest.starts_with(['0', '1']);
    let is_pointer = |text: &str| (text.is_empty() || text.starts_with('/')) && text.split('~').skip(1).all(is_escaped);
    let op = text("op").filter(|op| PATCH_OPERATIONS.contains(op));
    let needs_value = matches!(op, Some("add" | "replace" | "test"));
    let needs_origin = matches!(op, Some("move" | "copy"));
    op.is_some()
        && text("path").is_some_and(is_pointer)
        && (!needs_value || operation.get("value").is_some())
        && (!needs_origin || text("from").is_some_and(is_pointer))
}
