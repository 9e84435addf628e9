//! Agent runs over HTTP: thread names, resumable streams, and the history by day.

mod history;
pub(crate) mod history_writer;

use crate::harness::{Server, SseFrame, concat_raw_frames, parse_frames};
use reqwest::Method;
use serde_json::{Value, json};

const RUNS: &str = "/api/v1/agent/runs";

/// Starts a run; returns the `threadId` and `runId` of the response.
async fn say(hw: &Server, body: Value) -> (String, String) {
    let reply = hw.post(RUNS, body).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let names = reply.json();
    assert_eq!(names.as_object().unwrap().len(), 2, "{names}");
    let name = |field: &str| names[field].as_str().unwrap().to_owned();
    assert_eq!(reply.header("location"), format!("{RUNS}/{}/events", name("threadId")));
    (name("threadId"), name("runId"))
}

/// The frames of a thread's stream up to one that contains this text.
async fn frames_until(hw: &Server, thread: &str, after: &str, until: &str) -> Vec<SseFrame> {
    let query = if after.is_empty() { String::new() } else { format!("?after={after}") };
    let mut stream = hw.open_stream(&format!("{RUNS}/{thread}/events{query}")).await;
    parse_frames(stream.read_until(until).await)
}

fn kinds(frames: &[SseFrame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

/// The terminal frame of this run.
fn end_of(run: &str, kind: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"threadId\":\"mine\",\"runId\":\"{run}\"")
}

#[tokio::test]
async fn a_thread_is_addressed_by_its_client_name() {
    let mut hw = Server::demo();
    let (thread, run) = say(&hw, json!({"message": "weather", "threadId": "mine"})).await;
    assert_eq!(thread, "mine");
    let first = frames_until(&hw, "mine", "", &end_of(&run, "RUN_FINISHED")).await;
    assert_eq!(
        kinds(&first),
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "STEP_FINISHED",
            "TOOL_CALL_RESULT",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
    );
    assert!(first.iter().all(|frame| frame.data["type"] == frame.event && frame.data["threadId"] == "mine"));
    // The same name is the same thread, also after a crash; the thread's own id works as well.
    hw.kill9();
    hw.restart();
    let (_, second) = say(&hw, json!({"message": "story 2 fast", "threadId": "mine"})).await;
    frames_until(&hw, "mine", "", &end_of(&second, "RUN_FINISHED")).await;
    let threads = hw.get("/v1/threads").await.json();
    assert_eq!(threads["data"].as_array().unwrap().len(), 1);
    let ours = threads["data"][0]["thread_id"].as_str().unwrap();
    let all = frames_until(&hw, ours, "0", &second).await;
    assert_eq!((all[0].data["runId"].as_str().unwrap(), all[0].data["threadId"].as_str().unwrap()), (&*run, ours));
    let (thread, third) = say(&hw, json!({"message": "story 1 fast", "threadId": ours})).await;
    assert_eq!(thread, ours);
    frames_until(&hw, ours, "", &format!("RUN_FINISHED\",\"threadId\":\"{ours}\",\"runId\":\"{third}")).await;
    // A thread without a name gets one.
    let (new, _) = say(&hw, json!({"message": "story 1 fast"})).await;
    assert!(new.starts_with("thr_") && new != ours, "{new}");
    // Deleting a thread frees its name.
    assert_eq!(hw.request(Method::DELETE, &format!("/v1/threads/{ours}"), &[], None).await.status, 204);
    assert_eq!(hw.get(&format!("{RUNS}/mine/events")).await.problem(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_resumed_stream_is_byte_identical() {
    let hw = Server::demo();
    let (_, run) = say(&hw, json!({"message": "trade", "threadId": "mine"})).await;
    let asked = frames_until(&hw, "mine", "", "\"status\":\"partial\"").await;
    let partial = &asked.last().unwrap().data;
    assert_eq!(
        (&partial["type"], &partial["toolAgentOutput"]["status"]),
        (&json!("TOOL_CALL_RESULT"), &json!("partial"))
    );
    let key = partial["toolAgentOutput"]["ui_hints"]["approval"]["key"].as_str().unwrap();
    let path = format!("/v1/tasks/{run}/approvals/{key}");
    assert_eq!(hw.post(&path, json!({"decision": "approve"})).await.status, 200);
    let end = end_of(&run, "RUN_FINISHED");
    let whole = frames_until(&hw, "mine", "", &end).await;
    assert_eq!(
        concat_raw_frames(&whole[..asked.len()]),
        concat_raw_frames(&asked),
        "what was shown before is shown again"
    );
    let results: Vec<&Value> =
        whole.iter().filter(|frame| frame.event == "TOOL_CALL_RESULT").map(|frame| &frame.data).collect();
    assert_eq!((results.len(), &results[0]["messageId"]), (2, &results[1]["messageId"]));
    assert_eq!(results[1]["toolAgentOutput"]["status"], "success");
    for at in 0..whole.len() - 1 {
        let rest = frames_until(&hw, "mine", &whole[at].id, &end).await;
        assert_eq!(concat_raw_frames(&rest), concat_raw_frames(&whole[at + 1..]), "after frame {at}, {}", whole[at].id);
    }
    // The header wins, and accepts the same cursors.
    let response = hw.client.get(hw.url(&format!("{RUNS}/mine/events?after=0")));
    let mut response = response.header("last-event-id", &whole[3].id).send().await.unwrap();
    let mut text = String::new();
    while !text.contains(&end) {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(concat_raw_frames(&parse_frames(&text)), concat_raw_frames(&whole[4..]));
}

#[tokio::test]
async fn a_stream_starts_with_the_oldest_active_run_or_the_latest() {
    let hw = Server::demo();
    let mut runs = Vec::new();
    for message in ["story 1 fast", "story 3000", "story 2 fast"] {
        runs.push(say(&hw, json!({"message": message, "threadId": "mine"})).await.1);
        if runs.len() == 1 {
            frames_until(&hw, "mine", "", &end_of(&runs[0], "RUN_FINISHED")).await;
        }
    }
    let begun = frames_until(&hw, "mine", "", "TEXT_MESSAGE_CONTENT").await;
    assert_eq!((&begun[0].event[..], begun[0].data["runId"].as_str().unwrap()), ("RUN_STARTED", &*runs[1]));
    let head = hw.request(Method::HEAD, &format!("{RUNS}/mine/events"), &[], None).await;
    assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream; charset=utf-8"));

    // The active run is cancelled, and the queued one follows on the same stream.
    let mut stream = hw.open_stream(&format!("{RUNS}/mine/events")).await;
    let stop = format!("{RUNS}/mine/cancel");
    let stopped = hw.request(Method::POST, &stop, &[], None).await;
    assert_eq!((stopped.status, stopped.json()), (202, json!({"threadId": "mine", "runId": runs[1]})));
    let text = stream.read_until(&end_of(&runs[2], "RUN_FINISHED")).await;
    let shown = parse_frames(text);
    let errors: Vec<&SseFrame> = shown.iter().filter(|frame| frame.event == "RUN_ERROR").collect();
    assert_eq!(errors.len(), 1);
    assert_eq!((&errors[0].data["runId"], &errors[0].data["message"]), (&json!(runs[1]), &json!("cancelled")));
    assert_eq!(hw.request(Method::POST, &stop, &[], None).await.problem(), (409, "already_ended".to_owned()));

    let latest = frames_until(&hw, "mine", "", &end_of(&runs[2], "RUN_FINISHED")).await;
    assert!(latest.iter().all(|frame| frame.data["runId"] == runs[2]), "only the latest");
    assert_eq!(latest[0].event, "RUN_STARTED");
}

#[tokio::test]
async fn a_stream_opens_before_the_first_event_and_stays_open() {
    let hw = Server::demo_with("[limits]\nheartbeat_ms = 50");
    let accept = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    let body = json!({"message": "slow 1", "threadId": "mine"}).to_string();
    let mut request = hw.client.post(hw.url(RUNS)).body(body);
    for (name, value) in accept {
        request = request.header(name, value);
    }
    let mut response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(response.headers()["location"], format!("{RUNS}/mine/events"));
    let mut text = String::new();
    let mut read_until = async |what: &str| {
        while !text.contains(what) {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().expect("it never ends")).unwrap());
        }
        text.clone()
    };
    assert!(read_until("RUN_STARTED").await.starts_with(":\n\nretry: "));
    read_until("RUN_FINISHED").await;
    // The stream belongs to the thread: the next run is on it, too.
    let (_, next) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    let text = read_until(&end_of(&next, "RUN_FINISHED")).await;
    assert!(text.matches("\n\n:\n\n").count() > 0, "a comment while the tool was busy: {text}");
}

#[tokio::test]
async fn a_repeated_request_returns_the_same_run() {
    let hw = Server::demo();
    let post = async |key: &str, accept: &str, body: Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key), ("accept", accept)];
        hw.request(Method::POST, RUNS, &headers, Some(body.to_string().into_bytes())).await
    };
    let body = json!({"message": "story 1 fast", "threadId": "mine"});
    let first = post("a", "*/*", body.clone()).await.json();
    let (_, later) = say(&hw, json!({"message": "story 2 fast", "threadId": "mine"})).await;
    frames_until(&hw, "mine", "", &end_of(&later, "RUN_FINISHED")).await;
    assert_eq!(post("a", "*/*", body.clone()).await.json(), first);
    let other = post("a", "*/*", json!({"message": "story 2 fast", "threadId": "mine"})).await;
    assert_eq!(other.problem(), (409, "idempotency_key_reused".to_owned()));
    // A stream that is opened again starts with that run, although another one follows it.
    let request = hw.client.post(hw.url(RUNS)).header("idempotency-key", "a").header("accept", "text/event-stream");
    let request = request.header("content-type", "application/json").body(body.to_string());
    let mut response = request.send().await.unwrap();
    let mut text = String::new();
    while !text.contains(&end_of(&later, "RUN_FINISHED")) {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    let shown = parse_frames(&text);
    assert_eq!((&shown[0].event[..], &shown[0].data["runId"]), ("RUN_STARTED", &first["runId"]));
}

#[tokio::test]
async fn a_missing_agent_is_inferred_or_required() {
    let hw = Server::demo();
    let agent_of = async |run: &str| hw.wait_ended(run).await["agent"].clone();
    let (_, run) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine", "agent": "specialist"})).await;
    assert_eq!(agent_of(&run).await, "specialist");
    let (_, run) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    assert_eq!(agent_of(&run).await, "specialist", "whoever answered last");
    let (_, run) = say(&hw, json!({"message": "story 1 fast"})).await;
    assert_eq!(agent_of(&run).await, "demo", "whom no other agent knows");

    let hw = Server::demo_with("[agents.second]\nmodel = \"scripted/demo\"");
    let reply = hw.post(RUNS, json!({"message": "hello"})).await;
    assert_eq!(reply.problem(), (422, "invalid_body".to_owned()));
    assert_eq!(reply.json()["agents"], json!(["WeatherAgent", "demo", "second", "specialist"]));
}

#[tokio::test]
async fn unknown_members_of_a_request_are_ignored() {
    let hw = Server::demo();
    let own = json!({"message": "story 1 fast", "threadId": "mine", "stream": true, "model": "m", "messageId": "m1"});
    let (thread, _) = say(&hw, own).await;
    assert_eq!(thread, "mine");
    let refusal = async |attachment: Value| {
        let body = json!({"message": "a", "attachments": [attachment]}).to_string().into_bytes();
        hw.request(Method::POST, RUNS, &[("content-type", "application/json")], Some(body)).await.problem()
    };
    let known = refusal(json!({"bucket": "b", "path": "p"})).await;
    assert_eq!(refusal(json!({"bucket": "b", "path": "p", "mimeType": "text/plain"})).await, known, "the same file");
}

#[tokio::test]
async fn an_invalid_request_is_refused_before_anything_starts() {
    let hw = Server::demo();
    let (_, run) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    let shown = frames_until(&hw, "mine", "", &end_of(&run, "RUN_FINISHED")).await;
    let size = hw.count_threads_and_records().await;
    let long = "x".repeat(65);
    for (body, status, code) in [
        (json!([]), 422, "invalid_body"),
        (json!({}), 422, "invalid_body"),
        (json!({"message": ""}), 422, "invalid_body"),
        (json!({"message": 1}), 422, "invalid_body"),
        (json!({"massage": "a"}), 422, "invalid_body"),
        (json!({"message": "a", "threadId": ""}), 422, "invalid_body"),
        (json!({"message": "a", "threadId": "a/b"}), 422, "invalid_body"),
        (json!({"message": "a", "threadId": long}), 422, "invalid_body"),
        (json!({"message": "a", "threadId": "thr_missing"}), 404, "not_found"),
        (json!({"message": "a", "agent": "nobody"}), 422, "unknown_agent"),
        (json!({"message": "a", "attachments": [{"bucket": "b"}]}), 422, "invalid_body"),
        (json!({"message": "a", "attachments": [{"bucket": "", "path": "p"}]}), 422, "invalid_body"),
        (json!({"message": "a", "attachments": [["b", "p"]]}), 422, "invalid_body"),
        (json!({"message": "a", "attachments": vec![json!({"bucket": "b", "path": "p"}); 1000]}), 422, "invalid_body"),
        (json!({"message": "a", "metadata": []}), 422, "invalid_body"),
        (json!({"message": "a", "metadata": {"x": "y".repeat(300_000)}}), 413, "request_too_large"),
    ] {
        for accept in ["application/json", "text/event-stream"] {
            let headers = [("content-type", "application/json"), ("accept", accept)];
            let reply = hw.request(Method::POST, RUNS, &headers, Some(body.to_string().into_bytes())).await;
            assert_eq!(reply.problem(), (status, code.to_owned()), "{body:.80}");
        }
    }
    let events = |rest: &str| format!("{RUNS}/mine/events{rest}");
    for (path, status, code) in [
        (format!("{RUNS}/other/events"), 404, "not_found"),
        (format!("{RUNS}/{long}/events"), 404, "not_found"),
        (format!("{RUNS}/a%2Fb/events"), 404, "not_found"),
        (format!("{RUNS}/thr_missing/events"), 404, "not_found"),
        (events("?after=x"), 400, "invalid_cursor"),
        (events(&format!("?after={}.ag-ui.1", shown[0].id)), 409, "cursor_foreign"),
        (events("?after=00000000-1"), 409, "cursor_foreign"),
        (events("?after=999999"), 409, "cursor_ahead"),
        (events("?from=1"), 422, "invalid_query"),
        ("/api/v1/agent/history?threadId=other".to_owned(), 404, "not_found"),
        ("/api/v1/agent/history?threadId=".to_owned(), 404, "not_found"),
        ("/api/v1/agent/history?before=yesterday".to_owned(), 422, "invalid_query"),
        ("/api/v1/agent/history?before=2025-02-30".to_owned(), 422, "invalid_query"),
        ("/api/v1/agent/history?thread_id=mine".to_owned(), 422, "invalid_query"),
    ] {
        assert_eq!(hw.get(&path).await.problem(), (status, code.to_owned()), "{path}");
    }
    let picky = hw.request(Method::GET, &events(""), &[("accept", "application/json")], None).await;
    assert_eq!(picky.problem(), (406, "not_acceptable".to_owned()));
    let stop = hw.post(&format!("{RUNS}/other/cancel"), json!({})).await;
    assert_eq!(stop.problem(), (404, "not_found".to_owned()));
    let stop = hw.post(&format!("{RUNS}/mine/cancel"), json!({"mode": "never"})).await;
    assert_eq!(stop.problem(), (422, "invalid_body".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, size, "nothing was begun");
}

#[tokio::test]
async fn a_client_name_is_scoped_to_its_user_and_streams_are_limited() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"\n[limits]\nstreams_per_user_max = 1");
    let key = |user: &str| {
        let output = hw.run_cli(&["keys", "create", "--user", user]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (ann, ben) = (key("ann"), key("ben"));
    let hw = hw.with_key(&ann);
    let (_, anns) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    let first = hw.open_stream(&format!("{RUNS}/mine/events")).await;
    assert_eq!(hw.get(&format!("{RUNS}/mine/events")).await.problem(), (429, "too_many_streams".to_owned()));
    // A client that is refused a stream will retry, so nothing may have started.
    let headers = [("content-type", "application/json"), ("accept", "text/event-stream")];
    let body = json!({"message": "story 1 fast", "threadId": "mine"}).to_string().into_bytes();
    let refused = hw.request(Method::POST, RUNS, &headers, Some(body)).await;
    assert_eq!(refused.problem(), (429, "too_many_streams".to_owned()));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 1);
    drop(first);
    let hw = hw.with_key(&ben);
    for path in [format!("{RUNS}/mine/events"), "/api/v1/agent/history?threadId=mine".to_owned()] {
        assert_eq!(hw.get(&path).await.problem(), (404, "not_found".to_owned()), "{path}");
    }
    let nothing = hw.get("/api/v1/agent/history").await.json();
    assert_eq!(
        nothing["snapshot"],
        json!({"scope": "history_day", "threadId": null, "day": null, "hasMore": false, "messages": []})
    );
    let (_, bens) = say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    let shown = frames_until(&hw, "mine", "0", &end_of(&bens, "RUN_FINISHED")).await;
    assert!(shown.iter().all(|frame| frame.data["runId"] == bens) && anns != bens);
}
