//! One run: schedules its tasks and injects external events, such as cancellations and crashes.

use super::log_builder::LogBuilder;
use super::request;
use super::task::{GenOutcome, GenPhase, GenTask, RunContext, random_file_parts};
use super::text::random_text;
use model::content::ContentPart;
use model::event::{
    CancelMode, Event, Initiator, InputAdded, InputMessage, LimitReason, PendingRequest, TaskCancelling, TaskPaused,
    TaskResumed,
};
use model::id::TaskId;
use model::item::{IncompleteReason, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExternalEvent {
    Cancel,
    CancelAfterTurn,
    Crash,
    Deadline,
    Steer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// After this many moves.
    After(u32),
    /// As soon as a tool runs. Tools are too short to be hit by chance.
    DuringTools,
    /// As soon as files are read, for the same reason.
    DuringFiles,
}

struct GenRun {
    tasks: Vec<GenTask>,
    external_events: Vec<(Trigger, ExternalEvent)>,
    paused: bool,
}

/// Writes one run, from its first record to its last.
pub(super) fn write_run(log: &mut LogBuilder, previous: Option<TaskId>) {
    let ctx = &mut RunContext::new(log);
    let external_events = plan_external_events(ctx);
    let mut run = GenRun { tasks: vec![GenTask::start_root(ctx, previous)], external_events, paused: false };
    let mut moves = 0_u32;
    while run.tasks.first().is_some_and(|root| root.phase != GenPhase::Ended) {
        ctx.advance_clock();
        while let Some(index) = run.external_events.iter().position(|(when, _)| run.is_due(*when, moves)) {
            let (_, event) = run.external_events.remove(index);
            run.apply_external_event(ctx, event);
        }
        // Ordinary runs need far fewer moves.
        if moves > ctx.options.moves_max {
            run.stop_tasks(ctx, &GenOutcome::Cancelled(CancelMode::Immediate, Initiator::System));
        }
        run.advance(ctx);
        moves = moves.saturating_add(1);
    }
}

fn plan_external_events(ctx: &mut RunContext<'_>) -> Vec<(Trigger, ExternalEvent)> {
    let mut out = Vec::new();
    for (percent, event) in [
        (20, ExternalEvent::Crash),
        (10, ExternalEvent::Crash),
        (20, ExternalEvent::Steer),
        (12, ExternalEvent::CancelAfterTurn),
        (14, ExternalEvent::Cancel),
        (4, ExternalEvent::Deadline),
    ] {
        if ctx.rng.chance(percent) {
            let after = Trigger::After(ctx.rng.between(0, 90));
            out.push((ctx.rng.choose(after, &[after, after, Trigger::DuringTools, Trigger::DuringFiles]), event));
        }
    }
    out
}

impl GenRun {
    /// Advances a random task that can proceed; if there is none, the run pauses.
    fn advance(&mut self, ctx: &mut RunContext<'_>) {
        let able: Vec<usize> = (0..self.tasks.len()).filter(|index| self.can_advance_task(*index)).collect();
        let Some(index) = ctx.rng.pick(&able).copied() else { return self.pause(ctx) };
        if ctx.rng.chance(4) {
            self.answer_pending(ctx, Initiator::User);
        }
        if let Some(task) = self.tasks.get_mut(index) {
            task.advance(ctx);
        }
        self.deliver_ended_children(ctx);
    }

    fn is_due(&self, when: Trigger, moves: u32) -> bool {
        match when {
            Trigger::After(least) => moves >= least,
            Trigger::DuringFiles => self.tasks.iter().any(|task| task.phase == GenPhase::ReadingFiles),
            Trigger::DuringTools => self.tasks.iter().any(GenTask::has_running_tools),
        }
    }

    fn can_advance_task(&self, index: usize) -> bool {
        self.tasks.get(index).is_some_and(GenTask::can_advance)
    }

    /// Adds new sub-agents to the run and delivers ended ones to their parents.
    fn deliver_ended_children(&mut self, ctx: &mut RunContext<'_>) {
        self.tasks.append(&mut ctx.new_children);
        while !ctx.ended_children.is_empty() {
            let ended = ctx.ended_children.remove(0);
            if let Some(parent) = self.tasks.iter_mut().find(|task| task.id == ended.parent) {
                parent.finish_child_call(ctx, ended);
            }
            self.tasks.append(&mut ctx.new_children);
        }
    }

    fn pending_calls(&self) -> Vec<PendingRequest> {
        self.tasks.iter().filter(|task| task.phase == GenPhase::Waiting).flat_map(GenTask::pending_calls).collect()
    }

    fn pause(&mut self, ctx: &mut RunContext<'_>) {
        let pending = self.pending_calls();
        if pending.is_empty() {
            return; // the run has ended
        }
        let task_id = ctx.run.clone();
        ctx.emit(Event::Paused(TaskPaused { task_id, pending }));
        self.paused = true;
        ctx.advance_clock();
        if ctx.rng.chance(20) {
            // Recovery of a paused run writes nothing: only the epoch changes.
            ctx.next_epoch();
        }
        if ctx.rng.chance(10) {
            return self.apply_external_event(ctx, ExternalEvent::Cancel);
        }
        let by = ctx.rng.choose(Initiator::User, &[Initiator::User, Initiator::Timeout]);
        self.resume(ctx, by);
        self.answer_pending(ctx, by);
        self.deliver_ended_children(ctx);
    }

    /// Ends the pause, if there is one.
    fn resume(&mut self, ctx: &mut RunContext<'_>, by: Initiator) {
        if std::mem::take(&mut self.paused) {
            let private = if by == Initiator::User { request::resume_private(ctx) } else { None };
            let client = if by == Initiator::User { request::resuming_client_ids(ctx) } else { None };
            let task_id = ctx.run.clone();
            ctx.emit_with_private(Event::Resumed(Box::new(TaskResumed { task_id, by, client })), private);
        }
    }

    /// Answers some of the pending requests: all decisions first, then their effects.
    fn answer_pending(&mut self, ctx: &mut RunContext<'_>, by: Initiator) {
        let mut answered = self.pending_calls();
        let keep = ctx.rng.below(answered.len().max(1)).saturating_add(1);
        while answered.len() > keep {
            answered.remove(ctx.rng.below(answered.len()));
        }
        for pending in &answered {
            if let Some(task) = self.tasks.iter_mut().find(|task| task.id == pending.task_id) {
                task.resolve_approval(ctx, pending, by);
            }
        }
        for task in &mut self.tasks {
            task.apply_answers(ctx, &answered);
        }
        self.deliver_ended_children(ctx);
    }

    fn apply_external_event(&mut self, ctx: &mut RunContext<'_>, event: ExternalEvent) {
        match event {
            ExternalEvent::Cancel => {
                self.resume(ctx, Initiator::Cancel);
                self.stop_tasks(ctx, &GenOutcome::Cancelled(CancelMode::Immediate, Initiator::User));
            }
            ExternalEvent::Deadline => self.stop_tasks(ctx, &GenOutcome::Incomplete(LimitReason::Deadline)),
            ExternalEvent::CancelAfterTurn => self.cancel_after_turn(ctx),
            ExternalEvent::Crash => self.crash(ctx),
            ExternalEvent::Steer => self.steer(ctx),
        }
    }

    /// Stops all tasks, newest first.
    fn stop_tasks(&mut self, ctx: &mut RunContext<'_>, end: &GenOutcome) {
        let reason = match end {
            GenOutcome::Incomplete(_) => IncompleteReason::Limit,
            _ => IncompleteReason::Cancelled,
        };
        for index in (0..self.tasks.len()).rev() {
            // A deadline is the root's; its descendants are cancelled.
            let stopped = GenOutcome::Cancelled(CancelMode::Immediate, Initiator::System);
            let end = if index == 0 || matches!(end, GenOutcome::Cancelled(..)) { end.clone() } else { stopped };
            if let Some(task) = self.tasks.get_mut(index) {
                task.stop(ctx, reason, end);
            }
            self.deliver_ended_children(ctx);
        }
    }

    /// Lets every task finish its turn and starts nothing new.
    fn cancel_after_turn(&mut self, ctx: &mut RunContext<'_>) {
        if ctx.is_cancelling || self.tasks.first().is_none_or(|root| root.phase == GenPhase::Ended) {
            return;
        }
        let (task_id, mode, by) = (ctx.run.clone(), CancelMode::AfterTurn, Initiator::User);
        ctx.emit(Event::Cancelling(TaskCancelling { task_id, mode, by }));
        ctx.is_cancelling = true;
        for task in self.tasks.iter_mut().rev() {
            match task.phase {
                GenPhase::Waiting => task.stop_after_turn(ctx),
                // A new turn would have read them.
                GenPhase::ReadingFiles => task.stop(ctx, IncompleteReason::Cancelled, GenOutcome::Cancelled(mode, by)),
                GenPhase::Ready | GenPhase::Turn | GenPhase::Ended => {}
            }
        }
    }

    fn crash(&mut self, ctx: &mut RunContext<'_>) {
        ctx.next_epoch();
        if ctx.is_cancelling {
            return self.stop_tasks(ctx, &GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        for task in self.tasks.iter_mut().rev() {
            task.recover(ctx);
        }
        self.deliver_ended_children(ctx);
    }

    fn steer(&mut self, ctx: &mut RunContext<'_>) {
        let Some(root) = self.tasks.first_mut().filter(|root| root.phase != GenPhase::Ended) else { return };
        if ctx.is_cancelling {
            return;
        }
        root.has_unread_input = true;
        let mut input = Vec::new();
        for _ in 0..ctx.rng.between(1, 2) {
            let mut content = vec![ContentPart::text(random_text(&mut ctx.rng, 0, 6))];
            if ctx.rng.chance(25) {
                content.extend(random_file_parts(ctx));
            }
            input.push(InputMessage { id: ctx.next_id("msg"), role: Role::User, content });
        }
        root.files.add_input(&input);
        ctx.emit(Event::InputAdded(InputAdded { task_id: root.id.clone(), input }));
    }
}
