//! Runs of the attacker that call tools of an MCP server which floods, dies, forks and talks nonsense.

use super::hostile_requests::RepeatedRequest;
use super::{Attack, AttackContext, AttackOutcome, SiegeForm};
use crate::installation::{Installation, ServerSettings};
use async_trait::async_trait;
use serde_json::json;
use std::time::{Duration, Instant};

/// The server of the tests of the crate `mcp`.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/mcp/tests/servers/server.py");
/// What its tools do to their connection.
const TOOLS: [&str; 6] = ["flood", "endless", "nonsense", "die", "fork", "hang"];
/// Processes of the attacker that may be alive at a time: those that a user may have, each with a child of its own, and
/// as many that are about to end.
const PROCESSES_MAX: usize = 32;
/// How long the first server may take to start, on a machine that is busy with other things.
const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct HostileMcp;

#[async_trait]
impl Attack for HostileMcp {
    fn name(&self) -> &'static str {
        "hostile-mcp"
    }

    fn describe(&self, form: SiegeForm) -> String {
        let clients = TOOLS.len() * form.choose(1, 4);
        format!("Calls tools of MCP servers that flood, hang, die, fork and write nonsense, from {clients} clients.")
    }

    fn settings(&self, _form: SiegeForm, installation: &Installation) -> anyhow::Result<ServerSettings> {
        let folder = installation.path("").display().to_string();
        let mut tables = String::new();
        for tool in TOOLS {
            tables.push_str(&format!(
                "\n[agents.{tool}]\nmodel = \"mock/{tool}\"\ntools = [\"mcp:{tool}\"]\n\n[mcp.{tool}]\n\
                 command = [\"python3\", \"{SCRIPT}\", \"friendly\"]\nenv_pass = [\"PATH\"]\nenv = {{ T = \"{folder}\" }}\n\
                 allow = [\"{tool}\"]\napproval = \"never\"\ntimeout_ms = 2000\n"
            ));
        }
        Ok(ServerSettings { tables, ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        for tool in TOOLS {
            let body = json!({"model": tool, "input": format!("call {tool}__{tool}"), "wait": true});
            let request = RepeatedRequest::post(&context.installation.attacker, "/v1/tasks", &body);
            request.repeat(context, &mut outcome, context.form.choose(1, 4));
        }
        context.hold().await;
        let read_started = || super::crashes::read_pids(&context.installation.path("pids"));
        let (mut started, deadline) = (read_started(), Instant::now() + START_TIMEOUT);
        while started.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            started = read_started();
        }
        if started.is_empty() {
            outcome.problems.push("no MCP server was started".to_owned());
        }
        let alive = started.iter().filter(|pid| super::crashes::is_alive(**pid)).count();
        if alive > PROCESSES_MAX {
            outcome.problems.push(format!("{alive} processes of MCP servers run at a time"));
        }
        Ok(outcome)
    }
}
