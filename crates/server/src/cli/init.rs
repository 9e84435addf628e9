//! `headwater init`: writes a commented starter config.

use super::print_line;
use crate::config::{DEFAULT_FILE, read_env};
use anyhow::{Context as _, bail};
use clap::Args;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

const STARTER: &str = include_str!("../../starter/headwater.toml");
const MODEL_MARK: &str = "@MODEL@";
/// Models of the services whose key is in the environment; otherwise one of this machine.
const MODELS: [(&str, &str); 2] =
    [("OPENAI_API_KEY", "openai/gpt-5-mini"), ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-5")];
const LOCAL_MODEL: &str = "local/llama3.2";

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write. An existing file is left as it is.
    #[arg(default_value = DEFAULT_FILE)]
    file: PathBuf,
}

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let file = args.file.display();
    let is_set = |name: &str| read_env(name).is_some_and(|key| !key.is_empty());
    let model = MODELS.iter().find(|(key, _)| is_set(key)).map_or(LOCAL_MODEL, |(_, model)| *model);
    let mut out = match OpenOptions::new().write(true).create_new(true).open(&args.file) {
        Ok(out) => out,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!("{file} exists and is left as it is"),
        Err(error) => return Err(error).with_context(|| format!("cannot create {file}")),
    };
    let text = STARTER.replace(MODEL_MARK, model);
    out.write_all(text.as_bytes()).with_context(|| format!("cannot write {file}"))?;
    print_line(format_args!("{file} written with the model {model}; next: headwater serve"));
    Ok(ExitCode::SUCCESS)
}
