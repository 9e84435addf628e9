//! The live actors of a process: at most one per thread.

use crate::actor::{ActorEnd, run_actor};
use crate::session::NewThread;
use crate::shared::{Shared, StopMode, ThreadContext};
use crate::sync::{Mutex, lock};
use crate::wakeup::Wakeup;
use model::{ThreadId, UserId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest sleep of the wake loop: a clock that was set forward is noticed after this time.
const WAKE_INTERVAL_MS_MAX: u64 = 60_000;

/// Why an actor starts.
pub(crate) enum ActorStart {
    /// The thread was just created: its actor need not read the store.
    Created(NewThread),
    /// Its inbox has something new, or its time has come.
    Woken,
    /// Earlier processes crashed while they resumed it: its run fails.
    GivingUp,
}

pub(crate) struct ActorRegistry {
    pub(crate) shared: Arc<Shared>,
    actors: Mutex<HashMap<ThreadId, Arc<Wakeup>>>,
}

impl ActorRegistry {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), actors: Mutex::default() }
    }

    /// Raises the stop mode and tells every actor.
    pub(crate) fn stop(&self, mode: StopMode) {
        self.shared.raise_stop_mode(mode);
        lock(&self.actors).values().for_each(|wakeup| wakeup.notify());
        self.shared.wake_schedule.notify();
    }

    /// Wakes the actor of a thread, or spawns it: its inbox has something new.
    pub(crate) fn wake_thread(self: &Arc<Self>, owner: &UserId, thread: &ThreadId) {
        self.spawn_or_wake(owner, thread, ActorStart::Woken);
    }

    /// The same, for a thread that is in the state `start`.
    pub(crate) fn spawn_or_wake(self: &Arc<Self>, owner: &UserId, thread: &ThreadId, start: ActorStart) {
        let mut actors = lock(&self.actors);
        if let Some(wakeup) = actors.get(thread) {
            wakeup.notify();
            return;
        }
        if self.shared.stop_mode() == StopMode::Halted {
            return; // the row is durable: the next process handles it
        }
        let wakeup = Arc::new(Wakeup::default());
        actors.insert(thread.clone(), Arc::clone(&wakeup));
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.len()));
        drop(actors);
        let (shared, owner, thread) = (Arc::clone(&self.shared), owner.clone(), thread.clone());
        let gives_up = matches!(start, ActorStart::GivingUp);
        let new_thread = if let ActorStart::Created(new_thread) = start { Some(new_thread) } else { None };
        let context = ThreadContext { shared, owner, thread, wakeup, gives_up, has_progressed: AtomicBool::new(false) };
        tokio::spawn(Arc::clone(self).run_until_retired(context, new_thread));
    }

    async fn run_until_retired(self: Arc<Self>, context: ThreadContext, mut new_thread: Option<NewThread>) {
        loop {
            let end = run_actor(&context, new_thread.take()).await;
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
        actors.remove(&context.thread);
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.len()));
        true
    }

    /// Wakes the threads that wait for people when their time has come. Ends with the process.
    pub(crate) async fn run_wake_loop(self: Arc<Self>) {
        while self.shared.stop_mode() == StopMode::Running {
            let now = self.shared.ports.clock.now();
            let (due, next) = self.shared.wake_schedule.take_due(now);
            for (owner, thread) in due {
                self.wake_thread(&owner, &thread);
            }
            let wait = next.map_or(WAKE_INTERVAL_MS_MAX, |at| at.saturating_sub(now).min(WAKE_INTERVAL_MS_MAX));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                () = self.shared.wake_schedule.changed() => {}
            }
        }
    }

    pub(crate) fn live_threads(&self) -> usize {
        lock(&self.actors).len()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of far fewer than 2^52 things")]
const fn gauge_value(n: usize) -> f64 {
    n as f64
}
