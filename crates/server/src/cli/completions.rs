//! `headwater completions`: prints a completion script for a shell.

use super::{Cli, print_text};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "For example: headwater completions bash > ~/.local/share/bash-completion/completions/headwater"
)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "headwater", &mut script);
    let _closed = print_text(String::from_utf8(script)?);
    Ok(ExitCode::SUCCESS)
}
