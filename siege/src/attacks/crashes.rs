//! The server dies, is stopped, or is held up.

use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm, StatusCounts};
use crate::history::History;
use crate::http_client::ApiUser;
use crate::installation::{Installation, ServerSettings};
use anyhow::Context;
use async_trait::async_trait;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a stream that was cut may take to be complete after the server is back.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a program of a tool may outlive its server.
const PROGRAM_END_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

const STARTED: &str = "started";
const COMPLETE: &str = "complete";
const GIVEN_UP: &str = "given up";

/// Starts a run, follows it, and resumes after each interruption until it has ended.
async fn follow_to_the_end(
    user: &ApiUser,
    history: &History,
    statuses: &StatusCounts,
    input: &str,
) -> anyhow::Result<()> {
    let mut stream = user.start_stream(&json!({"model": "writer", "input": input, "stream": true})).await?;
    let (mut task, mut cursor) = (String::new(), None);
    let mut interrupted: Option<Instant> = None;
    loop {
        while let Ok(Some(event)) = stream.next().await {
            let data = history.read_event(user.name, &event);
            cursor = Some(event.id);
            interrupted = None;
            if let Some(id) = data.get("task_id").and_then(Value::as_str)
                && task.is_empty()
            {
                id.clone_into(&mut task);
                statuses.add(STARTED);
            }
            let kind = data.get("type").and_then(Value::as_str).unwrap_or_default();
            if matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled") {
                return Ok(());
            }
        }
        anyhow::ensure!(!task.is_empty(), "interrupted before the run was acknowledged");
        let since = *interrupted.get_or_insert_with(Instant::now);
        loop {
            anyhow::ensure!(
                since.elapsed() < COMPLETE_TIMEOUT,
                "{task} is not complete {COMPLETE_TIMEOUT:?} after its stream was cut"
            );
            tokio::time::sleep(RETRY_PAUSE).await;
            if let Ok(next) = user.follow(&format!("/v1/tasks/{task}/events"), cursor.as_deref()).await {
                stream = next;
                break;
            }
        }
    }
}

/// Follows this many runs of the attacker, and counts how they end.
fn start_streams(context: &AttackContext, outcome: &mut AttackOutcome, count: usize, input: &'static str) {
    for _ in 0..count {
        let (user, history): (ApiUser, Arc<History>) = (context.installation.attacker.clone(), context.history.clone());
        let statuses = context.statuses.clone();
        context.spawn(outcome, async move {
            match follow_to_the_end(&user, &history, &statuses, input).await {
                Ok(()) => statuses.add(COMPLETE),
                Err(_) => statuses.add(GIVEN_UP),
            }
        });
    }
}

/// Waits until `count` runs have been acknowledged since the attack began.
async fn wait_for_started(context: &AttackContext, count: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    while context.statuses.count(STARTED) < count {
        anyhow::ensure!(begun.elapsed() < COMPLETE_TIMEOUT, "the streams do not start");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Ok(())
}

/// `kill -9` at random moments.
pub(super) struct Kills;

#[async_trait]
impl Attack for Kills {
    fn name(&self) -> &'static str {
        "kills"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Kills the server (SIGKILL) {} times at random moments, with 20 streams.", form.choose(3, 20))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        for round in 1..=context.form.choose(3, 20) {
            start_streams(context, &mut outcome, 20, "story 60 every 5");
            wait_for_started(context, 20 * round).await?;
            let moment = context.random_between(0, 400);
            tokio::time::sleep(Duration::from_millis(moment.into())).await;
            context.probe.expect_interruption();
            context.installation.kill().await?;
            outcome.ready.push(context.installation.restart(&context.settings).await?);
            context.probe.expect_service();
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// `kill -9` while programs of tools run.
pub(super) struct KillWithTools;

#[async_trait]
impl Attack for KillWithTools {
    fn name(&self) -> &'static str {
        "kill-with-tools"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Kills the server while {} programs of tools run, which have to end with it.", form.choose(10, 100))
    }

    fn settings(&self, _form: SiegeForm, installation: &Installation) -> anyhow::Result<ServerSettings> {
        let programs = installation.path("programs").display().to_string();
        let tables = format!(
            "\n[agents.lingerer]\nmodel = \"mock/lingerer\"\ntools = [\"linger\"]\n\n[tools.linger]\nkind = \"command\"\n\
             description = \"Runs for long.\"\ncommand = [\"sh\", \"-c\", 'echo $$ >> \"{programs}\"; sleep 600']\n\
             env_pass = [\"PATH\"]\n"
        );
        Ok(ServerSettings { tables, ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let (user, count) = (&context.installation.attacker, context.form.choose(10, 100));
        for _ in 0..count {
            let body = json!({"model": "lingerer", "input": "call linger"});
            let run = user.post("/v1/tasks", &body, REQUEST_TIMEOUT).await?.expect_status(202)?.json()?;
            context.history.acknowledge_response(user.name, &run);
        }
        let file = context.installation.path("programs");
        let pids = wait_for_pids(&file, count).await?;
        context.probe.expect_interruption();
        context.installation.kill().await?;
        let killed = Instant::now();
        while pids.iter().any(|pid| is_alive(*pid)) {
            if killed.elapsed() > PROGRAM_END_TIMEOUT {
                let alive = pids.iter().filter(|pid| is_alive(**pid)).count();
                outcome.problems.push(format!("{alive} of {count} programs outlived their server"));
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        outcome.ready.push(context.installation.restart(&context.settings).await?);
        context.probe.expect_service();
        context.hold().await;
        let started = read_pids(&file).len();
        if started != count {
            outcome.problems.push(format!("{count} programs were started {started} times"));
        }
        Ok(outcome)
    }
}

pub(super) fn read_pids(file: &std::path::Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

async fn wait_for_pids(file: &std::path::Path, count: usize) -> anyhow::Result<Vec<u32>> {
    let begun = Instant::now();
    loop {
        let pids = read_pids(file);
        if pids.len() >= count {
            return Ok(pids);
        }
        anyhow::ensure!(begun.elapsed() < COMPLETE_TIMEOUT, "only {} of {count} programs run", pids.len());
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

pub(super) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// SIGSTOP, as a virtual machine that is suspended.
pub(super) struct PausedServer;

#[async_trait]
impl Attack for PausedServer {
    fn name(&self) -> &'static str {
        "paused-server"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Suspends the server (SIGSTOP) for {} s with 20 streams, and lets it continue.", form.choose(1, 10))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        start_streams(context, &mut outcome, 20, "story 60 every 10");
        wait_for_started(context, 20).await?;
        context.probe.expect_interruption();
        context.installation.signal(Signal::STOP).await?;
        tokio::time::sleep(Duration::from_secs(context.form.choose(1, 10))).await;
        context.installation.signal(Signal::CONT).await?;
        let begun = Instant::now();
        context.installation.probe.get("/v1/threads", REQUEST_TIMEOUT).await?.expect_status(200)?;
        outcome.ready.push(begun.elapsed());
        context.probe.expect_service();
        context.hold().await;
        Ok(outcome)
    }
}

/// SIGTERM in the middle of streams, which are resumed at the next server.
pub(super) struct StopWithStreams;

#[async_trait]
impl Attack for StopWithStreams {
    fn name(&self) -> &'static str {
        "stop-with-streams"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Stops the server (SIGTERM) with 100 streams, starts it again, and resumes them to their ends.".to_owned()
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        start_streams(context, &mut outcome, 100, context.form.choose("story 20 every 100", "story 160 every 50"));
        wait_for_started(context, 100).await?;
        context.probe.expect_interruption();
        outcome.stop.push(context.installation.stop().await.context("under 100 streams")?);
        outcome.ready.push(context.installation.restart(&context.settings).await?);
        context.probe.expect_service();
        let begun = Instant::now();
        let ended = || context.statuses.count(COMPLETE) + context.statuses.count(GIVEN_UP);
        while ended() < 100 && begun.elapsed() < 2 * COMPLETE_TIMEOUT {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let complete = context.statuses.count(COMPLETE);
        if complete < 100 {
            outcome.problems.push(format!("of 100 streams {complete} were resumed to their ends"));
        }
        Ok(outcome)
    }
}
