//! Several nodes on one database: any node does anything, and another one takes over.

use crate::harness::{Server, TEST_TIMEOUT};
use crate::viewers::{fetch_log, frame_id, is_terminal_frame, take_frames};
use postgres_testing::{PostgresServer, TestDatabase};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Nodes, their database and the folder of their files.
struct Cluster {
    nodes: Vec<Server>,
    database: TestDatabase,
    _files: tempfile::TempDir,
}

impl Cluster {
    fn start(nodes: usize, more: &str) -> Self {
        let (database, files) = (TestDatabase::create(), tempfile::tempdir().unwrap());
        let config = format!("[files]\nurl = \"{}\"\n{more}\n", files.path().display());
        let nodes = (0..nodes).map(|_| Server::node(&database.url(), &config)).collect();
        Self { nodes, database, _files: files }
    }

    /// Waits until every node knows of the others, so that signals are sent.
    async fn wait_until_joined(&self) {
        let count = self.nodes.len();
        // A node learns of the others when it renews its lease of 10 s.
        let sql = "SELECT count(*) FROM headwater.nodes
                   WHERE lease_until - interval '10 s' >= (SELECT max(started_at) FROM headwater.nodes)";
        self.nodes[0]
            .wait_until("all nodes are there", async || self.database.execute(sql).trim() == count.to_string())
            .await;
    }
}

fn task_id(task: &Value) -> &str {
    task["task_id"].as_str().expect("a task")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_follows_and_reads_what_another_executes() {
    let cluster = Cluster::start(2, "");
    let [a, b] = &cluster.nodes[..] else { unreachable!() };
    let task = a.start_run("story 40").await;
    let path = format!("/v1/tasks/{}/events", task_id(&task));
    // Live, from the first record on, while the other node executes it.
    let seen = b.frames(&path, None).await;
    let log = a.frames(&path, None).await;
    assert_eq!(seen, log);
    assert_eq!(log.last().unwrap().event, "task.completed");
    // Every cursor of one node is good on the other.
    for frame in log.iter().step_by(7) {
        let rest = b.frames(&path, Some(&frame.id)).await;
        assert_eq!(
            rest.first().map(|frame| &frame.id),
            log.iter().skip_while(|known| known.id != frame.id).nth(1).map(|frame| &frame.id)
        );
    }
    let object = async |server: &Server| server.get(&format!("/v1/tasks/{}", task_id(&task))).await.json();
    assert_eq!(object(a).await, object(b).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_answers_cancels_and_continues() {
    let cluster = Cluster::start(2, "");
    let [a, b] = &cluster.nodes[..] else { unreachable!() };
    // An approval that one node asks for is answered on the other, once.
    let task = a.start_run("trade").await;
    let path = format!("/v1/tasks/{}", task_id(&task));
    b.wait_until("the run waits", async || b.get(&path).await.json()["status"] == "paused").await;
    let key = b.get(&path).await.json()["pending"][0]["key"].as_str().unwrap().to_owned();
    let decision = json!({"decision": "approve"});
    let first = b.post(&format!("{path}/approvals/{key}"), decision.clone()).await;
    assert!((200..300).contains(&first.status), "{}", first.text);
    let other = a.post(&format!("{path}/approvals/{key}"), json!({"decision": "reject"})).await;
    assert_eq!(other.status, 409, "{}", other.text);
    assert_eq!(a.wait_ended(task_id(&task)).await["status"], "completed");
    // A cancel reaches the node that executes the run.
    let task = a.start_run("slow 60").await;
    let path = format!("/v1/tasks/{}", task_id(&task));
    a.wait_until("the run has begun", async || b.get(&path).await.json()["status"] == "running").await;
    let asked = Instant::now();
    let cancelled = b.post(&format!("{path}/cancel"), json!({})).await;
    assert!((200..300).contains(&cancelled.status), "{}", cancelled.text);
    assert_eq!(b.wait_ended(task_id(&task)).await["status"], "cancelled");
    // The promise is 1 s; a test fails on time only at five times the promise.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    // The thread goes on with either node.
    for (n, node) in [a, b, a, b].into_iter().enumerate() {
        let next = node
            .create_task(json!({"model": "demo", "input": format!("hello {n}"), "thread_id": task["thread_id"]}))
            .await;
        assert_eq!(node.wait_ended(task_id(&next)).await["status"], "completed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_shares_tickets_and_files_of_one_node_are_good_on_another() {
    let cluster = Cluster::start(2, "[auth]\nmode = \"keys\"");
    let made = cluster.nodes[0].run_keys(&["create", "--user", "ann"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(key.starts_with("hw_"), "{}", String::from_utf8_lossy(&made.stderr));
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let [a, b] = &cluster.nodes[..] else { unreachable!() };
    let post = async |node: &Server, path: &str, body: Value| {
        let reply = node.request(Method::POST, path, &headers, Some(body.to_string().into_bytes())).await;
        assert!((200..300).contains(&reply.status), "{path}: {} {}", reply.status, reply.text);
        reply.json()
    };
    // At once: the key was never used before.
    let task = post(b, "/v1/tasks", json!({"model": "demo", "input": "hello"})).await;
    let share =
        post(a, &format!("/v1/threads/{}/shares", task["thread_id"].as_str().unwrap()), json!({"mode": "live"})).await;
    let viewer = format!("Bearer {}", share["token"].as_str().unwrap());
    let events = format!("/v1/tasks/{}/events", task_id(&task));
    let seen = b.request(Method::GET, &events, &[("authorization", &viewer)], None).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    // So is a share that is forked.
    let share =
        post(a, &format!("/v1/threads/{}/shares", task["thread_id"].as_str().unwrap()), json!({"mode": "live"})).await;
    post(b, "/v1/tasks", json!({"model": "demo", "input": "go on", "share": share["token"]})).await;
    // A ticket is good once, on any node.
    let ticket = post(a, "/v1/tickets", json!({})).await["ticket"].as_str().unwrap().to_owned();
    let with_ticket = format!("{events}?ticket={ticket}");
    assert_eq!(b.request(Method::GET, &with_ticket, &[], None).await.status, 200);
    assert_eq!(a.request(Method::GET, &with_ticket, &[], None).await.status, 401);
    // A revoked key is refused by every node soon.
    let id = post_list_key_id(a);
    assert!(a.run_keys(&["revoke", &id]).status.success());
    for node in [a, b] {
        let refused = async || node.request(Method::GET, "/v1/tasks", &headers, None).await.status == 401;
        node.wait_until("the key is refused", refused).await;
    }
}

fn post_list_key_id(node: &Server) -> String {
    let listed = node.run_keys(&["list", "--json"]);
    let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
    keys[0]["id"].as_str().unwrap().to_owned()
}

/// Follows a task on one node to its end. Returns its frames and the longest silence between two of them.
async fn follow(url: String, task: String) -> (Vec<String>, Duration) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut answer = client.get(format!("{url}/v1/tasks/{task}/events")).send().await.unwrap();
    let (mut frames, mut rest, mut silence, mut last) = (Vec::new(), String::new(), Duration::ZERO, Instant::now());
    while let Ok(Some(chunk)) = answer.chunk().await {
        rest.push_str(std::str::from_utf8(&chunk).unwrap());
        let known = frames.len();
        take_frames(&mut rest, &mut frames);
        if frames.len() > known {
            silence = silence.max(last.elapsed());
            last = Instant::now();
        }
    }
    (frames, silence)
}

fn check_log(frames: &[String]) {
    let seqs: Vec<u64> = frames.iter().filter_map(|frame| frame_id(frame).split_once('-')?.1.parse().ok()).collect();
    assert_eq!(seqs, (1..=frames.len() as u64).collect::<Vec<_>>());
    assert_eq!(frames.iter().filter(|frame| is_terminal_frame(frame)).count(), 1);
    assert!(is_terminal_frame(frames.last().unwrap()), "{:?}", frames.last());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_is_replaced() {
    let mut cluster = Cluster::start(2, "");
    cluster.wait_until_joined().await;
    let task = task_id(&cluster.nodes[0].start_run("story 100").await).to_owned();
    let following = tokio::spawn(follow(cluster.nodes[1].url(""), task.clone()));
    let path = format!("/v1/tasks/{task}");
    let b = &cluster.nodes[1];
    b.wait_until("the run is in progress", async || b.get(&path).await.json()["seq"].as_u64() > Some(20)).await;
    cluster.nodes[0].kill9();
    let (frames, silence) = tokio::time::timeout(TEST_TIMEOUT * 5, following).await.unwrap().unwrap();
    check_log(&frames);
    assert!(frames.iter().any(|frame| frame.contains("\nevent: task.recovered\n")), "it was in progress");
    assert_eq!(fetch_log(&cluster.nodes[1].url(""), &task).await, frames);
    eprintln!("replaced after {silence:?}");
    // The promise is 15 s; a test fails on time only at five times the promise.
    assert!(silence < Duration::from_secs(75), "{silence:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_is_replaced_and_writes_nothing_afterwards() {
    let cluster = Cluster::start(2, "");
    cluster.wait_until_joined().await;
    let task = task_id(&cluster.nodes[0].start_run("story 100").await).to_owned();
    let following = tokio::spawn(follow(cluster.nodes[1].url(""), task.clone()));
    let (path, b) = (format!("/v1/tasks/{task}"), &cluster.nodes[1]);
    b.wait_until("the run is in progress", async || b.get(&path).await.json()["seq"].as_u64() > Some(20)).await;
    cluster.nodes[0].signal("-STOP");
    let (frames, silence) = tokio::time::timeout(TEST_TIMEOUT * 5, following).await.unwrap().unwrap();
    cluster.nodes[0].signal("-CONT");
    check_log(&frames);
    eprintln!("replaced after {silence:?}");
    // The zombie is awake again, serves what the other one wrote, and has added nothing.
    assert_eq!(fetch_log(&cluster.nodes[0].url(""), &task).await, frames);
    let epochs = cluster.database.execute(
        "SELECT count(*) FROM headwater.records r JOIN headwater.records s
        ON s.thread = r.thread AND s.seq > r.seq AND s.epoch < r.epoch",
    );
    assert_eq!(epochs.trim(), "0", "a record of an older epoch after a newer one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_restarted_one_after_the_other_without_a_failed_run() {
    let mut cluster = Cluster::start(3, "");
    cluster.wait_until_joined().await;
    let mut tasks = Vec::new();
    for n in 0..9 {
        tasks.push(task_id(&cluster.nodes[n % 3].start_run("story 60").await).to_owned());
    }
    for n in 0..3 {
        let asked = Instant::now();
        cluster.nodes[n].signal("-TERM");
        assert!(cluster.nodes[n].wait_exit().success(), "{}", cluster.nodes[n].log());
        eprintln!("stopped after {:?}", asked.elapsed());
        // The promise is 10 s; a test fails on time only at five times the promise.
        assert!(asked.elapsed() < Duration::from_secs(50));
        cluster.nodes[n].restart();
        tasks.push(task_id(&cluster.nodes[(n + 1) % 3].start_run("story 30").await).to_owned());
    }
    for (n, task) in tasks.iter().enumerate() {
        let node = &cluster.nodes[n % 3];
        assert_eq!(node.wait_ended(task).await["status"], "completed", "{task}");
        check_log(&fetch_log(&node.url(""), task).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_files_of_its_own_refuses_uploads_and_says_why() {
    let database = TestDatabase::create();
    let (a, b) = (Server::node(&database.url(), ""), Server::node(&database.url(), ""));
    assert!(a.log().contains("before you start another one, set [files] url"), "{}", a.log());
    assert!(b.log().contains("this node does not store files"), "{}", b.log());
    let body = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nhello\r\n--x--\r\n";
    let upload = async |node: &Server| {
        let headers = [("content-type", "multipart/form-data; boundary=x")];
        node.request(Method::POST, "/api/v1/agent/attachments", &headers, Some(body.into())).await
    };
    assert!((200..300).contains(&upload(&a).await.status));
    let refused = upload(&b).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.text.contains("[files] url"), "{}", refused.text);
}

/// The nodes of a cluster with keys, and the headers of a user.
async fn start_with_user(more: &str) -> (Cluster, String) {
    let cluster = Cluster::start(2, &format!("{more}\n[auth]\nmode = \"keys\""));
    cluster.wait_until_joined().await;
    let made = cluster.nodes[0].run_keys(&["create", "--user", "ann"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    (cluster, format!("Bearer {key}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_live_runs_is_that_of_all_nodes() {
    let (cluster, bearer) = start_with_user("[limits]\nruns_per_user_max = 2").await;
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let start = async |node: &Server| {
        let body = json!({"model": "demo", "input": "slow 60"}).to_string();
        node.request(Method::POST, "/v1/tasks", &headers, Some(body.into_bytes())).await
    };
    let [a, b] = &cluster.nodes[..] else { unreachable!() };
    let runs = [start(a).await, start(b).await];
    assert!(runs.iter().all(|run| (200..300).contains(&run.status)), "{:?}", runs.map(|run| run.text));
    // Each node executes one of them by now, and a third is refused by both.
    let held = "SELECT count(DISTINCT node) FROM headwater.threads WHERE node IS NOT NULL";
    a.wait_until("both are executed", async || cluster.database.execute(held).trim() == "2").await;
    for node in [a, b] {
        let refused = start(node).await;
        assert_eq!(refused.status, 429, "{}", refused.text);
        assert!(refused.text.contains("2 of your runs are live"), "{}", refused.text);
    }
    // One that ends elsewhere makes room here.
    let id = runs[0].json()["task_id"].as_str().unwrap().to_owned();
    let cancelled = a.request(Method::POST, &format!("/v1/tasks/{id}/cancel"), &headers, Some("{}".into())).await;
    assert!((200..300).contains(&cancelled.status), "{}", cancelled.text);
    a.wait_until("there is room", async || start(b).await.status != 429).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_requests_is_that_of_all_nodes() {
    // A node takes one request at a time out of the smaller allowance, and ten out of the larger one.
    for (allowance, sent) in [(30, 60), (600, 700)] {
        let limit = format!("[limits]\nrequests_per_user_minute_max = {allowance}");
        let (cluster, bearer) = start_with_user(&limit).await;
        let headers = [("authorization", bearer.as_str())];
        let begun = Instant::now();
        let mut admitted = 0;
        for n in 0..sent {
            let reply = cluster.nodes[n % 2].request(Method::GET, "/v1/tasks", &headers, None).await;
            assert!(matches!(reply.status, 200 | 429), "{}", reply.text);
            admitted += u64::from(reply.status == 200);
        }
        // What comes back in the time of the test is admitted too.
        let regained = (begun.elapsed().as_secs() + 1) * allowance / 60 + 1;
        let most = allowance + regained;
        assert!((allowance..=most).contains(&admitted), "{admitted} of {allowance}, and {regained} that came back");
    }
}

/// Nodes crash one after the other over one thread: the next one knows how often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_crashed_other_nodes_fails_and_a_thread_that_crashed_more_is_parked() {
    let mut cluster = Cluster::start(2, "");
    cluster.wait_until_joined().await;
    let slow = json!({"model": "demo", "input": "slow 300"});
    let poison = cluster.nodes[0].create_task(slow.clone()).await;
    let parked = cluster.nodes[0].create_task(slow).await;
    let thread = |task: &Value| task["thread_id"].as_str().unwrap().to_owned();
    let running = "SELECT count(*) FROM headwater.threads WHERE node IS NOT NULL AND head > 0";
    let database = &cluster.database;
    let [a, b] = &mut cluster.nodes[..] else { unreachable!() };
    b.wait_until("both run", async || database.execute(running).trim() == "2").await;
    a.kill9();
    for (task, resumes) in [(&poison, 2), (&parked, 3)] {
        database.execute(&format!(
            "INSERT INTO headwater.recovery_attempts SELECT num, node, {resumes} FROM headwater.threads WHERE id = '{}'",
            thread(task)
        ));
    }
    let ended = b.wait_ended(task_id(&poison)).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("recovery_failed")), "{ended}");
    let next = b.create_task(json!({"model": "demo", "input": "hello", "thread_id": thread(&poison)})).await;
    assert_eq!(b.wait_ended(task_id(&next)).await["status"], "completed");
    let left = "SELECT count(*) FROM headwater.recovery_attempts";
    b.wait_until("one is on the list", async || database.execute(left).trim() == "1").await;
    // The parked one waits, on this node and on one that comes later, and can be deleted.
    a.restart();
    for node in [&*b, &*a] {
        let refused = async || {
            let path = format!("/v1/tasks/{}/cancel", task_id(&parked));
            node.post(&path, json!({})).await.json()["code"] == "thread_parked"
        };
        node.wait_until("the thread is parked", refused).await;
        let object = node.get(&format!("/v1/tasks/{}", task_id(&parked))).await;
        assert_eq!(object.json()["status"], "running");
    }
    let deleted = a.request(Method::DELETE, &format!("/v1/threads/{}", thread(&parked)), &[], None).await;
    assert!((200..300).contains(&deleted.status), "{}", deleted.text);
    assert_eq!(database.execute(left).trim(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_other_agents_than_the_others_says_so() {
    let database = TestDatabase::create();
    let files = tempfile::tempdir().unwrap();
    let config = |agent: &str| {
        format!("[files]\nurl = \"{}\"\n[agents.{agent}]\nmodel = \"scripted/demo\"\n", files.path().display())
    };
    let line = "another node on this database has other agents";
    let a = Server::node(&database.url(), &config("support"));
    let b = Server::node(&database.url(), &config("support"));
    let c = Server::node(&database.url(), &config("research"));
    assert!(!a.log().contains(line) && !b.log().contains(line), "{}\n{}", a.log(), b.log());
    let log = c.log();
    assert_eq!(log.matches(line).count(), 1, "{log}");
    assert!(log.contains("support") && log.contains("research"), "{log}");
}

/// Reads a stream to its end, however it ends.
async fn read_to_end(url: String) -> usize {
    let mut response = reqwest::get(url).await.unwrap();
    let mut bytes = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes += chunk.len();
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_another_node_deletes_ends_its_streams_everywhere() {
    let cluster = Cluster::start(2, "");
    cluster.wait_until_joined().await;
    let [a, b] = &cluster.nodes[..] else { unreachable!() };
    for input in ["story 500", "slow 300"] {
        let task = a.start_run(input).await;
        let path = format!("/v1/tasks/{}", task_id(&task));
        a.wait_until("the run is in progress", async || b.get(&path).await.json()["seq"].as_u64() > Some(3)).await;
        let viewers = [a, b].map(|node| tokio::spawn(read_to_end(node.url(&format!("{path}/events")))));
        let thread = format!("/v1/threads/{}", task["thread_id"].as_str().unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let deleted = b.request(Method::DELETE, &thread, &[], None).await;
        assert_eq!(deleted.status, 204, "{}", deleted.text);
        for viewer in viewers {
            let read = tokio::time::timeout(TEST_TIMEOUT, viewer).await.expect("its stream ends").unwrap();
            assert!(read > 0, "{input}");
        }
        assert_eq!(a.get(&path).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_may_say_that_the_files_were_moved() {
    let (database, files) = (TestDatabase::create(), tempfile::tempdir().unwrap());
    let mut first = Server::node(&database.url(), "");
    first.signal("-TERM");
    assert!(first.wait_exit().success());
    let config = format!("[files]\nurl = \"{}\"\n", files.path().display());
    let nodes = [(); 2].map(|()| Server::node(&database.url(), &config));
    assert!(nodes[0].log().contains("files are stored in another place than before"), "{}", nodes[0].log());
    for node in &nodes {
        assert!(!node.log().contains("this node does not store files"), "{}", node.log());
        let body = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nhello\r\n--x--\r\n";
        let headers = [("content-type", "multipart/form-data; boundary=x")];
        let stored = node.request(Method::POST, "/api/v1/agent/attachments", &headers, Some(body.into())).await;
        assert!((200..300).contains(&stored.status), "{}", stored.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_database_is_not_ready_and_comes_back() {
    let mut database = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap();
    let node = Server::node(&database.url("postgres"), "");
    let is_ready = async |status: u16| node.get("/readyz").await.status == status;
    assert!(is_ready(200).await);
    tokio::task::block_in_place(|| database.stop_fast());
    node.wait_until("the node is not ready", async || is_ready(503).await).await;
    assert!(node.get("/readyz").await.text.contains("the database"), "{}", node.get("/readyz").await.text);
    tokio::task::block_in_place(|| database.start_again());
    node.wait_until("the node is ready again", async || is_ready(200).await).await;
    let log = node.log();
    assert_eq!(log.matches("the database cannot be used").count(), 1, "{log}");
    assert!(log.contains("the database is back") && !log.contains("deadpool"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_read_only_is_written_again() {
    let database = TestDatabase::create();
    let node = Server::node(&database.url(), "");
    let start = async || {
        let body = json!({"model": "demo", "input": "hello"}).to_string();
        node.request(Method::POST, "/v1/tasks", &[("content-type", "application/json")], Some(body.into())).await
    };
    let known = start().await.json();
    node.wait_ended(task_id(&known)).await;
    let set = |value: &str| {
        let name = database.name();
        // In another database: in this one nothing can be changed afterwards.
        postgres_testing::shared().execute(
            "postgres",
            &format!(
                "ALTER DATABASE {name} SET default_transaction_read_only = {value};
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND '{value}' = 'on'"
            ),
        )
    };
    set("on");
    node.wait_until("writes are refused", async || start().await.status == 503).await;
    // Several connections are open by now, all of them read-only.
    for _ in 0..4 {
        let reads = std::array::from_fn::<_, 8, _>(|_| node.get("/v1/tasks"));
        for read in futures_util::future::join_all(reads).await {
            assert_eq!(read.status, 200, "reads go on: {}", read.text);
        }
    }
    set("off");
    node.wait_until("writes are accepted", async || start().await.status != 503).await;
    for _ in 0..8 {
        let started = start().await;
        assert!((200..300).contains(&started.status), "{}", started.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_answers_until_its_runs_have_ended() {
    let mut node = Server::node(&TestDatabase::create().url(), "");
    node.start_run("slow 300").await;
    node.signal("-TERM");
    node.wait_until("the node says that it stops", async || node.get("/readyz").await.status == 503).await;
    let body = json!({"model": "demo", "input": "hello"}).to_string();
    let refused =
        node.request(Method::POST, "/v1/tasks", &[("content-type", "application/json")], Some(body.into())).await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("stopping")), "{}", refused.text);
    assert!(node.wait_exit().success());
}
