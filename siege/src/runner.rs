//! The order of a siege: the idle server, each attack with a server process of its own, and the check at the end.

use crate::attacks::{
    Attack, AttackContext, AttackOutcome, AttackPlace, ROUNDS_TIMEOUT, SiegeForm, StatusCounts, TOKENS_MIN,
};
use crate::bounds::{Bounds, median_of};
use crate::checker::{CheckReport, FolderState, check_installation};
use crate::figures::{AttackFigures, AttackResult, AttackRow};
use crate::history::History;
use crate::installation::{Installation, InstallationPlan, ServerSettings};
use crate::probe::{Probe, ProbeControl, ProbeFigures};
use crate::report::SiegeReport;
use crate::server_process::ServerUsage;
use crate::small_disk::SmallDisk;
use anyhow::Context;
use model_testing::Rng;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Whole rounds of the probe before an attack ends, for attacks that wait for something else.
const ROUNDS_MIN: usize = 1;
/// First tokens that are measured right before an attack.
const IDLE_TOKENS: usize = 3;

/// One siege.
pub(crate) struct Siege {
    pub(crate) form: SiegeForm,
    pub(crate) seed: u64,
    pub(crate) plan: InstallationPlan,
    pub(crate) load: Handle,
}

/// An installation with its probe and everybody's history.
struct AttackedSite {
    installation: Arc<Installation>,
    probe: Probe,
    history: Arc<History>,
    /// Unmounted after everything else has gone.
    _disk: Option<SmallDisk>,
}

impl AttackedSite {
    fn create(plan: &InstallationPlan, place: AttackPlace) -> anyhow::Result<Self> {
        let disk = (place == AttackPlace::SmallDisk).then(SmallDisk::mount).transpose()?;
        let data = disk.as_ref().map(|disk| disk.path().join("data"));
        let (installation, history) = (Arc::new(Installation::create(plan, data)?), Arc::new(History::default()));
        let probe = Probe::start(&installation.probe, &history)?;
        Ok(Self { installation, probe, history, _disk: disk })
    }

    async fn check(self, state: FolderState) -> anyhow::Result<CheckReport> {
        let Self { installation, probe, history, _disk } = self;
        tokio::task::spawn_blocking(move || probe.finish()).await?;
        check_installation(&installation, history.take_facts(), state).await
    }
}

impl Siege {
    /// Runs the attacks, one after the other.
    pub(crate) async fn run(&mut self, attacks: &[&'static dyn Attack]) -> anyhow::Result<SiegeReport> {
        let begun = Instant::now();
        let shared = AttackedSite::create(&self.plan, AttackPlace::Shared)?;
        self.plan.users = Some(Arc::new(shared.installation.copy_users()?));
        let idle = self.measure_idle(&shared).await.context("the server does not even serve without an attack")?;
        let idle_median = median_of(&idle.probe.first_tokens).context("no first token without an attack")?;
        let bounds = Bounds::new(idle_median, self.plan.stop_grace);
        let mut report =
            SiegeReport { bounds, idle, rows: Vec::new(), checks: CheckReport::default(), took: begun.elapsed() };
        for (attack, number) in attacks.iter().zip(1_u64..) {
            let attack_begun = Instant::now();
            let mut row = self.run_row(*attack, number, &shared, &mut report.checks).await;
            if row.is_only_slow(&bounds) {
                println!("{}\n    tried again: only a time is far beyond its bound", row.describe(&bounds));
                row = self.run_row(*attack, number, &shared, &mut report.checks).await;
            }
            println!("{} [{:.1} s]", row.describe(&bounds), attack_begun.elapsed().as_secs_f64());
            report.rows.push(row);
        }
        report.checks.add(shared.check(FolderState::Whole).await?);
        report.took = begun.elapsed();
        Ok(report)
    }

    async fn measure_idle(&self, shared: &AttackedSite) -> anyhow::Result<AttackFigures> {
        let ready = shared.installation.start(&ServerSettings::default()).await?;
        shared.probe.control.expect_service();
        tokio::time::sleep(self.form.window()).await;
        shared.probe.control.wait_for_rounds(TOKENS_MIN, ROUNDS_MIN, ROUNDS_TIMEOUT).await;
        shared.probe.control.expect_interruption();
        let usage = shared.installation.usage().await?;
        let stop = shared.installation.stop().await?;
        let probe = shared.probe.control.take_figures();
        anyhow::ensure!(probe.failures == 0, "{}", probe.messages.join("\n"));
        Ok(AttackFigures {
            probe,
            idle_median: Duration::ZERO,
            usage,
            ready,
            stop,
            problems: Vec::new(),
            answers: String::new(),
            has_median_bound: false,
        })
    }

    async fn run_row(
        &self,
        attack: &'static dyn Attack,
        number: u64,
        shared: &AttackedSite,
        checks: &mut CheckReport,
    ) -> AttackRow {
        let result = match attack.needs().iter().find_map(|need| need.missing()) {
            Some(why) => AttackResult::NotRun(why.to_owned()),
            None => self.try_attack(attack, number, shared, checks).await,
        };
        AttackRow { name: attack.name(), description: attack.describe(self.form), result }
    }

    async fn try_attack(
        &self,
        attack: &'static dyn Attack,
        number: u64,
        shared: &AttackedSite,
        checks: &mut CheckReport,
    ) -> AttackResult {
        let figures = match attack.place() {
            AttackPlace::Shared => self.run_attack(attack, number, shared).await,
            place => self.run_alone(attack, number, place, checks).await,
        };
        match figures {
            Ok(figures) => AttackResult::Ran(Box::new(figures)),
            Err(error) => {
                // The next attack needs a server that can be started.
                let _ = shared.installation.kill().await;
                AttackResult::Failed(format!("{error:#}"))
            }
        }
    }

    async fn run_alone(
        &self,
        attack: &'static dyn Attack,
        number: u64,
        place: AttackPlace,
        checks: &mut CheckReport,
    ) -> anyhow::Result<AttackFigures> {
        let own = AttackedSite::create(&self.plan, place)?;
        let mut figures = self.run_attack(attack, number, &own).await?;
        let report = own.check(attack.folder_state()).await?;
        // The problems belong to this attack alone.
        figures.problems.extend(report.problems.iter().cloned());
        checks.add(CheckReport { problems: Vec::new(), ..report });
        Ok(figures)
    }

    async fn run_attack(
        &self,
        attack: &'static dyn Attack,
        number: u64,
        attacked: &AttackedSite,
    ) -> anyhow::Result<AttackFigures> {
        let (installation, control) = (&attacked.installation, &attacked.probe.control);
        let settings = attack.settings(self.form, installation)?;
        let mut ready = installation.start(&settings).await?;
        let context = AttackContext {
            installation: installation.clone(),
            settings,
            history: attacked.history.clone(),
            probe: control.clone(),
            form: self.form,
            rng: Mutex::new(Rng::new(self.seed.wrapping_add(number))),
            load: self.load.clone(),
            statuses: StatusCounts::default(),
        };
        let idle = measure_before_attack(control).await;
        let idle_median = median_of(&idle.first_tokens).unwrap_or_default();
        control.expect_service();
        let outcome = attack.run(&context).await;
        control.wait_for_rounds(TOKENS_MIN, ROUNDS_MIN, ROUNDS_TIMEOUT).await;
        control.expect_interruption();
        let mut probe = control.take_figures();
        probe.failures += idle.failures;
        probe.messages.extend(idle.messages);
        let AttackOutcome { load, mut problems, ready: restarts, stop: stops } =
            outcome.with_context(|| probe.messages.join("\n"))?;
        if !installation.is_running().await {
            problems.push(format!("the server has ended by itself\n{}", installation.log_tail()));
            return Ok(AttackFigures {
                probe,
                idle_median,
                usage: ServerUsage::default(),
                ready,
                stop: Duration::ZERO,
                problems,
                answers: context.statuses.describe(),
                has_median_bound: attack.has_median_bound(),
            });
        }
        let usage = installation.usage().await?;
        // The attack still goes on.
        let mut stop = installation.stop().await?;
        drop(load);
        ready = restarts.into_iter().fold(ready, Duration::max);
        stop = stops.into_iter().fold(stop, Duration::max);
        let (answers, has_median_bound) = (context.statuses.describe(), attack.has_median_bound());
        Ok(AttackFigures { probe, idle_median, usage, ready, stop, problems, answers, has_median_bound })
    }
}

/// What the probe sees of the idle server right before an attack.
async fn measure_before_attack(control: &ProbeControl) -> ProbeFigures {
    control.expect_service();
    control.wait_for_rounds(IDLE_TOKENS, 0, ROUNDS_TIMEOUT).await;
    control.expect_interruption();
    control.take_figures()
}
