//! Shares: what a viewer sees, that it is limited to that thread, and when it ends.

mod long_threads;

use crate::auth::create_key;
use crate::blocks::socket::{Received, Socket};
use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, stream_head};
use crate::harness::{OpenStream, Reply, Server, concat_raw_frames, parse_frames};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEYS: &str = "[auth]\nmode = \"keys\"";
/// The longest time after which streams end with their share.
const CUT_WITHIN: Duration = Duration::from_secs(5);

/// A client of a server.
struct ShareUser<'a> {
    hw: &'a Server,
    bearer: String,
}

impl<'a> ShareUser<'a> {
    fn new(hw: &'a Server, token: &str) -> Self {
        Self { hw, bearer: format!("Bearer {token}") }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        let headers = [("authorization", &*self.bearer), ("content-type", "application/json")];
        self.hw.request(method, path, &headers, body.map(|body| body.to_string().into_bytes())).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Starts a run in a new or an existing thread: its id and its thread's.
    async fn start_run(&self, input: &str, thread: Option<&str>) -> (String, String) {
        let reply = self.post("/v1/tasks", json!({"model": "demo", "input": input, "thread_id": thread})).await;
        assert_eq!(reply.status, 202, "{}", reply.text);
        let task = reply.json();
        (task["task_id"].as_str().unwrap().to_owned(), task["thread_id"].as_str().unwrap().to_owned())
    }

    /// The same, and waits for its end.
    async fn run(&self, input: &str, thread: Option<&str>) -> (String, String) {
        let begun = self.start_run(input, thread).await;
        self.get(&format!("/v1/tasks/{}/events", begun.0)).await;
        begun
    }

    async fn share(&self, thread: &str, body: Value) -> Value {
        let reply = self.post(&format!("/v1/threads/{thread}/shares"), body).await;
        assert_eq!((reply.status, reply.header("cache-control")), (201, "no-store"), "{}", reply.text);
        reply.json()
    }

    async fn open_stream(&self, path: &str) -> OpenStream {
        let ticket = self.post("/v1/tickets", json!({})).await.json();
        self.hw.open_stream(&format!("{path}?ticket={}", ticket["ticket"].as_str().unwrap())).await
    }

    async fn socket(&self) -> Socket {
        let header = format!("Authorization: {}\r\n", self.bearer);
        Socket::connect_with_headers(self.hw, &header).await.unwrap_or_else(|head| panic!("{head}"))
    }
}

fn token(share: &Value) -> &str {
    share["token"].as_str().unwrap()
}

/// The data of a stream, without what belongs to its connection.
fn data(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("data:") || line.starts_with("id:")).collect()
}

#[tokio::test]
async fn a_share_shows_the_owners_view_of_the_thread_in_every_protocol() {
    let hw = Server::demo_with(KEYS);
    let ann = ShareUser::new(&hw, &create_key(&hw, "ann"));
    let (task, thread) = ann.run("weather", None).await;
    let (other_task, other) = ann.run("story 3 fast", None).await;
    let share = ann.share(&thread, json!({"mode": "live"})).await;
    assert_eq!((&share["mode"], &share["until"], &share["thread_id"]), (&json!("live"), &json!(null), &json!(thread)));
    let viewer = ShareUser::new(&hw, token(&share));
    let of = |task: &str, thread: &str| {
        let response = task.replace("task_", "resp_");
        [
            format!("/v1/threads/{thread}"),
            format!("/v1/tasks/{task}"),
            format!("/v1/tasks/{task}/events"),
            format!("/v1/tasks/{task}/events?after=3"),
            format!("/v1/tasks/{task}/events?format=run-items"),
            format!("/v1/responses/{response}"),
            format!("/v1/responses/{response}?stream=true"),
            format!("/v1/responses/{response}/input_items"),
            format!("/api/v1/agent/history?threadId={thread}"),
        ]
    };
    for path in of(&task, &thread) {
        let (mine, theirs) = (ann.get(&path).await, viewer.get(&path).await);
        assert_eq!((mine.status, theirs.status), (200, 200), "{path}: {}", theirs.text);
        match mine.text.contains("data:") {
            true => assert_eq!(data(&mine.text), data(&theirs.text), "{path}"),
            false => assert_eq!(mine.text, theirs.text, "{path}"),
        }
    }
    for path in of(&other_task, &other) {
        assert_eq!(viewer.get(&path).await.status, 404, "{path}");
    }
    // Listings are limited to that thread, whatever the query.
    let listed = ann.get(&format!("/v1/tasks?thread_id={thread}")).await.text;
    assert_eq!(viewer.get("/v1/tasks").await.text, listed);
    assert_eq!(viewer.get(&format!("/v1/tasks?thread_id={other}")).await.json()["data"], json!([]));
    let history = ann.get(&format!("/api/v1/agent/history?threadId={thread}")).await.json();
    assert_eq!(
        viewer.get("/api/v1/agent/history").await.json()["snapshot"]["messages"],
        history["snapshot"]["messages"]
    );

    // Live events are visible on every stream and on the socket.
    let mut streams = [
        viewer.open_stream(&format!("/v1/threads/{thread}/events")).await,
        viewer.open_stream(&format!("/api/v1/agent/runs/{thread}/events")).await,
    ];
    let mut socket = viewer.socket().await;
    socket.send_json(&json!({"type": "resume", "session_id": thread})).await;
    socket.read_until("message_stop").await;
    let (next, _) = ann.run("story 3 fast", Some(&thread)).await;
    for stream in &mut streams {
        stream.read_until(&next).await;
    }
    assert_eq!(socket.read_until("message_stop").await[0]["message_id"], next);
    socket.send_json(&json!({"type": "resume", "session_id": other})).await;
    assert_eq!(socket.next_event().await["code"], "not_found");
}

#[tokio::test]
async fn a_viewer_cannot_act() {
    let hw = Server::demo_with(KEYS);
    let ann = ShareUser::new(&hw, &create_key(&hw, "ann"));
    let (task, thread) = ann.start_run("trade", None).await;
    let mut asked = ann.open_stream(&format!("/v1/tasks/{task}/events")).await;
    asked.read_until("task.paused").await;
    let seq = ann.get(&format!("/v1/threads/{thread}")).await.json()["seq"].clone();
    let approval = ann.get("/v1/approvals").await.json()["data"][0]["key"].as_str().unwrap().to_owned();
    let share = ann.share(&thread, json!({"mode": "live"})).await;
    let viewer = ShareUser::new(&hw, token(&share));
    let own = format!("/v1/threads/{thread}/shares/{}", share["share_id"].as_str().unwrap());
    for (method, path, body) in [
        (Method::POST, format!("/v1/tasks/{task}/approvals/{approval}"), json!({"decision": "approve"})),
        (Method::POST, format!("/v1/tasks/{task}/cancel"), json!({})),
        (Method::POST, format!("/v1/tasks/{task}/input"), json!({"input": "hi"})),
        (Method::POST, "/v1/tasks".to_owned(), json!({"model": "demo", "input": "hi", "thread_id": thread})),
        (Method::POST, "/v1/tasks".to_owned(), json!({"model": "demo", "input": "hi"})),
        (Method::POST, format!("/v1/threads/{thread}/shares"), json!({"mode": "live"})),
        (Method::DELETE, own, json!({})),
        (Method::DELETE, format!("/v1/threads/{thread}"), json!({})),
    ] {
        let reply = viewer.send(method.clone(), &path, Some(body)).await;
        assert_eq!(reply.problem(), (403, "share_read_only".to_owned()), "{method} {path}");
    }
    let mut socket = viewer.socket().await;
    socket.send_json(&json!({"type": "resume", "session_id": thread})).await;
    while !socket.next_event().await.to_string().contains(&approval) {}
    let yes = json!({"type": "approval_response", "approval_key": approval, "decisions": [{"type": "approve"}]});
    for said in [json!({"type": "chat", "content": "hi"}), json!({"type": "stop"}), yes] {
        socket.send_json(&said).await;
        assert_eq!(socket.read_until("error").await.last().unwrap()["code"], "share_read_only", "{said}");
    }
    let after = ann.get(&format!("/v1/threads/{thread}")).await.json();
    assert_eq!(after["seq"], seq, "nothing happened");
    assert_eq!(ann.get(&format!("/v1/tasks/{task}")).await.json()["status"], "paused");
}

#[tokio::test]
async fn a_frozen_share_ends_where_it_was_frozen() {
    let hw = Server::demo_with(KEYS);
    let ann = ShareUser::new(&hw, &create_key(&hw, "ann"));
    let (first, thread) = ann.run("story 3 fast", None).await;
    // Frozen in mid-text: every prefix of a log is a log.
    let (second, _) = ann.start_run("story 100", Some(&thread)).await;
    let mut watcher = ann.open_stream(&format!("/v1/tasks/{second}/events")).await;
    watcher.read_until("task.text.delta").await;
    let share = ann.share(&thread, json!({"mode": "frozen"})).await;
    let until = share["until"].as_u64().unwrap();
    let (whole, third) =
        (watcher.read_to_end().await.unwrap().to_owned(), ann.run("story 3 fast", Some(&thread)).await.0);

    let viewer = ShareUser::new(&hw, token(&share));
    assert_eq!(viewer.get(&format!("/v1/threads/{thread}")).await.json()["seq"], until);
    assert_eq!(viewer.get(&format!("/v1/tasks/{third}")).await.status, 404);
    let tasks = viewer.get("/v1/tasks").await.json();
    let ids: Vec<&str> = tasks["data"].as_array().unwrap().iter().map(|row| row["task_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&second, &first]);
    assert_eq!((&tasks["data"][0]["status"], &tasks["data"][0]["ended_at"]), (&json!("running"), &json!(null)));
    let object = viewer.get(&format!("/v1/tasks/{second}")).await.json();
    assert_eq!((object["status"].as_str(), object["seq"].as_u64()), (Some("running"), Some(until)), "{object}");

    let streamed = viewer.get(&format!("/v1/tasks/{second}/events")).await.text;
    let (shown, all) = (parse_frames(&streamed), parse_frames(&whole));
    assert!(shown.len() < all.len() && !shown.is_empty());
    assert_eq!(concat_raw_frames(&shown), concat_raw_frames(&all[..shown.len()]), "a prefix, byte for byte");
    let last = shown.last().unwrap();
    assert_eq!(last.data["seq"], until);
    // The thread's stream, which otherwise never ends, ends here, and a browser that reconnects is told to stop.
    let of_thread = format!("/v1/threads/{thread}/events");
    let seqs = parse_frames(&viewer.get(&of_thread).await.text);
    assert_eq!(
        seqs.iter().map(|frame| frame.data["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        (1..=until).collect::<Vec<_>>()
    );
    let path = format!("{of_thread}?after={}", last.id);
    assert_eq!(viewer.get(&path).await.status, 204);
    assert_eq!(viewer.get(&format!("{of_thread}?after={}", until + 1)).await.problem().1, "cursor_ahead");

    // Later events hide nothing, and a run is listed in its state at that time.
    let running = viewer.get("/v1/tasks?status=running&limit=1").await.json();
    assert_eq!((&running["data"][0]["task_id"], &running["has_more"]), (&json!(second), &json!(false)), "{running}");
    let ended = viewer.get("/v1/tasks?status=completed").await.json();
    assert_eq!((&ended["data"][0]["task_id"], ended["data"].as_array().unwrap().len()), (&json!(first), 1), "{ended}");
    let history = viewer.get("/api/v1/agent/history").await.text;
    assert!(history.contains("story 100") && !history.contains(&third), "{history}");
    let response = viewer.get(&format!("/v1/responses/{}", second.replace("task_", "resp_"))).await.json();
    assert_eq!(response["status"], "in_progress", "{response}");
    let message = viewer.get(&format!("/api/chat/{thread}/stream")).await;
    assert!(message.status == 200 && message.text.contains("text-delta"), "{}", message.text);
    assert!(!message.text.contains("\"finish\"") && !message.text.contains(&third), "{}", message.text);
    let mut socket = viewer.socket().await;
    socket.send_json(&json!({"type": "resume", "session_id": thread, "after": "0"})).await;
    let turn = socket.read_until("message_stop").await;
    assert_eq!(turn[0]["message_id"], first);
    socket.read_until("content_block_delta").await;
    // Nothing follows, and the socket stays usable.
    socket.send_json(&json!({"type": "ping"})).await;
    let rest = socket.read_until("pong").await;
    assert!(rest.iter().all(|frame| frame["type"] != "message_stop" && frame["type"] != "error"), "{rest:?}");
}

#[tokio::test]
async fn a_pending_approval_stays_pending_in_a_frozen_share() {
    let hw = Server::demo_with(KEYS);
    let ann = ShareUser::new(&hw, &create_key(&hw, "ann"));
    let asked = ann.post("/v1/tasks", json!({"model": "demo", "input": "trade", "wait": true})).await.json();
    let (task, thread) = (asked["task_id"].as_str().unwrap(), asked["thread_id"].as_str().unwrap());
    let listed = async |seat: &ShareUser<'_>, status: &str| {
        let path = format!("/v1/tasks?thread_id={thread}&status={status}");
        let rows = seat.get(&path).await.json()["data"].as_array().unwrap().clone();
        rows.iter().map(|row| row["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let frozen = ann.share(thread, json!({"mode": "frozen"})).await;
    let viewer = ShareUser::new(&hw, token(&frozen));
    for decided in [false, true] {
        if decided {
            let key = asked["pending"][0]["key"].as_str().unwrap();
            let decide = format!("/v1/tasks/{task}/approvals/{key}");
            assert_eq!(ann.post(&decide, json!({"decision": "approve"})).await.status, 200);
            ann.get(&format!("/v1/tasks/{task}/events")).await;
        }
        assert_eq!(listed(&viewer, "paused").await, ["paused"], "decided: {decided}");
        assert!(listed(&viewer, "running").await.is_empty() && listed(&viewer, "completed").await.is_empty());
        assert_eq!(viewer.get(&format!("/v1/tasks/{task}")).await.json()["status"], "paused");
    }
}

#[tokio::test]
async fn an_expired_share_is_refused_and_its_streams_end() {
    let hw = Server::demo_with(KEYS);
    let ann = ShareUser::new(&hw, &create_key(&hw, "ann"));
    let (_, thread) = ann.run("story 3 fast", None).await;
    let short = ann.share(&thread, json!({"mode": "live", "expires_in_seconds": 2})).await;
    let long = ann.share(&thread, json!({"mode": "live"})).await;
    let stays = ann.share(&thread, json!({"mode": "live"})).await;
    let followed = ShareUser::new(&hw, token(&stays));
    let mut open = followed.open_stream(&format!("/v1/threads/{thread}/events")).await;
    open.read_until("task.completed").await;
    for (share, revoked) in [(short, false), (long, true)] {
        let viewer = ShareUser::new(&hw, token(&share));
        let unused = viewer.post("/v1/tickets", json!({})).await.json()["ticket"].as_str().unwrap().to_owned();
        let mut stream = viewer.open_stream(&format!("/v1/threads/{thread}/events")).await;
        stream.read_until("task.completed").await;
        let mut socket = viewer.socket().await;
        socket.send_json(&json!({"type": "resume", "session_id": thread})).await;
        socket.read_until("message_stop").await;
        if revoked {
            let path = format!("/v1/threads/{thread}/shares/{}", share["share_id"].as_str().unwrap());
            assert_eq!(ann.send(Method::DELETE, &path, None).await.status, 204);
            assert_eq!(ann.send(Method::DELETE, &path, None).await.status, 204, "again");
        }
        let from = Instant::now();
        assert!(stream.read_to_end().await.is_err(), "it must not look like the end");
        assert_eq!(socket.read_close().await, Received::Closed(4401));
        let most = if revoked { CUT_WITHIN } else { CUT_WITHIN + Duration::from_secs(2) };
        assert!(from.elapsed() < most, "{:?}", from.elapsed());
        assert_eq!(viewer.get(&format!("/v1/threads/{thread}")).await.problem(), (401, "unauthorized".to_owned()));
        let late = hw.get(&format!("/v1/threads/{thread}/events?ticket={unused}")).await;
        assert_eq!(late.status, 401, "nor does a ticket that it got");
    }
    // The other shares stay open.
    let (next, _) = ann.run("story 3 fast", Some(&thread)).await;
    open.read_until(&next).await;
    let listed = ann.get(&format!("/v1/threads/{thread}/shares")).await;
    assert_eq!(listed.json()["data"].as_array().unwrap().len(), 3);
    assert_eq!(listed.json()["data"].as_array().unwrap().iter().filter(|row| row["revoked_at"].is_u64()).count(), 1);
    assert!(!listed.text.contains("hws_") && !listed.text.contains("digest"), "{}", listed.text);
}

#[tokio::test]
async fn a_share_survives_a_restart_and_is_deleted_with_its_thread() {
    let mut hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let seat = ShareUser::new(&hw, &ann);
    let (task, thread) = seat.run("story 3 fast", None).await;
    let kept = seat.share(&thread, json!({"mode": "live"})).await;
    let revoked = seat.share(&thread, json!({"mode": "live"})).await;
    let path = format!("/v1/threads/{thread}/shares/{}", revoked["share_id"].as_str().unwrap());
    assert_eq!(seat.send(Method::DELETE, &path, None).await.status, 204);
    for part in ["headwater.db", "headwater.db-wal", "headwater.db-log0", "headwater.db-log1"] {
        let stored = std::fs::read(hw.data_dir().join(part)).unwrap_or_default();
        assert!(!stored.windows(10).any(|window| window == &token(&kept).as_bytes()[4..14]), "a token is not stored");
    }
    hw.kill9();
    hw.restart();
    let path = format!("/v1/tasks/{task}");
    assert_eq!(ShareUser::new(&hw, token(&kept)).get(&path).await.status, 200);
    assert_eq!(ShareUser::new(&hw, token(&revoked)).get(&path).await.status, 401);
    let (seat, viewer) = (ShareUser::new(&hw, &ann), ShareUser::new(&hw, token(&kept)));
    let mut stream = viewer.open_stream(&format!("/v1/threads/{thread}/events")).await;
    stream.read_until("task.completed").await;
    assert_eq!(seat.send(Method::DELETE, &format!("/v1/threads/{thread}"), None).await.status, 204);
    assert!(stream.read_to_end().await.is_err());
    assert_eq!(viewer.get(&path).await.status, 401);
    assert_eq!(seat.get(&format!("/v1/threads/{thread}/shares")).await.status, 404);
    assert!(!hw.log().contains("hws_"), "a token is never logged");
    hw.kill9();
    assert!(hw.run_cli(&["verify"]).status.success());
    hw.restart();
    assert_eq!(ShareUser::new(&hw, token(&kept)).get(&path).await.status, 401);
}

#[tokio::test]
async fn without_keys_a_share_works_the_same() {
    let hw = Server::demo();
    let task = hw.start_run("story 3 fast").await;
    let (id, thread) = (task["task_id"].as_str().unwrap(), task["thread_id"].as_str().unwrap());
    hw.wait_ended(id).await;
    let other = hw.start_run("story 3 fast").await;
    let share = hw.post(&format!("/v1/threads/{thread}/shares"), json!({"mode": "live"})).await.json();
    let viewer = ShareUser::new(&hw, token(&share));
    assert_eq!(viewer.get(&format!("/v1/tasks/{id}")).await.status, 200);
    assert_eq!(viewer.get(&format!("/v1/tasks/{}", other["task_id"].as_str().unwrap())).await.status, 404);
    let guessed = ShareUser::new(&hw, &format!("hws_{}", "0".repeat(64)));
    assert_eq!(guessed.get("/v1/tasks").await.status, 401, "a token that is none makes nobody the local user");
}

#[tokio::test]
async fn invalid_shares_are_refused() {
    let hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    let path = format!("/v1/threads/{}/shares", task["thread_id"].as_str().unwrap());
    for body in [
        json!({}),
        json!({"mode": "open"}),
        json!({"mode": "live", "until": 1}),
        json!({"mode": "live", "expires_in_seconds": 0}),
        json!({"mode": "live", "expires_in_seconds": -1}),
        json!({"mode": "live", "expires_in_seconds": 1.5}),
        json!({"mode": "live", "expires_in_seconds": 31_622_401}),
        json!({"mode": "live", "expires_in_seconds": u64::MAX}),
        json!([]),
    ] {
        assert_eq!(hw.post(&path, body.clone()).await.problem(), (422, "invalid_body".to_owned()), "{body}");
    }
    assert_eq!(hw.get(&path).await.json()["data"], json!([]));
    for none in ["share_1", "%00", "share_1%2f..", &"a".repeat(65)] {
        let reply = hw.request(Method::DELETE, &format!("{path}/{none}"), &[], None).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{none}");
    }
    let nowhere = hw.post("/v1/threads/thr_1/shares", json!({"mode": "frozen"})).await;
    assert_eq!(nowhere.problem(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_viewer_can_fork_a_shared_thread() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (ShareUser::new(&hw, &create_key(&hw, "ann")), ShareUser::new(&hw, &create_key(&hw, "ben")));
    let (_, thread) = ann.run("story 3 fast", None).await;
    let share = ann.share(&thread, json!({"mode": "frozen"})).await;
    let before = ann.get(&format!("/v1/threads/{thread}")).await.json();
    let mut socket = ben.socket().await;
    socket.send_json(&json!({"type": "chat", "content": "hello", "share": token(&share)})).await;
    let turn = socket.read_until("message_stop").await;
    assert_eq!(turn[0]["is_new_session_from_share"], true, "{}", turn[0]);
    let session = turn[0]["session_id"].as_str().unwrap().to_owned();
    assert_ne!(session, thread);
    socket.send_json(&json!({"type": "chat", "content": "hello"})).await;
    let next = socket.read_until("message_stop").await;
    assert_eq!((&next[0]["session_id"], &next[0]["is_new_session_from_share"]), (&json!(session), &json!(false)));

    // The same natively, with the share as its origin.
    let body = json!({"model": "demo", "input": "hello", "share": token(&share), "wait": true});
    let begun = ben.post("/v1/tasks", body).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    let events = ben.get(&format!("/v1/tasks/{}/events", begun.json()["task_id"].as_str().unwrap())).await.text;
    assert_eq!(parse_frames(&events)[0].data["task"]["origin"], json!({"share": share["share_id"]}));
    assert!(!events.contains("hws_"));

    let taken = json!({"type": "chat", "content": "hi", "session_id": session, "share": token(&share)});
    socket.send_json(&taken).await;
    assert_eq!(socket.next_event().await["code"], "invalid_body", "a session that there is");
    let guessed = format!("hws_{}", "0".repeat(64));
    let none = ben.post("/v1/tasks", json!({"model": "demo", "input": "hi", "share": guessed})).await;
    assert_eq!(none.problem(), (422, "unknown_share".to_owned()));
    let own = json!({"model": "demo", "input": "hi", "share": token(&share), "thread_id": session});
    assert_eq!(ben.post("/v1/tasks", own).await.problem(), (422, "invalid_body".to_owned()));
    assert_eq!(ann.get(&format!("/v1/threads/{thread}")).await.json(), before, "the shared thread is as it was");
}

#[tokio::test]
async fn a_fork_gives_the_model_only_what_was_shared() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&asked);
    let upstream = Loopback::start(move |request: ReceivedRequest| {
        let body = request.body.to_string();
        let answer = if body.contains("omega") { "answer to omega" } else { "answer to alpha" };
        hears.lock().unwrap().push(body);
        vec![stream_head(), ResponseAction::Send(ProviderDialect::Chat.full_answer(answer).into_bytes())]
    })
    .await;
    let far = format!(
        "{KEYS}\nmodels = true\n[providers.far]\nkind = \"openai-chat\"\nbase_url = \"{}\"",
        upstream.url("/v1")
    );
    let hw = Server::demo_with(&far);
    let (ann, ben) = (ShareUser::new(&hw, &create_key(&hw, "ann")), ShareUser::new(&hw, &create_key(&hw, "ben")));
    let say = async |seat: &ShareUser<'_>, body: Value| {
        let mut whole = json!({"model": "far/m", "wait": true});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let reply = seat.post("/v1/tasks", whole).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.text);
        reply.json()["thread_id"].as_str().unwrap().to_owned()
    };
    let thread = say(&ann, json!({"input": "say alpha"})).await;
    let frozen = ann.share(&thread, json!({"mode": "frozen"})).await;
    let live = ann.share(&thread, json!({"mode": "live"})).await;
    say(&ann, json!({"input": "say omega", "thread_id": thread})).await;
    for (share, knows_omega) in [(frozen, false), (live, true)] {
        let own = say(&ben, json!({"input": "go on", "share": token(&share)})).await;
        let last = asked.lock().unwrap().last().unwrap().clone();
        for text in ["say alpha", "answer to alpha", "go on"] {
            assert!(last.contains(text), "{text} in {last}");
        }
        assert_eq!(last.contains("say omega"), knows_omega, "{last}");
        // It is now part of that thread's history.
        say(&ben, json!({"input": "and on", "thread_id": own})).await;
        let last = asked.lock().unwrap().last().unwrap().clone();
        assert!(last.contains("say alpha") && last.contains("go on") && last.contains("and on"), "{last}");
    }
}

#[tokio::test]
async fn a_file_is_shared_with_its_thread_only() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (ShareUser::new(&hw, &create_key(&hw, "ann")), ShareUser::new(&hw, &create_key(&hw, "ben")));
    let send = async |seat: &ShareUser<'_>| {
        let headers = [("authorization", &*seat.bearer), ("content-type", "text/plain")];
        let path = "/api/v1/agent/attachments?name=a.txt";
        let file = hw.request(Method::POST, path, &headers, Some(b"some words".to_vec())).await.json();
        json!({"bucket": file["bucket"], "path": file["path"]})
    };
    let (shown, unsaid, bens) = (send(&ann).await, send(&ann).await, send(&ben).await);
    let input = [json!({"type": "file", "file": shown})];
    let task = ann.post("/v1/tasks", json!({"model": "demo", "input": input, "wait": true})).await.json();
    let share = ann.share(task["thread_id"].as_str().unwrap(), json!({"mode": "frozen"})).await;
    let viewer = ShareUser::new(&hw, token(&share));
    for (file, wanted) in [(shown, 200), (unsaid, 404), (bens, 404)] {
        let (bucket, path) = (file["bucket"].as_str().unwrap(), file["path"].as_str().unwrap());
        let signed = format!("/api/v1/agent/attachments/signed-url?bucket={bucket}&path={path}");
        let reply = viewer.get(&signed).await;
        assert_eq!(reply.status, wanted, "{path}: {}", reply.text);
        if wanted == 200 {
            let url = reply.json()["url"].as_str().unwrap().to_owned();
            assert_eq!(hw.client.get(url).send().await.unwrap().text().await.unwrap(), "some words");
        }
    }
}
