//! Isolation, route by route and message by message: two users and a viewer of a share.
//!
//! The rows are compared with the OpenAPI document: a route or a message without a row is a failure.

use crate::auth::create_key;
use crate::blobs;
use crate::blocks::socket::Socket;
use crate::harness::{Server, openapi};
use reqwest::Method;
use serde_json::{Value, json};

const KEYS: &str = "[auth]\nmode = \"keys\"";

/// The response to a viewer of a share who asks about the shared thread.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Viewer {
    /// The resource.
    Sees,
    /// Read-only: 403.
    CannotAct,
    /// Not found: 404.
    SeesNothing,
    /// The public response.
    IsAnybody,
    /// This status, as for every user.
    Gets(u16),
    /// Not found: 404. Who may open the socket is told to upgrade: 426.
    HasNoSocket,
}
use Viewer::{CannotAct, Gets, HasNoSocket, IsAnybody, Sees, SeesNothing};

/// Every route: its method, its path as documented, its body, and the response to a viewer.
fn rows() -> Vec<(Method, &'static str, Value, Viewer)> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let none = || Value::Null;
    let says = || json!({"model": "demo", "input": "hi"});
    let turns = || json!({"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let mut rows = vec![
        (get.clone(), "/v1/tasks", none(), Sees),
        (post.clone(), "/v1/tasks", says(), CannotAct),
        (get.clone(), "/v1/tasks/{task_id}", none(), Sees),
        (get.clone(), "/v1/tasks/{task_id}/events", none(), Sees),
        (post.clone(), "/v1/tasks/{task_id}/cancel", none(), CannotAct),
        (post.clone(), "/v1/tasks/{task_id}/input", json!({"input": "hi"}), CannotAct),
        (post.clone(), "/v1/tasks/{task_id}/approvals/{key}", json!({"decision": "approve"}), CannotAct),
        (post.clone(), "/v1/tasks/{task_id}/tool_results", json!([]), CannotAct),
        (get.clone(), "/v1/approvals", none(), SeesNothing),
        (get.clone(), "/v1/usage", none(), SeesNothing),
        (get.clone(), "/v1/threads", none(), SeesNothing),
        (get.clone(), "/v1/threads/{thread_id}", none(), Sees),
        (delete.clone(), "/v1/threads/{thread_id}", none(), CannotAct),
        (get.clone(), "/v1/threads/{thread_id}/events", none(), Sees),
        (get.clone(), "/v1/threads/{thread_id}/shares", none(), SeesNothing),
        (post.clone(), "/v1/threads/{thread_id}/shares", json!({"mode": "live"}), CannotAct),
        (delete.clone(), "/v1/threads/{thread_id}/shares/{share}", none(), CannotAct),
        (get.clone(), "/v1/blobs/{hash}", none(), Sees),
        (get.clone(), "/v1/mcp", none(), SeesNothing),
        (get.clone(), "/v1/mcp/{server}/authorize", none(), Gets(404)),
        (post.clone(), "/v1/mcp/{server}/authorize", none(), CannotAct),
        (delete.clone(), "/v1/mcp/{server}/authorization", none(), CannotAct),
        (post.clone(), "/v1/mcp/callback", json!({"state": "unknown", "code": "unknown"}), CannotAct),
        (post.clone(), "/v1/tickets", none(), Gets(201)),
        (post.clone(), "/api/v1/agent/runs", json!({"message": "hi"}), CannotAct),
        (get.clone(), "/api/v1/agent/runs/{thread_id}/events", none(), Sees),
        (post.clone(), "/api/v1/agent/runs/{thread_id}/cancel", none(), CannotAct),
        (get.clone(), "/api/v1/agent/history?threadId={thread_id}", none(), Sees),
        (post.clone(), "/api/v1/agent/attachments", none(), CannotAct),
        (get.clone(), "/api/v1/agent/attachments/signed-url?{file}", none(), Sees),
        (get.clone(), "/api/v1/agent/attachments/raw?{signed}", none(), IsAnybody),
        (post.clone(), "/v1/responses", says(), CannotAct),
        (get.clone(), "/v1/responses", none(), HasNoSocket),
        (post.clone(), "/v1/responses/compact", says(), CannotAct),
        (get.clone(), "/v1/responses/{response}", none(), Sees),
        (get.clone(), "/v1/responses/{response}?stream=true", none(), Sees),
        (delete.clone(), "/v1/responses/{response}", none(), CannotAct),
        (post.clone(), "/v1/responses/{response}/cancel", none(), CannotAct),
        (get.clone(), "/v1/responses/{response}/input_items", none(), Sees),
        (post.clone(), "/v1/conversations", json!({}), CannotAct),
        (get.clone(), "/v1/conversations/{conversation}", none(), SeesNothing),
        (post.clone(), "/v1/conversations/{conversation}", json!({"metadata": {}}), CannotAct),
        (delete.clone(), "/v1/conversations/{conversation}", none(), CannotAct),
        (get.clone(), "/v1/conversations/{conversation}/items", none(), SeesNothing),
        (post.clone(), "/v1/conversations/{conversation}/items", json!({"items": []}), CannotAct),
        (get.clone(), "/v1/conversations/{conversation}/items/{item}", none(), SeesNothing),
        (delete, "/v1/conversations/{conversation}/items/{item}", none(), CannotAct),
        (get.clone(), "/v1/models", none(), SeesNothing),
        (get.clone(), "/v1/models/{model}", none(), SeesNothing),
        (post.clone(), "/v1/messages", turns(), CannotAct),
        (post, "/v1/chat/completions", turns(), CannotAct),
        (get.clone(), "/ws", none(), Gets(426)),
        (get.clone(), "/healthz", none(), IsAnybody),
        (get.clone(), "/readyz", none(), IsAnybody),
        (get.clone(), "/metrics", none(), IsAnybody),
        (get, "/openapi.json", none(), IsAnybody),
    ];
    rows.extend(front_end_rows());
    rows
}

/// The routes of front ends.
fn front_end_rows() -> Vec<(Method, &'static str, Value, Viewer)> {
    let (get, post) = (Method::GET, Method::POST);
    let none = || Value::Null;
    let says_ui = || json!({"id": "m-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]});
    let message = json!({"id": "m", "role": "user", "content": "hi"});
    let runs = || json!({"threadId": "t", "runId": "r", "messages": [message]});
    vec![
        (post.clone(), "/api/chat", json!({"id": "c-1", "message": says_ui()}), CannotAct),
        (get.clone(), "/api/chat/{thread_id}/stream", none(), Sees),
        (get.clone(), "/api/chat/{thread_id}/messages", none(), Sees),
        (post.clone(), "/api/chat/{thread_id}/stop", none(), CannotAct),
        (post.clone(), "/agui/{agent}", runs(), CannotAct),
        (post.clone(), "/agui/{agent}/connect", runs(), CannotAct),
        (post.clone(), "/agui/{agent}/stop/{thread_id}", none(), CannotAct),
        (get.clone(), "/agui/{agent}/threads/{thread_id}/events", none(), Sees),
        (get, "/copilotkit/info", none(), SeesNothing),
        (post.clone(), "/copilotkit", json!({"method": "info"}), CannotAct),
        (post.clone(), "/copilotkit/agent/{agent}/run", runs(), CannotAct),
        (post.clone(), "/copilotkit/agent/{agent}/connect", runs(), CannotAct),
        (post, "/copilotkit/agent/{agent}/stop/{thread_id}", none(), CannotAct),
    ]
}

/// Resources of Ann, by their parameter names in the document.
struct OwnedIds(Vec<(&'static str, String)>);

impl OwnedIds {
    fn fill(&self, path: &str) -> String {
        self.0.iter().fold(path.to_owned(), |path, (name, id)| path.replace(name, id))
    }
}

/// Agents are the same for all.
fn is_public(name: &str) -> bool {
    matches!(name, "{model}" | "{agent}")
}

struct ApiUser<'a> {
    hw: &'a Server,
    token: Option<String>,
}

impl ApiUser<'_> {
    /// The status, and the body unless it is a stream.
    async fn send(&self, method: &Method, path: &str, body: &Value) -> (u16, String) {
        let mut request = self.hw.client.request(method.clone(), self.hw.url(path));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let streams = headers.get("content-type").is_some_and(|kind| kind.to_str().unwrap().contains("event-stream"));
        (status, if streams { String::new() } else { response.text().await.unwrap() })
    }

    async fn socket(&self) -> Socket {
        let header = format!("Authorization: Bearer {}\r\n", self.token.as_deref().unwrap());
        Socket::connect_with_headers(self.hw, &header).await.unwrap_or_else(|head| panic!("{head}"))
    }

    /// A thread with an ended and a paused run, and a conversation.
    async fn create_everything(&self) -> OwnedIds {
        let ask = async |path: &str, body: Value| {
            let (status, text) = self.send(&Method::POST, path, &body).await;
            assert!((200..300).contains(&status), "{path}: {status} {text}");
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (bucket, path) = self.upload_file().await;
        let file = format!("bucket={bucket}&path={path}");
        let signed =
            self.send(&Method::GET, &format!("/api/v1/agent/attachments/signed-url?{file}"), &Value::Null).await;
        let signed = signed.1.split_once("raw?").unwrap().1.trim_end_matches(['"', '}']).to_owned();
        let picture = blobs::unique_png(&path);
        let input = json!([
            blobs::image_part(&picture),
            {"type": "text", "text": "story 2 fast"},
            {"type": "file", "file": {"bucket": bucket, "path": path}},
        ]);
        let task = ask("/v1/tasks", json!({"model": "demo", "input": input, "wait": true})).await;
        let (task, thread) = (text(&task["task_id"]), text(&task["thread_id"]));
        let asks = json!({"model": "demo", "input": "trade", "thread_id": thread, "wait": true});
        let question = text(&ask("/v1/tasks", asks).await["pending"][0]["key"]);
        let conversation = text(&ask("/v1/conversations", json!({})).await["id"]);
        let items = json!({"items": [{"type": "message", "role": "user", "content": "hi"}]});
        let item = text(&ask(&format!("/v1/conversations/{conversation}/items"), items).await["data"][0]["id"]);
        let share = ask(&format!("/v1/threads/{thread}/shares"), json!({"mode": "live"})).await;
        OwnedIds(vec![
            ("{response}", task.replace("task_", "resp_")),
            ("{task_id}", task),
            ("{thread_id}", thread),
            ("{key}", question),
            ("{conversation}", conversation),
            ("{item}", item),
            ("{share}", text(&share["share_id"])),
            ("{token}", text(&share["token"])),
            ("{model}", "demo".to_owned()),
            ("{agent}", "demo".to_owned()),
            ("{hash}", blobs::sha256_hex(&picture)),
            ("{file}", file),
            ("{signed}", signed),
        ])
    }

    /// An uploaded file: its bucket and its path.
    async fn upload_file(&self) -> (String, String) {
        let request = self.hw.client.post(self.hw.url("/api/v1/agent/attachments?name=a.txt"));
        let request = request.bearer_auth(self.token.as_deref().unwrap()).header("content-type", "text/plain");
        let text = request.body("some words").send().await.unwrap().text().await.unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        (file["bucket"].as_str().unwrap().to_owned(), file["path"].as_str().unwrap().to_owned())
    }

    /// All resources of this user, in one text.
    async fn everything(&self, of: &[&OwnedIds]) -> String {
        let mut all = String::new();
        for list in ["/v1/threads", "/v1/tasks", "/v1/approvals"] {
            all += &self.send(&Method::GET, list, &Value::Null).await.1;
        }
        for things in of {
            for path in
                ["/v1/threads/{thread_id}", "/v1/threads/{thread_id}/shares", "/v1/conversations/{conversation}/items"]
            {
                all += &self.send(&Method::GET, &things.fill(path), &Value::Null).await.1;
            }
        }
        all
    }
}

#[test]
fn every_route_has_an_isolation_row() {
    let rows = rows();
    let tried = |method: &str, path: &str| {
        rows.iter().any(|(has, row, ..)| has.as_str().to_lowercase() == method && row.split('?').next() == Some(path))
    };
    let mut count = 0;
    for (path, methods) in openapi()["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|name| *name != "parameters") {
            assert!(tried(method, path), "{method} {path} has no row: who may ask it, and what do they get?");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[tokio::test]
async fn no_user_sees_or_changes_resources_of_others() {
    let hw = Server::demo_with(KEYS);
    let seat = |token: String| ApiUser { hw: &hw, token: Some(token) };
    let (ann, ben, nobody) =
        (seat(create_key(&hw, "ann")), seat(create_key(&hw, "ben")), ApiUser { hw: &hw, token: None });
    let (shown, hidden) = (ann.create_everything().await, ann.create_everything().await);
    let viewer = seat(shown.fill("{token}"));
    let before = ann.everything(&[&shown, &hidden]).await;
    let secrets: Vec<&String> = hidden.0.iter().filter(|(name, _)| !is_public(name)).map(|(_, id)| id).collect();
    for (method, path, body, expected) in rows() {
        let (own, other) = (shown.fill(path), hidden.fill(path));
        let say = format!("{method} {path}");
        if method == Method::GET {
            let wanted = match expected {
                Gets(status) => status,
                HasNoSocket => 426,
                _ => 200,
            };
            assert_eq!(ann.send(&method, &own, &body).await.0, wanted, "{say}: the owner");
        }
        let open = if expected == IsAnybody { 200 } else { 401 };
        assert_eq!(nobody.send(&method, &own, &body).await.0, open, "{say}: without a key");

        let (status, text) = ben.send(&method, &own, &body).await;
        let names: Vec<&str> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let named = names.iter().any(|name| !is_public(&format!("{{{name}}}"))) && expected != IsAnybody;
        assert!(!named || status == 404, "{say}: another user gets {status}");
        assert!(named || status < 500, "{say}: another user gets {status}");
        for (name, id) in &shown.0 {
            // The requested path may be repeated; nothing else about it may be disclosed.
            assert!(is_public(name) || own.contains(id) || !text.contains(id), "{say}: another user reads {text}");
        }

        let (status, text) = viewer.send(&method, &own, &body).await;
        let (wanted, elsewhere) = match expected {
            Sees if named => (200, 404),
            Sees => (200, 200),
            CannotAct => (403, 403),
            SeesNothing | HasNoSocket => (404, 404),
            IsAnybody => (200, 200),
            Gets(status) => (status, status),
        };
        assert_eq!(status, wanted, "{say}: a viewer reads {text}");
        assert!(!secrets.iter().any(|id| text.contains(*id)), "{say}: a viewer reads {text}");
        let (status, text) = viewer.send(&method, &other, &body).await;
        assert_eq!(status, elsewhere, "{say}: a viewer, of another thread: {text}");
    }
    assert_eq!(ann.everything(&[&shown, &hidden]).await, before, "nothing of hers has changed");
}

#[tokio::test]
async fn no_request_body_reaches_resources_of_another_user() {
    let hw = Server::demo_with(KEYS);
    let seat = |token: String| ApiUser { hw: &hw, token: Some(token) };
    let (ann, ben) = (seat(create_key(&hw, "ann")), seat(create_key(&hw, "ben")));
    let things = ann.create_everything().await;
    let before = ann.everything(&[&things]).await;
    for (path, body) in [
        ("/v1/tasks", r#"{"model":"demo","input":"hi","thread_id":"{thread_id}"}"#),
        ("/v1/tasks", r#"{"model":"demo","input":"hi","previous":"{task_id}"}"#),
        ("/v1/responses", r#"{"model":"demo","input":"hi","previous_response_id":"{response}"}"#),
        ("/v1/responses/compact", r#"{"model":"demo","previous_response_id":"{response}"}"#),
        ("/v1/responses", r#"{"model":"demo","input":"hi","conversation":"{conversation}"}"#),
        ("/api/v1/agent/runs", r#"{"message":"hi","threadId":"{thread_id}"}"#),
        (
            "/agui/demo",
            r#"{"threadId":"{thread_id}","runId":"r","messages":[{"id":"m","role":"user","content":"hi"}]}"#,
        ),
        (
            "/agui/demo",
            r#"{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"{key}","status":"cancelled"}]}"#,
        ),
    ] {
        let body = serde_json::from_str(&things.fill(body)).unwrap();
        let (status, text) = ben.send(&Method::POST, path, &body).await;
        assert!((400..500).contains(&status), "{path} {body}: {status} {text}");
    }
    assert_eq!(ann.everything(&[&things]).await, before);
}

/// The client messages in the document.
fn messages() -> Vec<String> {
    let document = openapi();
    let text = document["paths"]["/ws"]["get"]["description"].as_str().unwrap();
    let said = text.split("In: ").nth(1).unwrap().split(" Out: ").next().unwrap();
    said.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn no_socket_message_reaches_the_session_of_another_user() {
    let hw = Server::demo_with(KEYS);
    let seat = |token: String| ApiUser { hw: &hw, token: Some(token) };
    let (ann, ben) = (seat(create_key(&hw, "ann")), seat(create_key(&hw, "ben")));
    let (shown, hidden) = (ann.create_everything().await, ann.create_everything().await);
    let viewer = seat(shown.fill("{token}"));
    let before = ann.everything(&[&shown, &hidden]).await;
    let yes = r#"{"type":"approval_response","approval_key":"{key}","decisions":[{"type":"approve"}]}"#;
    // The message, and what another user, a viewer of that thread, and a viewer of another thread get.
    let rows = [
        (
            r#"{"type":"chat","session_id":"{thread_id}","content":"hi"}"#,
            "not_found",
            "share_read_only",
            "share_read_only",
        ),
        (r#"{"type":"resume","session_id":"{thread_id}"}"#, "not_found", "message_start", "not_found"),
        (r#"{"type":"stop"}"#, "no_session", "share_read_only", "share_read_only"),
        (yes, "approval_not_found", "share_read_only", "share_read_only"),
        (r#"{"type":"ping"}"#, "pong", "pong", "pong"),
    ];
    for kind in messages() {
        let row = format!(r#"{{"type":"{kind}""#);
        assert!(rows.iter().any(|(said, ..)| said.starts_with(&row)), "{kind} has no row");
    }
    for (said, another, viewers, elsewhere) in rows {
        for (who, things, wanted) in
            [(&ben, &shown, another), (&viewer, &shown, viewers), (&viewer, &hidden, elsewhere)]
        {
            let mut socket = who.socket().await;
            socket.send_text(&things.fill(said)).await;
            let heard = socket.next_event().await;
            let heard = heard["code"].as_str().or_else(|| heard["type"].as_str()).unwrap();
            assert_eq!(heard, wanted, "{said}");
        }
    }
    assert_eq!(ann.everything(&[&shown, &hidden]).await, before, "nothing of hers has changed");
}
