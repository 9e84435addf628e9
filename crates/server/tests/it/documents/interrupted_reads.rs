//! A crash or a cancel while a file is being read.

use super::file_server::{FileServer, PageResponse};
use super::pdf_maker::{document, endless};
use super::{Listener, TERMINAL, begin, files, frames};
use crate::harness::{self, Server};
use crate::kill::stop_and_verify;
use bytes::Bytes;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The promise is a second; a test fails on time only at five times the promise.
const AT_ONCE: Duration = Duration::from_secs(5);
const RULES: &str = "[fetch]\nallow_private = true\ntimeout_ms = 60000\n";

/// A document that is served once the gate is open.
async fn slow(gate: &watch::Receiver<bool>) -> FileServer {
    let pdf = document(&[&["Worth waiting for"]]).into();
    FileServer::start("127.0.0.1:0", [("/slow.pdf", PageResponse::Slow("application/pdf", pdf, gate.clone()))]).await
}

#[tokio::test]
async fn a_file_being_read_at_a_crash_is_read_again() {
    let (open, gate) = watch::channel(false);
    let (web, model) = (slow(&gate).await, Listener::open().await);
    let mut hw = model.server(&format!("{RULES}ports = [{}]", web.address.port()));
    let task = begin(&hw, &[web.url("/slow.pdf"), web.url("/none")]).await;
    web.wait_until(|seen| seen.active == 1 && seen.by_path.len() == 2).await;
    hw.open_stream(&format!("/v1/tasks/{task}/events")).await.read_until("status 404").await;
    hw.kill9();
    web.wait_until(|seen| seen.active == 0).await;
    assert_eq!(model.questions(), 0);

    open.send_replace(true);
    hw.restart();
    let seen = frames(&hw, &task).await;
    assert_eq!(seen.last().unwrap().event, "task.completed", "{seen:#?}");
    let found = files(&seen);
    assert_eq!(found.len(), 2, "what ended before the crash is not read again: {found:?}");
    let read = (web.url("/slow.pdf"), "completed".to_owned(), "Read slow.pdf (".to_owned());
    assert!(found[1].0 == read.0 && found[1].1 == read.1 && found[1].2.starts_with(&read.2), "{found:?}");
    let asked = web.access_counts().by_path;
    assert_eq!((asked["/slow.pdf"], asked["/none"], model.questions()), (2, 1, 1));
    assert!(model.heard().join("\n").contains("Worth waiting for"));
    let done = seen.iter().filter(|frame| frame.event == "task.output_item.added").count();
    assert_eq!(done, 2, "one list of files, one answer");
    stop_and_verify(&mut hw);
}

#[tokio::test]
async fn a_cancel_during_a_file_read_ends_the_run_and_the_read() {
    let (_open, gate) = watch::channel(false);
    let (web, model) = (slow(&gate).await, Listener::open().await);
    let mut hw = model.server(&format!("{RULES}ports = [{}]", web.address.port()));
    let task = begin(&hw, &[web.url("/slow.pdf")]).await;
    web.wait_until(|seen| seen.active == 1).await;
    let mut watcher = hw.open_stream(&format!("/v1/tasks/{task}/events")).await;

    let begun = Instant::now();
    let reply = hw.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let seen = harness::parse_frames(watcher.read_to_end().await.unwrap());
    web.wait_until(|seen| seen.active == 0).await;
    let took = begun.elapsed();
    eprintln!("a slow file: the stream ended and the connection was closed {took:?} after the cancel");
    assert!(took < AT_ONCE, "{took:?}");
    let ends: Vec<&str> =
        seen.iter().map(|frame| frame.event.as_str()).filter(|event| TERMINAL.contains(event)).collect();
    assert_eq!((ends, seen.last().unwrap().event.as_str()), (vec!["task.cancelled"], "task.cancelled"));
    let object = hw.get(&format!("/v1/tasks/{task}")).await.json();
    let item = &object["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!("file_processing"), &json!("incomplete")), "{object}");
    assert_eq!((model.questions(), web.access_counts().by_path["/slow.pdf"]), (0, 1));
    stop_and_verify(&mut hw);
}

/// The child processes of a server that read a PDF.
fn children(hw: &Server) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", hw.pid())).unwrap();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")));
    let pids: Vec<String> = lists
        .flat_map(|list| list.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let reads_pdf = |pid: &&String| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|command| command.contains("read-pdf"))
    };
    pids.iter().filter(reads_pdf).count()
}

#[tokio::test]
async fn a_cancel_kills_the_process_that_reads_a_document() {
    let web =
        FileServer::start("127.0.0.1:0", [("/endless.pdf", PageResponse::File("application/pdf", endless().into()))])
            .await;
    let model = Listener::open().await;
    let hw = model.server(&format!("{RULES}ports = [{}]", web.address.port()));
    let task = begin(&hw, &[web.url("/endless.pdf")]).await;
    hw.wait_until("somebody reads it", async || children(&hw) == 1).await;

    let begun = Instant::now();
    let reply = hw.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    hw.wait_until("nobody reads it", async || children(&hw) == 0).await;
    let took = begun.elapsed();
    eprintln!("the process was gone {took:?} after the cancel");
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(frames(&hw, &task).await.last().unwrap().event, "task.cancelled");
}

const PATHS: [&str; 6] = ["/1", "/2", "/3", "/4", "/5", "/6"];

#[tokio::test]
async fn file_reads_are_limited_and_queued() {
    let (open, gate) = watch::channel(false);
    let slow = PageResponse::Slow("text/plain", Bytes::from_static(b"Worth waiting for"), gate);
    let web = FileServer::start("127.0.0.1:0", PATHS.map(|path| (path, slow.clone()))).await;
    let model = Listener::open().await;
    let hw = model.server(&format!("{RULES}at_once_max = 4\nports = [{}]", web.address.port()));
    let task = begin(&hw, &PATHS.map(|path| web.url(path))).await;
    // Half of the slots are reserved for others.
    web.wait_until(|seen| seen.active == 2).await;
    // A read that does not wait has started by now.
    for _ in 0..50 {
        assert_eq!(hw.get("/healthz").await.status, 200);
    }
    open.send_replace(true);
    let found = files(&frames(&hw, &task).await);
    let read = found.iter().filter(|(_, status, _)| status == "completed").count();
    assert_eq!((read, web.access_counts().by_path.len(), web.access_counts().active_max), (6, 6, 2), "{found:?}");
}

#[tokio::test]
async fn every_queued_file_is_read_despite_slow_ones() {
    let (_open, gate) = watch::channel(false);
    let slow = PageResponse::Slow("text/plain", Bytes::from_static(b"Never"), gate);
    let mut pages = PATHS.map(|path| (path, slow.clone()));
    pages[5].1 = PageResponse::File("text/plain", Bytes::from_static(b"The last"));
    let web = FileServer::start("127.0.0.1:0", pages).await;
    let model = Listener::open().await;
    let rules = "[fetch]\nallow_private = true\ntimeout_ms = 1500\nat_once_max = 1\n";
    let hw = model.server(&format!("{rules}ports = [{}]", web.address.port()));
    let task = begin(&hw, &PATHS.map(|path| web.url(path))).await;
    let seen = frames(&hw, &task).await;
    assert_eq!(seen.last().unwrap().event, "task.completed");
    let found = files(&seen);
    let late = found.iter().filter(|(.., message)| message == "The server took too long to respond.").count();
    let read = found.iter().filter(|(_, status, _)| status == "completed").count();
    assert_eq!((found.len(), late, read), (6, 5, 1), "{found:?}");
}
