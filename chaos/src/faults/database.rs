//! PostgreSQL crashes, or one of its processes is killed, or a connection ends.

use crate::context::ChaosContext;
use crate::database::APPLICATION_NAME;
use anyhow::{Context, ensure};
use model_testing::Rng;
use std::path::Path;
use std::time::{Duration, Instant};

const RECOVERY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

pub(super) async fn crash_database(context: &ChaosContext, rng: &mut Rng) -> anyhow::Result<String> {
    let database = &context.cluster.database;
    let before = database.postmaster_pid().await?;
    database.crash().await?;
    let crashed = Instant::now();
    ensure!(database.query("SELECT 1").await.is_err(), "a crashed server answers");
    tokio::time::sleep(Duration::from_millis(rng.between(500, 2_500).into())).await;
    database.start_again().await?;
    let after = database.postmaster_pid().await?;
    ensure!(before != after, "the postmaster is the same process");
    Ok(format!("postmaster {before}, then {after}, {:.1} s without", crashed.elapsed().as_secs_f64()))
}

/// A process that serves a connection of any node.
async fn pick_backend(context: &ChaosContext, rng: &mut Rng) -> anyhow::Result<i32> {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '{APPLICATION_NAME}'
         AND backend_type = 'client backend' ORDER BY pid"
    );
    // Right after a crash the nodes have not connected again.
    let begun = Instant::now();
    loop {
        let rows = context.cluster.database.query(&sql).await?;
        if !rows.is_empty() || begun.elapsed() > RECOVERY_MAX {
            let pid = rng.pick(&rows).and_then(|row| row.first()).context("no node connects to the database")?;
            return Ok(pid.parse()?);
        }
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn end_connection(context: &ChaosContext, rng: &mut Rng) -> anyhow::Result<String> {
    // The nodes use few connections: with three, the chance is high that one of them was working.
    let mut ended = Vec::new();
    for _ in 0..3 {
        let pid = pick_backend(context, rng).await?;
        let answer = context.cluster.database.query(&format!("SELECT pg_terminate_backend({pid}, 5000)")).await?;
        ensure!(answer.concat() == ["t"], "backend {pid} was not ended");
        ended.push(pid.to_string());
        tokio::time::sleep(Duration::from_millis(rng.between(50, 500).into())).await;
    }
    let gone = ended.iter().all(|pid| !Path::new("/proc").join(pid).exists());
    ensure!(gone, "a backend of {ended:?} is still there");
    Ok(format!("backends {} gone", ended.join(", ")))
}

pub(super) async fn kill_backend(context: &ChaosContext, rng: &mut Rng) -> anyhow::Result<String> {
    let database = &context.cluster.database;
    let started = "SELECT pg_postmaster_start_time(), (SELECT min(backend_start) FROM pg_stat_activity
                   WHERE backend_type = 'checkpointer')";
    let before = database.query(started).await?;
    let pid = pick_backend(context, rng).await?;
    database.kill_backend(pid).await?;
    let killed = Instant::now();
    loop {
        ensure!(killed.elapsed() < RECOVERY_MAX, "PostgreSQL does not recover within {RECOVERY_MAX:?}");
        tokio::time::sleep(POLL).await;
        // Its own processes are new ones.
        if let Ok(after) = database.query(started).await
            && after != before
        {
            return Ok(format!("backend {pid} gone, recovered after {:.1} s", killed.elapsed().as_secs_f64()));
        }
    }
}
