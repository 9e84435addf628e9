//! Chunks → the message, as the SDK's own reducer makes it.

use super::project::UiStreamProjection;
use super::wire::{UiChunk, UiInputPart, UiSink, input_parts};
use super::{UI_STREAM_PROTOCOL, UiVersion};
use model::event::{ApprovalDecisionKind, InputMessage};
use model::fold::RunFold;
use model::item::Role;
use model::json::{ExactObject, ExactValue, to_exact_value};
use model::{Record, TaskId};
use serde::Serialize;
use serde_with::skip_serializing_none;

const STEP_START: &str = "step-start";
const DYNAMIC_TOOL: &str = "dynamic-tool";
const STREAMING: &str = "streaming";
const INPUT_STREAMING: &str = "input-streaming";

/// A message, in the SDK's shape.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UiMessage {
    pub id: String,
    pub role: &'static str,
    pub metadata: Option<ExactValue>,
    pub parts: Vec<UiPart>,
}

/// A part of a message. Every type of part has a few of the optional members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiPart {
    #[serde(rename = "type")]
    part_type: String,
    id: Option<String>,
    text: Option<String>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    state: Option<&'static str>,
    title: Option<String>,
    tool_metadata: Option<ExactValue>,
    input: Option<ExactValue>,
    raw_input: Option<String>,
    output: Option<ExactValue>,
    error_text: Option<String>,
    preliminary: Option<bool>,
    provider_executed: Option<bool>,
    approval: Option<UiPartApproval>,
    source_id: Option<String>,
    media_type: Option<String>,
    filename: Option<String>,
    url: Option<String>,
    citations: Option<ExactValue>,
    provider_metadata: Option<ExactValue>,
    parts: Option<ExactValue>,
    data: Option<ExactValue>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct UiPartApproval {
    id: String,
    descriptor: Option<ExactValue>,
    request_reason: Option<String>,
    approved: Option<bool>,
    reason: Option<String>,
}

/// The messages of one run: the user's, and the assistant's as its stream has made it so far.
#[derive(Debug)]
pub struct UiRunMessages {
    projection: UiStreamProjection,
    answer: UiMessageBuilder,
}

impl UiRunMessages {
    pub fn new(run: TaskId, version: UiVersion) -> Self {
        let answer = UiMessageBuilder { version, ..UiMessageBuilder::default() };
        Self { projection: UiStreamProjection::new(run, 1, u32::MAX, version), answer }
    }

    /// Applies the next record of the run. It may be a condensed one.
    pub fn read_record(&mut self, record: &Record) {
        self.projection.read_record(record, &mut self.answer);
    }

    /// Oldest first. Empty before the run's first record.
    pub fn into_messages(self) -> Vec<UiMessage> {
        let Some(root) = self.projection.fold().root() else { return Vec::new() };
        let client = root.spec.client.as_ref().filter(|client| client.protocol == UI_STREAM_PROTOCOL);
        let ids = client.map_or(&[][..], |client| &client.message_ids);
        // The log has one message for those that a client sent together, and the client finds it by the last of them.
        let client_id = ids.last().filter(|_| root.spec.input.len() == 1);
        let input = root.spec.input.iter().map(|message| input_message(message, client_id));
        let mut messages: Vec<UiMessage> = input.collect();
        let mut answer = self.answer.message;
        answer.parts.iter_mut().for_each(|part| set_decision(part, self.projection.fold()));
        messages.push(answer);
        messages
    }
}

/// Completes the approval of a call with its decision. A stream of version 6 has none; what the SDK accepts as a message
/// has one exactly where the call has ended as it says.
fn set_decision(part: &mut UiPart, run: &RunFold) {
    let Some(approval) = &mut part.approval else { return };
    let requests = run.tasks.iter().flat_map(|task| &task.approvals);
    let decision = requests.filter(|(request, _)| request.key.as_str() == approval.id).find_map(|(_, it)| it.as_ref());
    let is_approved =
        decision.map(|decision| decision.decisions.iter().all(|it| it.kind != ApprovalDecisionKind::Reject));
    let fits = match part.state {
        Some("output-available" | "output-error") => is_approved == Some(true),
        Some("output-denied") => is_approved == Some(false),
        // The call runs, or waits for the client.
        Some("input-available") => false,
        _ => return,
    };
    if !fits {
        part.approval = None;
        return;
    }
    let message = decision.and_then(|decision| decision.decisions.iter().find_map(|it| it.message.clone()));
    approval.approved = is_approved;
    approval.reason = approval.reason.take().or(message);
}

fn input_message(message: &InputMessage, client_id: Option<&String>) -> UiMessage {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
    };
    let id = client_id.cloned().unwrap_or_else(|| message.id.to_string());
    UiMessage { id, role, metadata: None, parts: input_parts(message).into_iter().map(UiPart::from).collect() }
}

impl From<UiInputPart> for UiPart {
    fn from(part: UiInputPart) -> Self {
        let UiInputPart { part_type, text, media_type, filename, url } = part;
        Self { part_type: part_type.to_owned(), text, media_type, filename, url, ..Self::default() }
    }
}

/// The assistant's message, chunk by chunk. A chunk that does not fit is ignored: the stream was made here.
#[derive(Debug, Default)]
pub(super) struct UiMessageBuilder {
    version: UiVersion,
    message: UiMessage,
    /// The ids of open texts and reasoning, with the indices of their parts.
    open_parts: Vec<(String, usize)>,
}

impl UiSink for UiMessageBuilder {
    fn push(&mut self, chunk: &UiChunk<'_>) {
        match chunk.chunk_type() {
            "start" => {
                self.message.role = "assistant";
                self.message.id = chunk.message_id.unwrap_or_default().to_owned();
                self.merge_metadata(chunk);
            }
            "finish" | "message-metadata" => self.merge_metadata(chunk),
            "start-step" => self.add_part(UiPart::new(STEP_START)),
            "finish-step" if self.version == UiVersion::Six => self.open_parts.clear(),
            "reset-step" => self.reset_step(),
            "text-start" => self.open_part(chunk, UiPart::new("text")),
            "reasoning-start" => {
                let id = chunk.id.as_ref().map(ToString::to_string);
                self.open_part(chunk, UiPart { id, ..UiPart::new("reasoning") });
            }
            "text-delta" | "reasoning-delta" => {
                if let Some(part) = self.find_open_part(chunk) {
                    part.text.get_or_insert_default().push_str(chunk.delta.unwrap_or_default());
                }
            }
            "text-end" | "reasoning-end" => self.close_part(chunk),
            "source-url" | "source-document" | "file" => self.add_part(UiPart {
                source_id: chunk.source_id.as_ref().map(ToString::to_string),
                url: chunk.url.map(str::to_owned),
                media_type: chunk.media_type.map(str::to_owned),
                title: chunk.title.as_ref().map(ToString::to_string),
                filename: chunk.filename.map(str::to_owned),
                ..UiPart::new(chunk.chunk_type())
            }),
            "steering-message" => {
                let (id, parts) =
                    (chunk.id.as_ref().map(ToString::to_string), chunk.parts.as_ref().map(to_exact_value));
                self.add_part(UiPart { id, parts, ..UiPart::new("steering-message") });
            }
            data if data.starts_with("data-") => self.set_data(chunk),
            tool if tool.starts_with("tool-") => self.on_tool_chunk(chunk),
            _ => {}
        }
    }
}

impl UiPart {
    fn new(part_type: impl Into<String>) -> Self {
        Self { part_type: part_type.into(), ..Self::default() }
    }

    fn is_call(&self, chunk: &UiChunk<'_>) -> bool {
        self.tool_call_id.is_some() && self.tool_call_id.as_deref() == chunk.tool_call_id
    }
}

impl UiMessageBuilder {
    fn add_part(&mut self, part: UiPart) {
        self.message.parts.push(part);
    }

    fn merge_metadata(&mut self, chunk: &UiChunk<'_>) {
        let Some(metadata) = &chunk.message_metadata else { return };
        let ExactValue::Object(members) = to_exact_value(metadata) else { return };
        let before = self.message.metadata.get_or_insert_with(|| ExactValue::Object(ExactObject::new()));
        if let ExactValue::Object(before) = before {
            merge_objects(before, members);
        }
    }

    fn open_part(&mut self, chunk: &UiChunk<'_>, part: UiPart) {
        let id = chunk.id.as_ref().map(ToString::to_string);
        self.open_parts.push((id.unwrap_or_default(), self.message.parts.len()));
        self.add_part(UiPart { text: Some(String::new()), state: Some(STREAMING), ..part });
    }

    fn find_open_part(&mut self, chunk: &UiChunk<'_>) -> Option<&mut UiPart> {
        let id = chunk.id.as_ref().map(ToString::to_string)?;
        let (_, index) = self.open_parts.iter().find(|(open, _)| *open == id)?;
        self.message.parts.get_mut(*index)
    }

    fn close_part(&mut self, chunk: &UiChunk<'_>) {
        if let Some(part) = self.find_open_part(chunk) {
            part.state = Some("done");
            part.citations = chunk.citations.as_ref().map(to_exact_value);
            part.provider_metadata = chunk.provider_metadata.as_ref().map(to_exact_value);
        }
        let id = chunk.id.as_ref().map(ToString::to_string);
        self.open_parts.retain(|(open, _)| Some(open) != id.as_ref());
    }

    fn current_step(&self) -> usize {
        self.message.parts.iter().rposition(|part| part.part_type == STEP_START).map_or(0, |index| index + 1)
    }

    fn reset_step(&mut self) {
        self.open_parts.clear();
        self.message.parts.truncate(self.current_step());
    }

    fn set_data(&mut self, chunk: &UiChunk<'_>) {
        if chunk.is_transient() {
            return;
        }
        let (id, data) = (chunk.id.as_ref().map(ToString::to_string), chunk.data.clone());
        let same = |part: &&mut UiPart| part.part_type == chunk.chunk_type() && part.id == id;
        match self.message.parts.iter_mut().find(same).filter(|_| id.is_some()) {
            Some(part) => part.data = data,
            None => self.add_part(UiPart { id, data, ..UiPart::new(chunk.chunk_type()) }),
        }
    }

    fn on_tool_chunk(&mut self, chunk: &UiChunk<'_>) {
        match chunk.chunk_type() {
            "tool-input-start" => self.set_input(chunk, INPUT_STREAMING),
            "tool-input-available" => self.set_input(chunk, "input-available"),
            "tool-input-error" => self.set_input(chunk, "output-error"),
            "tool-input-delta" => {
                let step = self.current_step();
                let mut parts = self.message.parts.iter_mut().skip(step);
                if let Some(part) = parts.find(|part| part.is_call(chunk)) {
                    part.raw_input.get_or_insert_default().push_str(chunk.input_text_delta.unwrap_or_default());
                    part.input = part.raw_input.as_deref().and_then(|text| ExactValue::parse(text).ok());
                }
            }
            "tool-approval-response" => {
                let id = chunk.approval_id;
                let is_asked = |part: &&mut UiPart| part.approval.as_ref().map(|approval| approval.id.as_str()) == id;
                if let Some(part) = self.message.parts.iter_mut().find(is_asked) {
                    part.state = Some("approval-responded");
                    if let Some(approval) = &mut part.approval {
                        approval.approved = chunk.approved;
                        approval.reason = chunk.reason.map(str::to_owned).or(approval.reason.take());
                    }
                }
            }
            _ => {
                if let Some(part) = self.message.parts.iter_mut().rev().find(|part| part.is_call(chunk)) {
                    set_output(part, chunk);
                }
            }
        }
    }

    /// Adds a call, or changes it in place if the last step has it.
    fn set_input(&mut self, chunk: &UiChunk<'_>, state: &'static str) {
        let step = self.current_step();
        let index = self.message.parts.iter().skip(step).position(|part| part.is_call(chunk)).map(|at| at + step);
        let index = index.unwrap_or_else(|| {
            let tool_call_id = chunk.tool_call_id.map(str::to_owned);
            self.add_part(UiPart { tool_call_id, ..UiPart::default() });
            self.message.parts.len() - 1
        });
        let version = self.version;
        let Some(part) = self.message.parts.get_mut(index) else { return };
        let name = chunk.tool_name.unwrap_or_default();
        if chunk.dynamic == Some(true) || part.part_type == DYNAMIC_TOOL {
            part.part_type = DYNAMIC_TOOL.to_owned();
            part.tool_name = Some(name.to_owned());
        } else {
            part.part_type = format!("tool-{name}");
        }
        part.state = Some(state);
        part.input.clone_from(&chunk.input);
        (part.raw_input, part.output, part.preliminary) = (None, None, None);
        part.error_text = chunk.error_text.as_ref().map(ToString::to_string);
        part.provider_executed = chunk.provider_executed.or(part.provider_executed);
        part.title = chunk.title.as_ref().map(ToString::to_string).or(part.title.take());
        part.tool_metadata = chunk.tool_metadata.as_ref().map(to_exact_value).or(part.tool_metadata.take());
        // Version 6 has the text of a call that a client's tool cannot get beside the input.
        if version == UiVersion::Six
            && part.part_type != DYNAMIC_TOOL
            && part.error_text.is_some()
            && let Some(ExactValue::String(text)) = part.input.take()
        {
            part.raw_input = Some(text);
        }
    }
}

fn set_output(part: &mut UiPart, chunk: &UiChunk<'_>) {
    match chunk.chunk_type() {
        "tool-approval-request" => {
            part.state = Some("approval-requested");
            part.approval = Some(UiPartApproval {
                id: chunk.approval_id.unwrap_or_default().to_owned(),
                descriptor: chunk.approval_descriptor.as_ref().map(to_exact_value),
                request_reason: chunk.reason.map(str::to_owned),
                ..UiPartApproval::default()
            });
        }
        "tool-output-denied" => part.state = Some("output-denied"),
        "tool-output-available" => {
            part.state = Some("output-available");
            part.output.clone_from(&chunk.output);
            part.preliminary = chunk.preliminary;
            (part.error_text, part.raw_input) = (None, None);
            part.provider_executed = chunk.provider_executed.or(part.provider_executed);
        }
        "tool-output-error" => {
            part.state = Some("output-error");
            part.error_text = chunk.error_text.as_ref().map(ToString::to_string);
            (part.output, part.preliminary, part.raw_input) = (None, None, None);
            part.provider_executed = chunk.provider_executed.or(part.provider_executed);
        }
        _ => {}
    }
}

/// Members of members are merged; everything else is replaced.
fn merge_objects(before: &mut ExactObject, members: ExactObject) {
    for (name, value) in members {
        match (before.get_mut(&name), value) {
            (Some(ExactValue::Object(before)), ExactValue::Object(members)) => merge_objects(before, members),
            (_, value) => drop(before.insert(name, value)),
        }
    }
}
