//! What every actor of a process shares.

use crate::actor::{Actor, Birth, Poke};
use crate::hub::Hub;
use crate::sync::{Mutex, lock};
use crate::wakes::Wakes;
use model::definition::Definitions;
use model::ports::{Clock, Directory, FileReader, HookRunner, Journal, ModelClient, ToolRunner};
use model::{NodeId, ThreadId, UserId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The clock is looked at so often, at least.
const WAKE_AT_LEAST_MS: u64 = 60_000;

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
    Going,
    /// Nothing new begins; what runs may end.
    Draining,
    /// Everything stops where it is. The log says how far that was.
    Halted,
}

pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) hub: Arc<Hub>,
    pub(crate) wakes: Wakes,
    stop: AtomicU8,
    actors: Mutex<HashMap<ThreadId, Arc<Poke>>>,
}

impl Shared {
    pub(crate) fn new(ports: Ports) -> Self {
        Self {
            ports,
            hub: Arc::default(),
            wakes: Wakes::default(),
            stop: AtomicU8::new(StopMode::Going as u8),
            actors: Mutex::default(),
        }
    }

    pub(crate) fn stop_mode(&self) -> StopMode {
        match self.stop.load(Ordering::SeqCst) {
            0 => StopMode::Going,
            1 => StopMode::Draining,
            _ => StopMode::Halted,
        }
    }

    /// Tells every actor. It only ever gets stricter.
    pub(crate) fn stop(&self, mode: StopMode) {
        self.stop.fetch_max(mode as u8, Ordering::SeqCst);
        lock(&self.actors).values().for_each(|poke| poke.set());
        self.wakes.nudge();
    }

    /// There is something to do in this thread's inbox: its actor is woken, or born.
    pub(crate) fn poke(self: &Arc<Self>, owner: &UserId, thread: &ThreadId) {
        self.bear(owner, thread, None);
    }

    /// The same, for a thread that was just made: what there is to do need not be read.
    pub(crate) fn bear(self: &Arc<Self>, owner: &UserId, thread: &ThreadId, birth: Option<Birth>) {
        let mut actors = lock(&self.actors);
        if let Some(poke) = actors.get(thread) {
            poke.set();
            return;
        }
        if self.stop_mode() == StopMode::Halted {
            return; // the row is durable: the next process takes it up
        }
        let poke = Arc::new(Poke::default());
        actors.insert(thread.clone(), Arc::clone(&poke));
        metrics::gauge!("headwater_live_threads").set(count(actors.len()));
        drop(actors);
        let actor = Actor { shared: Arc::clone(self), owner: owner.clone(), thread: thread.clone(), poke };
        tokio::spawn(actor.live(birth));
    }

    /// Wakes the threads that wait for people when their time has come. Ends with the process.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        while self.stop_mode() == StopMode::Going {
            let now = self.ports.clock.now();
            let (due, next) = self.wakes.due(now);
            for (owner, thread) in due {
                self.poke(&owner, &thread);
            }
            // Not for ever: a clock that was set forward is noticed.
            let within = next.map_or(WAKE_AT_LEAST_MS, |at| at.saturating_sub(now).min(WAKE_AT_LEAST_MS));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(within)) => {}
                () = self.wakes.changed() => {}
            }
        }
    }

    /// An idle actor goes, unless it was woken meanwhile. Decided under the lock under which it is woken.
    pub(crate) fn retire(&self, thread: &ThreadId, poke: &Poke) -> bool {
        let mut actors = lock(&self.actors);
        if poke.clear() {
            return false;
        }
        actors.remove(thread);
        metrics::gauge!("headwater_live_threads").set(count(actors.len()));
        true
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.actors).len()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of far fewer than 2^52 things")]
const fn count(n: usize) -> f64 {
    n as f64
}
