//! Realistic viewers: over a socket, with a cursor, disconnecting at any time.

use model_testing::Rng;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// What a viewer saw over all its connections.
pub(crate) struct ViewerFrames {
    pub(crate) frames: Vec<String>,
    /// The number of reconnects.
    pub(crate) resumed: usize,
}

/// Splits a stream into complete frames without transport fields (comments, `retry`); a partial frame stays in `rest`.
pub(crate) fn take_frames(rest: &mut String, frames: &mut Vec<String>) {
    while let Some(end) = rest.find("\n\n") {
        let frame: String = rest.drain(..end + 2).collect();
        if frame.starts_with("id: ") {
            frames.push(frame);
        }
    }
}

pub(crate) fn frame_id(frame: &str) -> &str {
    frame.strip_prefix("id: ").and_then(|rest| rest.split_once('\n')).map(|(id, _)| id).unwrap_or_default()
}

pub(crate) fn is_terminal_frame(frame: &str) -> bool {
    ["task.completed", "task.failed", "task.cancelled", "task.incomplete"]
        .iter()
        .any(|kind| frame.contains(&format!("\nevent: {kind}\n")))
}

/// Follows a task to its end, disconnecting after random numbers of frames.
pub(crate) async fn follow_with_drops(url: &str, task: &str, mut rng: Rng) -> ViewerFrames {
    let http = reqwest::Client::new();
    let (mut frames, mut resumed) = (Vec::new(), 0);
    while !frames.last().is_some_and(|last: &String| is_terminal_frame(last)) {
        let mut request = http.get(format!("{url}/v1/tasks/{task}/events"));
        if let Some(last) = frames.last() {
            request = request.header("Last-Event-ID", frame_id(last));
            resumed += 1;
        }
        let Ok(mut answer) = request.send().await else { continue };
        assert_eq!(answer.status(), 200, "resume of {task}");
        let patience = frames.len() + 1 + rng.below(60);
        let mut rest = String::new();
        while frames.len() < patience {
            let Ok(Some(chunk)) = answer.chunk().await else { break };
            rest.push_str(std::str::from_utf8(&chunk).expect("frames are whole characters"));
            take_frames(&mut rest, &mut frames);
        }
    }
    ViewerFrames { frames, resumed }
}

/// The complete log of an ended task, as a viewer from the start gets it.
pub(crate) async fn fetch_log(url: &str, task: &str) -> Vec<String> {
    let answer = reqwest::get(format!("{url}/v1/tasks/{task}/events")).await.expect("the server answers");
    assert_eq!(answer.status(), 200, "log of {task}");
    let mut rest = answer.text().await.expect("the stream ends");
    let mut frames = Vec::new();
    take_frames(&mut rest, &mut frames);
    frames
}

/// A viewer that sends its request and never reads.
pub(crate) async fn open_stalled_viewer(url: &str, task: &str) -> TcpStream {
    let address = url.trim_start_matches("http://").parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small window");
    let mut stream = socket.connect(address).await.expect("connected");
    let host = url.trim_start_matches("http://");
    let request = format!("GET /v1/tasks/{task}/events HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    stream
}

/// Follows a task until the connection breaks or it ends, passing on every frame as it arrives.
pub(crate) async fn follow_until_cut(url: String, task: String, seen: Arc<Mutex<Vec<String>>>) {
    let Ok(mut answer) = reqwest::get(format!("{url}/v1/tasks/{task}/events")).await else { return };
    let mut rest = String::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        rest.push_str(&String::from_utf8_lossy(&chunk));
        take_frames(&mut rest, &mut seen.lock().expect("not poisoned"));
    }
}
