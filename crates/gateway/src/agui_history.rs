//! Runs and messages under the ids that clients of AG-UI gave to them.

use crate::context::Gateway;
use crate::known_items::{ConversationRef, find_known_prefix};
use crate::rejection::Rejection;
use crate::run_lookup::{for_each_record_of_run, newest_runs, queued_runs};
use model::event::{Event, TaskCreated};
use model::ports::{PageLimit, RunRow};
use model::{TaskId, ThreadId, UserId};
use protocol::agui::{AG_UI_PROTOCOL, agui_run_id};
use protocol::client_input::{ClientInput, InputKind};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// The newest runs of a thread in which an id of a client is looked for.
const NAMED_RUNS_MAX: usize = 20;

/// The number of messages that the thread has: all up to the last one that a run produced, or that a run has as its input.
pub(crate) async fn known_message_count(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    items: &[ClientInput],
) -> Result<usize, Rejection> {
    let conversation = ConversationRef::InThread(thread.clone());
    let (known, _) = find_known_prefix(gateway, user, items, conversation).await?;
    let rest = items.get(known..).unwrap_or_default();
    let is_message = |item: &ClientInput| matches!(item.kind, InputKind::User(_) | InputKind::ItemReference);
    if !rest.iter().any(is_message) {
        return Ok(known);
    }
    let last_run = known.checked_sub(1).and_then(|last| items.get(last)?.run_id());
    let ids = recent_message_ids(gateway, user, thread, last_run.as_ref()).await?;
    let is_known = |item: &ClientInput| is_message(item) && item.id.as_ref().is_some_and(|id| ids.contains(id));
    Ok(rest.iter().rposition(is_known).map_or(known, |last| known + last + 1))
}

/// The ids of the messages that runs after this one have as their input.
async fn recent_message_ids(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    last_run: Option<&TaskId>,
) -> Result<HashSet<String>, Rejection> {
    let queued = queued_runs(gateway, user, thread, AG_UI_PROTOCOL).await?;
    let mut ids: HashSet<String> = queued.into_iter().flat_map(|(_, client)| client.message_ids).collect();
    let journal = &gateway.engine.ports().journal;
    let newest = newest_runs(gateway, user, thread, NAMED_RUNS_MAX).await?;
    for row in newest.into_iter().take_while(|row| Some(&row.id) != last_run) {
        let Some(first) = row.first_seq else { continue };
        let page = journal.read_page(user, thread, first.prev(), PageLimit::ONE).await?;
        if let Some(Event::Created(TaskCreated { task, .. })) = page.records.first().map(|record| record.event()) {
            ids.extend(task.client.iter().flat_map(|client| client.message_ids.iter().cloned()));
        }
    }
    Ok(ids)
}

/// Whether a client calls the run, or one of its segments, by this id.
pub(crate) async fn has_agui_run_id(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    id: &str,
) -> Result<bool, Rejection> {
    let mut segment = 1;
    let found = for_each_record_of_run(gateway, user, run, |record| {
        let client = match record.event() {
            Event::Created(created) if created.task.parent_task_id.is_none() => created.task.client.as_ref(),
            Event::Resumed(resumed) => {
                segment += 1;
                resumed.client.as_ref()
            }
            _ => return ControlFlow::Continue(()),
        };
        let named = client.filter(|client| client.protocol == AG_UI_PROTOCOL).and_then(|client| client.run_id.as_ref());
        let is_named = named.map_or_else(|| agui_run_id(&run.id, segment) == id, |named| named == id);
        if is_named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(found.await?.is_some())
}

/// The run of the thread that a client calls by this id.
pub(crate) async fn find_run_by_agui_id(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    id: &str,
) -> Result<Option<TaskId>, Rejection> {
    if let Some(run) = TaskId::from(id).run_id() {
        let row = gateway.engine.run_of_task(user, &run).await?;
        return Ok(row.filter(|row| row.thread == *thread).map(|row| row.id));
    }
    for row in newest_runs(gateway, user, thread, NAMED_RUNS_MAX).await? {
        if has_agui_run_id(gateway, user, &row, id).await? {
            return Ok(Some(row.id));
        }
    }
    Ok(None)
}
