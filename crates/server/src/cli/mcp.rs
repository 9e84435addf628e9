//! `headwater mcp`: connects to an MCP server of the config, as a run would, and prints its tools.

use super::config_args::{ConfigArg, announce_config};
use super::{TextColor, paint, print_line};
use crate::config::{self, Overrides, Severity};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use mcp::{McpLimits, McpTools, ToolDescription};
use serde_json::json;
use std::process::ExitCode;
use tools::Toolbox;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    verb: McpVerb,
}

#[derive(Debug, Subcommand)]
enum McpVerb {
    /// Print the tools of a server, one line each. Those that `allow` and `deny` keep from agents are marked with `-`.
    List(ServerArgs),
    /// Print a table for `[mcp.NAME]` that pins the tools as they are now.
    Pin(ServerArgs),
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// The server: the NAME of `[mcp.NAME]`.
    name: String,
    #[command(flatten)]
    config: ConfigArg,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: McpArgs) -> anyhow::Result<ExitCode> {
    let (McpVerb::List(server) | McpVerb::Pin(server)) = &args.verb;
    let tools = list_tools(server).await?;
    match (&args.verb, server.json) {
        (_, true) => print_line(json_list(&tools)),
        (McpVerb::List(_), false) => tools.iter().for_each(print_tool),
        (McpVerb::Pin(_), false) => print_line(pin_table(&server.name, &tools)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn list_tools(args: &ServerArgs) -> anyhow::Result<Vec<ToolDescription>> {
    let source = args.config.find()?;
    announce_config(&source);
    let overrides = Overrides { env: Some(config::read_env), ..Overrides::default() };
    let (config, findings) = config::check_config(&source, overrides)?;
    if let Some(error) = findings.iter().find(|finding| finding.severity == Severity::Error) {
        bail!("{}", error.error);
    }
    let server = config.definitions.mcp.get(&args.name);
    let server = server.with_context(|| format!("the config has no table `[mcp.{}]`", args.name))?;
    let connections = McpTools::new(Toolbox::clone(&config.tools), McpLimits::default());
    let listed = connections.inspect_server(&args.name, server).await;
    listed.map_err(|error| anyhow::anyhow!(error.message))
}

fn print_tool(tool: &ToolDescription) {
    let mark = if tool.is_allowed { " " } else { "-" };
    let first_line = tool.description.lines().next().unwrap_or_default();
    print_line(format_args!("{mark} {} {} {first_line}", tool.name, paint(&tool.hash, TextColor::Dim)));
}

fn json_list(tools: &[ToolDescription]) -> String {
    let tool = |tool: &ToolDescription| json!({"name": tool.name, "description": tool.description, "hash": tool.hash, "allowed": tool.is_allowed});
    json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()}).to_string()
}

/// A table of its own: an inline one would have to be on one line.
fn pin_table(name: &str, tools: &[ToolDescription]) -> String {
    let allowed = tools.iter().filter(|tool| tool.is_allowed);
    // Names of tools may have any characters; JSON strings are keys and values of TOML, too.
    let lines = allowed.map(|tool| format!("{} = {}", json!(tool.name), json!(tool.hash)));
    let header = format!("[mcp.{name}.pin]");
    std::iter::once(header).chain(lines).collect::<Vec<_>>().join("\n")
}
