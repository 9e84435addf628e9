//! Tickets: one stream or socket each, for pages that cannot send a key.

use crate::auth::{create_key, live_key_id};
use crate::blocks::socket::Socket;
use crate::harness::{Reply, Server, concat_raw_frames, parse_frames};
use reqwest::Method;
use serde_json::json;

const KEYS: &str = "[auth]\nmode = \"keys\"";

async fn with(hw: &Server, key: &str, method: Method, path: &str) -> Reply {
    hw.request(method, path, &[("authorization", &format!("Bearer {key}"))], None).await
}

async fn ticket(hw: &Server, key: &str) -> String {
    let reply = with(hw, key, Method::POST, "/v1/tickets").await;
    assert_eq!((reply.status, reply.header("cache-control")), (201, "no-store"), "{}", reply.text);
    let (body, now) = (reply.json(), engine_now());
    let left = body["expires_at"].as_u64().unwrap().saturating_sub(now);
    assert!((30_000..=60_000).contains(&left), "{left} ms are left");
    body["ticket"].as_str().unwrap().to_owned()
}

fn engine_now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// An ended run of a user: its id and its thread's.
async fn ran(hw: &Server, key: &str) -> (String, String) {
    let headers = [("authorization", &*format!("Bearer {key}")), ("content-type", "application/json")];
    let body = json!({"model": "demo", "input": "story 3 fast", "wait": true}).to_string();
    let task = hw.request(Method::POST, "/v1/tasks", &headers, Some(body.into_bytes())).await.json();
    let text = |name: &str| task[name].as_str().unwrap().to_owned();
    (text("task_id"), text("thread_id"))
}

#[tokio::test]
async fn a_ticket_opens_any_one_stream_and_only_once() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let (task, thread) = ran(&hw, &ann).await;
    let refused = hw.get("/v1/tasks").await;
    assert_eq!(refused.problem(), (401, "unauthorized".to_owned()));

    // Finite streams are compared completely, with other parameters on either side.
    let response = task.replace("task_", "resp_");
    for (path, query) in [
        (format!("/v1/tasks/{task}/events"), "after=2"),
        (format!("/v1/tasks/{task}/events"), "format=run-items"),
        (format!("/v1/responses/{response}"), "stream=true"),
    ] {
        let expected = with(&hw, &ann, Method::GET, &format!("{path}?{query}")).await;
        let streams = expected.text.lines().filter(|line| line.starts_with("data:")).collect::<Vec<_>>();
        assert!(streams.len() > 3, "{}", expected.text);
        for swapped in [false, true] {
            let ticket = ticket(&hw, &ann).await;
            let url = match swapped {
                true => format!("{path}?ticket={ticket}&{query}"),
                false => format!("{path}?{query}&ticket={ticket}"),
            };
            let reply = hw.get(&url).await;
            assert_eq!(reply.status, 200, "{url}: {}", reply.text);
            assert_eq!(reply.text.lines().filter(|line| line.starts_with("data:")).collect::<Vec<_>>(), streams);
            let again = hw.get(&url).await;
            assert_eq!((again.status, again.text.contains(&ticket)), (401, false), "{url}");
        }
    }
    for path in [format!("/v1/threads/{thread}/events"), format!("/api/v1/agent/runs/{thread}/events")] {
        let url = format!("{path}?ticket={}", ticket(&hw, &ann).await);
        hw.open_stream(&url).await.read_until("\n\n").await;
        let again = hw.get(&url).await;
        assert_eq!(again.problem(), refused.problem(), "{path}");
        assert!(again.json()["detail"].as_str().unwrap().contains("POST /v1/tickets"), "it says what to do");
    }
    let ws = format!("/ws?ticket={}", ticket(&hw, &ann).await);
    let mut socket = Socket::connect_to(&hw, &ws, "").await.unwrap();
    socket.send_json(&json!({"type": "resume", "session_id": thread})).await;
    socket.read_until("message_stop").await;
    let head = Socket::connect_to(&hw, &ws, "").await.err().unwrap();
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(!hw.log().contains("hwt_"), "a ticket is never logged");
}

#[tokio::test]
async fn a_ticket_is_accepted_for_streams_only() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let (task, thread) = ran(&hw, &ann).await;
    let response = task.replace("task_", "resp_");
    let good = ticket(&hw, &ann).await;
    for (method, path) in [
        (Method::GET, "/v1/tasks".to_owned()),
        (Method::POST, "/v1/tasks".to_owned()),
        (Method::POST, "/v1/tickets".to_owned()),
        (Method::GET, format!("/v1/tasks/{task}")),
        (Method::HEAD, format!("/v1/tasks/{task}/events")),
        (Method::POST, format!("/v1/tasks/{task}/cancel")),
        (Method::GET, format!("/v1/threads/{thread}")),
        (Method::DELETE, format!("/v1/threads/{thread}")),
        (Method::GET, format!("/v1/responses/{response}")),
        (Method::GET, format!("/v1/responses/{response}/input_items")),
        (Method::GET, "/v1/models".to_owned()),
    ] {
        let reply = hw.request(method.clone(), &format!("{path}?ticket={good}"), &[], None).await;
        assert_eq!(reply.status, 401, "{method} {path}");
    }
    let events = format!("/v1/tasks/{task}/events");
    // Which one counts would be ambiguous.
    let bearer = [("authorization", &*format!("Bearer {ann}"))];
    let both = hw.request(Method::GET, &format!("{events}?ticket={good}"), &bearer, None).await;
    assert_eq!(both.status, 401, "a key and a ticket");
    let second = ticket(&hw, &ann).await;
    for bad in [format!("ticket={good}&ticket={second}"), "ticket=".to_owned(), format!("ticket={ann}")] {
        assert_eq!(hw.get(&format!("{events}?{bad}")).await.status, 401, "{bad}");
    }
    // A duplicate parameter is ambiguous: the last would count.
    for query in ["stream=true&stream=false", "stream=true&str%65am=false", "str%65am=false&stream=true"] {
        let path = format!("/v1/responses/{response}?{query}&ticket={good}");
        assert_eq!(hw.get(&path).await.status, 401, "{query}");
    }
    // None of that consumed a ticket.
    for ticket in [good, second] {
        assert_eq!(hw.get(&format!("{events}?ticket={ticket}")).await.status, 200);
    }
}

#[tokio::test]
async fn a_ticket_has_the_rights_of_its_owner_and_no_longer() {
    let mut hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let (task, _) = ran(&hw, &ann).await;
    let events = format!("/v1/tasks/{task}/events");
    let url = format!("{events}?ticket={}", ticket(&hw, &ben).await);
    assert_eq!(hw.get(&url).await.problem(), (404, "not_found".to_owned()), "another's is still another's");
    let (revoked, forgotten) = (ticket(&hw, &ben).await, ticket(&hw, &ann).await);
    assert!(hw.run_cli(&["keys", "revoke", &live_key_id(&hw, "ben")]).status.success());
    assert_eq!(hw.get(&format!("{events}?ticket={revoked}")).await.status, 401);
    hw.kill9();
    hw.restart();
    assert_eq!(hw.get(&format!("{events}?ticket={forgotten}")).await.status, 401, "they do not outlive the process");
}

#[tokio::test]
async fn without_keys_tickets_work_the_same() {
    let hw = Server::demo();
    let task = hw.start_run("story 3 fast").await;
    let events = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let expected = hw.frames(&events, None).await;
    let reply = hw.post("/v1/tickets", json!({})).await;
    assert_eq!(reply.status, 201);
    let url = format!("{events}?ticket={}", reply.json()["ticket"].as_str().unwrap());
    assert_eq!(concat_raw_frames(&parse_frames(&hw.get(&url).await.text)), concat_raw_frames(&expected));
    assert_eq!(hw.get(&url).await.problem(), (401, "unauthorized".to_owned()), "used up is used up");
    assert_eq!(hw.post("/v1/tickets", json!({"for": "me"})).await.problem(), (422, "invalid_body".to_owned()));
}
