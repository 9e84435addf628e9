//! The live actors of a process: at most one per thread.

use crate::actor::{ActorEnd, run_actor};
use crate::session::ClaimedThread;
use crate::shared::{Shared, StopMode, ThreadContext};
use crate::sync::{Mutex, lock};
use crate::wake_schedule::DueThread;
use crate::wakeup::Wakeup;
use model::ports::ThreadTag;
use model::{Millis, ThreadId, UserId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep of the wake loop: a clock that was set forward is noticed after this time.
const WAKE_INTERVAL_MS_MAX: u64 = 1_000;

/// Why an actor is woken or spawned.
pub(crate) enum WakeReason {
    /// Its inbox has something new.
    Command,
    /// Its inbox has one new row, and its submitter has claimed the thread: its actor need not ask the store.
    Claimed(ClaimedThread),
    /// The timer with this time is due.
    Timer(Millis),
    /// Earlier processes crashed while they resumed it: its run fails.
    GivingUp,
}

pub(crate) struct ActorRegistry {
    pub(crate) shared: Arc<Shared>,
    actors: Mutex<LiveActors>,
}

#[derive(Default)]
struct LiveActors {
    wakeups: HashMap<ThreadId, Arc<Wakeup>>,
    counts: HashMap<UserId, usize>,
    /// The starts that are on their way to the store, with their thread if they name one.
    starting: HashMap<UserId, Vec<Option<ThreadId>>>,
}

impl LiveActors {
    /// The number of a user's threads that are being executed or are about to be, without this one.
    fn count_others(&self, owner: &UserId, thread: Option<&ThreadId>) -> usize {
        let is_live = thread.is_some_and(|thread| self.wakeups.contains_key(thread));
        let mut named = HashSet::new();
        let starting = self.starting.get(owner).into_iter().flatten().filter(|starting| match starting {
            None => true,
            Some(starting) => {
                thread != Some(starting) && !self.wakeups.contains_key(starting) && named.insert(starting)
            }
        });
        starting.count() + self.counts.get(owner).copied().unwrap_or_default() - usize::from(is_live)
    }
}

/// Counts as a live thread of its user until it is dropped: when the run has started, or will not.
#[must_use]
pub struct StartReservation {
    registry: Arc<ActorRegistry>,
    owner: UserId,
    thread: Option<ThreadId>,
}

impl Drop for StartReservation {
    fn drop(&mut self) {
        let mut actors = lock(&self.registry.actors);
        if let Some(starting) = actors.starting.get_mut(&self.owner) {
            let position = starting.iter().position(|thread| *thread == self.thread);
            position.into_iter().for_each(|position| drop(starting.swap_remove(position)));
            if starting.is_empty() {
                actors.starting.remove(&self.owner);
            }
        }
    }
}

impl ActorRegistry {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), actors: Mutex::default() }
    }

    /// Raises the stop mode and tells every actor.
    pub(crate) fn stop(&self, mode: StopMode) {
        self.shared.raise_stop_mode(mode);
        lock(&self.actors).wakeups.values().for_each(|wakeup| wakeup.notify());
        self.shared.wake_schedule.notify();
    }

    /// Wakes the actor of a thread, or spawns it: its inbox has something new.
    pub(crate) fn wake_thread(self: &Arc<Self>, owner: &UserId, thread: &ThreadId) {
        self.spawn_or_wake(owner, thread, WakeReason::Command);
    }

    /// The same, for another reason.
    pub(crate) fn spawn_or_wake(self: &Arc<Self>, owner: &UserId, thread: &ThreadId, reason: WakeReason) {
        if self.shared.recovery.is_parked(thread) {
            return; // it would crash the process: see `recovery`
        }
        let mut actors = lock(&self.actors);
        let gives_up = matches!(reason, WakeReason::GivingUp);
        let (claimed, due_timer) = match reason {
            WakeReason::Command | WakeReason::GivingUp => (None, None),
            WakeReason::Claimed(claimed) => (Some(claimed), None),
            WakeReason::Timer(at) => (None, Some(at)),
        };
        if let Some(wakeup) = actors.wakeups.get(thread) {
            due_timer.into_iter().for_each(|at| wakeup.set_due_timer(at));
            wakeup.notify();
            return;
        }
        if self.shared.stop_mode() == StopMode::Halted {
            return; // the row is durable: the next process handles it
        }
        let wakeup = Arc::new(Wakeup::default());
        due_timer.into_iter().for_each(|at| wakeup.set_due_timer(at));
        actors.wakeups.insert(thread.clone(), Arc::clone(&wakeup));
        *actors.counts.entry(owner.clone()).or_default() += 1;
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.wakeups.len()));
        drop(actors);
        let (shared, owner, thread) = (Arc::clone(&self.shared), owner.clone(), thread.clone());
        let context = ThreadContext::new(shared, owner, thread, wakeup, gives_up);
        tokio::spawn(Arc::clone(self).run_until_retired(context, claimed));
    }

    async fn run_until_retired(self: Arc<Self>, context: ThreadContext, mut claimed: Option<ClaimedThread>) {
        loop {
            let end = run_actor(&context, claimed.take()).await;
            if matches!(end, ActorEnd::Halted) {
                context.wakeup.take_notified();
            }
            if self.retire(&context) || matches!(end, ActorEnd::Halted) {
                return;
            }
        }
    }

    /// Removes an idle actor, unless it was woken meanwhile. The lock is the one under which it is woken.
    fn retire(&self, context: &ThreadContext) -> bool {
        let mut actors = lock(&self.actors);
        if context.wakeup.take_notified() {
            return false;
        }
        actors.wakeups.remove(&context.thread);
        if let Some(count) = actors.counts.get_mut(&context.owner) {
            *count -= 1;
            if *count == 0 {
                actors.counts.remove(&context.owner);
            }
        }
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.wakeups.len()));
        true
    }

    /// Wakes the threads that wait for people when their time has come. Ends with the process.
    pub(crate) async fn run_wake_loop(self: Arc<Self>) {
        while self.shared.stop_mode() == StopMode::Running {
            let now = self.shared.ports.clock.now();
            let (due, next) = self.shared.wake_schedule.take_due(now);
            for DueThread { owner, thread, timer_at } in due {
                self.spawn_or_wake(&owner, &thread, WakeReason::Timer(timer_at));
            }
            let wait = next.map_or(WAKE_INTERVAL_MS_MAX, |at| at.saturating_sub(now).min(WAKE_INTERVAL_MS_MAX));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                () = self.shared.wake_schedule.changed() => {}
            }
        }
    }

    /// Whether this process executes the thread, or is about to.
    pub(crate) fn is_live(&self, thread: &ThreadId) -> bool {
        lock(&self.actors).wakeups.contains_key(thread)
    }

    /// Wakes the actors of threads with one of these tags.
    pub(crate) fn wake_live_threads(&self, tags: &HashSet<ThreadTag>) {
        let actors = lock(&self.actors);
        let named = actors.wakeups.iter().filter(|(thread, _)| tags.contains(&ThreadTag::new(thread)));
        named.for_each(|(_, wakeup)| wakeup.notify());
    }

    /// Threads with viewers, and threads for whose runs somebody waits.
    pub(crate) fn watched_threads(&self) -> HashSet<ThreadId> {
        let mut watched = self.shared.hub.watched_threads();
        watched.extend(self.shared.run_waiters.watched_threads());
        watched
    }

    pub(crate) fn live_threads(&self) -> usize {
        lock(&self.actors).wakeups.len()
    }

    /// Reserves a place among the `max` threads of a user, unless they are executed or about to be.
    pub(crate) fn reserve_start(
        self: &Arc<Self>,
        owner: &UserId,
        thread: Option<&ThreadId>,
        max: usize,
    ) -> Option<StartReservation> {
        let mut actors = lock(&self.actors);
        if actors.count_others(owner, thread) >= max {
            return None;
        }
        actors.starting.entry(owner.clone()).or_default().push(thread.cloned());
        drop(actors);
        Some(StartReservation { registry: Arc::clone(self), owner: owner.clone(), thread: thread.cloned() })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of far fewer than 2^52 things")]
const fn gauge_value(n: usize) -> f64 {
    n as f64
}
