//! A full disk under the real binary: an alarm, not a dead end. Needs the right to mount a tmpfs; without it the tests
//! report that they did not run.

use crate::blocks::socket::{Received, Socket};
use crate::harness::{Server, parse_frames};
use crate::kill::stop_and_verify;
use reqwest::Method;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Five times the promise.
const RECOVERY_MAX: Duration = Duration::from_secs(25);

const CONFIG: &str = r#"
[agents.assistant]
model = "mine/any"
tools = ["work"]

[providers.mine]
kind = "scripted"
file = "scenarios.toml"

[tools.work]
kind = "command"
env_pass = ["PATH"]
command = ["sh", "-c", 'cat > /dev/null; echo start >> started; until [ -e go ]; do sleep 0.02; done; echo end >> ended; echo the result of the work']

[limits]
heartbeat_ms = 300
"#;

const SCENARIOS: &str = r#"
[[scenario]]
match = "work"
[[scenario.turn]]
steps = [{ call = "work", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = "It is done." }]
[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hello." }]
"#;

/// A file system in memory.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn new(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self { folder });
        }
        // Straight to the file descriptor: the test harness would capture a print.
        writeln!(std::io::stderr(), "SKIPPED: a small disk needs the right to mount a tmpfs").unwrap();
        None
    }

    /// A server whose data folder is on this disk.
    fn serve(&self, more: &str) -> Server {
        Server::on_folder(|dir| {
            fs::write(dir.join("headwater.toml"), format!("{CONFIG}\n{more}\n")).unwrap();
            fs::write(dir.join("scenarios.toml"), SCENARIOS).unwrap();
            fs::create_dir(self.folder.path().join("data")).unwrap();
            std::os::unix::fs::symlink(self.folder.path().join("data"), dir.join("data")).unwrap();
        })
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Somebody else fills the disk, to the last byte.
    fn fill(&self) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.filler()).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

async fn is_ready(server: &Server) -> bool {
    server.get("/readyz").await.status == 200
}

/// How long it takes until the server is ready.
async fn wait_ready(server: &Server) -> Duration {
    let began = Instant::now();
    server.wait_until("the server is ready", async || is_ready(server).await).await;
    let took = began.elapsed();
    assert!(took < RECOVERY_MAX, "{took:?}");
    took
}

fn count_lines(server: &Server, file: &str) -> usize {
    fs::read_to_string(server.path(file)).unwrap_or_default().lines().count()
}

async fn start_work(server: &Server) -> String {
    let before = count_lines(server, "started");
    let task = server.create_task(json!({"model": "assistant", "input": "work"})).await;
    server.wait_until("the tool runs", async || count_lines(server, "started") > before).await;
    task["task_id"].as_str().unwrap().to_owned()
}

fn new_key(server: &Server) -> String {
    let out = server.run_cli(&["keys", "create", "--user", "ann"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    said.split_whitespace().find(|word| word.starts_with("key_")).unwrap().to_owned()
}

fn revoke_key(server: &Server, key: &str) {
    let out = server.run_cli(&["keys", "revoke", key]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let listed = server.run_cli(&["keys", "list", "--json"]);
    let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let row = keys.as_array().unwrap().iter().find(|row| row["id"] == key).unwrap();
    assert!(row["revoked_at"].is_u64(), "{row}");
}

/// What is refused, and how: with a reason for people, and nothing about the server's folders.
async fn check_refusals(server: &Server, paths: &[&PathBuf]) {
    let started = server.post("/v1/tasks", json!({"model": "assistant", "input": "hello"})).await;
    let response = server.post("/v1/responses", json!({"model": "assistant", "input": "hello"})).await;
    let (file, text) = ("/api/v1/agent/attachments?name=a.txt", Some(b"some text".to_vec()));
    let upload = server.request(Method::POST, file, &[("content-type", "application/octet-stream")], text).await;
    for reply in [started, response, upload] {
        assert_eq!(reply.status, 503, "{}", reply.text);
        assert!(reply.text.contains("disk is full"), "{}", reply.text);
        assert!(reply.header("retry-after").parse::<u32>().is_ok(), "{:?}", reply.headers);
        for path in paths {
            assert!(!reply.text.contains(path.to_str().unwrap()), "{}", reply.text);
        }
    }
}

async fn check_not_ready(server: &Server) {
    server.wait_until("the server is not ready", async || !is_ready(server).await).await;
    let reply = server.get("/readyz").await;
    assert_eq!(reply.problem(), (503, "storage_unavailable".to_owned()));
    let detail = reply.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("disk of the data folder is full") && detail.contains("delete"), "{detail}");
    assert!(server.get("/metrics").await.text.contains("headwater_storage_full 1"));
}

/// Requests of other vendors' protocols that waited for the end of a run.
async fn check_vendor_waiters(waiters: [JoinHandle<reqwest::Response>; 3]) {
    // Anthropic's clients know 529 for a server that cannot serve now.
    for (waiter, status) in waiters.into_iter().zip([503, 503, 529]) {
        let waited = waiter.await.unwrap();
        assert_eq!((waited.status().as_u16(), waited.headers().contains_key("retry-after")), (status, true));
        let told: Value = waited.json().await.unwrap();
        assert!(told["error"]["message"].as_str().unwrap().contains("goes on when there is room"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_an_alarm_and_what_ran_is_recorded_later() {
    let Some(disk) = SmallDisk::new(64) else { return };
    let mut server = disk.serve("");
    let old = server.create_task(json!({"model": "assistant", "input": "hello"})).await;
    let (old_thread, old_task) = (old["thread_id"].as_str().unwrap(), old["task_id"].as_str().unwrap());
    server.wait_ended(old_task).await;
    let key = new_key(&server);
    let task = start_work(&server).await;
    let mut stream = server.open_stream(&format!("/v1/tasks/{task}/events")).await;
    stream.read_until("task.tool.started").await;
    let mut socket = Socket::connect(&server).await;
    let pinged = tokio::spawn(async move {
        while !socket.last_ping.starts_with(b"storage full: ") {
            assert_eq!(socket.receive().await, Received::Ping, "no message of the protocol");
        }
        socket.last_ping.len()
    });
    let wait_at = |path: &str, body: Value| {
        let (client, url) = (server.client.clone(), server.url(path));
        tokio::spawn(async move { client.post(url).json(&body).send().await.unwrap() })
    };
    let waiter = wait_at("/v1/tasks", json!({"model": "assistant", "input": "work", "wait": true}));
    let messages = json!([{"role": "user", "content": "work"}]);
    let vendor_waiters = [
        wait_at("/v1/responses", json!({"model": "assistant", "input": "work"})),
        wait_at("/v1/chat/completions", json!({"model": "assistant", "messages": messages})),
        wait_at("/v1/messages", json!({"model": "assistant", "max_tokens": 9, "messages": messages})),
    ];
    server.wait_until("all tools run", async || count_lines(&server, "started") == 5).await;

    disk.fill();
    check_not_ready(&server).await;
    stream.read_until("\n: storage full: ").await;
    assert!(pinged.await.unwrap() <= 125, "a ping has no more");
    // The tools end while nothing can be recorded, and the log does not show more than the disk has.
    fs::write(server.path("go"), "").unwrap();
    server.wait_until("all tools end", async || count_lines(&server, "ended") == 5).await;
    let waited = waiter.await.unwrap();
    assert_eq!((waited.status().as_u16(), waited.headers().contains_key("retry-after")), (503, true));
    let told: Value = waited.json().await.unwrap();
    let waiting_task = told["task_id"].as_str().unwrap().to_owned();
    assert!(told["detail"].as_str().unwrap().contains("goes on when there is room"), "{told}");
    check_vendor_waiters(vendor_waiters).await;
    let running = server.get(&format!("/v1/tasks/{task}")).await;
    assert_eq!((running.status, &running.json()["status"]), (200, &json!("running")));
    assert_eq!(
        server.frames(&format!("/v1/tasks/{old_task}/events"), None).await.last().unwrap().event,
        "task.completed"
    );

    check_refusals(&server, &[&server.data_dir(), &disk.filler()]).await;
    assert_eq!(server.request(Method::DELETE, &format!("/v1/threads/{old_thread}"), &[], None).await.status, 204);
    assert_eq!(server.get(&format!("/v1/tasks/{old_task}")).await.status, 404);
    revoke_key(&server, &key);
    assert!(!is_ready(&server).await, "the reserve is not room");

    disk.empty();
    let took = wait_ready(&server).await;
    writeln!(std::io::stderr(), "ready {took:?} after there was room").unwrap();
    let text = stream.read_to_end().await.unwrap().to_owned();
    assert!(text.contains("\n: storage has room again") && text.contains("the result of the work"), "{text}");
    let frames = parse_frames(&text);
    let seqs: Vec<u64> = frames.iter().map(|frame| frame.data["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    assert_eq!(frames.last().unwrap().event, "task.completed");
    assert_eq!(frames, server.frames(&format!("/v1/tasks/{task}/events"), None).await);
    assert_eq!(server.wait_ended(&waiting_task).await["status"], "completed");
    assert_eq!((count_lines(&server, "started"), count_lines(&server, "ended")), (5, 5), "each once");
    let log = server.log();
    assert_eq!((log.matches("is full: new data").count(), log.matches("has room again: new").count()), (1, 1), "{log}");
    stop_and_verify(&mut server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stops_and_starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::new(64) else { return };
    let mut server = disk.serve("[server]\nstop_grace_ms = 1000");
    let keys = [new_key(&server), new_key(&server)];
    let task = start_work(&server).await;
    disk.fill();
    check_not_ready(&server).await;
    fs::write(server.path("go"), "").unwrap();
    server.wait_until("the tool ends", async || count_lines(&server, "ended") == 1).await;
    let began = Instant::now();
    stop_and_verify(&mut server);
    assert!(began.elapsed() < 5 * Duration::from_secs(5), "{:?}", began.elapsed());
    revoke_key(&server, &keys[0]);

    for _ in 0..2 {
        server.restart();
        check_not_ready(&server).await;
        assert_eq!(server.get(&format!("/v1/tasks/{task}")).await.json()["status"], "running");
        check_refusals(&server, &[&server.data_dir()]).await;
        server.kill9();
    }
    server.restart();
    revoke_key(&server, &keys[1]);
    disk.empty();
    wait_ready(&server).await;
    assert_eq!(server.wait_ended(&task).await["status"], "completed");
    assert_eq!(count_lines(&server, "started"), 1, "the tool is not idempotent");
    stop_and_verify(&mut server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_reserve_and_without_room_a_server_reads() {
    let Some(disk) = SmallDisk::new(16) else { return };
    let mut server = disk.serve("[store]\ndisk_reserve_bytes = 0");
    let done = server.create_task(json!({"model": "assistant", "input": "hello"})).await;
    let task = done["task_id"].as_str().unwrap().to_owned();
    server.wait_ended(&task).await;
    stop_and_verify(&mut server);
    disk.fill();

    server.restart();
    check_not_ready(&server).await;
    assert_eq!(server.get(&format!("/v1/tasks/{task}")).await.json()["status"], "completed");
    assert_eq!(server.frames(&format!("/v1/tasks/{task}/events"), None).await.last().unwrap().event, "task.completed");
    check_refusals(&server, &[]).await;
    disk.empty();
    wait_ready(&server).await;
    let next = server.create_task(json!({"model": "assistant", "input": "hello"})).await;
    assert_eq!(server.wait_ended(next["task_id"].as_str().unwrap()).await["status"], "completed");

    // A file that does not fit leaves nothing behind: `verify` would report it.
    let (path, file) = ("/api/v1/agent/attachments?name=a.txt", Some(vec![b'a'; 20 << 20]));
    let upload = server.request(Method::POST, path, &[("content-type", "application/octet-stream")], file).await;
    assert_eq!(upload.problem(), (503, "storage_unavailable".to_owned()));
    assert!(upload.text.contains("disk is full"), "{}", upload.text);
    wait_ready(&server).await;
    stop_and_verify(&mut server);
}
