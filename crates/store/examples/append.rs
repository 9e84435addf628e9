//! How fast this machine logs: durable records per second, by batch, and how long opening takes afterwards.
//!
//! `cargo run -p store --release --features conformance --example append [folder]`

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{SqliteOptions, SqliteStore};
use store_conformance::append_load::{AppendLoad, complete_load_runs, run_append_load};

const THREADS: usize = 500;

#[tokio::main]
async fn main() {
    let dir: PathBuf = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    bare(&dir);
    for spacing in [0, 1] {
        for (round, batch) in [1, 64, 512].into_iter().cycle().take(6).enumerate() {
            let options = SqliteOptions { commit_spacing: Duration::from_millis(spacing), ..SqliteOptions::default() };
            let folder = dir.join(format!("headwater-append-{}-{round}", std::process::id()));
            let Ok(store) = SqliteStore::open(&folder, &options).map(Arc::new) else { return };
            let records = if batch == 1 { 100_000 } else { 1_000_000 };
            let load = AppendLoad { threads: THREADS, batch_records: batch, records, first_thread: 1 };
            let before = store.stats();
            let measured = run_append_load(&store, load).await;
            let stats = store.stats();
            println!(
                "spacing {spacing} ms, batch {batch}: {:.0} records/s, {} commits, append p50 {:?}, p99 {:?}",
                measured.records_per_second(),
                stats.commits - before.commits,
                measured.latency_quantile(0.5),
                measured.latency_quantile(0.99),
            );
            if spacing == 0 && round < 3 {
                reopen(store, &folder, load).await;
            }
            // Left-overs of a measurement are not worth an error.
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

/// The yardstick: the same bytes into a plain file.
fn bare(dir: &std::path::Path) {
    let path = dir.join(format!("headwater-bare-{}", std::process::id()));
    for batch in [1_usize, 64, 512] {
        let Ok(mut file) = std::fs::File::create(&path) else { return };
        let (bytes, began) = (vec![7; 200 * batch], Instant::now());
        let mut commits = 0_u32;
        while began.elapsed() < Duration::from_secs(2) {
            if file.write_all(&bytes).and_then(|()| file.sync_data()).is_err() {
                return;
            }
            commits += 1;
        }
        let each = began.elapsed() / commits.max(1);
        println!(
            "bare fdatasync, {batch} x 200 bytes: {:.0} records/s, {each:?} each",
            batch as f64 / each.as_secs_f64()
        );
    }
    let _ = std::fs::remove_file(&path);
}

async fn reopen(store: Arc<SqliteStore>, folder: &std::path::Path, load: AppendLoad) {
    drop(store);
    let began = Instant::now();
    let Ok(store) = SqliteStore::open(folder, &SqliteOptions::default()) else { return };
    println!("  opened with {} live records in {:?}", load.records, began.elapsed());
    let began = Instant::now();
    complete_load_runs(&store, load).await;
    store.close().await;
    println!("  runs ended and moved into {} blocks in {:?}", store.stats().blocks, began.elapsed());
    let size = std::fs::metadata(folder.join("headwater.db")).map_or(0, |file| file.len());
    println!("  the database has {} MiB", size >> 20);
    drop(store);
    let began = Instant::now();
    let opened = SqliteStore::open(folder, &SqliteOptions::default()).is_ok();
    println!("  opened again ({opened}) in {:?}", began.elapsed());
}
