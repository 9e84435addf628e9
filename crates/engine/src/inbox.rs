//! Commands: rows of the thread's inbox, answered in order as far as they can be.

use crate::session::Session;
use crate::shared::StopMode;
use machine::{CancelTask, Input, TimerId};
use model::TaskId;
use model::block::JsonObject;
use model::command::{AnswerCommand, Command, StartCommand, SteerCommand};
use model::event::{DisplayMode, Initiator};
use model::model_settings::ModelSettings;
use model::ports::{DirectoryChange, InboxRow, StoreError, Submission, SubmitError};
use model::task::TaskStatus;
use std::collections::VecDeque;

/// A time-out whose question is not durable yet is tried again after so long.
const TIME_OUT_AGAIN_MS: u64 = 50;

impl Session<'_> {
    pub(crate) async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let actor = self.actor;
        let rows = actor.shared.ports.directory.inbox(&actor.owner, &actor.thread).await?;
        // A run whose hook is asked is about to begin, though its row is still there.
        let begins = self.hooking.as_ref().map(|hooking| hooking.row);
        let is_new = |row: &InboxRow| !self.answered.contains(&row.id) && begins != Some(row.id);
        self.rows = rows.into_iter().filter(is_new).collect();
        Ok(())
    }

    /// Answers every row that can be answered now. A start waits for the run before it; what is about that run does not.
    pub(crate) fn answer_rows(&mut self, mode: StopMode) {
        let mut waiting = VecDeque::new();
        let mut answers = Vec::new();
        while let Some(row) = self.rows.pop_front() {
            // All that waits is one input; what comes after it in the inbox comes after it in the log.
            if !matches!(row.command, Command::Answer(_)) {
                self.answer(&mut answers);
            }
            match &row.command {
                Command::Answer(answer) => {
                    answers.push(answer.clone());
                    self.consume(row.id);
                }
                Command::Start(start) if self.can_begin() && waiting.is_empty() && mode == StopMode::Going => {
                    let start = start.clone();
                    self.begin(*start, row.id);
                }
                Command::Start(_) => waiting.push_back(row),
                Command::Cancel(cancel) => {
                    let (task_id, mode) = (cancel.task_id.clone(), cancel.mode);
                    self.consume(row.id);
                    if self.run.as_ref().is_some_and(|run| run.fold.task(&task_id).is_some()) {
                        self.step(Input::Cancel(CancelTask { task_id, mode, by: Initiator::User }));
                    } else {
                        self.drop_queued(&task_id, &mut waiting, row.at);
                    }
                }
                Command::Steer(steer) if self.hears(steer, row.id) || (self.can_begin() && waiting.is_empty()) => {
                    let steer = steer.clone();
                    self.steer(steer, row.id);
                }
                // Too late for its run and too early for the next: it waits like a start.
                Command::Steer(steer) => {
                    if self.is_running(&steer.task_id) {
                        self.unheard.insert(row.id);
                    }
                    waiting.push_back(row);
                }
            }
        }
        self.answer(&mut answers);
        self.rows = waiting;
    }

    /// A moment has come. The run's own ends it. A question's is an answer like any other: it is written down first, and
    /// whoever is written down first has decided.
    pub(crate) async fn time_is_up(&mut self, timer: TimerId) -> Result<(), StoreError> {
        let TimerId::Approval(key) = &timer else {
            self.step(Input::Timer(timer));
            return Ok(());
        };
        let Some(answer) = self.run.as_ref().and_then(|run| machine::at_timeout(run, key)) else { return Ok(()) };
        let actor = self.actor;
        let at = actor.shared.ports.clock.now();
        let (thread, command) = (actor.thread.clone(), Command::Answer(answer));
        let submission = Submission { thread, new_thread: false, at, command, idempotency_key: None };
        match actor.shared.ports.directory.submit(&actor.owner, submission).await {
            // Ours, or that of whoever was first: it is in the inbox.
            Ok(_) | Err(SubmitError::AlreadyDecided(_)) => self.read_inbox().await,
            // Nobody can have decided either: the question is on its way to the disk.
            Err(SubmitError::ApprovalNotFound) if self.flight.is_some() => {
                self.timers.arm(timer, at.saturating_add(TIME_OUT_AGAIN_MS), at);
                Ok(())
            }
            Err(SubmitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    fn answer(&mut self, answers: &mut Vec<AnswerCommand>) {
        if !answers.is_empty() {
            self.step(Input::Answers(std::mem::take(answers)));
        }
    }

    /// Is the way free for the next run? What is being summed up is left for later.
    fn can_begin(&self) -> bool {
        self.run.is_none() && self.hooking.is_none()
    }

    pub(crate) fn is_running(&self, task: &TaskId) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.id == *task)
    }

    /// Does that run go on, so that it hears what is said? What it once could not hear is not for it any more.
    fn hears(&self, steer: &SteerCommand, row: u64) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root()).filter(|root| root.id == steer.task_id);
        let going = root.is_some_and(|root| root.status == TaskStatus::Running && root.cancelling.is_none());
        going && !self.unheard.contains(&row)
    }

    /// A run that has not begun is given up: it leaves no records, only its row.
    fn drop_queued(&mut self, task: &TaskId, waiting: &mut VecDeque<InboxRow>, at: model::Millis) {
        let queued = |row: &InboxRow| matches!(&row.command, Command::Start(start) if start.task_id == *task);
        let row = match waiting.iter().position(queued) {
            Some(place) => waiting.remove(place).map(|row| row.id),
            None => self.hooking.take_if(|hooking| hooking.start.task_id == *task).map(|hooking| hooking.row),
        };
        if let Some(row) = row {
            self.consume(row);
            self.gathered.changes.push(DirectoryChange::RunDropped { run: task.clone(), at });
        }
    }

    /// Said to a run that goes on it is heard there; said too late, it begins the next one.
    fn steer(&mut self, steer: SteerCommand, row: u64) {
        if self.hears(&steer, row) {
            self.consume(row);
            self.step(Input::Steer(steer));
            return;
        }
        let start = StartCommand {
            task_id: steer.fallback_task_id,
            agent: self.past.agent.clone().unwrap_or_default(),
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
        self.begin(start, row);
    }

    pub(crate) fn consume(&mut self, row: u64) {
        self.answered.insert(row);
        self.gathered.changes.push(DirectoryChange::ConsumeInboxRow { row });
    }
}
