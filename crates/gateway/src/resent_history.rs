//! Messages and Chat Completions: protocols whose clients resend the whole history and know neither threads nor runs.
//!
//! Items that such a client resends are recognized by the ids of tool calls, and of reasoning where the protocol has it.
//! Messages after the last of these have no ids, so they are compared with the log: messages that started a run of the same
//! thread are history, and the first that did not is where the conversation continues.

use crate::answers::ResolvedStart;
use crate::context::Gateway;
use crate::rejection::{Rejection, unknown_agent_detail};
use crate::resent_runs::follow_resent_runs;
use crate::resolve_run::{ConversationRef, ResolvedRun, find_known_prefix};
use crate::run_lookup::{RunStart, find_run_start, for_each_condensed_record, for_each_record_of_run};
use crate::stream_start::{StreamPosition, StreamStart, StreamView};
use model::UserId;
use model::error::ErrorCode;
use model::event::Event;
use model::ports::{Frames, IdempotencyKey, Projection};
use protocol::client_input::{ClientInput, InputKind};
use protocol::stateless::{StatelessRequest, is_client_tool_pause};
use std::ops::ControlFlow;

/// The checks that need no history.
pub async fn check_stateless_request(
    gateway: &Gateway,
    user: &UserId,
    request: &StatelessRequest,
    key: Option<&IdempotencyKey>,
) -> Result<(), Rejection> {
    let parts_max = gateway.limits.parts_max;
    let has_too_many_parts = |item: &ClientInput| match &item.kind {
        InputKind::User(parts) | InputKind::ToolResult { content: parts, .. } => parts.len() > parts_max,
        _ => false,
    };
    if request.input.iter().any(has_too_many_parts) {
        return Err(Rejection::invalid_field("messages", format!("a message can have {parts_max} parts at most")));
    }
    let is_known = gateway.engine.ports().definitions.get().resolve_agent(&request.model).is_some();
    // A repeated request stays valid, whatever agents there are now.
    if is_known || gateway.engine.find_submission(user, key).await?.is_some() {
        return Ok(());
    }
    Err(Rejection::new(ErrorCode::ModelNotFound, unknown_agent_detail(&request.model)).with_field("model"))
}

/// Splits a resent history: returns the new items, and the conversation that they continue.
pub async fn split_resent_history(
    gateway: &Gateway,
    user: &UserId,
    mut items: Vec<ClientInput>,
) -> Result<(Vec<ClientInput>, ConversationRef), Rejection> {
    // A tool result names its call, and with it the run.
    let is_user_message = |item: &ClientInput| matches!(item.kind, InputKind::User(_));
    if !items.last().is_some_and(is_user_message) {
        return Ok((items, ConversationRef::Unspecified));
    }
    let (known, conversation) = find_known_prefix(gateway, user, &items, ConversationRef::Unspecified).await?;
    let ConversationRef::AfterRun(run) = conversation else { return Ok((items, conversation)) };
    let mut rest = items.split_off(known);
    let run = follow_resent_runs(gateway, user, *run, &mut rest).await?;
    // Items before the first message are the run's output.
    let is_new = |item: &ClientInput| matches!(item.kind, InputKind::User(_) | InputKind::System(_));
    let first_new = rest.iter().position(is_new).unwrap_or(rest.len());
    Ok((rest.split_off(first_new), ConversationRef::AfterRun(Box::new(run))))
}

/// The segment of a resolved run as clients of these protocols count: only pauses for client tools start another.
pub async fn client_tool_segment(gateway: &Gateway, user: &UserId, resolved: &ResolvedRun) -> Result<u32, Rejection> {
    let (mut pauses, mut segment) = (1, 1);
    if resolved.segment == 1 {
        return Ok(segment);
    }
    let RunStart { run, .. } = find_run_start(gateway, user, &resolved.run).await?;
    for_each_record_of_run(gateway, user, &run, |record| {
        if matches!(record.event(), Event::Paused(_)) {
            pauses += 1;
            segment += u32::from(is_client_tool_pause(record.event()));
        }
        if pauses < resolved.segment { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .await?;
    Ok(segment)
}

/// The stream of a resolved run's segment.
pub async fn start_of_segment(
    gateway: &Gateway,
    user: &UserId,
    resolved: &ResolvedRun,
    name: String,
    projection: Box<dyn Projection>,
) -> Result<StreamStart, Rejection> {
    let ResolvedStart { before, queued_run, .. } = resolved.find_start(gateway, user).await?;
    let view = StreamView { name, dialect: "", projection };
    let position = StreamPosition::after(before);
    Ok(StreamStart::new(resolved.thread.clone(), view, position).with_queued_run(queued_run, None))
}

/// Whether the log holds a whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEnd {
    Reached,
    /// The run was cancelled before it started, and has left no record.
    Missing,
}

/// Projects the records of a resolved run until `is_over`.
pub async fn project_segment<P: Projection>(
    gateway: &Gateway,
    user: &UserId,
    resolved: &ResolvedRun,
    projection: &mut P,
    is_over: impl Fn(&P) -> bool,
) -> Result<SegmentEnd, Rejection> {
    let ResolvedStart { before, .. } = resolved.find_start(gateway, user).await?;
    let over = for_each_condensed_record(gateway, user, &resolved.thread, before, |record| {
        projection.project(record, &mut Frames::discarded());
        if is_over(projection) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(if over.await?.is_some() { SegmentEnd::Reached } else { SegmentEnd::Missing })
}
