//! `headwater man`: prints a manual page.

use super::{Cli, print_text};
use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_mangen::Man;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "For example: headwater man serve | man -l -")]
pub(crate) struct ManArgs {
    /// A subcommand; otherwise the page of `headwater` itself.
    command: Option<String>,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    if let Some(name) = &args.command {
        let found = command.find_subcommand(name).with_context(|| format!("there is no subcommand `{name}`"))?;
        command = found.clone();
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    let _closed = print_text(String::from_utf8(page)?);
    Ok(ExitCode::SUCCESS)
}
