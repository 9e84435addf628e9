//! `headwater check-config`: prints all errors of a config file, one line each, and starts nothing.

use super::config_args::{ConfigArg, announce_config};
use super::print_line;
use crate::config::{self, Config, ConfigError, Diagnostic, Overrides, Severity};
use clap::Args;
use std::process::ExitCode;

const SCHEMA: &str = include_str!("../../headwater.schema.json");

#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Print the JSON Schema of config files instead, for editors.
    #[arg(long)]
    schema: bool,
}

pub(crate) fn run(args: &CheckConfigArgs) -> ExitCode {
    if args.schema {
        print_line(SCHEMA.trim_end());
        return ExitCode::SUCCESS;
    }
    let (config, findings) = match check_file(&args.config) {
        Ok(checked) => checked,
        Err(error) => {
            print_line(error);
            return ExitCode::FAILURE;
        }
    };
    for finding in &findings {
        print_line(&finding.error);
    }
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return ExitCode::FAILURE;
    }
    print_line(summary(&config));
    ExitCode::SUCCESS
}

fn check_file(config: &ConfigArg) -> Result<(Config, Vec<Diagnostic>), ConfigError> {
    let source = config.find()?;
    announce_config(&source);
    config::check_config(&source, Overrides { env: Some(config::read_env), ..Overrides::default() })
}

fn summary(config: &Config) -> String {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let definitions = &config.definitions;
    let agents = count(definitions.agents.len(), "agent");
    let tools = count(definitions.tools.len(), "tool");
    let providers = count(definitions.providers.len(), "provider");
    format!("ok: {agents}, {tools}, {providers}")
}
