//! `cargo xtask defects`: a test that has never been red is a hope.
//!
//! For every row of [`table::DEFECTS`] the named test is run twice with the feature `defects` built in: without a
//! defect it must pass, with the defect planted it must fail. A build that breaks, a name that no longer matches and a
//! process that dies are no red test, whatever the exit code says; [`verdict`] tells them apart.

mod table;
mod verdict;

use std::process::Command;
use std::time::Duration;

use crate::run::{Echo, Ran, run};
use crate::tally::Tally;
use crate::test::Report;
use crate::workspace::Repo;
use table::{DEFECTS, Defect};
use verdict::Judgement;

/// A test that hangs on a defect does not say what is wrong; it must fail by itself. Covers the build as well.
const RUN_MAX: Duration = Duration::from_secs(20 * 60);
const VARIABLE: &str = "HEADWATER_DEFECT";

/// Plants every defect in turn and says what came of it.
pub(crate) fn defects(repo: &Repo) -> anyhow::Result<Report> {
    let mut tally = Tally::default();
    for defect in DEFECTS {
        let judgement = plant(repo, defect)?;
        println!("defect {:<24}{judgement}", defect.name);
        match judgement {
            Judgement::Caught => tally.passed += 1,
            Judgement::NotShown(_) => tally.failed += 1,
            Judgement::Skipped(why) => tally.skipped.push(format!("SKIPPED defect {}: {why}", defect.name)),
        }
    }
    let failure = (tally.failed > 0)
        .then(|| format!("{} of {} defects were not caught by their tests", tally.failed, DEFECTS.len()));
    Ok(Report { tally, failure })
}

fn plant(repo: &Repo, defect: &Defect) -> anyhow::Result<Judgement> {
    let without = attempt(repo, defect, None)?;
    let (judgement, ran) = match verdict::before_planting(&verdict::of(&without), defect) {
        Some(judgement) => (judgement, without),
        None => {
            let with = attempt(repo, defect, Some(defect.name))?;
            (verdict::after_planting(&verdict::of(&with), defect), with)
        }
    };
    if let Judgement::NotShown(_) = judgement {
        ran.show_tail();
    }
    Ok(judgement)
}

fn attempt(repo: &Repo, defect: &Defect, planted: Option<&str>) -> anyhow::Result<Ran> {
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--package", defect.package, "--features", "defects"]).args(defect.args);
    command.args(["--", "--exact", defect.test]).current_dir(&repo.root).env_remove(VARIABLE);
    if let Some(name) = planted {
        command.env(VARIABLE, name);
    }
    run(&mut command, Echo::Hide, Some(RUN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_has_its_own_name_and_an_exact_test() {
        let mut names: Vec<_> = DEFECTS.iter().map(|defect| defect.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DEFECTS.len());
        for defect in DEFECTS {
            assert!(!defect.test.is_empty() && !defect.test.contains(' '), "{}", defect.name);
        }
    }
}
