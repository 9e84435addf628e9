//! What every actor of a process shares.

use crate::actor::{NewThread, ThreadActor, Wakeup};
use crate::hub::Hub;
use crate::sync::{Mutex, lock};
use crate::wake_schedule::WakeSchedule;
use model::definition::Definitions;
use model::ports::{Clock, Directory, FileReader, HookRunner, Journal, ModelClient, ToolRunner};
use model::{NodeId, ThreadId, UserId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The clock is looked at so often, at least.
const WAKE_INTERVAL_MS_MAX: u64 = 60_000;

/// What the engine stands on. `server` fills it in.
#[derive(Clone)]
pub struct Ports {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The rows beside it.
    pub directory: Arc<dyn Directory>,
    /// Models.
    pub models: Arc<dyn ModelClient>,
    /// Tools.
    pub tools: Arc<dyn ToolRunner>,
    /// Those who may rewrite what is said before a model sees it.
    pub hooks: Arc<dyn HookRunner>,
    /// Whoever reads the files that people point at.
    pub documents: Arc<dyn FileReader>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Agents and tools as they are declared.
    pub definitions: Arc<Definitions>,
    /// This process.
    pub node: NodeId,
}

/// How far the process is with stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// It goes on.
    Running,
    /// Nothing new begins; what runs may end.
    Draining,
    /// Everything stops where it is. The log says how far that was.
    Halted,
}

pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) hub: Arc<Hub>,
    pub(crate) wake_schedule: WakeSchedule,
    stop: AtomicU8,
    actors: Mutex<HashMap<ThreadId, Arc<Wakeup>>>,
}

impl Shared {
    pub(crate) fn new(ports: Ports) -> Self {
        Self {
            ports,
            hub: Arc::default(),
            wake_schedule: WakeSchedule::default(),
            stop: AtomicU8::new(StopMode::Running as u8),
            actors: Mutex::default(),
        }
    }

    pub(crate) fn stop_mode(&self) -> StopMode {
        match self.stop.load(Ordering::SeqCst) {
            0 => StopMode::Running,
            1 => StopMode::Draining,
            _ => StopMode::Halted,
        }
    }

    /// Tells every actor. It only ever gets stricter.
    pub(crate) fn stop(&self, mode: StopMode) {
        self.stop.fetch_max(mode as u8, Ordering::SeqCst);
        lock(&self.actors).values().for_each(|poke| poke.notify());
        self.wake_schedule.notify();
    }

    /// There is something to do in this thread's inbox: its actor is woken, or born.
    pub(crate) fn wake_thread(self: &Arc<Self>, owner: &UserId, thread: &ThreadId) {
        self.spawn_or_wake(owner, thread, None);
    }

    /// The same, for a thread that was just made: what there is to do need not be read.
    pub(crate) fn spawn_or_wake(self: &Arc<Self>, owner: &UserId, thread: &ThreadId, birth: Option<NewThread>) {
        let mut actors = lock(&self.actors);
        if let Some(poke) = actors.get(thread) {
            poke.notify();
            return;
        }
        if self.stop_mode() == StopMode::Halted {
            return; // the row is durable: the next process takes it up
        }
        let poke = Arc::new(Wakeup::default());
        actors.insert(thread.clone(), Arc::clone(&poke));
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.len()));
        drop(actors);
        let actor =
            ThreadActor { shared: Arc::clone(self), owner: owner.clone(), thread: thread.clone(), wakeup: poke };
        tokio::spawn(actor.run(birth));
    }

    /// Wakes the threads that wait for people when their time has come. Ends with the process.
    pub(crate) async fn run_wake_loop(self: Arc<Self>) {
        while self.stop_mode() == StopMode::Running {
            let now = self.ports.clock.now();
            let (due, next) = self.wake_schedule.take_due(now);
            for (owner, thread) in due {
                self.wake_thread(&owner, &thread);
            }
            // Not for ever: a clock that was set forward is noticed.
            let within = next.map_or(WAKE_INTERVAL_MS_MAX, |at| at.saturating_sub(now).min(WAKE_INTERVAL_MS_MAX));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(within)) => {}
                () = self.wake_schedule.changed() => {}
            }
        }
    }

    /// An idle actor goes, unless it was woken meanwhile. Decided under the lock under which it is woken.
    pub(crate) fn retire(&self, thread: &ThreadId, poke: &Wakeup) -> bool {
        let mut actors = lock(&self.actors);
        if poke.take_notified() {
            return false;
        }
        actors.remove(thread);
        metrics::gauge!("headwater_live_threads").set(gauge_value(actors.len()));
        true
    }

    pub(crate) fn live_threads(&self) -> usize {
        lock(&self.actors).len()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of far fewer than 2^52 things")]
const fn gauge_value(n: usize) -> f64 {
    n as f64
}
