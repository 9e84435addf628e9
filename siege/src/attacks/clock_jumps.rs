//! The clock of the machine is set forward and back.
//!
//! A small library in front of the C library adds an offset to the wall clock of the server alone. The offset is in a
//! file that both sides have open, so it changes at once, and the clock of the machine is left alone.

use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm};
use crate::installation::{Installation, ServerSettings};
use crate::machine::Need;
use anyhow::Context;
use async_trait::async_trait;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SHIM: &str = include_str!("clock_shim.c");
const DAY_SECONDS: i64 = 24 * 60 * 60;

pub(super) struct ClockJumps;

#[async_trait]
impl Attack for ClockJumps {
    fn name(&self) -> &'static str {
        "clock-jumps"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Sets the server's clock a day forward, two days back, and right again, each time with a random remainder."
            .to_owned()
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Compiler]
    }

    /// Times of records would stay a day ahead for the attacks that follow.
    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    fn settings(&self, _form: SiegeForm, installation: &Installation) -> anyhow::Result<ServerSettings> {
        let (source, library) = (installation.path("clock_shim.c"), installation.path("clock_shim.so"));
        std::fs::write(&source, SHIM)?;
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output()?;
        anyhow::ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        set_offset(&installation.path("clock_offset"), 0)?;
        let text = |path: std::path::PathBuf| path.to_str().map(str::to_owned).context("a strange folder");
        let env = vec![
            ("LD_PRELOAD".to_owned(), text(library)?),
            ("CLOCK_OFFSET_FILE".to_owned(), text(installation.path("clock_offset"))?),
        ];
        Ok(ServerSettings { env, ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let file = context.installation.path("clock_offset");
        for days in [1, -1, 0] {
            let seconds = days * DAY_SECONDS + i64::from(context.random_between(0, 3_600)) * days;
            // A signed URL that is in use at this very moment may expire.
            context.probe.expect_interruption();
            set_offset(&file, seconds)?;
            tokio::time::sleep(Duration::from_millis(100)).await;
            context.probe.expect_service();
            tokio::time::sleep(context.form.window() / 2).await;
            context.probe.wait_for_rounds(1, 0, context.form.window()).await;
        }
        Ok(AttackOutcome::default())
    }
}

/// Eight bytes in place, which the library reads as one number.
fn set_offset(file: &Path, seconds: i64) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().create(true).write(true).truncate(false).open(file)?;
    file.write_all_at(&seconds.to_ne_bytes(), 0).context("cannot set the clock")
}
