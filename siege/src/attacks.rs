//! The attacks, one module each (or one for a few that differ in a number), behind one trait.

mod clock_jumps;
mod crashes;
mod half_open;
mod heavy_files;
mod hostile_mcp;
mod hostile_requests;
mod long_threads;
mod open_connections;
mod slow_requests;
mod storage_faults;

use crate::checker::FolderState;
use crate::history::History;
use crate::installation::{Installation, ServerSettings};
use crate::machine::Need;
use crate::probe::ProbeControl;
use anyhow::Context;
use async_trait::async_trait;
use model_testing::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// How much of an attack is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiegeForm {
    /// A minute for all attacks, in numbers that a debug build on two cores stands.
    Quick,
    /// The numbers of the table, under a memory limit.
    Full,
}

impl SiegeForm {
    /// One of two numbers.
    pub(crate) fn choose<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// How long the probe is watched under an attack.
    pub(crate) fn window(self) -> Duration {
        self.choose(Duration::from_millis(600), Duration::from_secs(5))
    }
}

/// Streams that the probe has to have tried before an attack ends.
pub(crate) const TOKENS_MIN: usize = 4;
/// How long to wait for a probe that gets no answers; its failures count.
pub(crate) const ROUNDS_TIMEOUT: Duration = Duration::from_secs(15);

/// For a start on a server under attack.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Where an attack takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttackPlace {
    /// The installation that most attacks share, one after the other.
    Shared,
    /// An installation of its own, which it may damage.
    Own,
    /// An installation of its own on a small file system in memory.
    SmallDisk,
}

/// What an attack has to work with.
pub(crate) struct AttackContext {
    pub(crate) installation: Arc<Installation>,
    pub(crate) settings: ServerSettings,
    pub(crate) history: Arc<History>,
    pub(crate) probe: Arc<ProbeControl>,
    pub(crate) form: SiegeForm,
    pub(crate) rng: Mutex<Rng>,
    /// Runs the attacker's load at a low priority, as if it came from other machines.
    pub(crate) load: Handle,
    pub(crate) statuses: StatusCounts,
}

impl AttackContext {
    /// Starts a task of the attacker.
    pub(crate) fn spawn(&self, outcome: &mut AttackOutcome, task: impl Future<Output = ()> + Send + 'static) {
        outcome.load.push(LoadTask(self.load.spawn(task).abort_handle()));
    }

    /// Starts a run of the attacker that says nothing for longer than a siege takes. Returns its task's id.
    pub(crate) async fn start_silent_run(&self) -> anyhow::Result<String> {
        let user = &self.installation.attacker;
        let body = json!({"model": "writer", "input": "story 2 every 600000"});
        let run = user.post("/v1/tasks", &body, START_TIMEOUT).await?.expect_status(202)?.json()?;
        self.history.acknowledge_response(user.name, &run);
        Ok(run.get("task_id").and_then(Value::as_str).context("no task")?.to_owned())
    }

    /// Both bounds are inclusive.
    pub(crate) fn random_between(&self, min: u32, max: u32) -> u32 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).between(min, max)
    }

    /// Lets the attack last, until the probe has been through everything from here on.
    pub(crate) async fn hold(&self) {
        let (tokens, rounds) = self.probe.counts();
        tokio::time::sleep(self.form.window()).await;
        // The first of two rounds may have begun before.
        self.probe.wait_for_rounds(tokens + TOKENS_MIN, rounds + 2, ROUNDS_TIMEOUT).await;
    }
}

/// The answers that the attacker got.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusCounts(Arc<Mutex<BTreeMap<String, usize>>>);

impl StatusCounts {
    pub(crate) fn add(&self, what: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what.to_owned()).or_default() += 1;
    }

    /// Counts a response by its status, and a failure to get one.
    pub(crate) fn add_reply(&self, reply: &anyhow::Result<crate::http_client::ApiReply>) {
        match reply {
            Ok(reply) => self.add(&reply.status.to_string()),
            Err(_) => self.add("none"),
        }
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    pub(crate) fn describe(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(what, count)| format!("{count} × {what}")).collect::<Vec<_>>().join(", ")
    }
}

/// A task of the attacker, which ends with its owner.
#[derive(Debug)]
pub(crate) struct LoadTask(AbortHandle);

impl Drop for LoadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What an attack leaves behind. Its load goes on until the server has obeyed SIGTERM.
#[derive(Debug, Default)]
pub(crate) struct AttackOutcome {
    pub(crate) load: Vec<LoadTask>,
    /// Promises that the attack itself saw broken.
    pub(crate) problems: Vec<String>,
    /// How long the server took to be ready, after each crash.
    pub(crate) ready: Vec<Duration>,
    /// How long the server took to obey SIGTERM.
    pub(crate) stop: Vec<Duration>,
}

#[async_trait]
pub(crate) trait Attack: Sync {
    fn name(&self) -> &'static str;

    /// What the attacker does, for the table.
    fn describe(&self, form: SiegeForm) -> String;

    fn needs(&self) -> &'static [Need] {
        &[]
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Shared
    }

    /// With what the server is started. The installation is there, its server does not run yet.
    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        Ok(ServerSettings::default())
    }

    /// Whether the bound of the median applies: not where the machine itself is made slow.
    fn has_median_bound(&self) -> bool {
        true
    }

    /// What the check has to find in an installation of its own.
    fn folder_state(&self) -> FolderState {
        FolderState::Whole
    }

    /// Attacks the server while the probe runs, and returns when the probe has been watched for long enough.
    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome>;
}

/// All attacks, in the order of the table.
pub(crate) const ATTACKS: &[&dyn Attack] = &[
    &hostile_requests::DoublingSchema,
    &hostile_requests::UnicodePatterns,
    &hostile_requests::ManyValues,
    &hostile_requests::WrongKeys,
    &hostile_requests::RequestFlood,
    &hostile_requests::QuotaFlood,
    &slow_requests::SlowHeaders,
    &slow_requests::UnfinishedBodies,
    &slow_requests::UnfinishedMessages,
    &slow_requests::SlowLargeBodies,
    &open_connections::IdleConnections,
    &half_open::HalfOpenConnections,
    &open_connections::IdleViewers,
    &long_threads::WaitingRequests,
    &long_threads::LargeReads,
    &long_threads::LiveRuns,
    &heavy_files::HeavyFiles,
    &hostile_mcp::HostileMcp,
    &crashes::PausedServer,
    &crashes::StopWithStreams,
    &crashes::Kills,
    &crashes::KillWithTools,
    &storage_faults::DiskFull,
    &storage_faults::FsyncErrors,
    &storage_faults::SlowFsync,
    &storage_faults::CorruptedPages,
    &clock_jumps::ClockJumps,
];
