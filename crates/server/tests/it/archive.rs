//! Runs that move from the database to a folder or a bucket: clients notice nothing, and a deleted thread is gone there, too.

mod bucket;

use crate::harness::{Server, headwater_command};
use bucket::Bucket;
use postgres_testing::TestDatabase;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

fn count(database: &TestDatabase, sql: &str) -> u64 {
    database.execute(&format!("SELECT count(*) FROM {sql}")).trim().parse().unwrap()
}

/// Waits until nothing that has ended is left to be archived.
async fn wait_archived(hw: &Server, database: &TestDatabase) {
    let left = "headwater.runs WHERE ended_at IS NOT NULL AND first_seq IS NOT NULL AND NOT is_archived";
    hw.wait_until("the runs are archived", async || count(database, left) == 0).await;
}

/// Frames without what belongs to a connection.
fn bare(stream: &str) -> String {
    let is_frame = |piece: &&str| piece.lines().any(|line| line.starts_with("data: "));
    stream.split_inclusive("\n\n").filter(is_frame).collect()
}

/// What clients of several protocols read of a run: whole, from several cursors, and as objects.
async fn read_everything(hw: &Server, task: &Value) -> Vec<(String, String)> {
    let (id, thread) = (text(task, "task_id"), text(task, "thread_id"));
    let events = format!("/v1/tasks/{id}/events");
    let mut read = Vec::new();
    let frames = hw.frames(&events, None).await;
    for frame in frames.iter().step_by(9).chain(frames.iter().rev().take(2)) {
        let reply = hw.request(Method::GET, &events, &[("last-event-id", &frame.id)], None).await;
        read.push((format!("after {}", frame.id), bare(&reply.text)));
    }
    for path in [
        events.clone(),
        format!("{events}?format=run-items"),
        format!("/v1/responses/resp_{}?stream=true", id.trim_start_matches("task_")),
        format!("/v1/responses/resp_{}?stream=true&starting_after=5", id.trim_start_matches("task_")),
    ] {
        let reply = hw.get(&path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert!(bare(&reply.text).len() > 500, "{path}: {}", reply.text);
        read.push((path, bare(&reply.text)));
    }
    for path in [format!("/v1/tasks/{id}"), format!("/v1/threads/{thread}"), format!("/v1/threads/{thread}/items")] {
        let reply = hw.get(&path).await;
        read.push((path, format!("{} {}", reply.status, reply.text)));
    }
    read
}

/// A run and the next one in its thread, both ended.
async fn run_two_turns(hw: &Server) -> [Value; 2] {
    let first = hw.start_run("story 40").await;
    hw.wait_ended(text(&first, "task_id")).await;
    let body = json!({"model": "demo", "input": "weather", "thread_id": first["thread_id"]});
    let second = hw.create_task(body).await;
    hw.wait_ended(text(&second, "task_id")).await;
    [first, second]
}

async fn delete_thread(hw: &Server, task: &Value) {
    let path = format!("/v1/threads/{}", text(task, "thread_id"));
    let reply = hw.request(Method::DELETE, &path, &[], None).await;
    assert!((200..300).contains(&reply.status), "{}: {}", reply.status, reply.text);
}

fn replay(hw: &Server, task: &Value) -> String {
    let output = hw.run_cli_with_env(&["replay", text(task, "task_id"), "--fast"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn verify(hw: &Server) -> (Option<i32>, String) {
    let output = hw.run_cli_with_env(&["verify"]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr))
}

fn error_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

/// The names of files below a folder, without its id.
fn list_files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.push(format!("{}/", path.display()));
            names.extend(list_files(&path));
        } else if path.file_name().unwrap() != ".folder-id" {
            names.push(path.display().to_string());
        }
    }
    names
}

struct Folders {
    dir: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn archive(&self) -> std::path::PathBuf {
        self.dir.path().join("archive")
    }

    fn config(&self, archive: &str) -> String {
        let files = self.dir.path().join("files");
        let database = match archive {
            "" => String::new(),
            archive => format!("[database]\narchive = \"{archive}\"\narchive_after_seconds = 0\n"),
        };
        format!("[files]\nurl = \"{}\"\n{database}", files.display())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archived_run_reads_as_before_on_every_node_until_it_is_deleted() {
    let (database, folders) = (TestDatabase::create(), Folders::new());
    let config = folders.config(&folders.archive().display().to_string());
    let mut a = Server::node(&database.url(), &folders.config(""));
    let tasks = run_two_turns(&a).await;
    let before = [read_everything(&a, &tasks[0]).await, read_everything(&a, &tasks[1]).await];
    a.signal("-TERM");
    assert!(a.wait_exit().success());
    a.configure_node(&config);
    a.restart();
    wait_archived(&a, &database).await;
    assert_eq!(count(&database, "headwater.records"), 0);
    assert!(list_files(&folders.archive()).len() > 2);
    let b = Server::node(&database.url(), &config);
    for node in [&a, &b] {
        for (task, before) in tasks.iter().zip(&before) {
            let after = read_everything(node, task).await;
            for (one, other) in before.iter().zip(&after) {
                assert_eq!(one, other);
            }
            assert_eq!(before.len(), after.len());
        }
    }
    for (task, before) in tasks.iter().zip(&before) {
        let whole = &before.iter().find(|(path, _)| path.ends_with("/events")).unwrap().1;
        assert_eq!(replay(&a, task), *whole);
    }
    let (code, said) = verify(&b);
    assert!(code == Some(0) && said.contains("no damage found"), "{said}");
    // The conversation goes on behind what is archived, with the node that has never seen it.
    let body = json!({"model": "demo", "input": "weather", "thread_id": tasks[0]["thread_id"]});
    let next = b.create_task(body).await;
    assert_eq!(b.wait_ended(text(&next, "task_id")).await["status"], "completed");
    wait_archived(&b, &database).await;
    let metrics = [a.get("/metrics").await.text, b.get("/metrics").await.text].concat();
    assert!(metrics.contains("headwater_archived_runs_total"), "{metrics}");
    delete_thread(&b, &tasks[0]).await;
    assert_eq!(list_files(&folders.archive()), [""; 0], "at once");
    assert_eq!(a.get(&format!("/v1/tasks/{}", text(&tasks[0], "task_id"))).await.status, 404);
    assert_eq!(count(&database, "headwater.segments") + count(&database, "headwater.archive_objects"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_or_a_command_without_the_archive_says_what_to_set() {
    let (database, folders) = (TestDatabase::create(), Folders::new());
    let config = folders.config(&folders.archive().display().to_string());
    let hw = Server::node(&database.url(), &config);
    let task = hw.start_run("hello").await;
    hw.wait_ended(text(&task, "task_id")).await;
    wait_archived(&hw, &database).await;
    let other = folders.dir.path().join("other");
    let said = "the database has archived runs: set [database] archive to the place that has them (folder ";
    for (archive, expected) in [("", said), (&*other.display().to_string(), "name the same bucket or shared folder")] {
        hw.configure_node(&folders.config(archive));
        let elsewhere = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| {
            let mut command = headwater_command(elsewhere.path());
            command.args(args).arg("--config").arg(hw.path("headwater.toml"));
            command.args(["--data-dir", "data", "--database-url", &database.url()]).output().unwrap()
        };
        let serve = run(&["serve", "--listen", "127.0.0.1:0"]);
        let error = String::from_utf8_lossy(&serve.stderr).lines().last().unwrap_or_default().to_owned();
        assert!(!serve.status.success() && error.contains(expected), "{serve:?}");
        for args in [&["verify"][..], &["replay", text(&task, "task_id"), "--fast"]] {
            let output = run(args);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(error_line(&output).contains("[database] archive"), "{output:?}");
        }
    }
    // What is missing or left over in the archive is found.
    hw.configure_node(&config);
    let objects = list_files(&folders.archive());
    let object = objects.iter().find(|name| !name.ends_with('/')).unwrap();
    std::fs::rename(object, folders.archive().join("foreign")).unwrap();
    let (code, said) = verify(&hw);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is damaged at record 1") && said.contains("is missing)"), "{said}");
    assert!(said.contains("the archive has an object that nobody refers to: foreign"), "{said}");
    assert_eq!(stream_status(&hw, &task).await, None, "the stream breaks off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_names_the_one_that_keeps_it_from_archiving() {
    let (database, folders) = (TestDatabase::create(), Folders::new());
    let mut without = Server::node(&database.url(), &folders.config(""));
    let hw = Server::node(&database.url(), &folders.config(&folders.archive().display().to_string()));
    let task = hw.start_run("hello").await;
    hw.wait_ended(text(&task, "task_id")).await;
    let said = "nothing is archived while this node runs";
    hw.wait_until("it says why", async || hw.log().contains(said)).await;
    assert_eq!(count(&database, "headwater.segments"), 0);
    without.signal("-TERM");
    assert!(without.wait_exit().success());
    wait_archived(&hw, &database).await;
    assert_eq!(hw.log().matches(said).count(), 1, "{}", hw.log());
}

/// The status of a run's stream; `None` if it breaks off.
async fn stream_status(hw: &Server, task: &Value) -> Option<u16> {
    let mut response =
        hw.client.get(hw.url(&format!("/v1/tasks/{}/events", text(task, "task_id")))).send().await.unwrap();
    while response.chunk().await.ok()?.is_some() {}
    Some(response.status().as_u16())
}

/// The tail of a node finds the records of a run gone from the database: its viewers read them from the archive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_whose_node_slept_while_the_run_was_archived_misses_nothing() {
    let (database, folders) = (TestDatabase::create(), Folders::new());
    let config = folders.config(&folders.archive().display().to_string());
    let [a, b] = [(); 2].map(|()| Server::node(&database.url(), &config));
    let task = a.start_run("story 60").await;
    let events = format!("/v1/tasks/{}/events", text(&task, "task_id"));
    let mut stream = b.open_stream(&events).await;
    stream.read_until("task.text.delta").await;
    b.signal("-STOP");
    a.wait_ended(text(&task, "task_id")).await;
    wait_archived(&a, &database).await;
    b.signal("-CONT");
    assert_eq!(bare(stream.read_to_end().await.unwrap()), bare(&a.get(&events).await.text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_archived_in_a_bucket_and_an_outage_of_it_affects_nothing_else() {
    let (database, folders) = (TestDatabase::create(), Folders::new());
    let bucket = Bucket::start().await;
    let config = folders.config("s3://bucket/old/runs");
    let mut hw = Server::node_with_env(&database.url(), &config, &bucket.env_vars());
    let task = hw.start_run("story 40").await;
    let events = format!("/v1/tasks/{}/events", text(&task, "task_id"));
    let live = bare(&hw.get(&events).await.text);
    wait_archived(&hw, &database).await;
    assert!(bucket.names().iter().all(|name| name.starts_with("/bucket/old/runs/")), "{:?}", bucket.names());
    assert!(!bucket.names().is_empty());
    // With nothing in memory.
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    hw.restart();
    bucket.fail();
    let refused = hw.get(&format!("/v1/tasks/{}", text(&task, "task_id"))).await;
    assert_eq!(refused.problem(), (503, "storage_unavailable".to_owned()), "{}", refused.text);
    assert_eq!(stream_status(&hw, &task).await, None, "a client connects again");
    assert_eq!(hw.get("/readyz").await.status, 200);
    let other = hw.start_run("hello").await;
    assert_eq!(hw.wait_ended(text(&other, "task_id")).await["status"], "completed");
    bucket.heal();
    assert_eq!(bare(&hw.get(&events).await.text), live);
    let (code, said) = verify(&hw);
    assert!(code == Some(0) && said.contains("no damage found"), "{said}");
    wait_archived(&hw, &database).await;
    delete_thread(&hw, &task).await;
    delete_thread(&hw, &other).await;
    hw.wait_until("nothing is left", async || {
        bucket.names().is_empty() && count(&database, "headwater.archive_objects") == 0
    })
    .await;
}
