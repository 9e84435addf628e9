//! Many sockets that read nothing, and their cost.

use super::chat_message;
use super::socket::Socket;
use crate::harness::Server;
use serde_json::json;

const STALLED: usize = 300;

fn resident_kib(hw: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hw.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn three_hundred_stalled_sockets_slow_no_other_and_cost_little() {
    // A slow machine needs longer than the default to write all of it, and the sockets must stay open until then.
    let hw = Server::demo_with("[limits]\nwrite_stall_ms = 120000");
    let mut reader = Socket::connect(&hw).await;
    reader.send_json(&chat_message("s1", "hello")).await;
    reader.read_until("message_stop").await;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let mut socket = Socket::connect(&hw).await;
        socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
        socket.read_until("message_stop").await;
        stalled.push(socket);
    }
    let before = resident_kib(&hw);
    // About five megabytes of frames: far more than the connections buffer.
    reader.send_json(&chat_message("s1", "story 30000 fast")).await;
    let mut bytes = 0;
    let mut most = 0;
    let mut deltas = 0;
    loop {
        let frame = reader.next_event().await;
        bytes += frame.to_string().len();
        deltas += usize::from(frame["type"] == "content_block_delta");
        if deltas % 2_000 == 1 {
            most = most.max(resident_kib(&hw));
        }
        if frame["type"] == "message_stop" {
            break;
        }
    }
    assert_eq!(deltas, 30_000, "whoever reads has all of it");
    let grown = most.saturating_sub(before);
    // A queue per socket would be gigabytes. Each has one page of the log, or a chunk of the lane, in flight.
    assert!(bytes > 4_000_000, "{bytes} bytes for each");
    assert!(grown < 64 * 1024, "{grown} KiB for {STALLED} sockets that take nothing");
    for socket in &mut stalled[..3] {
        socket.read_until("message_stop").await;
    }
}
