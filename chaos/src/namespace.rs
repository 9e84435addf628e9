//! A network namespace for a node: its link to PostgreSQL is a pair of virtual devices that can be taken down, so that packets are
//! lost as between two machines. Clients reach the node over another pair, which stays up.
//!
//! The node listens on the loopback address of its namespace. This program, started once more inside it, relays the connections
//! of clients.

use anyhow::{Context, bail, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

/// The argument with which the program only relays.
pub(crate) const RELAY_ARGUMENT: &str = "--relay";
const STATE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct NodeNamespace {
    name: String,
    /// The host's end of the link to PostgreSQL.
    database_device: String,
    /// The host's address on that link.
    pub(crate) database_address: Ipv4Addr,
    /// The namespace's address for clients.
    pub(crate) client_address: Ipv4Addr,
    relay: Option<Child>,
}

impl NodeNamespace {
    /// Why this machine has no namespaces; none if it has.
    pub(crate) fn missing() -> Option<&'static str> {
        let name = format!("chaos-{}", std::process::id());
        let works = run_ip(&["netns", "add", &name]).and_then(|()| run_ip(&["netns", "del", &name])).is_ok();
        (!works).then_some("needs root and `ip netns`")
    }

    /// Creates the namespace of node `index` with its two links.
    pub(crate) fn create(index: usize) -> anyhow::Result<Self> {
        let process = std::process::id();
        let name = format!("chaos-{process}-{index}");
        // Two programs at once have different networks, mostly.
        let (network, subnet) = (u8::try_from(64 + process % 128)?, u8::try_from(index)?);
        let address = |link: u8, end: u8| Ipv4Addr::new(10, network, subnet * 2 + link, end);
        let namespace = Self {
            name,
            database_device: format!("chd{process}-{index}"),
            database_address: address(0, 1),
            client_address: address(1, 2),
            relay: None,
        };
        let name = namespace.name.clone();
        run_ip(&["netns", "add", &name])?;
        run_ip(&["-n", &name, "link", "set", "lo", "up"])?;
        let links = [(namespace.database_device.clone(), 0), (format!("chc{process}-{index}"), 1)];
        for (device, link) in links {
            let inner = format!("link{link}");
            let (here, there) = (format!("{}/30", address(link, 1)), format!("{}/30", address(link, 2)));
            run_ip(&["link", "add", &device, "type", "veth", "peer", "name", &inner, "netns", &name])?;
            run_ip(&["address", "add", &here, "dev", &device])?;
            run_ip(&["link", "set", &device, "up"])?;
            run_ip(&["-n", &name, "address", "add", &there, "dev", &inner])?;
            run_ip(&["-n", &name, "link", "set", &inner, "up"])?;
        }
        Ok(namespace)
    }

    /// Starts to relay connections of clients to this port of the node.
    pub(crate) fn start_relay(&mut self, port: u16) -> anyhow::Result<()> {
        let addresses = format!("{}:{port}", self.client_address);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(std::env::current_exe()?).args([RELAY_ARGUMENT, &addresses]);
        // It ends with its standard input, however this process ends.
        self.relay = Some(command.stdin(Stdio::piped()).spawn().context("cannot start the relay")?);
        Ok(())
    }

    /// What starts a program in the namespace.
    pub(crate) fn command_prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    pub(crate) async fn cut(&self) -> anyhow::Result<()> {
        run_ip(&["link", "set", &self.database_device, "down"])?;
        self.wait_for_state("down").await
    }

    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        run_ip(&["link", "set", &self.database_device, "up"])?;
        self.wait_for_state("up").await
    }

    async fn wait_for_state(&self, wanted: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        let path = format!("/sys/class/net/{}/operstate", self.database_device);
        loop {
            let state = std::fs::read_to_string(&path).unwrap_or_default();
            if state.trim() == wanted {
                return Ok(());
            }
            ensure!(begun.elapsed() < STATE_TIMEOUT, "the link {} is {state}, not {wanted}", self.database_device);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `device down`, for the proof.
    pub(crate) fn describe(&self) -> String {
        format!("link {} down", self.database_device)
    }
}

impl Drop for NodeNamespace {
    fn drop(&mut self) {
        if let Some(relay) = &mut self.relay {
            // It may be gone already.
            let _ = relay.kill().and_then(|()| relay.wait());
        }
        // The devices disappear with it.
        let _ = run_ip(&["netns", "del", &self.name]);
    }
}

fn run_ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output().context("cannot start `ip`")?;
    if !output.status.success() {
        bail!("`ip {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Relays connections to the same port of the loopback address, until the standard input ends.
pub(crate) async fn relay(address: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let mut input = tokio::io::stdin();
    tokio::select! {
        relayed = relay_connections(listener, address.port()) => relayed,
        _ = input.read_u8() => Ok(()),
    }
}

async fn relay_connections(listener: TcpListener, port: u16) -> anyhow::Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
            // While the node is down, the connection is closed.
            if let Ok(mut node) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
            }
        });
    }
}
