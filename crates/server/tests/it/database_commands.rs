//! The commands beside a database: `keys`, `replay`, `verify`, `import` and `compact`.

use crate::attachments::{stored_files, upload_file};
use crate::harness::{Server, headwater_command};
use postgres_testing::TestDatabase;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

const PROTOCOLS: [&str; 7] = ["task", "run-items", "responses", "blocks", "agent-runs", "messages", "chat"];

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The last line on stderr: the config is named before it.
fn error_line(output: &Output) -> String {
    stderr(output).lines().last().unwrap_or_default().to_owned()
}

/// Runs the command in a folder without a config, as on a machine that has only the URL.
fn run_with_url(database: &TestDatabase, args: &[&str]) -> Output {
    let elsewhere = tempfile::tempdir().unwrap();
    let output = headwater_command(elsewhere.path()).args(args).args(["--database-url", &database.url()]).output();
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "no folder is needed");
    output.unwrap()
}

/// Host, port and name, as messages tell them.
fn place(database: &TestDatabase) -> String {
    database.url().rsplit_once('@').unwrap().1.to_owned()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

#[test]
fn keys_are_managed_in_the_database_itself() {
    let database = TestDatabase::create();
    let missing = run_with_url(&database, &["keys", "list"]);
    let said = format!(
        "headwater: the database at {} has no data of Headwater: check the URL, or start a server with it first",
        place(&database)
    );
    assert_eq!((missing.status.code(), error_line(&missing)), (Some(1), said));
    let refused = run_with_url(&database, &["keys", "create", "--user", "not a name!"]);
    assert!(error_line(&refused).contains("is not a valid user name"), "{refused:?}");
    assert_eq!(database.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'").trim(), "0");

    let created = run_with_url(&database, &["keys", "create", "--user", "ann"]);
    assert!(created.status.success() && stdout(&created).starts_with("hw_"), "{created:?}");
    let listed = run_with_url(&database, &["keys", "list", "--json"]);
    let keys: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    assert_eq!((text(&keys[0], "user"), &keys[0]["revoked_at"], &keys[1]), ("ann", &Value::Null, &Value::Null));
    let revoked = run_with_url(&database, &["keys", "revoke", text(&keys[0], "id")]);
    assert_eq!((revoked.status.code(), stdout(&revoked)), (Some(0), "revoked\n".to_owned()), "{revoked:?}");
    assert!(stdout(&run_with_url(&database, &["keys", "list"])).contains("revoked_at="));
    let unknown = run_with_url(&database, &["keys", "revoke", "key_0"]);
    assert_eq!(error_line(&unknown), "headwater: no such key: `key_0`");
    assert_eq!(database.execute("SELECT count(*) FROM headwater.nodes").trim(), "0", "a command is no node");
}

/// The variable of the database counts like its flag, a folder on the command line precedes the config, and the flag of the
/// database precedes the folder.
#[test]
fn the_command_line_says_where_the_data_is() {
    let (database, dir) = (TestDatabase::create(), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("headwater.toml"), "[database]\nurl = \"env:MY_DATABASE\"\n").unwrap();
    let create = |user: &str, args: &[&str], variable: &str| {
        let mut command = headwater_command(dir.path());
        let created = command.args(["keys", "create", "--user", user]).args(args).env(variable, database.url());
        let created = created.output().unwrap();
        assert!(created.status.success(), "{created:?}");
    };
    create("configured", &[], "MY_DATABASE");
    create("flagged", &["--data-dir", "data", "--database-url", &database.url()], "MY_DATABASE");
    create("from-variable", &["--data-dir", "data"], "HEADWATER_DATABASE_URL");
    assert!(!dir.path().join("data").exists());
    // An image sets the variable of the folder for its server, whose data is in the database of its config.
    let mut in_image = headwater_command(dir.path());
    in_image.args(["keys", "create", "--user", "in-image"]).env("MY_DATABASE", database.url());
    let in_image = in_image.env("HEADWATER_DATA_DIR", dir.path().join("data")).output().unwrap();
    assert!(in_image.status.success(), "{in_image:?}");
    assert!(!dir.path().join("data").exists());
    create("in-folder", &["--data-dir", "data"], "MY_DATABASE");
    assert!(dir.path().join("data/headwater.db").exists());
    let users = "SELECT string_agg(owner, ' ' ORDER BY owner) FROM headwater.access_keys";
    assert_eq!(database.execute(users).trim(), "configured flagged from-variable in-image");

    database.execute("INSERT INTO headwater.checkpoint_runs VALUES (99, 0, '{}')");
    let verify = |args: &[&str]| {
        let mut command = headwater_command(dir.path());
        command.arg("verify").args(args).env("MY_DATABASE", database.url()).output().unwrap().status.code()
    };
    assert_eq!(verify(&[]), Some(1), "the damaged database of the config");
    assert_eq!(verify(&["--data-dir", "data"]), Some(0), "the sound folder");
    assert_eq!(verify(&["--data-dir", "data", "--database-url", &database.url()]), Some(1));
}

#[test]
fn compact_says_that_it_is_for_folders() {
    let database = TestDatabase::create();
    let refused = run_with_url(&database, &["compact"]);
    let said = format!(
        "headwater: the data is in the database at {}, and `headwater compact` is for data folders: PostgreSQL's VACUUM does \
         that for a database",
        place(&database)
    );
    assert_eq!((refused.status.code(), error_line(&refused)), (Some(1), said));
}

#[test]
fn a_database_that_cannot_be_reached_is_one_line_without_its_password() {
    let elsewhere = tempfile::tempdir().unwrap();
    for (args, code) in [(&["verify"][..], 2), (&["replay", "task_1"], 2), (&["keys", "list"], 1), (&["import"], 1)] {
        std::fs::create_dir_all(elsewhere.path().join("headwater-data")).unwrap();
        let url = "postgres://ann:topsecret@127.0.0.1:1/agents";
        let output = headwater_command(elsewhere.path()).args(args).args(["--database-url", url]).output().unwrap();
        let said = error_line(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(!stderr(&output).contains("topsecret"), "{args:?}: {said}");
        if args != ["import"] {
            assert!(said.starts_with("headwater: cannot connect to the database at 127.0.0.1:1/agents"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_replay_from_the_database_equals_the_stream_while_the_server_runs() {
    let database = TestDatabase::create();
    let hw = Server::node(&database.url(), "");
    let task = hw.start_run("image").await;
    let id = text(&task, "task_id");
    hw.wait_ended(id).await;
    let replay = |protocol: &str| hw.run_cli_with_env(&["replay", id, "--as", protocol, "--fast"]);
    let is_frame = |piece: &&str| piece.lines().any(|line| line.starts_with("data: "));
    let bare = |stream: &str| -> String { stream.split_inclusive("\n\n").filter(is_frame).collect() };
    for (protocol, path) in [
        ("task", format!("/v1/tasks/{id}/events")),
        ("run-items", format!("/v1/tasks/{id}/events?format=run-items")),
        ("responses", format!("/v1/responses/resp_{}?stream=true", id.trim_start_matches("task_"))),
    ] {
        let output = replay(protocol);
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), "headwater: config: headwater.toml\n"));
        assert_eq!(stdout(&output), bare(&hw.get(&path).await.text), "{protocol}");
    }
    let waiting = hw.start_run("trade").await;
    let unended = hw.run_cli_with_env(&["replay", text(&waiting, "task_id"), "--fast"]);
    assert_eq!(unended.status.code(), Some(1), "{unended:?}");
    assert!(error_line(&unended).ends_with("has not ended: this is the output so far"), "{unended:?}");
    let unknown = hw.run_cli_with_env(&["replay", "task_00000000000000000000000000000000"]);
    let said =
        format!("headwater: no run task_00000000000000000000000000000000 in the database at {}", place(&database));
    assert_eq!((unknown.status.code(), error_line(&unknown)), (Some(2), said));
}

#[tokio::test]
async fn verify_checks_a_database_and_its_files_while_the_server_runs() {
    let database = TestDatabase::create();
    let hw = Server::node(&database.url(), "");
    let task = hw.start_run("image").await;
    hw.wait_ended(text(&task, "task_id")).await;
    let uploaded = upload_file(&hw, "", b"words").await;
    let running = hw.start_run("story 300").await;
    let clean = hw.run_cli_with_env(&["verify"]);
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    let count: usize = stdout(&clean).split(' ').next().unwrap().parse().unwrap();
    assert!(count > 1, "{clean:?}");
    assert!(
        stdout(&clean).ends_with("no damage found\n") && stdout(&clean).contains("\n2 threads, 2 runs, "),
        "{clean:?}"
    );
    hw.wait_ended(text(&running, "task_id")).await;

    let file = hw.data_dir().join("files").join(text(&uploaded, "path"));
    std::fs::remove_file(&file).unwrap();
    database.execute("UPDATE headwater.threads SET log_bytes = log_bytes + 1 WHERE num = 1");
    database.execute("DELETE FROM headwater.records WHERE seq = 3 AND thread = 2");
    let damaged = hw.run_cli_with_env(&["verify", "--json"]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    let report: Value = serde_json::from_str(&stdout(&damaged)).unwrap();
    let problems: Vec<&str> =
        report["problems"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!((problems.len(), &report["clean"], &report["files"]), (3, &json!(false), &json!(count)), "{report}");
    assert!(problems[0].contains("its row says that its records have "), "{report}");
    assert!(problems[1].contains("is damaged at record 3"), "{report}");
    assert_eq!(problems[2], format!("the file {} is missing", text(&uploaded, "path")));

    let elsewhere = run_with_url(&database, &["verify"]);
    assert_eq!(elsewhere.status.code(), Some(1), "{elsewhere:?}");
    assert!(stdout(&elsewhere).starts_with("files were not checked: the folder "), "{elsewhere:?}");
}

/// Uploads and deletions go on while files are compared with rows.
#[tokio::test(flavor = "multi_thread")]
async fn verify_raises_no_false_alarm_beside_uploads_and_deletions() {
    let database = TestDatabase::create();
    let hw = Server::node(&database.url(), "");
    let is_checked = std::sync::atomic::AtomicBool::new(false);
    let working = async {
        let mut rounds = 0;
        while !is_checked.load(std::sync::atomic::Ordering::Relaxed) {
            let task = hw.start_run("image").await;
            hw.wait_ended(text(&task, "task_id")).await;
            upload_file(&hw, "", b"words").await;
            let path = format!("/v1/threads/{}", text(&task, "thread_id"));
            let deleted = hw.request(reqwest::Method::DELETE, &path, &[], None).await;
            assert_eq!(deleted.status, 204, "{}", deleted.text);
            rounds += 1;
        }
        rounds
    };
    let checking = async {
        for check in 0..12 {
            let output = tokio::task::block_in_place(|| hw.run_cli_with_env(&["verify"]));
            assert_eq!(output.status.code(), Some(0), "check {check}: {output:?}");
        }
        is_checked.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (rounds, ()) = tokio::join!(working, checking);
    assert!(rounds > 0 && !stored_files(&hw).is_empty());
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_folder(&source, &target),
            kind if kind.is_file() => _ = std::fs::copy(&source, &target).unwrap(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_imported_folder_is_served_with_its_cursors_keys_files_and_signed_urls() {
    let mut hw = Server::demo();
    let task = hw.start_run("image").await;
    let id = text(&task, "task_id").to_owned();
    hw.wait_ended(&id).await;
    let events = format!("/v1/tasks/{id}/events");
    let frames = hw.frames(&events, None).await;
    let uploaded = upload_file(&hw, "", b"words").await;
    let signed = hw.get(&format!("/v1/tasks/{id}?blobs=signed")).await.text;
    let start = signed.find("/v1/blobs/").unwrap();
    let signed = signed[start..].split('"').next().unwrap().to_owned();
    let waiting = hw.start_run("trade").await;
    let waiting_path = format!("/v1/tasks/{}", text(&waiting, "task_id"));
    hw.wait_until("the run waits", async || hw.get(&waiting_path).await.json()["status"] == "paused").await;

    let database = TestDatabase::create();
    let import = |hw: &Server| hw.run_cli(&["import", "--database-url", &database.url()]);
    let in_use = import(&hw);
    assert_eq!(in_use.status.code(), Some(1));
    assert!(error_line(&in_use).contains("is in use by another process: stop that one"), "{in_use:?}");
    let replays: Vec<String> =
        PROTOCOLS.iter().map(|protocol| stdout(&hw.run_cli(&["replay", &id, "--as", protocol, "--fast"]))).collect();
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    let imported = import(&hw);
    assert_eq!(imported.status.code(), Some(0), "{imported:?}");
    assert!(stdout(&imported).starts_with("imported 2 threads, 2 runs, "), "{imported:?}");
    let note = format!(
        "headwater: {} files stay in {}: copy them to a bucket or a shared folder that all servers reach, and name it in \
         [files] url before you start one",
        stored_files(&hw).len(),
        hw.data_dir().join("files").display()
    );
    assert_eq!(stderr(&imported), format!("headwater: config: headwater.toml\n{note}\n"));
    let again = import(&hw);
    let said = format!("headwater: the database at {} has data already: import needs an empty one", place(&database));
    assert_eq!((again.status.code(), error_line(&again)), (Some(1), said));

    let copy = |dir: &Path| {
        for file in ["headwater.toml", "scenarios.toml"] {
            std::fs::copy(hw.path(file), dir.join(file)).unwrap();
        }
        copy_folder(&hw.data_dir().join("files"), &dir.join("data/files"));
    };
    let node = Server::on_folder_and_database(copy, &database.url());
    assert_eq!(node.frames(&events, None).await, frames);
    for (n, frame) in frames.iter().enumerate().step_by(3) {
        assert_eq!(node.frames(&events, Some(&frame.id)).await, frames[n + 1..], "an old cursor is valid");
    }
    for (protocol, replay) in PROTOCOLS.iter().zip(&replays) {
        assert_eq!(stdout(&node.run_cli_with_env(&["replay", &id, "--as", protocol, "--fast"])), *replay, "{protocol}");
    }
    let image = node.client.get(node.url(&signed)).send().await.unwrap();
    assert_eq!(image.status(), 200, "{signed}");
    assert!(node.data_dir().join("files").join(text(&uploaded, "path")).exists());
    let key = node.get(&waiting_path).await.json()["pending"][0]["key"].as_str().unwrap().to_owned();
    let approved = node.post(&format!("{waiting_path}/approvals/{key}"), json!({"decision": "approve"})).await;
    assert!(matches!(approved.status, 200 | 202), "{}", approved.text);
    assert_eq!(node.wait_ended(text(&waiting, "task_id")).await["status"], "completed");
    let verified = node.run_cli_with_env(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
}

#[test]
fn import_says_what_is_missing() {
    let (database, dir) = (TestDatabase::create(), tempfile::tempdir().unwrap());
    let import = |args: &[&str]| headwater_command(dir.path()).arg("import").args(args).output().unwrap();
    let refused = import(&["--data-dir", "data"]);
    let said =
        "headwater: no database to import into: name it with --database-url, or in [database] of the config file";
    assert_eq!((refused.status.code(), &*error_line(&refused)), (Some(1), said));
    let refused = import(&["--data-dir", "data", "--database-url", &database.url()]);
    assert_eq!(error_line(&refused), "headwater: the data folder data does not exist");
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let refused = import(&["--data-dir", "data", "--database-url", &database.url()]);
    assert!(error_line(&refused).contains("is not a database of Headwater"), "{refused:?}");
}
