//! `headwater check-config`: prints all errors of a config file, one line each, and starts nothing.

use super::config_args::{ConfigArg, announce_config};
use super::{TextColor, paint, print_line};
use crate::config::{self, Config, ConfigError, Diagnostic, Overrides, Severity};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;

const SCHEMA: &str = include_str!("../../headwater.schema.json");

#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
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
        Err(error) if args.json => {
            print_line(json!({"ok": false, "findings": [{"severity": "error", "message": error.to_string()}]}));
            return ExitCode::FAILURE;
        }
        Err(error) => {
            print_line(paint(error, TextColor::Red));
            return ExitCode::FAILURE;
        }
    };
    let is_valid = findings.iter().all(|finding| finding.severity == Severity::Warning);
    if args.json {
        print_line(json_report(&config, &findings));
    } else {
        print_report(&config, &findings);
    }
    if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_report(config: &Config, findings: &[Diagnostic]) {
    let mut is_valid = true;
    for finding in findings {
        is_valid &= finding.severity == Severity::Warning;
        let color = if finding.severity == Severity::Error { TextColor::Red } else { TextColor::Yellow };
        print_line(paint(&finding.error, color));
    }
    if is_valid {
        print_line(paint(summary(config), TextColor::Green));
    }
}

fn json_report(config: &Config, findings: &[Diagnostic]) -> Value {
    let finding_json = |finding: &Diagnostic| {
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        let mut json = json!({"severity": severity, "message": finding.error.to_string()});
        if let (ConfigError::Invalid { origin, line, key, message }, Some(json)) =
            (&finding.error, json.as_object_mut())
        {
            let message = message.strip_prefix("warning: ").unwrap_or(message);
            json.extend([
                ("file".to_owned(), json!(origin)),
                ("line".to_owned(), json!(line)),
                ("key".to_owned(), json!(key)),
                ("message".to_owned(), json!(message)),
            ]);
        }
        json
    };
    let definitions = &config.definitions;
    json!({
        "ok": findings.iter().all(|finding| finding.severity == Severity::Warning),
        "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
        "agents": definitions.agents.keys().collect::<Vec<_>>(),
        "tools": definitions.tools.keys().collect::<Vec<_>>(),
        "mcp": definitions.mcp.keys().collect::<Vec<_>>(),
        "providers": definitions.providers,
    })
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
    let servers = match definitions.mcp.len() {
        0 => String::new(),
        number => format!(", {}", count(number, "MCP server")),
    };
    format!("ok: {agents}, {tools}, {providers}{servers}")
}
