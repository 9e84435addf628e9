//! Sub-agents: runs inside a run, which their events name.

use super::{EventProjector, subagent_id};
use crate::agui::wire::{AgUiEvent, AgUiOutcome, AgUiResult};
use crate::run_end::CANCELLED_MESSAGE;
use model::event::Event;
use model::fold::{RunFold, TaskFold};

/// A sub-agent, with the call that started it.
pub(in crate::agui) fn subagent_started<'a>(run: &'a RunFold, task: &'a TaskFold) -> AgUiEvent<'a> {
    let parent = task.spec.parent_task_id.as_ref().and_then(|parent| run.task(parent));
    AgUiEvent {
        subagent_run_id: Some(task.id.as_str()),
        parent_subagent_run_id: parent.and_then(subagent_id),
        // The task has the id of the call.
        parent_tool_call_id: Some(task.id.as_str()),
        name: Some(&task.agent),
        ..AgUiEvent::new("SUBAGENT_STARTED")
    }
}

impl<'a> EventProjector<'a, '_> {
    pub(super) fn start_subagent(&mut self, task: &'a TaskFold) {
        self.push(subagent_started(self.run, task));
    }

    pub(super) fn end_subagent(&mut self, event: &'a Event) {
        self.state.step_messages.remove(&self.task.id);
        let finished = AgUiEvent { outcome: Some(AgUiOutcome::SUCCESS), ..AgUiEvent::new("SUBAGENT_FINISHED") };
        let failed = AgUiEvent::new("SUBAGENT_ERROR");
        match event {
            Event::Incomplete(e) => {
                let result = Some(AgUiResult { reason: Some(e.reason.as_str()), ..AgUiResult::default() });
                self.push_tagged(AgUiEvent { result, ..finished });
            }
            Event::Failed(e) => {
                let (message, code) = (Some(e.error.message.as_str()), Some(e.error.code.as_str()));
                self.push_tagged(AgUiEvent { message, code, ..failed });
            }
            Event::Cancelled(_) => {
                self.push_tagged(AgUiEvent { message: Some(CANCELLED_MESSAGE), code: Some("cancelled"), ..failed });
            }
            _ => self.push_tagged(finished),
        }
    }
}
