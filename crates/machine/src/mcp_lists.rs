//! Shows clients which tools the MCP servers of an agent have: before the first step that may call them, and once for each
//! list of a server in a thread. The model does not read these items; it has the tools themselves.

use crate::output::RunWriter;
use crate::positions::next_output_index;
use crate::state::RunState;
use model::TaskId;
use model::definition::McpList;
use model::event::{Event, ItemEvent};
use model::fold::ItemFold;
use model::item::{HostedCall, Item, ItemStatus, MCP_LIST_TOOLS};
use serde_json::json;

pub(crate) fn write_new_lists(writer: &mut RunWriter<'_>, id: &TaskId) {
    let Some(task) = writer.run.fold.task(id) else { return };
    let lists = writer.run.definitions.mcp_lists.iter();
    let new = lists.filter(|(label, list)| list.agents.contains(&task.agent) && !is_shown(writer.run, label, list));
    let new: Vec<String> = new.map(|(label, _)| label.clone()).collect();
    for label in new {
        write_list(writer, id, &label);
    }
}

/// Whether this run has shown the list, or an earlier one has shown the same. That a server did not answer, each run shows.
fn is_shown(run: &RunState, label: &str, list: &McpList) -> bool {
    let mut in_run = run.fold.tasks.iter().flat_map(|task| &task.items).filter_map(ItemFold::mcp_list);
    let in_thread = run.thread_fold.mcp_lists.get(label);
    in_run.any(|(shown, _)| shown == label) || (in_thread.is_some() && in_thread == list.digest.as_ref())
}

fn write_list(writer: &mut RunWriter<'_>, id: &TaskId, label: &str) {
    let Some(task) = writer.run.fold.task(id) else { return };
    let (output_index, agent) = (next_output_index(task), Some(task.agent.clone()));
    let has_answered = writer.run.definitions.mcp_lists.get(label).is_some_and(|list| list.digest.is_some());
    let (state, status) =
        if has_answered { ("completed", ItemStatus::Completed) } else { ("failed", ItemStatus::Failed) };
    let begun = HostedCall {
        id: writer.run.next_item_id("hc"),
        name: MCP_LIST_TOOLS.to_owned(),
        block_list: Some(Vec::new()),
        state: None,
        action: Some(json!({"server_label": label})),
        status: Some(ItemStatus::InProgress),
        reason: None,
        agent,
    };
    let done = HostedCall {
        state: Some(state.to_owned()),
        action: Some(writer.run.definitions.mcp_list_action(label)),
        status: Some(status),
        ..begun.clone()
    };
    let event = |call| ItemEvent { task_id: id.clone(), output_index, item: Item::HostedCall(call) };
    writer.emit(Event::ItemAdded(Box::new(event(begun))));
    writer.emit(Event::ItemDone(Box::new(event(done))));
}
