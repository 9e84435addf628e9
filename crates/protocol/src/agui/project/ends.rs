//! The ends of runs.

use super::{AgUiOptions, EventProjector};
use crate::agui::AgUiVersion;
use crate::agui::wire::{AgUiEvent, AgUiOutcome, AgUiResult};
use crate::run_end::CANCELLED_MESSAGE;
use model::event::Event;
use model::fold::TaskFold;
use model::task::TaskStatus;

/// The code of an error that clients of 0.0.59 show to nobody.
const ABORT_CODE: &str = "abort";

impl EventProjector<'_, '_> {
    pub(super) fn end_run(&mut self, event: &Event) {
        let (usage, run_id) = (self.state.token_usage(), self.state.run_id.clone());
        let thread_name = self.options.thread_name.as_str();
        let finished =
            AgUiEvent { thread_id: Some(thread_name), run_id: Some(&run_id), ..AgUiEvent::new("RUN_FINISHED") };
        let end = match event {
            Event::Incomplete(e) => {
                let result = Some(AgUiResult { reason: Some(e.reason.as_str()), ..AgUiResult::default() });
                AgUiEvent { result, ..finished.clone() }
            }
            Event::Failed(e) => {
                let (message, code) = (Some(e.error.message.as_str()), Some(e.error.code.as_str()));
                AgUiEvent { message, code, ..AgUiEvent::new("RUN_ERROR") }
            }
            Event::Cancelled(_) => cancelled_end(self.options.version, Some(thread_name), Some(&run_id)),
            _ => AgUiEvent { outcome: Some(AgUiOutcome::SUCCESS), ..finished.clone() },
        };
        // Only a run that finishes takes the interrupts from a client, and with interrupts it starts no other run. An error
        // may follow the end.
        if self.state.has_interrupts && end.event_type == "RUN_ERROR" {
            let result = Some(AgUiResult { status: Some(self.task.status.as_str()), ..AgUiResult::default() });
            self.push(AgUiEvent { result, ..finished });
        }
        self.push(AgUiEvent { usage, ..end });
        self.state.is_over = true;
    }
}

/// Clients of 0.0.59 do not know the outcome of a run that was stopped on purpose.
pub(in crate::agui) fn cancelled_end<'a>(
    version: AgUiVersion,
    thread_id: Option<&'a str>,
    run_id: Option<&'a str>,
) -> AgUiEvent<'a> {
    match version {
        AgUiVersion::V1 => {
            let outcome = Some(AgUiOutcome::Cancelled);
            AgUiEvent { thread_id, run_id, outcome, ..AgUiEvent::new("RUN_FINISHED") }
        }
        AgUiVersion::V0_0_59 => {
            let (message, code) = (Some(CANCELLED_MESSAGE), Some(ABORT_CODE));
            AgUiEvent { message, code, ..AgUiEvent::new("RUN_ERROR") }
        }
    }
}

/// The end of a run for a client that joins after it: a failure is no new error.
pub(in crate::agui) fn ended_outcome<'a>(
    root: &'a TaskFold,
    options: &'a AgUiOptions,
    run_id: &'a str,
) -> AgUiEvent<'a> {
    let (status, reason) = (Some(root.status.as_str()), root.reason.as_deref());
    let (result, outcome) = match root.status {
        TaskStatus::Failed => {
            let error = root.error.as_ref();
            (Some(AgUiResult { status, error, ..AgUiResult::default() }), None)
        }
        TaskStatus::Incomplete => (Some(AgUiResult { reason, ..AgUiResult::default() }), None),
        TaskStatus::Cancelled if options.version == AgUiVersion::V1 => (None, Some(AgUiOutcome::Cancelled)),
        TaskStatus::Cancelled => (Some(AgUiResult { status, ..AgUiResult::default() }), None),
        TaskStatus::Queued | TaskStatus::Running | TaskStatus::Paused | TaskStatus::Completed => {
            (None, Some(AgUiOutcome::SUCCESS))
        }
    };
    AgUiEvent {
        thread_id: Some(&options.thread_name),
        run_id: Some(run_id),
        result,
        outcome,
        ..AgUiEvent::new("RUN_FINISHED")
    }
}
