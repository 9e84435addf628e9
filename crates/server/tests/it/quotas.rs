//! How much the conversations of a user may hold, and what is deleted when it is old.

use crate::agent_runs::history_writer::HistoryWriter;
use crate::auth::create_key;
use crate::harness::Server;
use model::ports::{AttachmentRow, AttachmentWriter as _, Attachments as _};
use model::{TaskId, UserId};
use serde_json::{Value, json};
use std::fmt::Write as _;
use store::{SqliteOptions, SqliteStore};

const KEYS: &str = "[auth]\nmode = \"keys\"\n";
const SCENARIOS: &str = "[[scenario]]\nmatch = 'hold'\n[[scenario.turn]]\n\
    steps = [{ pause_ms = 600000 }, { text = '' }]\n\
    [[scenario]]\n[[scenario.turn]]\nsteps = [{ text = 'hello' }]\n";

async fn send(hw: &Server, key: &str, path: &str, body: &Value) -> (u16, bool, String) {
    let sent = hw.client.post(hw.url(path)).bearer_auth(key).json(body).send().await.unwrap();
    let has_retry_after = sent.headers().contains_key("retry-after");
    (sent.status().as_u16(), has_retry_after, sent.text().await.unwrap())
}

async fn fetch(hw: &Server, key: &str, path: &str) -> (u16, Value) {
    let got = hw.client.get(hw.url(path)).bearer_auth(key).send().await.unwrap();
    (got.status().as_u16(), got.json().await.unwrap_or_default())
}

async fn ended(hw: &Server, key: &str, task: &Value) -> Value {
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("the run has ended", async || {
        let (_, task) = fetch(hw, key, &path).await;
        ["completed", "failed", "cancelled", "incomplete"].contains(&task["status"].as_str().unwrap_or_default())
    })
    .await;
    fetch(hw, key, &path).await.1
}

/// A user whose conversations are full starts nothing in any protocol, keeps everything else, and makes room by deleting.
#[tokio::test]
async fn a_full_log_refuses_new_runs_until_a_conversation_is_deleted() {
    let mut hw = Server::with_scenarios_and(SCENARIOS, &format!("{KEYS}[limits]\nlog_bytes_per_user_max = 30000"));
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let held = send(&hw, &ann, "/v1/tasks", &json!({"model": "demo", "input": "hold"})).await;
    let held: Value = serde_json::from_str(&held.2).unwrap();
    // Each of them holds more than a third, and the last one more than there is: it is not cut.
    let long = json!({"model": "demo", "input": "x".repeat(12_000)});
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (status, _, text) = send(&hw, &ann, "/v1/tasks", &long).await;
        assert_eq!(status, 202, "{text}");
        let task: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(ended(&hw, &ann, &task).await["status"], "completed");
        tasks.push(task);
    }
    let message = json!([{"role": "user", "content": "hello"}]);
    let requests = [
        ("/v1/tasks".to_owned(), json!({"model": "demo", "input": "hello"})),
        ("/v1/tasks".to_owned(), json!({"model": "demo", "input": "hello", "thread_id": tasks[0]["thread_id"]})),
        (format!("/v1/tasks/{}/input", held["task_id"].as_str().unwrap()), json!({"input": "more"})),
        ("/v1/responses".to_owned(), json!({"model": "demo", "input": "hello"})),
        ("/v1/messages".to_owned(), json!({"model": "demo", "max_tokens": 9, "messages": message})),
        ("/v1/chat/completions".to_owned(), json!({"model": "demo", "messages": message})),
    ];
    for again in ["at once", "after a crash"] {
        for (path, body) in &requests {
            let (status, has_retry_after, text) = send(&hw, &ann, path, body).await;
            assert_eq!((status, has_retry_after), (413, false), "{again} {path}: {text}");
            assert!(text.contains("quota_exceeded") || path == "/v1/messages", "{again} {path}: {text}");
            assert!(text.contains("may hold 30000") && text.contains("delete"), "{again} {path}: {text}");
        }
        let refused: Value = serde_json::from_str(&send(&hw, &ann, "/v1/tasks", &requests[0].1).await.2).unwrap();
        assert!(refused["bytes_used"].as_u64().unwrap() >= 30_000 && refused["bytes_max"] == 30_000, "{refused}");
        assert_eq!(send(&hw, &ben, "/v1/tasks", &requests[0].1).await.0, 202, "others go on");
        assert_eq!(fetch(&hw, &ann, "/v1/threads").await.0, 200);
        if again == "at once" {
            hw.kill9();
            hw.restart();
        }
    }
    let metrics = hw.client.get(hw.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("headwater_quota_rejections_total{quota=\"log\"}"), "{metrics}");
    let used = metrics.lines().find_map(|line| line.strip_prefix("headwater_log_bytes ")).unwrap();
    assert!(used.parse::<f64>().unwrap() > 30_000.0, "{used}");
    let cancel = format!("/v1/tasks/{}/cancel", held["task_id"].as_str().unwrap());
    assert_eq!(send(&hw, &ann, &cancel, &json!({})).await.0, 202, "what ends a run is accepted");
    ended(&hw, &ann, &held).await;
    for task in &tasks[..2] {
        assert_eq!(send(&hw, &ann, "/v1/tasks", &requests[0].1).await.0, 413);
        let thread = hw.url(&format!("/v1/threads/{}", task["thread_id"].as_str().unwrap()));
        assert_eq!(hw.client.delete(thread).bearer_auth(&ann).send().await.unwrap().status(), 204);
    }
    assert_eq!(send(&hw, &ann, "/v1/tasks", &requests[0].1).await.0, 202, "there is room again");
}

const DAY: u64 = 24 * 60 * 60 * 1000;

fn with_retention(hw: &Server) {
    let path = hw.path("headwater.toml");
    let mut config = std::fs::read_to_string(&path).unwrap();
    write!(config, "\n[retention]\nthread_days = 30\nunused_file_days = 7\n").unwrap();
    std::fs::write(path, config).unwrap();
}

fn old_file() -> (UserId, AttachmentRow) {
    let owner = UserId::from("local");
    let key = files::FileKey::for_attachment(&owner, uuid::Uuid::from_u128(1), Some("txt")).unwrap();
    let path = key.as_str().to_owned();
    let row = AttachmentRow {
        path,
        name: "old.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        size_bytes: 3,
        created_at: 5 * DAY,
        hash: None,
    };
    (owner, row)
}

/// Writes a conversation of long ago into the folder of a stopped server.
async fn write_old_thread(hw: &Server) -> (&'static str, TaskId) {
    let thread = "thr_00000000000000000000000000000001";
    let mut past = HistoryWriter::open(hw, thread);
    let run = past.write_run((5 * DAY, "hello"), &[(5 * DAY, "long ago".to_owned())]).await;
    past.close().await;
    (thread, run)
}

#[tokio::test]
async fn what_is_old_is_deleted_and_what_is_young_stays() {
    let mut hw = Server::with_scenarios(SCENARIOS);
    let young = hw.start_run("hello").await;
    hw.wait_ended(young["task_id"].as_str().unwrap()).await;
    hw.signal("-TERM");
    hw.wait_exit();
    let (old, run) = write_old_thread(&hw).await;
    let (owner, file) = old_file();
    let store = SqliteStore::open(&hw.data_dir(), &SqliteOptions::default()).unwrap();
    store.commit_attachment(&owner, file.clone(), None).await.unwrap();
    store.close().await;
    drop(store);

    hw.restart();
    let path = format!("/v1/threads/{old}");
    assert_eq!(hw.get(&path).await.status, 200, "nothing is deleted without a policy");
    let share = hw.post(&format!("{path}/shares"), json!({"mode": "live"})).await;
    assert_eq!(share.status, 201, "{}", share.text);
    let events = format!("/v1/tasks/{run}/events");
    let frames = hw.frames(&events, None).await;
    let cursor = frames[0].raw.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim().to_owned();
    hw.signal("-TERM");
    hw.wait_exit();

    with_retention(&hw);
    hw.restart();
    hw.wait_until("the sweep is done", async || hw.log().contains("retention has deleted what is old")).await;
    let gone = hw.get(&path).await;
    assert_eq!(gone.problem(), (404, "not_found".to_owned()));
    assert_eq!(hw.get(&events).await.problem(), (404, "not_found".to_owned()));
    let resumed = hw.client.get(hw.url(&events)).header("last-event-id", cursor).send().await.unwrap();
    assert_eq!(resumed.status(), 404, "a cursor into it says what it says after a deletion");
    let kept = hw.get(&format!("/v1/threads/{}", young["thread_id"].as_str().unwrap())).await;
    assert_eq!(kept.status, 200, "{}", kept.text);
    let log = hw.log();
    assert!(log.contains("threads=1") && log.contains("files=1"), "{log}");
    hw.signal("-TERM");
    hw.wait_exit();
    let store = SqliteStore::open(&hw.data_dir(), &SqliteOptions::default()).unwrap();
    assert_eq!(store.attachment(&owner, &file.path).await, Ok(None));
    assert_eq!(store.unreferenced_attachments().await, Ok(Vec::new()), "its bytes are gone, too");
}

/// The threads in which a conversation was summed up.
#[tokio::test]
async fn an_unlisted_thread_is_deleted_after_a_day_without_a_policy() {
    let mut hw = Server::with_scenarios(SCENARIOS);
    hw.signal("-TERM");
    hw.wait_exit();
    let (listed, _) = write_old_thread(&hw).await;
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let unlisted = [2, 3].map(|n| model::ThreadId::unlisted(uuid::Uuid::from_u128(n)).to_string());
    for (thread, at) in unlisted.iter().zip([now - 2 * DAY, now]) {
        let mut past = HistoryWriter::open(&hw, thread);
        past.write_run((at, "hello"), &[(at, "a summary".to_owned())]).await;
        past.close().await;
    }
    hw.restart();
    let status = async |thread: &str| hw.get(&format!("/v1/threads/{thread}")).await.status;
    hw.wait_until("the old one is deleted", async || status(&unlisted[0]).await == 404).await;
    assert_eq!([status(&unlisted[1]).await, status(listed).await], [200, 200]);
}

/// The clock is far ahead of everything in the folder: it may be wrong, and nothing is deleted at once.
#[tokio::test]
async fn a_clock_that_is_years_ahead_deletes_nothing_at_a_start() {
    let mut hw = Server::with_scenarios(SCENARIOS);
    hw.signal("-TERM");
    hw.wait_exit();
    let (old, _) = write_old_thread(&hw).await;
    with_retention(&hw);
    for start in 1..=2 {
        hw.restart();
        let count = |line: &str| hw.log().matches(line).count();
        let sweep = async || count("retention has deleted what is old") == start;
        hw.wait_until("the sweep is done", sweep).await;
        assert_eq!(hw.get(&format!("/v1/threads/{old}")).await.status, 200);
        assert_eq!(count("the clock is far ahead of the last sweep"), start, "{}", hw.log());
        hw.signal("-TERM");
        hw.wait_exit();
    }
}
