//! Answers to interrupts, in the forms that front ends send.

use super::shorten;
use crate::client_input::InvalidField;
use crate::request_fields::field_path;
use model::content::ContentPart;
use model::event::{ApprovalDecision, ApprovalDecisionKind, PendingKind};
use model::json::{ExactObject, ExactValue};
use std::collections::HashSet;

const RESUME_ENTRIES_MAX: usize = 64;
/// Longer tool messages are results, not decisions.
const DECISION_TEXT_BYTES_MAX: usize = 64 * 1024;
const CANCELLED: &str = "Cancelled by the user";
const LEGACY_FIELD: &str = "forwardedProps.command.resume";
const EXPECTED_DECISION: &str =
    "expected true, false or an object with `approved` (and `reason`, `editedArgs` or `always`)";

/// An entry of `resume`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiResume {
    /// Where the request has it.
    pub field: String,
    pub interrupt_id: String,
    pub status: AgUiResumeStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AgUiResumeStatus {
    Cancelled,
    /// With its payload.
    Resolved(ExactValue),
}

impl AgUiResume {
    /// The decision that it is, given the kind of request that waits for it.
    pub fn decision(&self, asked: PendingKind) -> Result<ApprovalDecision, InvalidField> {
        let at = field_path(&self.field, "payload");
        let payload = match &self.status {
            AgUiResumeStatus::Cancelled => return Ok(rejection(Some(CANCELLED.to_owned()))),
            AgUiResumeStatus::Resolved(payload) => payload,
        };
        match asked {
            PendingKind::Question => match payload {
                ExactValue::Object(_) => Ok(ApprovalDecision {
                    args: Some(payload.clone()),
                    ..decision(ApprovalDecisionKind::Approve, None)
                }),
                _ => Err(InvalidField::new(at, "expected an object that fits the question's `responseSchema`")),
            },
            PendingKind::Approval => read_decision(payload).ok_or_else(|| InvalidField::new(at, EXPECTED_DECISION)),
            PendingKind::ClientTool => Err(InvalidField::new(at, "this call is answered with a tool message")),
        }
    }
}

pub(super) fn parse_resume(list: Option<&ExactValue>) -> Result<Vec<AgUiResume>, InvalidField> {
    let list = match list {
        None | Some(ExactValue::Null) => return Ok(Vec::new()),
        Some(ExactValue::Array(list)) => list,
        Some(_) => return Err(InvalidField::new("resume", "expected a list")),
    };
    if list.len() > RESUME_ENTRIES_MAX {
        let reason = format!("{} entries; the maximum is {RESUME_ENTRIES_MAX}", list.len());
        return Err(InvalidField::new("resume", reason));
    }
    let mut answered = HashSet::new();
    let mut entries = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let entry = parse_entry(format!("resume[{index}]"), entry)?;
        if !answered.insert(entry.interrupt_id.clone()) {
            let reason = "this interrupt has an answer already";
            return Err(InvalidField::new(field_path(&entry.field, "interruptId"), reason));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn parse_entry(field: String, entry: &ExactValue) -> Result<AgUiResume, InvalidField> {
    let ExactValue::Object(entry) = entry else { return Err(InvalidField::new(field, "expected an object")) };
    let Some(interrupt_id) = text_member(entry, "interruptId").filter(|id| !id.is_empty()) else {
        return Err(InvalidField::new(field_path(&field, "interruptId"), "expected a text that is not empty"));
    };
    let status = match text_member(entry, "status") {
        Some("cancelled") => AgUiResumeStatus::Cancelled,
        Some("resolved") => AgUiResumeStatus::Resolved(entry.get("payload").cloned().unwrap_or_default()),
        _ => return Err(InvalidField::new(field_path(&field, "status"), "expected `resolved` or `cancelled`")),
    };
    Ok(AgUiResume { field, interrupt_id: interrupt_id.to_owned(), status })
}

/// `forwardedProps.command.resume`: the answer of a client that was told of the interrupt by the custom event
/// `on_interrupt`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiLegacyAnswer {
    payload: ExactValue,
    /// The interrupts of the event, which the client sends back.
    interrupt_ids: Vec<String>,
}

impl AgUiLegacyAnswer {
    pub(super) fn parse(command: &ExactValue) -> Option<Self> {
        let command = as_object(command)?;
        let payload = command.get("resume").filter(|payload| **payload != ExactValue::Null)?;
        let payload = match payload {
            ExactValue::String(text) => parse_decision_text(text).unwrap_or_else(|| payload.clone()),
            _ => payload.clone(),
        };
        let interrupt_ids = command.get("interruptEvent").map(event_interrupt_ids).unwrap_or_default();
        Some(Self { payload, interrupt_ids })
    }

    /// Whether it names no interrupt, and means the open one.
    pub const fn is_for_open_interrupt(&self) -> bool {
        self.interrupt_ids.is_empty()
    }

    /// The entries that it stands for, given the ids of the open interrupts. For several open ones its payload has to be
    /// an object with one answer per id: one click must not approve what a person has not seen.
    pub fn entries(&self, open: &[&str]) -> Result<Vec<AgUiResume>, InvalidField> {
        let invalid = |reason: &str| Err(InvalidField::new(LEGACY_FIELD, reason));
        let of_event: Vec<&str> = self.interrupt_ids.iter().map(String::as_str).collect();
        let ids = if of_event.is_empty() { open } else { of_event.as_slice() };
        if let Some(by_id) = as_object(&self.payload)
            && !by_id.is_empty()
            && by_id.keys().all(|id| ids.contains(&id.as_str()))
        {
            return Ok(by_id.iter().map(|(id, payload)| legacy_entry(id, payload)).collect());
        }
        match ids {
            [] => invalid("nothing waits for an answer"),
            [id] => Ok(vec![legacy_entry(id, &self.payload)]),
            _ => invalid("several interrupts wait: send `resume`, or an object with an answer for each id"),
        }
    }
}

fn legacy_entry(id: &str, payload: &ExactValue) -> AgUiResume {
    let status = AgUiResumeStatus::Resolved(payload.clone());
    AgUiResume { field: LEGACY_FIELD.to_owned(), interrupt_id: id.to_owned(), status }
}

/// The value of the event `on_interrupt` is the interrupt, or an object with several.
fn event_interrupt_ids(event: &ExactValue) -> Vec<String> {
    let parsed = match event {
        ExactValue::String(text) => ExactValue::parse(text).unwrap_or_default(),
        event => event.clone(),
    };
    let Some(event) = as_object(&parsed) else { return Vec::new() };
    let id = |interrupt: &ExactObject| text_member(interrupt, "id").map(shorten);
    match event.get("interrupts") {
        Some(ExactValue::Array(list)) => list.iter().filter_map(as_object).filter_map(id).collect(),
        _ => id(event).into_iter().collect(),
    }
}

/// The decision in a tool message for a call that waits for an approval; `None` if it is none, and then the message is
/// only the client's note of its own answer.
pub fn parse_tool_message_decision(content: &[ContentPart]) -> Option<ApprovalDecision> {
    let [ContentPart::Text { text, .. }] = content else { return None };
    read_decision(&parse_decision_text(text)?)
}

/// JSON, or one of the words that people type.
fn parse_decision_text(text: &str) -> Option<ExactValue> {
    let text = text.trim();
    if text.len() > DECISION_TEXT_BYTES_MAX {
        return None;
    }
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" => Some(ExactValue::Bool(true)),
        "no" | "false" => Some(ExactValue::Bool(false)),
        _ => ExactValue::parse(text).ok(),
    }
}

fn read_decision(payload: &ExactValue) -> Option<ApprovalDecision> {
    use ApprovalDecisionKind::{Approve, Edit, Reject};
    let members = match payload {
        ExactValue::Bool(true) => return Some(decision(Approve, None)),
        ExactValue::Bool(false) => return Some(rejection(None)),
        ExactValue::Object(members) => members,
        _ => return None,
    };
    let reason = optional_member(members, &["reason", "message"], |value| match value {
        ExactValue::String(text) => Some(text.clone()),
        _ => None,
    })?;
    let reason = reason.filter(|reason| !reason.is_empty());
    let args = optional_member(members, &["editedArgs", "arguments", "args"], |value| {
        as_object(value).map(|_| value.clone())
    })?;
    let always = optional_member(members, &["always"], as_bool)?.unwrap_or(false);
    let kind = match read_decision_kind(members)? {
        Reject => return Some(rejection(reason)),
        Edit if args.is_none() => return None,
        Approve | Edit => args.as_ref().map_or(Approve, |_| Edit),
    };
    Some(ApprovalDecision { kind, always, message: reason, args })
}

/// `approved` or `accepted`, else `decision` or `type`.
fn read_decision_kind(members: &ExactObject) -> Option<ApprovalDecisionKind> {
    let flags = ["approved", "accepted"].iter().filter_map(|name| present_member(members, name));
    let flags: Vec<Option<bool>> = flags.map(as_bool).collect();
    match flags.as_slice() {
        [] => match text_member(members, "decision").or_else(|| text_member(members, "type"))? {
            "approve" => Some(ApprovalDecisionKind::Approve),
            "reject" => Some(ApprovalDecisionKind::Reject),
            "edit" => Some(ApprovalDecisionKind::Edit),
            _ => None,
        },
        [first, rest @ ..] if rest.iter().all(|flag| flag == first) => first
            .map(|is_approved| if is_approved { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject }),
        _ => None,
    }
}

/// The first of the members that is present; `None` if it has the wrong type.
fn optional_member<T>(
    members: &ExactObject,
    names: &[&str],
    convert: impl Fn(&ExactValue) -> Option<T>,
) -> Option<Option<T>> {
    match names.iter().find_map(|name| present_member(members, name)) {
        None => Some(None),
        Some(value) => convert(value).map(Some),
    }
}

fn decision(kind: ApprovalDecisionKind, message: Option<String>) -> ApprovalDecision {
    ApprovalDecision { kind, always: false, message, args: None }
}

fn rejection(message: Option<String>) -> ApprovalDecision {
    decision(ApprovalDecisionKind::Reject, message)
}

fn present_member<'a>(members: &'a ExactObject, name: &str) -> Option<&'a ExactValue> {
    members.get(name).filter(|value| **value != ExactValue::Null)
}

fn text_member<'a>(members: &'a ExactObject, name: &str) -> Option<&'a str> {
    match members.get(name) {
        Some(ExactValue::String(text)) => Some(text),
        _ => None,
    }
}

fn as_object(value: &ExactValue) -> Option<&ExactObject> {
    match value {
        ExactValue::Object(members) => Some(members),
        _ => None,
    }
}

fn as_bool(value: &ExactValue) -> Option<bool> {
    match value {
        ExactValue::Bool(value) => Some(*value),
        _ => None,
    }
}
