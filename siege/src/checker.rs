//! One checker over everybody's histories: what was acknowledged is there, once, whole and unchanged.
//!
//! It reads every thread of every acknowledged run from its first event and compares it with all that was ever read of
//! it, counts the effects of the tool, reads every upload, and asks `headwater verify`.

use crate::history::{AcknowledgedRun, HistoryFacts, hash_text};
use crate::http_client::ApiUser;
use crate::installation::{Installation, ServerSettings};
use crate::probe::read_file;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long interrupted runs may take to end after the last start.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
const READERS: usize = 16;

/// What was checked, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct CheckReport {
    pub(crate) runs: usize,
    pub(crate) events: usize,
    pub(crate) readings: usize,
    pub(crate) effects: usize,
    pub(crate) uploads: usize,
    pub(crate) problems: Vec<String>,
}

impl CheckReport {
    pub(crate) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.readings += other.readings;
        self.effects += other.effects;
        self.uploads += other.uploads;
        self.problems.extend(other.problems);
    }
}

/// Whether the data folder is expected to be whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FolderState {
    Whole,
    /// `headwater verify` must report it.
    Damaged,
}

/// Starts the server without limits for users, checks all facts, and stops it again.
pub(crate) async fn check_installation(
    installation: &Arc<Installation>,
    facts: HistoryFacts,
    state: FolderState,
) -> anyhow::Result<CheckReport> {
    let settings = ServerSettings {
        limits: vec![("requests_per_user_minute_max", 0), ("runs_per_user_max", 0)],
        ..ServerSettings::default()
    };
    installation.start(&settings).await.context("the server does not start for the check")?;
    let mut report = check_facts(installation, facts).await?;
    installation.stop().await?;
    let verified = installation.run_verb(&["verify"]);
    match (state, verified) {
        (FolderState::Whole, Err(error)) => report.problems.push(format!("{error:#}")),
        (FolderState::Damaged, Ok(_)) => report.problems.push("`headwater verify` finds no damage".to_owned()),
        _ => {}
    }
    Ok(report)
}

async fn check_facts(installation: &Arc<Installation>, facts: HistoryFacts) -> anyhow::Result<CheckReport> {
    let mut report = CheckReport {
        runs: facts.runs.len(),
        readings: facts.readings.len(),
        uploads: facts.uploads.len(),
        problems: facts.contradictions.clone(),
        ..CheckReport::default()
    };
    let mut threads: BTreeMap<String, Vec<AcknowledgedRun>> = BTreeMap::new();
    for run in facts.runs.values() {
        threads.entry(run.thread.clone()).or_default().push(run.clone());
    }
    let (readings, places) = (Arc::new(facts.readings), Arc::new(Semaphore::new(READERS)));
    let mut reading = JoinSet::new();
    for (thread, runs) in threads {
        let (installation, readings, places) = (installation.clone(), readings.clone(), places.clone());
        reading.spawn(async move {
            let _place = places.acquire().await;
            check_thread(&installation, &thread, &runs, &readings).await.map_err(|error| format!("{thread}: {error:#}"))
        });
    }
    while let Some(outcome) = reading.join_next().await {
        match outcome? {
            Ok(events) => report.events += events,
            Err(problem) => report.problems.push(problem),
        }
    }
    for upload in &facts.uploads {
        match read_file(user_of(installation, upload.user), upload).await {
            Ok(found) if found == upload.content.as_bytes() => {}
            Ok(_) => report.problems.push(format!("the upload {} came back changed", upload.path)),
            Err(error) => report.problems.push(format!("the upload {}: {error:#}", upload.path)),
        }
    }
    let effects = std::fs::read_to_string(installation.effects_path()).unwrap_or_default();
    report.effects = effects.lines().count();
    report.problems.extend(effect_problems(&effects, &facts.recorded_marks));
    Ok(report)
}

fn user_of<'a>(installation: &'a Installation, name: &str) -> &'a ApiUser {
    if name == installation.probe.name { &installation.probe } else { &installation.attacker }
}

/// Reads a thread to its end. Returns the number of events.
async fn check_thread(
    installation: &Installation,
    thread: &str,
    runs: &[AcknowledgedRun],
    readings: &BTreeMap<(String, u64), u64>,
) -> anyhow::Result<usize> {
    let user = user_of(installation, runs.first().context("a thread without runs")?.user);
    let mut end = 0;
    let mut tasks = BTreeSet::new();
    for run in runs {
        // A run that was cancelled in the queue has no records.
        if let Some(seq) = wait_until_ended(user, run).await? {
            end = end.max(seq);
            tasks.insert(run.task.clone());
        }
    }
    if end == 0 {
        return Ok(0);
    }
    let mut stream = user.follow(&format!("/v1/threads/{thread}/events"), None).await?;
    let mut log = ThreadLog::default();
    while log.last_seq < end {
        let event = tokio::time::timeout(REQUEST_TIMEOUT, stream.next()).await.context("the thread stalls")??;
        let event = event.with_context(|| format!("the thread ended at {} of {end}", log.last_seq))?;
        let data: Value = serde_json::from_str(&event.data)?;
        log.push(&data, &event.data, readings)?;
    }
    let missing: Vec<&String> = tasks.iter().filter(|task| !log.ended.contains(*task)).collect();
    anyhow::ensure!(missing.is_empty(), "no terminal event of {missing:?}");
    Ok(log.events)
}

/// The `seq` of an ended run; none if it was cancelled in the queue. A run that goes on is cancelled first.
async fn wait_until_ended(user: &ApiUser, run: &AcknowledgedRun) -> anyhow::Result<Option<u64>> {
    let path = format!("/v1/tasks/{}", run.task);
    let begun = Instant::now();
    let mut is_cancelled = false;
    loop {
        let reply = user.get(&path, REQUEST_TIMEOUT).await?;
        anyhow::ensure!(reply.status == 200, "the acknowledged run {} is {}: {}", run.task, reply.status, reply.text());
        let task = reply.json()?;
        let status = task.get("status").and_then(Value::as_str).unwrap_or_default();
        if matches!(status, "completed" | "incomplete" | "failed" | "cancelled") {
            return Ok(task.get("seq").and_then(Value::as_u64).filter(|seq| *seq > 0));
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_TIMEOUT, "{} is still {status}", run.task);
        if user.name == crate::installation::ATTACKER && !is_cancelled {
            user.post(&format!("{path}/cancel"), &json!({}), REQUEST_TIMEOUT).await?;
            is_cancelled = true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The log of a thread as it is read.
#[derive(Debug, Default)]
struct ThreadLog {
    last_seq: u64,
    events: usize,
    ended: BTreeSet<String>,
}

impl ThreadLog {
    fn push(&mut self, data: &Value, text: &str, readings: &BTreeMap<(String, u64), u64>) -> anyhow::Result<()> {
        let task = data.get("task_id").and_then(Value::as_str).context("an event without a task")?.to_owned();
        let seq = data.get("seq").and_then(Value::as_u64).context("an event without seq")?;
        anyhow::ensure!(seq == self.last_seq + 1, "after event {} comes {seq}", self.last_seq);
        anyhow::ensure!(!self.ended.contains(&task), "{task} goes on after its terminal event");
        let known = readings.get(&(task.clone(), seq));
        anyhow::ensure!(
            known.is_none_or(|known| *known == hash_text(text)),
            "{task}: event {seq} differs from what was read before"
        );
        let kind = data.get("type").and_then(Value::as_str).unwrap_or_default();
        if matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled") {
            self.ended.insert(task);
        }
        self.last_seq = seq;
        self.events += 1;
        Ok(())
    }
}

/// Marks that were recorded twice, and acknowledged ones that were not recorded.
fn effect_problems(effects: &str, acknowledged: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in effects.lines() {
        let mark = serde_json::from_str::<Value>(line).ok();
        let mark = mark.and_then(|line| line.get("mark").and_then(Value::as_str).map(str::to_owned));
        *counts.entry(mark.unwrap_or_else(|| line.to_owned())).or_default() += 1;
    }
    let twice = counts.iter().filter(|(_, count)| **count > 1);
    let mut problems: Vec<String> =
        twice.map(|(mark, count)| format!("the tool was executed {count} times for {mark}")).collect();
    let lost = acknowledged.iter().filter(|mark| !counts.contains_key(*mark));
    problems.extend(lost.map(|mark| format!("the tool's result for {mark} was acknowledged without an effect")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(task: &str, seq: u64, kind: &str) -> Value {
        json!({"task_id": task, "seq": seq, "type": kind})
    }

    fn read_all(events: &[Value], readings: &BTreeMap<(String, u64), u64>) -> anyhow::Result<ThreadLog> {
        let mut log = ThreadLog::default();
        for event in events {
            log.push(event, &event.to_string(), readings)?;
        }
        Ok(log)
    }

    #[test]
    fn a_gap_a_change_and_an_event_after_the_end_are_noticed() {
        let good = [event("a", 1, "task.created"), event("a", 2, "task.completed"), event("b", 3, "task.created")];
        let mut readings = BTreeMap::from([(("a".to_owned(), 1), hash_text(&good[0].to_string()))]);
        assert_eq!(read_all(&good, &readings).unwrap().events, 3);
        let gap = [good[0].clone(), event("a", 3, "task.completed")];
        assert!(read_all(&gap, &readings).unwrap_err().to_string().contains("after event 1 comes 3"));
        let late = [good[0].clone(), good[1].clone(), event("a", 3, "task.text.delta")];
        assert!(read_all(&late, &readings).unwrap_err().to_string().contains("goes on after"));
        readings.insert(("a".to_owned(), 1), 7);
        assert!(read_all(&good, &readings).unwrap_err().to_string().contains("differs"));
    }

    #[test]
    fn effects_are_counted() {
        let effects = "{\"mark\":\"m1\"}\n{\"mark\":\"m2\"}\n{\"mark\":\"m2\"}\n";
        let problems = effect_problems(effects, &["m1".to_owned(), "m3".to_owned()]);
        assert_eq!(
            problems,
            ["the tool was executed 2 times for m2", "the tool's result for m3 was acknowledged without an effect"]
        );
    }
}
