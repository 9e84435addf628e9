//! Three nodes on one database, in a folder with their configuration and the effects of their tools.

use crate::archive;
use crate::database::Database;
use crate::database_proxy::DatabaseProxy;
use crate::namespace::NodeNamespace;
use crate::node::{DataFolder, Node, NodeProgram, build_clock_shim};
use anyhow::Context;
use model_testing::Rng;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const NODES: usize = 3;
/// Model turns of a run, each but the last with a call of the tool.
pub(crate) const TURNS: u32 = 5;
/// Text deltas of each turn.
const DELTAS: u32 = 20;
const ARCHIVE: &str = "archive";

/// How nodes are connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NodeNetwork {
    /// All on the loopback address: the proxy holds up what a partition would.
    Loopback,
    /// Each in a namespace: a partition takes its link to PostgreSQL down.
    Namespaces,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) database: Database,
    folder: TempDir,
}

impl Cluster {
    /// Starts PostgreSQL and the nodes.
    pub(crate) async fn start(binary: &Path, network: NodeNetwork) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("chaos-").tempdir()?;
        let path = folder.path();
        write_configuration(path)?;
        let database = Database::start().await?;
        let program =
            NodeProgram { binary: binary.to_owned(), folder: path.to_owned(), clock_shim: build_clock_shim(path)? };
        let mut nodes = Vec::new();
        for index in 1..=NODES {
            let namespace = (network == NodeNetwork::Namespaces).then(|| NodeNamespace::create(index)).transpose()?;
            let address = namespace.as_ref().map_or(Ipv4Addr::LOCALHOST, |namespace| namespace.database_address);
            let proxy = DatabaseProxy::start(address, database.port()).await?;
            let url = database.url_through(proxy.address());
            nodes.push(Node::new(index, program.clone(), proxy, url, namespace)?);
        }
        let cluster = Self { nodes, database, folder };
        for node in &cluster.nodes {
            node.start(DataFolder::Same).await?;
        }
        archive::keep_archived_records(&cluster.database).await?;
        Ok(cluster)
    }

    /// Where the nodes archive runs.
    pub(crate) fn archive_folder(&self) -> PathBuf {
        self.folder.path().join(ARCHIVE)
    }

    /// A random node whose process runs, in whatever state it is.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Option<&Node> {
        let up: Vec<&Node> = self.nodes.iter().filter(|node| node.is_up()).collect();
        rng.pick(&up).copied()
    }

    pub(crate) fn node(&self, index: usize) -> anyhow::Result<&Node> {
        self.nodes.iter().find(|node| node.index == index).context("no such node")
    }

    /// Each line is one execution of a tool: the id of the call and its arguments.
    pub(crate) fn effects(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("effects")).unwrap_or_default()
    }

    /// Keeps the folder with the logs of the nodes.
    pub(crate) fn keep_folder(self) -> PathBuf {
        self.folder.keep()
    }
}

/// Two agents' worth of configuration: a tool with an effect on disk that takes a moment, once without and once with a person's
/// approval, and a scripted model that calls it.
fn write_configuration(folder: &Path) -> anyhow::Result<()> {
    let effects = folder.join("effects").display().to_string();
    let tool = format!(
        r#"kind = "command"
description = "Writes its arguments to a file."
command = ["sh", "-c", 'read -r line; echo "$HEADWATER_CALL_ID $line" >> "{effects}"; sleep 0.3; echo recorded']
env_pass = ["PATH"]
parameters = {{ type = "object", properties.mark.type = "string" }}
"#
    );
    let config = format!(
        r#"[server]
stop_grace_ms = 1000

[database]
archive = "{ARCHIVE}"
archive_after_seconds = 2

[agents.writer]
model = "mine/writer"
tools = ["record", "record_approved"]

[providers.mine]
kind = "scripted"
file = "scenarios.toml"

[tools.record]
{tool}
[tools.record_approved]
approval = "always"
{tool}
[limits]
requests_per_user_minute_max = 0
runs_per_user_max = 0
"#
    );
    let text = format!(r#"{{ text = "{{i}} ", repeat = {DELTAS}, every_ms = "{{every}}" }}"#);
    let mut scenarios = String::new();
    for (word, tool) in [("record", "record"), ("approve", "record_approved")] {
        scenarios.push_str(&format!("[[scenario]]\nmatch = '\\b{word} (?<run>\\w+) (?<every>[0-9]+)'\n"));
        for turn in 1..TURNS {
            // Only the first call needs approval.
            let tool = if turn == 1 { tool } else { "record" };
            let call = format!(r#"{{ call = "{tool}", arguments = '{{"mark":"{{run}}-{turn}"}}' }}"#);
            scenarios.push_str(&format!("[[scenario.turn]]\nsteps = [{text}, {call}]\n"));
        }
        scenarios.push_str(&format!("[[scenario.turn]]\nsteps = [{text}]\n"));
    }
    std::fs::write(folder.join("headwater.toml"), config).context("cannot write the configuration")?;
    std::fs::write(folder.join("scenarios.toml"), scenarios).context("cannot write the scenarios")
}
