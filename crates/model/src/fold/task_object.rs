//! Renders a fold as a JSON object.

use super::{RunFold, TaskFold};
use crate::id::TaskId;
use crate::item::Block;
use crate::item::Item;
use crate::task::TaskObject;
use crate::usage::Usage;

impl RunFold {
    /// Renders a task, with the items of its sub-agents embedded.
    pub fn task_object(&self, id: &TaskId) -> Option<TaskObject> {
        let task = self.task(id)?;
        Some(self.object_with_output(task, self.rendered_output(task)))
    }

    /// Like [`Self::task_object`] of a fold that is not needed any more: its texts, which may be long, are not copied.
    pub fn into_task_object(mut self, id: &TaskId) -> Option<TaskObject> {
        let task = self.tasks.iter_mut().find(|task| task.id == *id)?;
        let items = std::mem::take(&mut task.items);
        let output = items.into_iter().map(|fold| self.embed_sub_agent(id, fold.item)).collect();
        Some(self.object_with_output(self.task(id)?, output))
    }

    fn object_with_output(&self, task: &TaskFold, output: Vec<Item>) -> TaskObject {
        TaskObject {
            task_id: task.id.clone(),
            thread_id: task.spec.thread_id.clone(),
            agent: task.agent.clone(),
            status: task.status,
            output,
            pending: task.pending.clone(),
            usage: self.total_usage(task),
            error: task.error.clone(),
            reason: task.reason.clone(),
            metadata: task.spec.metadata.clone(),
            created_at: task.created_at,
            ended_at: task.ended_at,
            seq: self.seq,
        }
    }

    /// Tokens of a task and all of its descendants.
    pub fn total_usage(&self, task: &TaskFold) -> Usage {
        if let Some(total) = task.total_usage {
            return total;
        }
        let mut sum = task.usage;
        for child in self.tasks.iter().filter(|child| child.spec.parent_task_id.as_ref() == Some(&task.id)) {
            sum.add(self.total_usage(child));
        }
        sum
    }

    fn rendered_output(&self, task: &TaskFold) -> Vec<Item> {
        task.items.iter().map(|fold| self.embed_sub_agent(&task.id, fold.item.clone())).collect()
    }

    /// Embeds a sub-agent's items into the result of the call that started it.
    fn embed_sub_agent(&self, task: &TaskId, mut item: Item) -> Item {
        if let Item::ToolResult(result) = &mut item {
            // Terminates, because a child is created by its parent and `create_task` refuses duplicates.
            let child =
                self.task(&result.call_id.child_task_id()).filter(|c| c.spec.parent_task_id.as_ref() == Some(task));
            if let Some(child) = child {
                let blocks = result.block_list.get_or_insert_default();
                blocks.extend(self.rendered_output(child).into_iter().map(Block::from));
            }
        }
        item
    }
}
