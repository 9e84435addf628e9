//! One run: whose turn it is, and what comes from outside: people, cancels, crashes.

use super::files;
use super::request;
use super::task::{End, Phase, Task};
use super::text::prose;
use super::world::World;
use model::block::ContentPart;
use model::event::{
    CancelMode, Event, Initiator, InputAdded, InputMessage, LimitReason, PendingRequest, TaskCancelling, TaskPaused,
    TaskResumed,
};
use model::id::TaskId;
use model::item::{IncompleteReason, Role};

/// What comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    Cancel,
    CancelAfterTurn,
    Crash,
    Deadline,
    Steer,
}

/// When it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After so many moves.
    After(u32),
    /// As soon as a tool runs: they are quick, and would seldom be met by chance.
    DuringTools,
    /// As soon as files are read, for the same reason.
    DuringFiles,
}

/// One run in the making.
struct Run {
    tasks: Vec<Task>,
    /// What will come.
    visits: Vec<(When, Visit)>,
    paused: bool,
}

/// Writes one run into the log, from its first record to its last.
pub(super) fn write(world: &mut World, previous: Option<TaskId>) {
    world.begin_run();
    let visits = visits(world);
    let mut run = Run { tasks: vec![Task::root(world, previous)], visits, paused: false };
    let mut moves = 0_u32;
    while run.tasks.first().is_some_and(|root| root.phase != Phase::Over) {
        world.tick();
        while let Some(place) = run.visits.iter().position(|(when, _)| run.is_time(*when, moves)) {
            let (_, visit) = run.visits.remove(place);
            run.visit(world, visit);
        }
        // Far more than any run takes: a run that does not end by itself is cancelled.
        if moves > world.options.moves_max {
            run.cut(world, &End::Cancelled(CancelMode::Immediate, Initiator::System));
        }
        run.go_on(world);
        moves = moves.saturating_add(1);
    }
}

fn visits(world: &mut World) -> Vec<(When, Visit)> {
    let mut out = Vec::new();
    for (percent, visit) in [
        (20, Visit::Crash),
        (10, Visit::Crash),
        (20, Visit::Steer),
        (12, Visit::CancelAfterTurn),
        (14, Visit::Cancel),
        (4, Visit::Deadline),
    ] {
        if world.rng.chance(percent) {
            let after = When::After(world.rng.between(0, 90));
            out.push((world.rng.choose(after, &[after, after, When::DuringTools, When::DuringFiles]), visit));
        }
    }
    out
}

impl Run {
    /// Somebody who can go on does; when nobody can, the run waits for people.
    fn go_on(&mut self, world: &mut World) {
        let able: Vec<usize> = (0..self.tasks.len()).filter(|place| self.can_move(*place)).collect();
        let Some(place) = world.rng.pick(&able).copied() else { return self.pause(world) };
        if world.rng.chance(4) {
            self.answer_some(world, Initiator::User);
        }
        if let Some(task) = self.tasks.get_mut(place) {
            task.advance(world);
        }
        self.settle(world);
    }

    fn is_time(&self, when: When, moves: u32) -> bool {
        match when {
            When::After(least) => moves >= least,
            When::DuringFiles => self.tasks.iter().any(|task| task.phase == Phase::Reading),
            When::DuringTools => self.tasks.iter().any(Task::has_running_tools),
        }
    }

    fn can_move(&self, place: usize) -> bool {
        self.tasks.get(place).is_some_and(Task::can_move)
    }

    /// New sub-agents take their place, and parents hear of those that ended.
    fn settle(&mut self, world: &mut World) {
        self.tasks.append(&mut world.born);
        while !world.ended.is_empty() {
            let ended = world.ended.remove(0);
            if let Some(parent) = self.tasks.iter_mut().find(|task| task.id == ended.parent) {
                parent.child_ended(world, ended);
            }
            self.tasks.append(&mut world.born);
        }
    }

    fn pending(&self) -> Vec<PendingRequest> {
        self.tasks.iter().filter(|task| task.phase == Phase::Waiting).flat_map(Task::pending).collect()
    }

    fn pause(&mut self, world: &mut World) {
        let pending = self.pending();
        if pending.is_empty() {
            return; // the run has ended
        }
        let task_id = world.run.clone();
        world.emit(Event::Paused(TaskPaused { task_id, pending }));
        self.paused = true;
        world.tick();
        if world.rng.chance(20) {
            // On a paused run a recovery says nothing: only the executor is another one.
            world.next_epoch();
        }
        if world.rng.chance(10) {
            return self.visit(world, Visit::Cancel);
        }
        let by = world.rng.choose(Initiator::User, &[Initiator::User, Initiator::Timeout]);
        self.resume(world, by);
        self.answer_some(world, by);
        self.settle(world);
    }

    /// Ends a pause, if there is one.
    fn resume(&mut self, world: &mut World, by: Initiator) {
        if std::mem::take(&mut self.paused) {
            let private = if by == Initiator::User { request::next(world) } else { None };
            world.emit_with(Event::Resumed(TaskResumed { task_id: world.run.clone(), by, client: None }), private);
        }
    }

    /// Some of what waits for people is answered: all decisions first, then what comes of them.
    fn answer_some(&mut self, world: &mut World, by: Initiator) {
        let mut answered = self.pending();
        let keep = world.rng.below(answered.len().max(1)).saturating_add(1);
        while answered.len() > keep {
            answered.remove(world.rng.below(answered.len()));
        }
        for pending in &answered {
            if let Some(task) = self.tasks.iter_mut().find(|task| task.id == pending.task_id) {
                task.decide(world, pending, by);
            }
        }
        for task in &mut self.tasks {
            task.act(world, &answered);
        }
        self.settle(world);
    }

    fn visit(&mut self, world: &mut World, visit: Visit) {
        match visit {
            Visit::Cancel => {
                self.resume(world, Initiator::Cancel);
                self.cut(world, &End::Cancelled(CancelMode::Immediate, Initiator::User));
            }
            Visit::Deadline => self.cut(world, &End::Incomplete(LimitReason::Deadline)),
            Visit::CancelAfterTurn => self.wind_down(world),
            Visit::Crash => self.crash(world),
            Visit::Steer => self.steer(world),
        }
    }

    /// Everything that is open is cut, newest task first.
    fn cut(&mut self, world: &mut World, end: &End) {
        let why = match end {
            End::Incomplete(_) => IncompleteReason::Limit,
            _ => IncompleteReason::Cancelled,
        };
        for place in (0..self.tasks.len()).rev() {
            // Only the root's time is up; what worked for it is stopped.
            let stopped = End::Cancelled(CancelMode::Immediate, Initiator::System);
            let end = if place == 0 || matches!(end, End::Cancelled(..)) { end.clone() } else { stopped };
            if let Some(task) = self.tasks.get_mut(place) {
                task.cut(world, why, end);
            }
            self.settle(world);
        }
    }

    /// Every task finishes its own turn and nothing new begins.
    fn wind_down(&mut self, world: &mut World) {
        if world.cancelling || self.tasks.first().is_none_or(|root| root.phase == Phase::Over) {
            return;
        }
        let (task_id, mode, by) = (world.run.clone(), CancelMode::AfterTurn, Initiator::User);
        world.emit(Event::Cancelling(TaskCancelling { task_id, mode, by }));
        world.cancelling = true;
        for task in self.tasks.iter_mut().rev() {
            match task.phase {
                Phase::Waiting => task.wind_down(world),
                // The turn that they are read for would be something new.
                Phase::Reading => task.cut(world, IncompleteReason::Cancelled, End::Cancelled(mode, by)),
                Phase::Ready | Phase::Turn | Phase::Over => {}
            }
        }
    }

    fn crash(&mut self, world: &mut World) {
        world.next_epoch();
        if world.cancelling {
            return self.cut(world, &End::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        for task in self.tasks.iter_mut().rev() {
            task.recover(world);
        }
        self.settle(world);
    }

    fn steer(&mut self, world: &mut World) {
        let Some(root) = self.tasks.first_mut().filter(|root| root.phase != Phase::Over) else { return };
        if world.cancelling {
            return;
        }
        root.unread = true;
        let mut input = Vec::new();
        for _ in 0..world.rng.between(1, 2) {
            let mut content = vec![ContentPart::text(prose(&mut world.rng, 0, 6))];
            if world.rng.chance(25) {
                content.extend(files::some(world));
            }
            input.push(InputMessage { id: world.next_id("msg"), role: Role::User, content });
        }
        root.files.hear(&input);
        world.emit(Event::InputAdded(InputAdded { task_id: root.id.clone(), input }));
    }
}
