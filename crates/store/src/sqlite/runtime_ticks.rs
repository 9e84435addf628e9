//! Ticks: with a light load, one worker of the runtime reads, and writes, for all threads at once.
//!
//! Fifty models that send a delta each 20 ms are 2,500 deltas per second. If each of them wakes a worker and the thread that
//! commits, the wake-ups cost more than the deltas. A delta that is read at once gains nothing: it waits for the next commit. So
//! while deltas come often and one worker suffices for them, a task blocks that worker until the next tick is due:
//!
//! ```text
//!   worker   read sockets ─ step ─┐           ┌─ write to clients ─┐              ┌─ read sockets …
//!                                 │ end_tick  │ on_commit          │ until the    │
//!   writer                        └─ commit ──┘                    └─ next tick ──┘
//! ```
//!
//! The task yields, which runs everything that is ready, ends the tick, for which the writer commits at once, and blocks until the
//! commit is done, and then until the next tick. The other workers are blocked, too, each by a task of its own: otherwise the
//! runtime would wake one of them whenever two tasks are ready. They come back when one worker does not suffice any more; after
//! [`RESERVE_WAIT`] if a task holds it.
//!
//! What needs no commit, like a new connection, waits for a tick at most, hence [`LENGTH_MAX`].

use super::writer_signals::WriterSignals;
use super::{SqliteOptions, lock};
use model::defects::Defect;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor, RuntimeMetrics};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// The length of a tick, as a multiple of the time between commits.
const LENGTH_IN_SPACINGS: f64 = 1.5;
/// There are no longer ticks than this: everything else would wait too long for its sockets.
const LENGTH_MAX: Duration = Duration::from_millis(3);
/// How often the load is measured.
const LOAD_WINDOW: Duration = Duration::from_millis(16);
/// Ticks end when the worker has executed tasks for this time without a pause.
const RUNNING_MAX: Duration = Duration::from_millis(4);
/// How often the first worker in reserve looks whether it is needed, on behalf of all.
const RESERVE_WAIT: Duration = Duration::from_millis(5);
/// How often the others do, in case the runtime ends.
const OTHERS_RESERVE_WAIT: Duration = Duration::from_secs(1);

/// The load with which a runtime has ticks.
#[derive(Clone, Copy, Debug)]
pub struct TickLoad {
    /// Minimum number of appends in 16 ms. Fewer seldom share a commit.
    pub appends_min: u32,
    /// Ticks begin below this share of one worker's time…
    pub begin_busy_max: f64,
    /// …and end above this one.
    pub go_on_busy_max: f64,
}

impl Default for TickLoad {
    fn default() -> Self {
        Self { appends_min: 20, begin_busy_max: 0.4, go_on_busy_max: 0.6 }
    }
}

/// Shared by the writer and the tasks that block workers.
#[derive(Debug)]
pub(crate) struct RuntimeTicks {
    state: Mutex<TickState>,
    /// Something was committed, or ticks have ended. The worker that has ticks waits for it.
    committed: Condvar,
    /// Ticks have ended. The workers in reserve wait for it.
    ended: Condvar,
    begun: Notify,
    signals: Arc<WriterSignals>,
    metrics: RuntimeMetrics,
}

impl RuntimeTicks {
    /// Starts the tasks on the current runtime. `None` without a runtime of several threads, or if commits have no spacing or a
    /// long one.
    pub(crate) fn start(options: &SqliteOptions, signals: &Arc<WriterSignals>) -> Option<Arc<Self>> {
        let length = options.commit_spacing.mul_f64(LENGTH_IN_SPACINGS);
        let runtime = Handle::try_current().ok()?;
        if length.is_zero() || length > LENGTH_MAX || runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        Some(Self::start_on(&runtime, options.ticks?, length, Arc::clone(signals)))
    }

    fn start_on(runtime: &Handle, load: TickLoad, length: Duration, signals: Arc<WriterSignals>) -> Arc<Self> {
        let ticks = Arc::new(Self {
            state: Mutex::new(TickState::new(load, length, Instant::now())),
            committed: Condvar::new(),
            ended: Condvar::new(),
            begun: Notify::new(),
            signals,
            metrics: runtime.metrics(),
        });
        runtime.spawn(run_ticks(Arc::clone(&ticks)));
        for other in 1..ticks.metrics.num_workers() {
            let wait = if other == 1 { RESERVE_WAIT } else { OTHERS_RESERVE_WAIT };
            runtime.spawn(keep_in_reserve(Arc::clone(&ticks), wait));
        }
        ticks
    }

    pub(crate) fn is_on(&self) -> bool {
        lock(&self.state).is_on
    }

    /// Number of ticks so far.
    pub(crate) fn count(&self) -> u64 {
        lock(&self.state).ticks
    }

    /// Called by the writer after a commit, when the tasks that waited for it are ready.
    pub(crate) fn on_commit(&self, appends: usize) {
        self.change(|state, now| {
            state.on_commit(appends, now);
            if state.is_load_due(now) {
                let workers =
                    (0..self.metrics.num_workers()).map(|worker| self.metrics.worker_total_busy_duration(worker));
                state.measure_load(workers.sum(), now);
            }
        });
        self.committed.notify_one();
    }

    /// The store is closed: there will be no commits any more.
    pub(crate) fn close(&self) {
        self.change(|state, _| (state.is_closed, state.is_on) = (true, false));
        // Those that wait for ticks end, too.
        self.begun.notify_waiters();
    }

    /// Changes the state, and tells the tasks if ticks begin or end with it.
    fn change(&self, change: impl FnOnce(&mut TickState, Instant)) {
        let mut state = lock(&self.state);
        let was_on = state.is_on;
        change(&mut state, Instant::now());
        let is_on = state.is_on;
        drop(state);
        match (was_on, is_on) {
            (false, true) => self.begun.notify_waiters(),
            (true, false) => {
                self.committed.notify_one();
                self.ended.notify_all();
            }
            _ => {}
        }
    }

    /// Waits until there are ticks. False if there will be none any more.
    async fn wait_for_begin(&self) -> bool {
        loop {
            let begun = self.begun.notified();
            let (is_on, is_closed) = {
                let state = lock(&self.state);
                (state.is_on, state.is_closed)
            };
            if is_on || is_closed {
                return !is_closed;
            }
            begun.await;
        }
    }

    /// Blocks the worker until something is committed or the next tick is due; `None` if there are no ticks any more.
    fn wait_for_work(&self) -> Option<TickWork> {
        let mut state = lock(&self.state);
        let begun = Instant::now();
        state.is_waiting = true;
        let mut now = begun;
        let work = loop {
            match state.next_work(now) {
                WorkOrWait::Work(work) => break Some(work),
                WorkOrWait::Wait(wait) => {
                    state = self.committed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                    now = Instant::now();
                }
                WorkOrWait::Ended => break None,
            }
        };
        state.on_wait_end(begun, now);
        drop(state);
        if work.is_none() {
            self.ended.notify_all();
        }
        work
    }

    /// Blocks a worker for this time, or until ticks end. Returns whether they go on.
    fn wait_in_reserve(&self, wait: Duration) -> bool {
        let state = lock(&self.state);
        if !state.is_on {
            return false;
        }
        let wait = if Defect::WorkersStayInReserve.is_planted() { wait * 10_000 } else { wait };
        drop(self.ended.wait_timeout(state, wait));
        self.change(TickState::end_if_held);
        self.is_on()
    }
}

/// Has the ticks of one worker.
async fn run_ticks(ticks: Arc<RuntimeTicks>) {
    while ticks.wait_for_begin().await {
        while let Some(work) = ticks.wait_for_work() {
            // Runs all tasks that are ready, then looks at the sockets.
            yield_now().await;
            if work == TickWork::Sockets {
                yield_now().await;
                ticks.signals.end_tick();
            }
        }
    }
}

/// Blocks one of the other workers while there are ticks. The runtime does not wake a worker that executes a task, and the others
/// take what is in its queue.
async fn keep_in_reserve(ticks: Arc<RuntimeTicks>, wait: Duration) {
    while ticks.wait_for_begin().await {
        while ticks.wait_in_reserve(wait) {
            // The runtime may have ended.
            yield_now().await;
        }
    }
}

/// What a worker goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickWork {
    /// The tasks that waited for a commit.
    Replies,
    /// A tick is due: what has come meanwhile.
    Sockets,
}

#[derive(Debug, PartialEq, Eq)]
enum WorkOrWait {
    Work(TickWork),
    Wait(Duration),
    Ended,
}

#[derive(Debug)]
struct TickState {
    is_on: bool,
    is_closed: bool,
    load: TickLoad,
    length: Duration,
    next_tick: Instant,
    ticks: u64,
    commits: u64,
    /// How many of them the worker knew when it waited last.
    commits_seen: u64,
    last_commit: Instant,
    /// Whether the worker waits, and until when it did last.
    is_waiting: bool,
    waited_until: Instant,
    window_begun: Instant,
    window_appends: u32,
    /// How long the worker waited in this window.
    window_waited: Duration,
    /// The time of all workers, when this window began.
    busy_before: Duration,
}

impl TickState {
    const fn new(load: TickLoad, length: Duration, now: Instant) -> Self {
        Self {
            is_on: false,
            is_closed: false,
            load,
            length,
            next_tick: now,
            ticks: 0,
            commits: 0,
            commits_seen: 0,
            last_commit: now,
            is_waiting: false,
            waited_until: now,
            window_begun: now,
            window_appends: 0,
            window_waited: Duration::ZERO,
            busy_before: Duration::ZERO,
        }
    }

    fn next_work(&mut self, now: Instant) -> WorkOrWait {
        self.is_on &= now.saturating_duration_since(self.last_commit) < LOAD_WINDOW;
        if !self.is_on {
            return WorkOrWait::Ended;
        }
        if self.commits != self.commits_seen {
            self.commits_seen = self.commits;
            return WorkOrWait::Work(TickWork::Replies);
        }
        match self.next_tick.saturating_duration_since(now) {
            Duration::ZERO => {
                self.next_tick = now + self.length;
                self.ticks += 1;
                WorkOrWait::Work(TickWork::Sockets)
            }
            wait => WorkOrWait::Wait(wait),
        }
    }

    fn on_wait_end(&mut self, begun: Instant, now: Instant) {
        self.window_waited += now.saturating_duration_since(begun.max(self.window_begun));
        (self.is_waiting, self.waited_until) = (false, now);
    }

    fn on_commit(&mut self, appends: usize, now: Instant) {
        self.commits += 1;
        self.last_commit = now;
        self.window_appends = self.window_appends.saturating_add(u32::try_from(appends).unwrap_or(u32::MAX));
    }

    fn is_load_due(&self, now: Instant) -> bool {
        !self.is_closed && now.saturating_duration_since(self.window_begun) >= LOAD_WINDOW
    }

    /// Begins or ends ticks. `busy_total` is the time in which workers have executed tasks, those that block them included.
    fn measure_load(&mut self, busy_total: Duration, now: Instant) {
        let window = now.saturating_duration_since(self.window_begun);
        let busy = match self.is_on {
            true => window.saturating_sub(self.window_waited),
            false => busy_total.saturating_sub(self.busy_before),
        };
        let share = busy.as_secs_f64() / window.as_secs_f64();
        let appends = f64::from(self.window_appends) * LOAD_WINDOW.as_secs_f64() / window.as_secs_f64();
        let busy_max = if self.is_on { self.load.go_on_busy_max } else { self.load.begin_busy_max };
        let was_on =
            std::mem::replace(&mut self.is_on, appends >= f64::from(self.load.appends_min) && share < busy_max);
        if !was_on {
            self.waited_until = now;
        }
        (self.window_begun, self.window_appends) = (now, 0);
        (self.window_waited, self.busy_before) = (Duration::ZERO, busy_total);
    }

    /// Ends ticks if tasks hold the worker.
    fn end_if_held(&mut self, now: Instant) {
        self.is_on &= self.is_waiting || now.saturating_duration_since(self.waited_until) < RUNNING_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use tokio::runtime::{Builder, Runtime};

    /// Longer than anything here takes, unless a wake-up is lost.
    const PATIENCE: Duration = Duration::from_secs(20);
    const TICK: Duration = Duration::from_millis(2);

    fn new_state(now: Instant) -> TickState {
        TickState::new(TickLoad::default(), TICK, now)
    }

    /// Workers and their load, window by window.
    struct Load {
        state: TickState,
        now: Instant,
        busy_total: Duration,
    }

    impl Load {
        /// A window in which one worker is busy for this share of the time. Returns whether there are ticks then.
        fn run_window(&mut self, busy: f64, appends: u32) -> bool {
            let begun = self.now;
            self.now += LOAD_WINDOW;
            match self.state.is_on {
                // The worker that has ticks is never idle, and the other one is in reserve.
                true => {
                    self.busy_total += LOAD_WINDOW * 2;
                    self.state.on_wait_end(begun, begun + LOAD_WINDOW.mul_f64(1.0 - busy));
                }
                false => self.busy_total += LOAD_WINDOW.mul_f64(busy),
            }
            self.state.on_commit(usize::try_from(appends).unwrap(), self.now);
            assert!(self.state.is_load_due(self.now));
            self.state.measure_load(self.busy_total, self.now);
            self.state.is_on
        }
    }

    #[test]
    fn ticks_begin_with_many_appends_and_end_when_one_worker_does_not_suffice() {
        let now = Instant::now();
        let mut load = Load { state: new_state(now), now, busy_total: Duration::ZERO };
        let enough = TickLoad::default().appends_min;
        assert!(!load.run_window(0.2, enough - 1), "too few to share commits");
        assert!(!load.run_window(0.5, enough), "too much for one worker");
        assert!(load.run_window(0.2, enough));
        assert!(load.run_window(0.5, enough), "a little more does not end them");
        assert!(!load.run_window(0.7, enough));
        assert!(!load.run_window(1.5, enough), "the time of all workers counts");
        assert!(load.run_window(0.3, enough));
        assert!(!load.run_window(0.3, enough - 1));
    }

    #[test]
    fn a_worker_waits_for_a_commit_and_for_the_next_tick() {
        let now = Instant::now();
        let mut state = TickState { is_on: true, ..new_state(now) };
        assert_eq!(state.next_work(now), WorkOrWait::Work(TickWork::Sockets));
        assert_eq!(state.next_work(now + TICK / 2), WorkOrWait::Wait(TICK / 2));
        state.on_commit(3, now + TICK / 2);
        assert_eq!(state.next_work(now + TICK / 2), WorkOrWait::Work(TickWork::Replies));
        assert_eq!(state.next_work(now + TICK / 2), WorkOrWait::Wait(TICK / 2));
        assert_eq!(state.next_work(now + TICK), WorkOrWait::Work(TickWork::Sockets));
        assert_eq!(state.next_work(now + TICK), WorkOrWait::Wait(TICK));
        assert_eq!(state.next_work(now + LOAD_WINDOW * 2), WorkOrWait::Ended, "nothing is committed any more");
    }

    #[test]
    fn ticks_end_when_tasks_hold_the_worker() {
        let now = Instant::now();
        let mut state = TickState { is_on: true, ..new_state(now) };
        state.end_if_held(now + RUNNING_MAX / 2);
        assert!(state.is_on);
        state.is_waiting = true;
        state.end_if_held(now + RUNNING_MAX);
        assert!(state.is_on, "it waits");
        state.on_wait_end(now, now + RUNNING_MAX);
        state.end_if_held(now + RUNNING_MAX);
        assert!(state.is_on);
        state.end_if_held(now + RUNNING_MAX * 2);
        assert!(!state.is_on);
    }

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    /// Ticks that go on without a load.
    fn start_ticks(runtime: &Runtime, length: Duration) -> Arc<RuntimeTicks> {
        let ticks = RuntimeTicks::start_on(runtime.handle(), TickLoad::default(), length, Arc::default());
        force_on(&ticks);
        ticks
    }

    fn force_on(ticks: &RuntimeTicks) {
        let later = Instant::now() + PATIENCE * 10;
        ticks.change(|state, now| {
            (state.is_on, state.waited_until) = (true, now);
            (state.window_begun, state.last_commit) = (later, later);
        });
    }

    fn spawn_sender(runtime: &Runtime) -> Receiver<()> {
        let (sender, receiver) = channel();
        runtime.spawn(async move { sender.send(()).unwrap() });
        receiver
    }

    #[test]
    fn a_commit_ends_the_wait_for_the_next_tick() {
        let runtime = runtime();
        let ticks = start_ticks(&runtime, PATIENCE * 2);
        for _ in 0..200 {
            let woken = spawn_sender(&runtime);
            ticks.on_commit(1);
            woken.recv_timeout(PATIENCE).expect("the worker goes on after a commit");
        }
        ticks.close();
    }

    #[test]
    fn what_needs_no_commit_waits_for_a_tick_at_most() {
        let runtime = runtime();
        let ticks = start_ticks(&runtime, TICK);
        for _ in 0..200 {
            spawn_sender(&runtime).recv_timeout(PATIENCE).expect("the worker goes on with the next tick");
        }
        let begun = Instant::now();
        drop(runtime);
        assert!(begun.elapsed() < PATIENCE, "the runtime ends: {:?}", begun.elapsed());
        drop(ticks);
    }

    #[test]
    fn ticks_are_as_far_apart_as_commits_and_never_far() {
        let runtime = runtime();
        let _guard = runtime.enter();
        let starts = |spacing_ms| {
            let commit_spacing = Duration::from_millis(spacing_ms);
            let options =
                SqliteOptions { commit_spacing, ticks: Some(TickLoad::default()), ..SqliteOptions::default() };
            RuntimeTicks::start(&options, &Arc::default()).inspect(|ticks| ticks.close()).is_some()
        };
        assert_eq!([0, 1, 2, 3, 1_000].map(starts), [false, true, true, false, false]);
        assert!(RuntimeTicks::start(&SqliteOptions::default(), &Arc::default()).is_none(), "only a server has them");
    }
}
