//! Clients that vanish without a word: no FIN, no RST, no acknowledgement.
//!
//! They connect from an address of the loopback network of their own, and then a route of the machine drops every packet
//! to that address.

use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm};
use crate::installation::{Installation, ServerSettings};
use crate::machine::{Need, succeeds};
use anyhow::Context;
use async_trait::async_trait;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const CLIENT_ADDRESS: [u8; 4] = [127, 77, 0, 9];
const CLIENT_ROUTE: &str = "127.77.0.9/32";
const HEARTBEAT_MS: u64 = 300;
const WRITE_STALL_MS: u64 = 1_500;
/// Descriptors that come and go with the probe.
const DESCRIPTORS_SPARE: usize = 20;

pub(super) struct HalfOpenConnections;

#[async_trait]
impl Attack for HalfOpenConnections {
    fn name(&self) -> &'static str {
        "half-open-connections"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!(
            "Opens {} streams and vanishes from the network. The server has to close them after `write_stall_ms`.",
            form.choose("100", "2,000")
        )
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Routes]
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        let limits = vec![
            ("heartbeat_ms", HEARTBEAT_MS),
            ("write_stall_ms", WRITE_STALL_MS),
            ("requests_per_user_minute_max", 0),
        ];
        Ok(ServerSettings { limits, ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let task = context.start_silent_run().await?;
        let head = format!(
            "GET /v1/tasks/{task}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            user.address, user.key
        );
        let pid = context.installation.pid().await?;
        let before = count_descriptors(pid)?;
        let count = context.form.choose(100, 2_000);
        let mut vanished = Vec::new();
        for _ in 0..count {
            vanished.push(open_stream(&user.address, &head).await?);
        }
        let route = DroppedRoute::add()?;
        let begun = Instant::now();
        context.hold().await;
        // The time limit, a heartbeat that begins it, and the same again for a busy machine.
        let most = 2 * Duration::from_millis(WRITE_STALL_MS + HEARTBEAT_MS) + Duration::from_secs(2);
        while count_descriptors(pid)? > before + DESCRIPTORS_SPARE {
            if begun.elapsed() > most {
                let left = count_descriptors(pid)?.saturating_sub(before);
                outcome
                    .problems
                    .push(format!("{left} of {count} connections are open {most:?} after their clients vanished"));
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(route);
        Ok(outcome)
    }
}

/// Opens a stream from the address that will vanish.
async fn open_stream(address: &str, head: &str) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((CLIENT_ADDRESS, 0).into())?;
    let mut stream = socket.connect(address.parse()?).await.context("no connection from another address")?;
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    anyhow::ensure!(answer.ends_with(b" 200"), "no stream: {}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

fn count_descriptors(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd")).context("the server is gone")?.count())
}

/// While it lives, packets to the clients' address are dropped.
struct DroppedRoute;

impl DroppedRoute {
    fn add() -> anyhow::Result<Self> {
        let is_added = succeeds("ip", &["route", "add", "blackhole", CLIENT_ROUTE, "table", "local"]);
        anyhow::ensure!(is_added, "cannot add a route");
        Ok(Self)
    }
}

impl Drop for DroppedRoute {
    fn drop(&mut self) {
        succeeds("ip", &["route", "del", "blackhole", CLIENT_ROUTE, "table", "local"]);
    }
}
