//! The faults: each is injected, proven to have happened, and healed.
//!
//! A fault that cannot be proven is an error, and fails the program: a check that nothing disturbed says nothing.

mod clock;
mod database;
mod nodes;
mod notifications;
mod schedule;

pub(crate) use nodes::{FAILURE_FACTOR, TAKEOVER_MAX};
pub(crate) use schedule::{plan_faults, run_schedule};

use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// SIGKILL; the node starts again with its folder after a moment.
    KillNode,
    /// SIGKILL; a new node takes its place when its lease has expired.
    ReplaceNode,
    /// SIGSTOP, and SIGCONT after the lease has expired.
    SuspendNode,
    /// Nothing passes between the node and PostgreSQL until its lease has expired.
    PartitionNode,
    /// The clock of a node is set an hour forward or back, and right again.
    JumpClock,
    /// PostgreSQL is killed and started again.
    CrashDatabase,
    /// One connection of a node is ended by PostgreSQL.
    EndConnection,
    /// One process of PostgreSQL is killed, after which it recovers.
    KillBackend,
    /// A node gets no notifications.
    DropNotifications,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 9] = [
        Self::KillNode,
        Self::ReplaceNode,
        Self::SuspendNode,
        Self::PartitionNode,
        Self::JumpClock,
        Self::CrashDatabase,
        Self::EndConnection,
        Self::KillBackend,
        Self::DropNotifications,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KillNode => "kill-node",
            Self::ReplaceNode => "replace-node",
            Self::SuspendNode => "suspend-node",
            Self::PartitionNode => "partition-node",
            Self::JumpClock => "jump-clock",
            Self::CrashDatabase => "crash-database",
            Self::EndConnection => "end-connection",
            Self::KillBackend => "kill-backend",
            Self::DropNotifications => "drop-notifications",
        }
    }

    /// The faults with these names, or all.
    pub(crate) fn choose(names: &[String]) -> anyhow::Result<Vec<Self>> {
        if let Some(unknown) = names.iter().find(|name| !Self::ALL.iter().any(|kind| kind.name() == **name)) {
            let known: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            anyhow::bail!("there is no fault `{unknown}`; there are: {}", known.join(", "));
        }
        let is_chosen = |kind: &Self| names.is_empty() || names.iter().any(|name| name == kind.name());
        Ok(Self::ALL.into_iter().filter(is_chosen).collect())
    }

    /// A sentence for the table.
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::KillNode => "A node is killed (SIGKILL) and started again after 3 s, with its data folder.",
            Self::ReplaceNode => "A node is killed, and after 20 s a new one, with an empty folder, has its place.",
            Self::SuspendNode => "A node is suspended (SIGSTOP) for 20 s, and goes on as if nothing had happened.",
            Self::PartitionNode => {
                "The link between a node and PostgreSQL is down for 20 s, in network namespaces, and up again."
            }
            Self::JumpClock => "The clock of a node is set an hour forward and an hour back.",
            Self::CrashDatabase => "All processes of PostgreSQL are killed; it is started again after up to 2.5 s.",
            Self::EndConnection => "Three connections of nodes are ended by PostgreSQL.",
            Self::KillBackend => {
                "One process of PostgreSQL is killed, after which it ends all connections and recovers."
            }
            Self::DropNotifications => "A node gets no notifications of the others.",
        }
    }

    /// Whether it concerns PostgreSQL and thereby all nodes.
    const fn is_of_database(self) -> bool {
        matches!(self, Self::CrashDatabase | Self::EndConnection | Self::KillBackend)
    }

    /// Whether other faults would hide what it shows.
    const fn is_alone(self) -> bool {
        matches!(self, Self::DropNotifications)
    }

    /// Whether it starts a run of its own.
    pub(crate) const fn starts_run(self) -> bool {
        self.removes_node() || matches!(self, Self::JumpClock | Self::DropNotifications)
    }

    /// Whether the node's runs have to be continued by others.
    const fn removes_node(self) -> bool {
        matches!(self, Self::KillNode | Self::ReplaceNode | Self::SuspendNode | Self::PartitionNode)
    }
}

/// A fault that happened.
#[derive(Clone, Debug)]
pub(crate) struct FaultReport {
    pub(crate) kind: FaultKind,
    pub(crate) node: usize,
    /// Since the beginning of the program.
    pub(crate) begun: Duration,
    pub(crate) took: Duration,
    /// What shows that it happened.
    pub(crate) proof: String,
    /// How long the threads of the node had no executor.
    pub(crate) takeovers: Vec<Duration>,
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begun, took) = (self.begun.as_secs_f64(), self.took.as_secs_f64());
        write!(f, "{begun:>6.1} s  {:<20}node {}  {took:>5.1} s  {}", self.kind.name(), self.node, self.proof)?;
        if !self.takeovers.is_empty() {
            let times: Vec<String> = self.takeovers.iter().map(|time| format!("{:.1}", time.as_secs_f64())).collect();
            write!(f, "; threads taken over after {} s", times.join(", "))?;
        }
        Ok(())
    }
}
