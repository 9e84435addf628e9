//! Commands: rows of the thread's inbox, answered in order as far as they can be.

use crate::session::ThreadSession;
use crate::shared::StopMode;
use machine::{CancelTask, MachineInput, TimerId};
use model::TaskId;
use model::command::{AnswerCommand, Command, StartCommand, SteerCommand};
use model::event::{DisplayMode, Initiator};
use model::json::JsonObject;
use model::model_settings::ModelSettings;
use model::ports::{DirectoryChange, InboxRow, StoreError, Submission, SubmitError, ThreadMode};
use model::task::TaskStatus;
use std::collections::VecDeque;

/// A time-out whose question is not durable yet is tried again after so long.
const APPROVAL_TIMEOUT_RETRY_MS: u64 = 50;

impl ThreadSession<'_> {
    pub(crate) async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let actor = self.actor;
        let rows = actor.shared.ports.directory.inbox(&actor.owner, &actor.thread).await?;
        // A run whose hook is asked is about to begin, though its row is still there.
        let begins = self.pending_hook.as_ref().map(|hooking| hooking.row);
        let is_new = |row: &InboxRow| !self.handled_rows.contains(&row.id) && begins != Some(row.id);
        self.waiting_rows = rows.into_iter().filter(is_new).collect();
        Ok(())
    }

    /// Answers every row that can be answered now. A start waits for the run before it; what is about that run does not.
    pub(crate) fn handle_rows(&mut self, mode: StopMode) {
        let mut waiting = VecDeque::new();
        let mut answers = Vec::new();
        while let Some(row) = self.waiting_rows.pop_front() {
            // All that waits is one input; what comes after it in the inbox comes after it in the log.
            if !matches!(row.command, Command::Answer(_)) {
                self.step_answers(&mut answers);
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
                    let (task_id, mode) = (cancel.task_id.clone(), cancel.mode);
                    self.consume_row(row.id);
                    if self.run.as_ref().is_some_and(|run| run.fold.task(&task_id).is_some()) {
                        self.step(MachineInput::Cancel(CancelTask { task_id, mode, by: Initiator::User }));
                    } else {
                        self.cancel_queued_run(&task_id, &mut waiting, row.at);
                    }
                }
                Command::Steer(steer)
                    if self.accepts_steer(steer, row.id) || (self.can_start_run() && waiting.is_empty()) =>
                {
                    let steer = steer.clone();
                    self.handle_steer(steer, row.id);
                }
                // Too late for its run and too early for the next: it waits like a start.
                Command::Steer(steer) => {
                    if self.is_running(&steer.task_id) {
                        self.late_steers.insert(row.id);
                    }
                    waiting.push_back(row);
                }
            }
        }
        self.step_answers(&mut answers);
        self.waiting_rows = waiting;
    }

    /// A moment has come. The run's own ends it. A question's is an answer like any other: it is written down first, and
    /// whoever is written down first has decided.
    pub(crate) async fn on_timer(&mut self, timer: TimerId) -> Result<(), StoreError> {
        let TimerId::Approval(key) = &timer else {
            self.step(MachineInput::Timer(timer));
            return Ok(());
        };
        let Some(answer) = self.run.as_ref().and_then(|run| machine::timeout_answer(run, key)) else { return Ok(()) };
        let actor = self.actor;
        let at = actor.shared.ports.clock.now();
        let (thread, command) = (actor.thread.clone(), Command::Answer(answer));
        let submission = Submission { thread, thread_mode: ThreadMode::MustExist, at, command, idempotency_key: None };
        match actor.shared.ports.directory.writer(&actor.owner)?.submit(&actor.owner, submission).await {
            // Ours, or that of whoever was first: it is in the inbox.
            Ok(_) | Err(SubmitError::AlreadyDecided(_)) => self.read_inbox().await,
            // Nobody can have decided either: the question is on its way to the disk.
            Err(SubmitError::ApprovalNotFound) if self.in_flight.is_some() => {
                self.timers.arm(timer, at.saturating_add(APPROVAL_TIMEOUT_RETRY_MS), at);
                Ok(())
            }
            Err(SubmitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    fn step_answers(&mut self, answers: &mut Vec<AnswerCommand>) {
        if !answers.is_empty() {
            self.step(MachineInput::Answers(std::mem::take(answers)));
        }
    }

    /// Is the way free for the next run? What is being summed up is left for later.
    fn can_start_run(&self) -> bool {
        self.run.is_none() && self.pending_hook.is_none()
    }

    pub(crate) fn is_running(&self, task: &TaskId) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.id == *task)
    }

    /// Does that run go on, so that it hears what is said? What it once could not hear is not for it any more.
    fn accepts_steer(&self, steer: &SteerCommand, row: u64) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root()).filter(|root| root.id == steer.task_id);
        let going = root.is_some_and(|root| root.status == TaskStatus::Running && root.cancelling.is_none());
        going && !self.late_steers.contains(&row)
    }

    /// A run that has not begun is given up: it leaves no records, only its row.
    fn cancel_queued_run(&mut self, task: &TaskId, waiting: &mut VecDeque<InboxRow>, at: model::Millis) {
        let queued = |row: &InboxRow| matches!(&row.command, Command::Start(start) if start.task_id == *task);
        let row = match waiting.iter().position(queued) {
            Some(place) => waiting.remove(place).map(|row| row.id),
            None => self.pending_hook.take_if(|hooking| hooking.start.task_id == *task).map(|hooking| hooking.row),
        };
        if let Some(row) = row {
            self.consume_row(row);
            self.next_batch.changes.push(DirectoryChange::RunDropped { run: task.clone(), at });
        }
    }

    /// Said to a run that goes on it is heard there; said too late, it begins the next one.
    fn handle_steer(&mut self, steer: SteerCommand, row: u64) {
        if self.accepts_steer(&steer, row) {
            self.consume_row(row);
            self.step(MachineInput::Steer(steer));
            return;
        }
        let start = StartCommand {
            task_id: steer.fallback_task_id,
            agent: self.thread_fold.agent.clone().unwrap_or_default(),
            input: steer.input,
            previous: None,
            tools: Vec::new(),
            metadata: JsonObject::new(),
            display_mode: DisplayMode::default(),
            client: None,
            origin: None,
            prior_history: None,
            model_settings: ModelSettings::default(),
            request_echo: None,
            rewritten_history: None,
            hook_error: None,
        };
        self.start_run(start, row);
    }

    pub(crate) fn consume_row(&mut self, row: u64) {
        self.handled_rows.insert(row);
        self.next_batch.changes.push(DirectoryChange::ConsumeInboxRow { row });
    }
}
