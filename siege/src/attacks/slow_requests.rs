//! Requests that never end: heads, bodies and messages that come slowly or not at all.

use super::{Attack, AttackContext, AttackOutcome, SiegeForm};
use async_trait::async_trait;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: usize = 1024 * 1024;
const CHUNK: usize = 64 * 1024;
/// A client that is refused connects again after this time; sooner it would be a test of the machine's loopback.
const RETURN_PAUSE: Duration = Duration::from_secs(3);
const DRIP_PAUSE: Duration = Duration::from_millis(500);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

fn post_head(context: &AttackContext, length: usize) -> String {
    let user = &context.installation.attacker;
    format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n",
        user.address, user.key
    )
}

/// Opens a connection, sends `head` and `length` bytes, and keeps it open. Ends when the server refuses it.
async fn send_unfinished(address: &str, head: &str, length: usize) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(head.as_bytes()).await?;
    let chunk = vec![b' '; CHUNK.min(length)];
    let mut left = length;
    while left > 0 {
        let part = left.min(CHUNK);
        socket.write_all(chunk.get(..part).unwrap_or_default()).await?;
        left -= part;
    }
    Ok(socket)
}

/// Waits for the first bytes of an answer, or for the end of the connection.
async fn read_status(socket: &mut TcpStream) -> String {
    let mut answer = [0; 12];
    match socket.read_exact(&mut answer).await {
        Ok(_) => String::from_utf8_lossy(answer.get(9..).unwrap_or_default()).into_owned(),
        Err(_) => "closed".to_owned(),
    }
}

/// Keeps this many unfinished requests open; a client that is refused connects again.
fn keep_unfinished(context: &AttackContext, outcome: &mut AttackOutcome, count: usize, head: &str, length: usize) {
    for _ in 0..count {
        let (address, head, statuses) =
            (context.installation.address().to_owned(), head.to_owned(), context.statuses.clone());
        context.spawn(outcome, async move {
            loop {
                match send_unfinished(&address, &head, length).await {
                    Ok(mut socket) => statuses.add(&read_status(&mut socket).await),
                    Err(_) => statuses.add("closed"),
                }
                tokio::time::sleep(RETURN_PAUSE).await;
            }
        });
    }
}

/// Bodies just below the size that counts as large, without their last bytes.
pub(super) struct UnfinishedBodies;

#[async_trait]
impl Attack for UnfinishedBodies {
    fn name(&self) -> &'static str {
        "unfinished-bodies"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Sends {} bodies of 1 MiB without their last bytes.", form.choose("150", "1,200"))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let head = post_head(context, MIB - 16);
        keep_unfinished(context, &mut outcome, context.form.choose(150, 1_200), &head, MIB - 32);
        context.hold().await;
        Ok(outcome)
    }
}

/// WebSocket messages without their last bytes.
pub(super) struct UnfinishedMessages;

#[async_trait]
impl Attack for UnfinishedMessages {
    fn name(&self) -> &'static str {
        "unfinished-messages"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Sends {} WebSocket messages of 1 MiB without their last bytes.", form.choose("60", "300"))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            user.address, user.key
        );
        for _ in 0..context.form.choose(60, 300) {
            let (address, head, statuses) = (user.address.clone(), head.clone(), context.statuses.clone());
            context.spawn(&mut outcome, async move {
                loop {
                    let ended = send_unfinished_message(&address, &head).await.unwrap_or("closed");
                    statuses.add(ended);
                    tokio::time::sleep(RETURN_PAUSE).await;
                }
            });
        }
        context.hold().await;
        Ok(outcome)
    }
}

async fn send_unfinished_message(address: &str, head: &str) -> std::io::Result<&'static str> {
    let mut socket = send_unfinished(address, head, 0).await?;
    if read_status(&mut socket).await != "101" {
        return Ok("refused");
    }
    // A masked text frame with a length of eight bytes and the mask 0.
    let mut frame = vec![0x81, 0xff];
    frame.extend_from_slice(&((MIB - 16) as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    socket.write_all(&frame).await?;
    let chunk = vec![b' '; CHUNK];
    for _ in 0..MIB / CHUNK - 1 {
        socket.write_all(&chunk).await?;
    }
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await?;
    Ok("ended")
}

/// All places for large bodies, taken by one user.
pub(super) struct SlowLargeBodies;

#[async_trait]
impl Attack for SlowLargeBodies {
    fn name(&self) -> &'static str {
        "slow-large-bodies"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Sends 16 bodies of 2 MiB that never end, while the probe sends four of its own.".to_owned()
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        keep_unfinished(context, &mut outcome, 16, &post_head(context, 2 * MIB), 1_000);
        tokio::time::sleep(DRIP_PAUSE).await;
        let text = "x".repeat(2 * MIB);
        let body = json!({"model": "writer", "input": "story 1", "metadata": {"text": text}});
        for _ in 0..4 {
            let reply = context.installation.probe.post("/v1/tasks", &body, REQUEST_TIMEOUT).await?;
            // Such metadata is refused, but only after the body was read.
            if reply.status != 413 && reply.status != 422 {
                outcome.problems.push(format!("a large body of the probe: {} {}", reply.status, reply.text()));
            }
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// Heads of which a byte comes now and then.
pub(super) struct SlowHeaders;

#[async_trait]
impl Attack for SlowHeaders {
    fn name(&self) -> &'static str {
        "slow-headers"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Sends {} request heads, one byte each half second.", form.choose("300", "2,000"))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        for _ in 0..context.form.choose(300, 2_000) {
            let (address, statuses) = (context.installation.address().to_owned(), context.statuses.clone());
            context.spawn(&mut outcome, async move {
                loop {
                    statuses.add("opened");
                    if let Ok(mut socket) = TcpStream::connect(&address).await {
                        let _ = socket.write_all(b"GET /v1/tasks HTTP/1.1\r\nX-Slow: ").await;
                        while socket.write_all(b"x").await.is_ok() {
                            tokio::time::sleep(DRIP_PAUSE).await;
                        }
                    }
                    tokio::time::sleep(DRIP_PAUSE).await;
                }
            });
        }
        context.hold().await;
        Ok(outcome)
    }
}
