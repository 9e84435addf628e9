//! A load for benchmarks: many threads, each with one append in flight, as executors produce it.

use super::TestStore;
use super::fixtures::{LogWriter, note_event};
use futures_util::future::join_all;
use model::ports::{AppendBatch, AppendOutcome, DirectoryChange, Journal};
use model::seq::Seq;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct AppendLoad {
    pub threads: usize,
    /// Records per append.
    pub batch_records: usize,
    /// Approximate total of all threads.
    pub records: usize,
    /// Number of the first thread: a second load on the same store needs other threads.
    pub first_thread: usize,
}

#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Confirmed records.
    pub records: usize,
    /// From the first append to the last confirmation.
    pub elapsed: Duration,
    /// Sorted, shortest first.
    pub latencies: Vec<Duration>,
}

impl LoadReport {
    #[must_use]
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency at this quantile.
    #[must_use]
    pub fn latency_quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is one")]
        let place = (last as f64 * share.clamp(0.0, 1.0)) as usize;
        self.latencies.get(place).copied().unwrap_or_default()
    }
}

/// Appends records of about 200 bytes, all generated before the measurement starts.
pub async fn run_append_load<S: Journal + TestStore + 'static>(store: &Arc<S>, load: AppendLoad) -> LoadReport {
    let rounds = (load.records / load.threads / load.batch_records).max(1);
    let authors = (0..load.threads).map(|n| LogWriter::new(&**store, &**store, load.first_thread + n));
    let mut scripts: Vec<Vec<AppendBatch>> = Vec::new();
    for mut author in join_all(authors).await {
        author.start_run().must_append().await;
        scripts.push((0..rounds).map(|_| next_batch(&mut author, load.batch_records)).collect());
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
    LoadReport { records: rounds * load.batch_records * load.threads, elapsed: took, latencies: appends }
}

/// Builds a thread's next batch as if the previous ones had been appended.
fn next_batch(author: &mut LogWriter<'_>, records: usize) -> AppendBatch {
    let event = note_event(&author.run, &"x".repeat(105));
    for _ in 0..records {
        author.push_event(event.clone());
    }
    let batch = author.batch();
    author.records.clear();
    author.lease.head = Seq(author.lease.head.0 + records as u64);
    batch
}

/// Ends the runs of a load, so that the store moves their records into blocks.
pub async fn complete_load_runs<S: Journal + TestStore>(store: &S, load: AppendLoad) {
    for n in load.first_thread..load.first_thread + load.threads {
        let (owner, thread) = (super::fixtures::test_user(), super::fixtures::nth_thread(n));
        let lease = super::fixtures::claim_thread(store, &owner, &thread).await;
        let (records, changes): (Vec<_>, Vec<DirectoryChange>) = (Vec::new(), Vec::new());
        let run = super::fixtures::nth_run(n);
        let mut author = LogWriter { journal: store, owner, thread, run, lease, records, changes, now: 1_000_000 };
        author.complete_run().must_append().await;
    }
}
