//! Runs whose messages a client resends without their ids: they are recognized by what the log has.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{RECENT_RUNS_MAX, newest_runs};
use model::content::ContentPart;
use model::event::{Event, TaskCreated};
use model::item::Item;
use model::ports::{PageLimit, RunRow};
use model::{TaskId, UserId};
use protocol::client_input::{ClientInput, InputKind};

/// Splits items after the last one that is known by its id: returns the new ones, and the run that they continue. Messages
/// of runs whose ids the client removed or replaced are history.
pub(crate) async fn split_altered_history(
    gateway: &Gateway,
    user: &UserId,
    run: RunRow,
    mut rest: Vec<ClientInput>,
) -> Result<(Vec<ClientInput>, RunRow), Rejection> {
    if rest.is_empty() {
        return Ok((rest, run));
    }
    let run = follow_resent_runs(gateway, user, run, &mut rest).await?;
    let task = gateway.engine.task_object(user, &run.id).await?;
    let texts: Vec<String> = task.iter().flat_map(|task| &task.output).filter_map(message_text).collect();
    let is_input = |item: &ClientInput| matches!(item.kind, InputKind::User(_) | InputKind::System(_));
    let first_input = rest.iter().position(is_input).unwrap_or(rest.len());
    let mut index = 0;
    rest.retain(|item| {
        index += 1;
        !matches!(&item.kind, InputKind::Assistant(text) if index <= first_input && texts.iter().any(|own| own.trim() == text.trim()))
    });
    Ok((rest, run))
}

fn message_text(item: &Item) -> Option<String> {
    match item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    }
}

/// Follows the later runs that started with the same messages, and removes these messages from `rest`. The last messages
/// stay: they are the new input.
pub(crate) async fn follow_resent_runs(
    gateway: &Gateway,
    user: &UserId,
    mut run: RunRow,
    rest: &mut Vec<ClientInput>,
) -> Result<RunRow, Rejection> {
    let groups = user_message_groups(rest);
    let Some((_, earlier)) = groups.split_last().filter(|(_, earlier)| !earlier.is_empty()) else { return Ok(run) };
    let later_runs = later_runs_of_thread(gateway, user, &run).await?;
    let mut known = 0;
    for group in earlier {
        // If a request was made twice, the client has seen the newer answer last.
        let next = later_runs.iter().rev().find(|later| later.previous == run.id && later.input == group.parts);
        let Some(next) = next else { break };
        run = next.row.clone();
        known = group.end;
    }
    rest.drain(..known);
    Ok(run)
}

/// Adjacent user messages.
struct MessageGroup {
    parts: Vec<ContentPart>,
    /// The index after the last message.
    end: usize,
}

fn user_message_groups(items: &[ClientInput]) -> Vec<MessageGroup> {
    let mut groups: Vec<MessageGroup> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let InputKind::User(parts) = &item.kind else { continue };
        match groups.last_mut() {
            Some(group) if group.end == index => {
                group.parts.extend(parts.iter().cloned());
                group.end = index + 1;
            }
            _ => groups.push(MessageGroup { parts: parts.clone(), end: index + 1 }),
        }
    }
    groups
}

struct LaterRun {
    row: RunRow,
    previous: TaskId,
    input: Vec<ContentPart>,
}

/// The runs of a thread after `run`, oldest first.
async fn later_runs_of_thread(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<Vec<LaterRun>, Rejection> {
    let journal = &gateway.engine.ports().journal;
    let newest = newest_runs(gateway, user, &run.thread, RECENT_RUNS_MAX).await?;
    let mut rows: Vec<RunRow> = newest.into_iter().take_while(|row| row.id != run.id).collect();
    rows.reverse();
    let mut later_runs = Vec::new();
    let mut before = run.id.clone();
    for row in rows {
        let Some(first) = row.first_seq else { continue };
        let page = journal.read_page(user, &row.thread, first.prev(), PageLimit::ONE).await?;
        let Some(Event::Created(TaskCreated { task, .. })) = page.records.first().map(|record| record.event()) else {
            continue;
        };
        let previous = task.previous.clone().unwrap_or(before);
        before = row.id.clone();
        let input = task.input.iter().flat_map(|message| message.content.iter().cloned()).collect();
        later_runs.push(LaterRun { row, previous, input });
    }
    Ok(later_runs)
}
