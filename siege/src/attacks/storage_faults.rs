//! The disk fails, is slow, is full, or has changed.

use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm};
use crate::checker::FolderState;
use crate::machine::Need;
use crate::small_disk::{fill_disk, filler_path};
use anyhow::Context;
use async_trait::async_trait;
use hyper::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Attaches `strace` to the server and injects faults into its calls of `fsync`.
async fn inject_fault(context: &AttackContext, fault: &str) -> anyhow::Result<Child> {
    let pid = context.installation.pid().await?.to_string();
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"]);
    command.arg(format!("inject=fsync,fdatasync:{fault}")).args(["-p", &pid]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().context("cannot start strace")?;
    let begun = Instant::now();
    while !is_traced(&pid) {
        anyhow::ensure!(begun.elapsed() < REQUEST_TIMEOUT, "strace cannot attach to the server");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Ok(child)
}

fn is_traced(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

/// Lets the server go again.
async fn end_fault(mut strace: Child) -> anyhow::Result<()> {
    let pid = strace.id().context("strace has ended by itself")?;
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).context("no process id")?;
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    strace.wait().await?;
    Ok(())
}

/// Waits until a run can be completed, and returns how long that took.
async fn wait_for_service(context: &AttackContext) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let user = &context.installation.attacker;
    let body = json!({"model": "writer", "input": "story 1", "wait": true});
    loop {
        let reply = user.post("/v1/tasks", &body, REQUEST_TIMEOUT).await;
        if let Ok(reply) = reply.and_then(|reply| reply.expect_status(200)) {
            context.history.acknowledge_response(user.name, &reply.json()?);
            return Ok(begun.elapsed());
        }
        anyhow::ensure!(
            begun.elapsed() < RECOVERY_TIMEOUT,
            "no run completes {RECOVERY_TIMEOUT:?} after the fault has gone"
        );
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// `fsync` fails now and then.
pub(super) struct FsyncErrors;

#[async_trait]
impl Attack for FsyncErrors {
    fn name(&self) -> &'static str {
        "fsync-errors"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Lets every fifth `fsync` of the server fail (EIO, injected by strace), and then none.".to_owned()
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Strace]
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        context.probe.expect_interruption();
        let first = context.random_between(1, 5);
        let strace = inject_fault(context, &format!("error=EIO:when={first}+5")).await?;
        tokio::time::sleep(context.form.window()).await;
        end_fault(strace).await?;
        if !context.installation.is_running().await {
            outcome.ready.push(context.installation.restart(&context.settings).await?);
        }
        outcome.ready.push(wait_for_service(context).await?);
        context.probe.expect_service();
        context.hold().await;
        Ok(outcome)
    }
}

/// `fsync` takes long.
pub(super) struct SlowFsync;

#[async_trait]
impl Attack for SlowFsync {
    fn name(&self) -> &'static str {
        "slow-fsync"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Lets every `fsync` of the server take 100 ms longer (injected by strace). A token is durable before it is \
         shown, so the median has no bound."
            .to_owned()
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Strace]
    }

    fn has_median_bound(&self) -> bool {
        false
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let strace = inject_fault(context, "delay_exit=100000").await?;
        context.hold().await;
        context.probe.wait_for_rounds(4, 1, RECOVERY_TIMEOUT).await;
        context.probe.expect_interruption();
        end_fault(strace).await?;
        Ok(AttackOutcome::default())
    }
}

/// No room for another byte, and then room again.
pub(super) struct DiskFull;

#[async_trait]
impl Attack for DiskFull {
    fn name(&self) -> &'static str {
        "disk-full"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Fills the disk of the data folder, and frees it. On the full disk `/readyz` is 503, and reading and deleting work; \
         then everything works again."
            .to_owned()
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::SmallDisk]
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::SmallDisk
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let body = json!({"model": "writer", "input": "story 20", "wait": true});
        let kept = user.post("/v1/tasks", &body, REQUEST_TIMEOUT).await?.expect_status(200)?.json()?;
        context.history.acknowledge_response(user.name, &kept);
        let doomed = user.post("/v1/tasks", &body, REQUEST_TIMEOUT).await?.expect_status(200)?.json()?;
        context.probe.wait_for_rounds(2, 1, RECOVERY_TIMEOUT).await;
        context.probe.expect_interruption();
        let filler = filler_path(context.installation.data_dir());
        fill_disk(&filler)?;
        // The next write notices it.
        let refused = user.post("/v1/tasks", &json!({"model": "writer", "input": "story 1"}), REQUEST_TIMEOUT).await?;
        if refused.status < 300 {
            context.history.acknowledge_response(user.name, &refused.json()?);
        }
        tokio::time::sleep(context.form.window()).await;
        let task = kept.get("task_id").and_then(Value::as_str).unwrap_or_default();
        for path in [format!("/v1/tasks/{task}"), format!("/v1/tasks/{task}/events")] {
            let read = user.get(&path, REQUEST_TIMEOUT).await?;
            if read.status != 200 {
                outcome.problems.push(format!("on a full disk {path} is {}: {}", read.status, read.text()));
            }
        }
        let ready = user.get("/readyz", REQUEST_TIMEOUT).await?;
        if ready.status != 503 {
            outcome.problems.push(format!("on a full disk /readyz is {}", ready.status));
        }
        let thread = doomed.get("thread_id").and_then(Value::as_str).unwrap_or_default();
        let path = format!("/v1/threads/{thread}");
        let deleted = user.send(Method::DELETE, &path, bytes::Bytes::new(), REQUEST_TIMEOUT).await?;
        if deleted.status >= 300 {
            outcome.problems.push(format!("on a full disk a thread cannot be deleted: {}", deleted.text()));
        }
        std::fs::remove_file(&filler)?;
        outcome.ready.push(wait_for_service(context).await?);
        context.probe.expect_service();
        context.hold().await;
        Ok(outcome)
    }
}

/// A byte of a stored record has changed.
pub(super) struct CorruptedPages;

#[async_trait]
impl Attack for CorruptedPages {
    fn name(&self) -> &'static str {
        "corrupted-pages"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Changes bytes of a stored run. The run is refused and named by `headwater verify`; all others are served."
            .to_owned()
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    fn folder_state(&self) -> FolderState {
        FolderState::Damaged
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let mark =
            format!("damaged-{:08x}-{:08x}", context.random_between(0, u32::MAX), context.random_between(0, u32::MAX));
        let body = json!({"model": "writer", "input": format!("{mark} {mark}"), "wait": true});
        // Not in the history: it will be lost, and only it.
        let run = user.post("/v1/tasks", &body, REQUEST_TIMEOUT).await?.expect_status(200)?.json()?;
        let task = run.get("task_id").and_then(Value::as_str).context("no task")?;
        context.probe.expect_interruption();
        outcome.stop.push(context.installation.stop().await?);
        let changed = change_bytes(&context.installation.data_dir().join("headwater.db"), mark.as_bytes())?;
        context.statuses.add(&format!("{changed} places changed"));
        outcome.ready.push(context.installation.restart(&context.settings).await?);
        context.probe.expect_service();
        let read = user.get(&format!("/v1/tasks/{task}/events"), REQUEST_TIMEOUT).await;
        if let Ok(read) = read
            && read.status == 200
            && String::from_utf8_lossy(&read.body).contains("event: task.completed")
        {
            outcome.problems.push("a changed run was served as if it were whole".to_owned());
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// Changes a byte in each place of `file` that has `mark`. Returns how many there were.
fn change_bytes(file: &std::path::Path, mark: &[u8]) -> anyhow::Result<usize> {
    let mut bytes = std::fs::read(file)?;
    let places: Vec<usize> =
        bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark).map(|(place, _)| place).collect();
    anyhow::ensure!(!places.is_empty(), "the run is not in the database as it was sent");
    for place in &places {
        if let Some(byte) = bytes.get_mut(*place) {
            *byte ^= 1;
        }
    }
    std::fs::write(file, bytes)?;
    Ok(places.len())
}
