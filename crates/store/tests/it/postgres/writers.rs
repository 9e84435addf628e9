//! Many threads that append in a loop, and what must be true of their logs afterwards.

use model::UserId;
use model::limits::CostMicros;
use model::ports::{AppendOutcome, Day, DirectoryChange, Spend, UsageLedger as _};
use model::record::Record;
use model_testing::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::PostgresStore;
use store_conformance::fixtures::{LogWriter, claim_thread, nth_thread};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const TODAY: Day = Day(20_000);
/// How long a writer may take to notice that the database is back, and everything else that a test waits for.
pub(crate) const PROGRESS_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) struct Writers {
    store: Arc<PostgresStore>,
    stop: watch::Sender<bool>,
    /// Confirmed appends of each writer.
    confirmed: Arc<Vec<AtomicUsize>>,
    tasks: Vec<JoinHandle<WriterResult>>,
}

struct WriterResult {
    owner: UserId,
    number: usize,
    records: Vec<Record>,
    appends: usize,
}

impl Writers {
    /// Every append adds one to the spending of its owner, so an append that is applied twice shows even without records.
    pub(crate) fn start(store: &Arc<PostgresStore>, count: usize, seed: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let confirmed: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
        let tasks = (0..count).map(|index| {
            let (store, confirmed, stopped) = (Arc::clone(store), Arc::clone(&confirmed), stopped.clone());
            let rng = Rng::new(seed.wrapping_add(index as u64));
            tokio::spawn(async move { append_until_stopped(&store, index, rng, &stopped, &confirmed[index]).await })
        });
        Self { store: Arc::clone(store), stop, tasks: tasks.collect(), confirmed }
    }

    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Waits until every writer has appended this often since now.
    pub(crate) async fn wait_for_appends(&self, count: usize) {
        let load = || self.confirmed.iter().map(|count| count.load(Ordering::SeqCst));
        let before: Vec<usize> = load().collect();
        poll_until("every writer appends", || {
            assert!(self.tasks.iter().all(|task| !task.is_finished()), "a writer has stopped");
            load().zip(&before).all(|(now, before)| now >= before + count)
        })
        .await;
    }

    /// Stops and checks that the logs have what was confirmed, once, and nothing else.
    pub(crate) async fn stop_and_check(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            let WriterResult { owner, number, records, appends } = in_time(task).await.unwrap();
            let store = &*self.store;
            let lease = claim_thread(store, &owner, &nth_thread(number)).await;
            let writer = LogWriter::with_lease(store, owner.clone(), number, lease);
            assert_eq!(writer.read_all().await, records, "the log of writer {number}");
            let spent = store.daily_spend(&owner, TODAY).await.unwrap().cost;
            assert_eq!(spent, CostMicros(appends as u64), "appends of writer {number} that were applied");
        }
    }
}

async fn append_until_stopped(
    store: &PostgresStore,
    index: usize,
    mut rng: Rng,
    stopped: &watch::Receiver<bool>,
    confirmed: &AtomicUsize,
) -> WriterResult {
    let (owner, number) = (UserId::from(format!("owner-{index}")), index + 1);
    let mut writer = LogWriter::for_owner(store, store, owner.clone(), number).await;
    let (mut records, mut appends) = (Vec::new(), 0);
    writer.start_run();
    while !*stopped.borrow() {
        // A fifth of the batches has no records.
        if rng.chance(80) {
            writer.push_notes(usize::try_from(rng.between(1, 3)).unwrap());
        }
        let spent = Spend { cost: CostMicros(1), ..Spend::default() };
        writer.changes.push(DirectoryChange::AddSpend { day: TODAY, spent });
        let batch = writer.records.clone();
        assert_eq!(writer.append().await, AppendOutcome::Durable, "writer {number}");
        records.extend(batch);
        appends += 1;
        confirmed.fetch_add(1, Ordering::SeqCst);
    }
    WriterResult { owner, number, records, appends }
}

/// Waits with a bound that is far too long: an operation that never ends fails its test.
pub(crate) async fn in_time<T>(operation: impl Future<Output = T>) -> T {
    tokio::time::timeout(PROGRESS_MAX, operation).await.unwrap_or_else(|_| panic!("not within {PROGRESS_MAX:?}"))
}

/// Polls with a bound that is far too long.
pub(crate) async fn poll_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let polling = async {
        while !is_done() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(PROGRESS_MAX, polling).await.unwrap_or_else(|_| panic!("not within {PROGRESS_MAX:?}: {what}"));
}
