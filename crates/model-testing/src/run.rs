//! One run: whose turn it is, and what comes from outside: people, cancels, crashes.

use super::input_files;
use super::log_builder::LogBuilder;
use super::request;
use super::task::{GenOutcome, GenPhase, GenTask};
use super::text::random_text;
use model::content::ContentPart;
use model::event::{
    CancelMode, Event, Initiator, InputAdded, InputMessage, LimitReason, PendingRequest, TaskCancelling, TaskPaused,
    TaskResumed,
};
use model::id::TaskId;
use model::item::{IncompleteReason, Role};

/// What comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExternalEvent {
    Cancel,
    CancelAfterTurn,
    Crash,
    Deadline,
    Steer,
}

/// When it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// After so many moves.
    After(u32),
    /// As soon as a tool runs: they are quick, and would seldom be met by chance.
    DuringTools,
    /// As soon as files are read, for the same reason.
    DuringFiles,
}

/// One run in the making.
struct GenRun {
    tasks: Vec<GenTask>,
    /// What will come.
    external_events: Vec<(Trigger, ExternalEvent)>,
    paused: bool,
}

/// Writes one run into the log, from its first record to its last.
pub(super) fn write_run(world: &mut LogBuilder, previous: Option<TaskId>) {
    world.start_run();
    let visits = plan_external_events(world);
    let mut run = GenRun { tasks: vec![GenTask::start_root(world, previous)], external_events: visits, paused: false };
    let mut moves = 0_u32;
    while run.tasks.first().is_some_and(|root| root.phase != GenPhase::Ended) {
        world.advance_clock();
        while let Some(place) = run.external_events.iter().position(|(when, _)| run.is_due(*when, moves)) {
            let (_, visit) = run.external_events.remove(place);
            run.apply_external_event(world, visit);
        }
        // Far more than any run takes: a run that does not end by itself is cancelled.
        if moves > world.options.moves_max {
            run.stop_tasks(world, &GenOutcome::Cancelled(CancelMode::Immediate, Initiator::System));
        }
        run.advance(world);
        moves = moves.saturating_add(1);
    }
}

fn plan_external_events(world: &mut LogBuilder) -> Vec<(Trigger, ExternalEvent)> {
    let mut out = Vec::new();
    for (percent, visit) in [
        (20, ExternalEvent::Crash),
        (10, ExternalEvent::Crash),
        (20, ExternalEvent::Steer),
        (12, ExternalEvent::CancelAfterTurn),
        (14, ExternalEvent::Cancel),
        (4, ExternalEvent::Deadline),
    ] {
        if world.rng.chance(percent) {
            let after = Trigger::After(world.rng.between(0, 90));
            out.push((world.rng.choose(after, &[after, after, Trigger::DuringTools, Trigger::DuringFiles]), visit));
        }
    }
    out
}

impl GenRun {
    /// Somebody who can go on does; when nobody can, the run waits for people.
    fn advance(&mut self, world: &mut LogBuilder) {
        let able: Vec<usize> = (0..self.tasks.len()).filter(|place| self.can_advance_task(*place)).collect();
        let Some(place) = world.rng.pick(&able).copied() else { return self.pause(world) };
        if world.rng.chance(4) {
            self.answer_pending(world, Initiator::User);
        }
        if let Some(task) = self.tasks.get_mut(place) {
            task.advance(world);
        }
        self.deliver_ended_children(world);
    }

    fn is_due(&self, when: Trigger, moves: u32) -> bool {
        match when {
            Trigger::After(least) => moves >= least,
            Trigger::DuringFiles => self.tasks.iter().any(|task| task.phase == GenPhase::ReadingFiles),
            Trigger::DuringTools => self.tasks.iter().any(GenTask::has_running_tools),
        }
    }

    fn can_advance_task(&self, place: usize) -> bool {
        self.tasks.get(place).is_some_and(GenTask::can_advance)
    }

    /// New sub-agents take their place, and parents hear of those that ended.
    fn deliver_ended_children(&mut self, world: &mut LogBuilder) {
        self.tasks.append(&mut world.new_children);
        while !world.ended_children.is_empty() {
            let ended = world.ended_children.remove(0);
            if let Some(parent) = self.tasks.iter_mut().find(|task| task.id == ended.parent) {
                parent.finish_child_call(world, ended);
            }
            self.tasks.append(&mut world.new_children);
        }
    }

    fn pending_calls(&self) -> Vec<PendingRequest> {
        self.tasks.iter().filter(|task| task.phase == GenPhase::Waiting).flat_map(GenTask::pending_calls).collect()
    }

    fn pause(&mut self, world: &mut LogBuilder) {
        let pending = self.pending_calls();
        if pending.is_empty() {
            return; // the run has ended
        }
        let task_id = world.run.clone();
        world.emit(Event::Paused(TaskPaused { task_id, pending }));
        self.paused = true;
        world.advance_clock();
        if world.rng.chance(20) {
            // On a paused run a recovery says nothing: only the executor is another one.
            world.next_epoch();
        }
        if world.rng.chance(10) {
            return self.apply_external_event(world, ExternalEvent::Cancel);
        }
        let by = world.rng.choose(Initiator::User, &[Initiator::User, Initiator::Timeout]);
        self.resume(world, by);
        self.answer_pending(world, by);
        self.deliver_ended_children(world);
    }

    /// Ends a pause, if there is one.
    fn resume(&mut self, world: &mut LogBuilder, by: Initiator) {
        if std::mem::take(&mut self.paused) {
            let private = if by == Initiator::User { request::resume_private(world) } else { None };
            world.emit_with_private(
                Event::Resumed(TaskResumed { task_id: world.run.clone(), by, client: None }),
                private,
            );
        }
    }

    /// Some of what waits for people is answered: all decisions first, then what comes of them.
    fn answer_pending(&mut self, world: &mut LogBuilder, by: Initiator) {
        let mut answered = self.pending_calls();
        let keep = world.rng.below(answered.len().max(1)).saturating_add(1);
        while answered.len() > keep {
            answered.remove(world.rng.below(answered.len()));
        }
        for pending in &answered {
            if let Some(task) = self.tasks.iter_mut().find(|task| task.id == pending.task_id) {
                task.resolve_approval(world, pending, by);
            }
        }
        for task in &mut self.tasks {
            task.apply_answers(world, &answered);
        }
        self.deliver_ended_children(world);
    }

    fn apply_external_event(&mut self, world: &mut LogBuilder, visit: ExternalEvent) {
        match visit {
            ExternalEvent::Cancel => {
                self.resume(world, Initiator::Cancel);
                self.stop_tasks(world, &GenOutcome::Cancelled(CancelMode::Immediate, Initiator::User));
            }
            ExternalEvent::Deadline => self.stop_tasks(world, &GenOutcome::Incomplete(LimitReason::Deadline)),
            ExternalEvent::CancelAfterTurn => self.cancel_after_turn(world),
            ExternalEvent::Crash => self.crash(world),
            ExternalEvent::Steer => self.steer(world),
        }
    }

    /// Everything that is open is cut, newest task first.
    fn stop_tasks(&mut self, world: &mut LogBuilder, end: &GenOutcome) {
        let why = match end {
            GenOutcome::Incomplete(_) => IncompleteReason::Limit,
            _ => IncompleteReason::Cancelled,
        };
        for place in (0..self.tasks.len()).rev() {
            // Only the root's time is up; what worked for it is stopped.
            let stopped = GenOutcome::Cancelled(CancelMode::Immediate, Initiator::System);
            let end = if place == 0 || matches!(end, GenOutcome::Cancelled(..)) { end.clone() } else { stopped };
            if let Some(task) = self.tasks.get_mut(place) {
                task.stop(world, why, end);
            }
            self.deliver_ended_children(world);
        }
    }

    /// Every task finishes its own turn and nothing new begins.
    fn cancel_after_turn(&mut self, world: &mut LogBuilder) {
        if world.is_cancelling || self.tasks.first().is_none_or(|root| root.phase == GenPhase::Ended) {
            return;
        }
        let (task_id, mode, by) = (world.run.clone(), CancelMode::AfterTurn, Initiator::User);
        world.emit(Event::Cancelling(TaskCancelling { task_id, mode, by }));
        world.is_cancelling = true;
        for task in self.tasks.iter_mut().rev() {
            match task.phase {
                GenPhase::Waiting => task.stop_after_turn(world),
                // The turn that they are read for would be something new.
                GenPhase::ReadingFiles => {
                    task.stop(world, IncompleteReason::Cancelled, GenOutcome::Cancelled(mode, by));
                }
                GenPhase::Ready | GenPhase::Turn | GenPhase::Ended => {}
            }
        }
    }

    fn crash(&mut self, world: &mut LogBuilder) {
        world.next_epoch();
        if world.is_cancelling {
            return self.stop_tasks(world, &GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        for task in self.tasks.iter_mut().rev() {
            task.recover(world);
        }
        self.deliver_ended_children(world);
    }

    fn steer(&mut self, world: &mut LogBuilder) {
        let Some(root) = self.tasks.first_mut().filter(|root| root.phase != GenPhase::Ended) else { return };
        if world.is_cancelling {
            return;
        }
        root.has_unread_input = true;
        let mut input = Vec::new();
        for _ in 0..world.rng.between(1, 2) {
            let mut content = vec![ContentPart::text(random_text(&mut world.rng, 0, 6))];
            if world.rng.chance(25) {
                content.extend(input_files::random_file_parts(world));
            }
            input.push(InputMessage { id: world.next_id("msg"), role: Role::User, content });
        }
        root.files.add_input(&input);
        world.emit(Event::InputAdded(InputAdded { task_id: root.id.clone(), input }));
    }
}
