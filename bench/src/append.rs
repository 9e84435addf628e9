//! How many records per second become durable, compared with the bare disk.
//!
//! The baseline is a loop that appends a batch of 200-byte rows to a file and calls `fdatasync`. In the store 500 threads
//! append batches of that size at once, with numbering, checksums and index, and group commit. Both write to the disk
//! that holds the build, alternating round by round, because the speed of a disk varies.

use crate::report::{self, SectionOutput, Table, format_figure};
use crate::server_process;
use crate::stats::{Percentiles, median};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::SqliteStore;
use store_conformance::append_load::{AppendLoad, run_append_load};

const ROW_BYTES: usize = 200;
const BATCHES: [usize; 3] = [1, 64, 512];
/// Threads of the store that append concurrently.
const THREADS: usize = 500;
const ROUND_DURATION: Duration = Duration::from_secs(1);
/// Records that the store appends in one round, which takes about as long as [`ROUND_DURATION`].
const STORE_RECORDS: usize = 400_000;
const FLUSH_DURATION: Duration = Duration::from_millis(500);
/// The baseline starts a new file here: it would fill a fast disk otherwise.
const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendSample {
    pub(crate) rows_per_s: f64,
    /// Time until a batch was durable.
    pub(crate) commit_latency: Percentiles,
}

impl AppendSample {
    fn new(rows: usize, took: Duration, commits_us: Vec<u32>) -> Self {
        Self { rows_per_s: rows as f64 / took.as_secs_f64(), commit_latency: Percentiles::from_micros(commits_us) }
    }
}

struct AppendRow {
    batch: usize,
    fdatasync: Vec<AppendSample>,
    store: Vec<AppendSample>,
}

pub(crate) fn run(rounds: usize, output: SectionOutput) -> anyhow::Result<()> {
    let scratch = server_process::scratch_dir()?;
    let mut rows = BATCHES.map(|batch| AppendRow { batch, fdatasync: Vec::new(), store: Vec::new() });
    for round in 0..rounds {
        for row in &mut rows {
            let bare = measure_fdatasync(scratch.path(), row.batch, ROUND_DURATION)?;
            let store = measure_store(scratch.path(), row.batch)?;
            let side = |sample: &AppendSample| {
                format!(
                    "{} rows/s, p50 {} ms",
                    format_figure(sample.rows_per_s),
                    format_figure(sample.commit_latency.p50_ms)
                )
            };
            let ours = side(&store);
            eprintln!("round {} batch {:>3} fdatasync {}; store {ours}", round + 1, row.batch, side(&bare));
            row.fdatasync.push(bare);
            row.store.push(store);
        }
    }
    let body = format!(
        "Medians of {rounds} rounds of {} s, rows of {ROW_BYTES} bytes, {THREADS} threads in turn.\n\n{}",
        ROUND_DURATION.as_secs(),
        render_table(&rows)
    );
    report::publish_section("append", &body, output)
}

/// The baseline: batches appended to one file, each flushed before the next is written.
pub(crate) fn measure_fdatasync(folder: &Path, batch: usize, span: Duration) -> anyhow::Result<AppendSample> {
    let path = folder.join("bare");
    let rows = vec![b'x'; ROW_BYTES * batch];
    let mut file = File::create(&path)?;
    let (mut commits_us, mut written) = (Vec::new(), 0);
    let started = Instant::now();
    while started.elapsed() < span {
        if written + rows.len() > FILE_BYTES_MAX {
            file.set_len(0)?;
            file = File::create(&path)?;
            written = 0;
        }
        let commit = Instant::now();
        file.write_all(&rows)?;
        file.sync_data()?;
        written += rows.len();
        commits_us.push(u32::try_from(commit.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    let took = started.elapsed();
    std::fs::remove_file(&path)?;
    Ok(AppendSample::new(commits_us.len() * batch, took, commits_us))
}

/// The current duration of a flush, for tables in which it is a part of the figures.
pub(crate) fn measure_flush() -> anyhow::Result<Percentiles> {
    let scratch = server_process::scratch_dir()?;
    Ok(measure_fdatasync(scratch.path(), 1, FLUSH_DURATION)?.commit_latency)
}

/// The store: [`THREADS`] threads, each of which appends `batch` records and waits until they are durable before it
/// appends more, as executors do. The latency of an append therefore includes its queueing time.
fn measure_store(folder: &Path, batch: usize) -> anyhow::Result<AppendSample> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let folder = folder.join("store");
    let measured = runtime.block_on(async {
        let store = Arc::new(SqliteStore::open(&folder, &store::SqliteOptions::default())?);
        let records = if batch == 1 { STORE_RECORDS / 4 } else { STORE_RECORDS };
        let measured =
            run_append_load(&store, AppendLoad { threads: THREADS, batch_records: batch, records, first_thread: 1 })
                .await;
        store.close().await;
        anyhow::Ok(measured)
    })?;
    std::fs::remove_dir_all(&folder)?;
    let micros = measured.latencies.iter().map(|took| u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    Ok(AppendSample::new(measured.records, measured.elapsed, micros.collect()))
}

fn render_table(rows: &[AppendRow]) -> String {
    let mut table = Table::new(&[
        "rows per append",
        "fdatasync rows/s",
        "append p50 / p99 ms",
        "store rows/s",
        "append p50 / p99 ms",
        "store / fdatasync",
    ]);
    for row in rows {
        let rate = |samples: &[AppendSample]| median(samples.iter().map(|sample| sample.rows_per_s));
        let commit = |samples: &[AppendSample]| {
            let p50 = median(samples.iter().map(|sample| sample.commit_latency.p50_ms));
            let p99 = median(samples.iter().map(|sample| sample.commit_latency.p99_ms));
            format!("{} / {}", format_figure(p50), format_figure(p99))
        };
        table.push_row(&[
            row.batch.to_string(),
            format_figure(rate(&row.fdatasync)),
            commit(&row.fdatasync),
            format_figure(rate(&row.store)),
            commit(&row.store),
            format_figure(rate(&row.store) / rate(&row.fdatasync)),
        ]);
    }
    table.into_markdown()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_loop_counts_rows_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let sample = measure_fdatasync(folder.path(), 64, Duration::from_millis(20)).unwrap();
        assert!(sample.rows_per_s > 0.0 && sample.commit_latency.p50_ms > 0.0, "{sample:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
