//! A load for measuring: many threads, each with one append in flight, as executors have it.

use super::words::{Author, note};
use futures_util::future::join_all;
use model::ports::{AppendBatch, AppendOutcome, Directory, DirectoryChange, Journal};
use model::seq::Seq;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much, and in what pieces.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// So many threads take turns.
    pub threads: usize,
    /// Each appends so many records at once.
    pub batch: usize,
    /// All of them together append about so many.
    pub records: usize,
    /// The first thread's number: a second load on one store needs other threads.
    pub first_thread: usize,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Records that were confirmed.
    pub records: usize,
    /// From the first append to the last confirmation.
    pub took: Duration,
    /// How long each append took, shortest first.
    pub appends: Vec<Duration>,
}

impl Measured {
    /// Records in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }

    /// How long an append took that is slower than this share of all.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.appends.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is one")]
        let place = (last as f64 * share.clamp(0.0, 1.0)) as usize;
        self.appends.get(place).copied().unwrap_or_default()
    }
}

/// Appends records of about 200 bytes, all made before the clock starts.
pub async fn append<S: Journal + Directory + 'static>(store: &Arc<S>, load: Load) -> Measured {
    let rounds = (load.records / load.threads / load.batch).max(1);
    let authors = (0..load.threads).map(|n| Author::new(&**store, &**store, load.first_thread + n));
    let mut scripts: Vec<Vec<AppendBatch>> = Vec::new();
    for mut author in join_all(authors).await {
        author.begin().must_append().await;
        scripts.push((0..rounds).map(|_| script(&mut author, load.batch)).collect());
    }
    let began = Instant::now();
    let tasks = scripts.into_iter().map(|batches| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut appends = Vec::with_capacity(batches.len());
            for batch in batches {
                let asked = Instant::now();
                assert_eq!(store.append(batch).await, AppendOutcome::Durable);
                appends.push(asked.elapsed());
            }
            appends
        })
    });
    let appends = join_all(tasks).await;
    let took = began.elapsed();
    let mut appends: Vec<Duration> = appends.into_iter().flat_map(Result::unwrap).collect();
    appends.sort();
    Measured { records: rounds * load.batch * load.threads, took, appends }
}

/// The next batch of a thread, as if the ones before it had been appended.
fn script(author: &mut Author<'_>, records: usize) -> AppendBatch {
    let event = note(&author.run, &"x".repeat(105));
    for _ in 0..records {
        author.event(event.clone());
    }
    let batch = author.batch();
    author.records.clear();
    author.lease.head = Seq(author.lease.head.0 + records as u64);
    batch
}

/// Ends the runs of a load, so that what it logged moves into blocks.
pub async fn end<S: Journal + Directory>(store: &S, load: Load) {
    for n in load.first_thread..load.first_thread + load.threads {
        let (owner, thread) = (super::words::somebody(), super::words::thread(n));
        let lease = store.claim(&owner, &thread, &super::words::node()).await.unwrap();
        let (records, changes): (Vec<_>, Vec<DirectoryChange>) = (Vec::new(), Vec::new());
        let run = super::words::run(n);
        let mut author = Author { journal: store, owner, thread, run, lease, records, changes, at: 1_000_000 };
        author.end().must_append().await;
    }
}
