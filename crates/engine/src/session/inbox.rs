//! Commands: the rows of a thread's inbox, handled in order as far as possible.

use super::ThreadSession;
use crate::shared::{StopMode, ThreadContext};
use machine::{CancelTask, MachineInput, TimerId};
use model::TaskId;
use model::command::{AnswerCommand, CancelCause, CancelCommand, Command, StartCommand, SteerCommand};
use model::event::{CancelMode, DisplayMode, Initiator};
use model::json::ExactObject;
use model::model_settings::ModelSettings;
use model::ports::{DirectoryChange, INBOX_PAGE_ROWS, InboxRow, StoreError, Submission, SubmitError, ThreadMode};
use model::task::TaskStatus;
use std::collections::VecDeque;

/// The wait before a time-out is tried again whose approval request is not durable yet.
const APPROVAL_TIMEOUT_RETRY_MS: u64 = 50;
/// The same for one for which the disk has no room.
const NO_SPACE_RETRY_MS: u64 = 1_000;

impl ThreadSession<'_> {
    /// Reads the rows that are new since the last call: a row that waits is not decoded again.
    pub(crate) async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let ThreadContext { shared, owner, thread, .. } = self.context;
        loop {
            let rows = shared.ports.directory.inbox_page(owner, thread, self.last_row_read, INBOX_PAGE_ROWS).await?;
            let is_last_page = rows.len() < INBOX_PAGE_ROWS;
            self.last_row_read = rows.last().map_or(self.last_row_read, |row| row.id);
            self.waiting_rows.extend(rows);
            if is_last_page {
                return Ok(());
            }
        }
    }

    /// Handles every row that can be handled now. A start waits for the active run; commands to that run do not.
    pub(crate) fn handle_rows(&mut self, mode: StopMode) {
        let mut waiting = VecDeque::new();
        let mut answers = Vec::new();
        while let Some(row) = self.waiting_rows.pop_front() {
            // Adjacent answers are one input; what follows them in the inbox follows them in the log.
            if !matches!(row.command, Command::Answer(_)) {
                self.step_answers(&mut answers, &mut waiting);
            }
            match &row.command {
                Command::Answer(answer) => {
                    answers.push(answer.clone());
                    self.consume_row(row.id);
                }
                Command::Start(start) if self.can_start_run() && waiting.is_empty() && mode == StopMode::Running => {
                    let start = start.clone();
                    self.start_run(*start, row.id);
                }
                Command::Start(_) => waiting.push_back(row),
                Command::Cancel(cancel) => {
                    let CancelCommand { task_id, mode, cause } = cancel.clone();
                    self.consume_row(row.id);
                    if self.run.as_ref().is_some_and(|run| run.fold.task(&task_id).is_some()) {
                        self.step(match cause {
                            CancelCause::User => {
                                MachineInput::Cancel(CancelTask { task_id, mode, by: Initiator::User })
                            }
                            CancelCause::Deadline => MachineInput::Timer(TimerId::Run(task_id)),
                        });
                    } else {
                        self.cancel_queued_run(&task_id, &mut waiting, row.at);
                    }
                }
                Command::Steer(steer) if self.accepts_steer(steer) || (self.can_start_run() && waiting.is_empty()) => {
                    let steer = steer.clone();
                    self.handle_steer(steer, row.id);
                }
                // Its run is paused, or stops after this turn: it waits for the answer, or like a start.
                Command::Steer(_) => waiting.push_back(row),
            }
        }
        self.step_answers(&mut answers, &mut waiting);
        self.waiting_rows = waiting;
    }

    /// Handles a timer. The time-out of an approval is an answer like any other, and the deadline of a run a cancel: both are
    /// submitted to the inbox, and the first row decides. So the response to a client's answer agrees with the log.
    pub(crate) async fn on_timer(&mut self, timer: TimerId) -> Result<(), StoreError> {
        let (command, task_path) = match &timer {
            TimerId::Run(task_id) => {
                let (mode, cause) = (CancelMode::Immediate, CancelCause::Deadline);
                (Command::Cancel(CancelCommand { task_id: task_id.clone(), mode, cause }), Vec::new())
            }
            TimerId::Approval(key) => {
                let Some(run) = &self.run else { return Ok(()) };
                let Some(answer) = machine::timeout_answer(run, key) else { return Ok(()) };
                let task_path = machine::answered_tasks(&run.fold, &answer.body);
                (Command::Answer(answer), task_path)
            }
        };
        let context = self.context;
        let at = context.shared.ports.clock.now();
        let (thread, thread_mode) = (context.thread.clone(), ThreadMode::MustExist);
        let submission = Submission { thread, thread_mode, at, command, idempotency_key: None, task_path };
        match context.shared.ports.directory.writer(&context.owner)?.submit(&context.owner, submission).await {
            // The inbox has this command, or the answer that was first.
            Ok(_) | Err(SubmitError::AlreadyDecided(_)) => self.read_inbox().await,
            // The request is not durable yet, so there is no other answer either.
            Err(SubmitError::ApprovalNotFound) if self.in_flight.is_some() => {
                self.timers.arm(timer, at.saturating_add(APPROVAL_TIMEOUT_RETRY_MS), at);
                Ok(())
            }
            // The session may end meanwhile, so the thread is woken as well.
            Err(SubmitError::Store(StoreError::NoSpace)) => {
                let again = at.saturating_add(NO_SPACE_RETRY_MS);
                self.timers.arm(timer, again, at);
                context.shared.wake_schedule.schedule(&context.owner, &context.thread, again);
                Ok(())
            }
            Err(SubmitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Applies answers, and with them the input that waited for its paused run.
    fn step_answers(&mut self, answers: &mut Vec<AnswerCommand>, waiting: &mut VecDeque<InboxRow>) {
        let Some(root) = self.run.as_ref().and_then(|run| run.fold.root()).filter(|_| !answers.is_empty()) else {
            answers.clear();
            return;
        };
        let (run, known) = (root.id.clone(), root.inputs.len());
        let inputs: Vec<(u64, SteerCommand)> = waiting.iter().filter_map(|row| steer_to(&run, row)).collect();
        let steers = inputs.iter().map(|(_, steer)| steer.clone()).collect();
        self.step(MachineInput::Answers { answers: std::mem::take(answers), inputs: steers });
        // Answers to nothing open leave the run paused, and its input waiting.
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        if root.is_some_and(|root| root.inputs.len() > known) {
            waiting.retain(|row| steer_to(&run, row).is_none());
            inputs.into_iter().for_each(|(row, _)| self.consume_row(row));
        }
    }

    /// A running compaction does not keep a run from starting.
    fn can_start_run(&self) -> bool {
        self.run.is_none() && self.pending_start.is_none()
    }

    /// Whether the run reads this input now.
    fn accepts_steer(&self, steer: &SteerCommand) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root()).filter(|root| root.id == steer.task_id);
        root.is_some_and(|root| root.status == TaskStatus::Running && root.cancelling.is_none())
    }

    /// Drops a run that has not started. It leaves no records, only its row.
    fn cancel_queued_run(&mut self, task: &TaskId, waiting: &mut VecDeque<InboxRow>, at: model::Millis) {
        let queued = |row: &InboxRow| matches!(&row.command, Command::Start(start) if start.task_id == *task);
        let row = match waiting.iter().position(queued) {
            Some(index) => waiting.remove(index).map(|row| row.id),
            None => self.pending_start.take_if(|pending| pending.start.task_id == *task).map(|pending| pending.row),
        };
        if let Some(row) = row {
            self.consume_row(row);
            self.next_batch.changes.push(DirectoryChange::RunDropped { run: task.clone(), at });
        }
    }

    /// Adds input to the active run, or starts the next run with it.
    fn handle_steer(&mut self, steer: SteerCommand, row: u64) {
        if self.accepts_steer(&steer) {
            self.consume_row(row);
            self.step(MachineInput::Steer(steer));
            return;
        }
        let start = StartCommand {
            task_id: steer.fallback_task_id,
            agent: self.thread.fold.agent.clone().unwrap_or_default(),
            input: steer.input,
            previous: None,
            tools: Vec::new(),
            metadata: ExactObject::new(),
            display_mode: DisplayMode::default(),
            client: None,
            origin: None,
            prior_history: None,
            model_settings: ModelSettings::default(),
            request_echo: None,
            mcp_credentials: Vec::new(),
            state: None,
            context: Vec::new(),
            rewritten_history: None,
            hook_error: None,
        };
        self.start_run(start, row);
    }

    pub(crate) fn consume_row(&mut self, row: u64) {
        self.next_batch.changes.push(DirectoryChange::ConsumeInboxRow { row });
    }
}

/// The input that a row has for this run.
fn steer_to(run: &TaskId, row: &InboxRow) -> Option<(u64, SteerCommand)> {
    match &row.command {
        Command::Steer(steer) if steer.task_id == *run => Some((row.id, steer.clone())),
        _ => None,
    }
}
