//! Access keys: authentication, and isolation of users.

use crate::blobs;
use crate::harness::Server;
use reqwest::Method;
use serde_json::json;
use std::process::Output;

const KEYS: &str = "[auth]\nmode = \"keys\"\n[limits]\nheartbeat_ms = 50";

fn stdout_line(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

pub(crate) fn create_key(hw: &Server, user: &str) -> String {
    let key = stdout_line(&hw.run_cli(&["keys", "create", "--user", user]));
    assert!(key.starts_with("hw_") && key.len() == 67, "{key}");
    key
}

pub(crate) fn live_key_id(hw: &Server, user: &str) -> String {
    let list = stdout_line(&hw.run_cli(&["keys", "list"]));
    let row = list.lines().find(|row| row.contains(user) && row.contains("live")).unwrap();
    row.split('\t').next().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_valid_key_every_request_is_unauthorised() {
    let hw = Server::demo_with(KEYS);
    let good = create_key(&hw, "ann");
    let paths = ["/v1/tasks", "/v1/tasks/task_1", "/v1/tasks/task_1/events", "/v1/threads", "/v1/threads/thr_1"];
    let reference = hw.get("/v1/tasks").await;
    assert_eq!(
        (reference.problem(), reference.header("www-authenticate")),
        ((401, "unauthorized".to_owned()), "Bearer")
    );
    let huge = "x".repeat(8_000);
    let malformed =
        ["Bearer".to_owned(), "Bearer ".to_owned(), format!("Basic {good}"), good.clone(), "Bearer é".to_owned()];
    let wrong = [
        "Bearer hw_".to_owned(),
        format!("Bearer {}", good.to_uppercase()),
        format!("Bearer {good}0"),
        format!("Bearer hw_{huge}"),
        format!("Bearer {good} x"),
    ];
    for path in paths {
        for (headers, code) in [(&malformed[..], "unauthorized"), (&wrong[..], "invalid_api_key")] {
            let reference = hw.request(Method::GET, "/v1/tasks", &[("authorization", &headers[0])], None).await;
            assert_eq!(reference.problem(), (401, code.to_owned()));
            for header in headers {
                let reply = hw.request(Method::GET, path, &[("authorization", header)], None).await;
                assert_eq!((reply.status, &reply.text), (401, &reference.text), "{path} {header:.40}");
            }
        }
        let reply = hw.get(&format!("{path}?access_token={good}")).await;
        assert_eq!((reply.status, &reply.text), (401, &reference.text), "keys do not belong into URLs");
    }
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"] {
        assert_eq!(hw.get(open).await.status, 200, "{open}");
    }
    let hw = hw.with_key(&good);
    assert_eq!(hw.get("/v1/tasks").await.status, 200);
    assert!(!hw.log().contains(&good), "a key is never logged");
    let holds = |bytes: &[u8]| bytes.windows(good.len()).any(|window| window == good.as_bytes());
    for suffix in ["", "-wal", "-log0", "-log1"] {
        let stored = std::fs::read(hw.data_dir().join(format!("headwater.db{suffix}"))).unwrap();
        assert!(!holds(&stored), "nor stored");
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
async fn resources_of_another_user_do_not_exist() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let hw = hw.with_key(&ann);
    let picture = blobs::unique_png("hers");
    let (blob, input) =
        (blobs::sha256_hex(&picture), json!([blobs::image_part(&picture), {"type": "text", "text": "story 3 fast"}]));
    let task = hw.create_task(json!({"model": "demo", "input": input})).await;
    let (id, thread) = (task["task_id"].as_str().unwrap(), task["thread_id"].as_str().unwrap());
    hw.wait_ended(id).await;
    let before = hw.count_threads_and_records().await;
    let made = hw.post("/v1/conversations", json!({})).await.json();
    let conversation = made["id"].as_str().unwrap();
    let hw = hw.with_key(&ben);
    let missing = hw.get("/v1/tasks/task_00000000000000000000000000000000").await.text;
    let body = || Some(br#"{"model":"demo","input":"hi"}"#.to_vec());
    let response = id.replace("task_", "resp_");
    let routes: Vec<(Method, String, Option<Vec<u8>>)> = vec![
        (Method::GET, format!("/v1/tasks/{id}"), None),
        (Method::GET, format!("/v1/tasks/{id}/events"), None),
        (Method::GET, format!("/v1/tasks/{id}/events?after=1"), None),
        (Method::GET, format!("/v1/tasks/{id}/events?format=run-items"), None),
        (Method::HEAD, format!("/v1/tasks/{id}/events"), None),
        (Method::POST, format!("/v1/tasks/{id}/cancel"), None),
        (Method::POST, format!("/v1/tasks/{id}/input"), Some(br#"{"input":"hi"}"#.to_vec())),
        (Method::POST, format!("/v1/tasks/{id}/approvals/apr_1"), Some(br#"{"decision":"approve"}"#.to_vec())),
        (Method::POST, format!("/v1/tasks/{id}/tool_results"), Some(b"[]".to_vec())),
        (Method::GET, format!("/v1/threads/{thread}"), None),
        (Method::DELETE, format!("/v1/threads/{thread}"), None),
        (Method::GET, format!("/v1/threads/{thread}/events"), None),
        (Method::GET, format!("/v1/threads/{thread}/events?after=2"), None),
        (Method::GET, format!("/v1/threads/{thread}/shares"), None),
        (Method::POST, format!("/v1/threads/{thread}/shares"), Some(br#"{"mode":"live"}"#.to_vec())),
        (Method::DELETE, format!("/v1/threads/{thread}/shares/share_1"), None),
        (Method::GET, format!("/v1/blobs/{blob}"), None),
        (Method::HEAD, format!("/v1/blobs/{blob}"), None),
        (Method::GET, format!("/api/v1/agent/runs/{thread}/events"), None),
        (Method::POST, format!("/api/v1/agent/runs/{thread}/cancel"), None),
        (Method::GET, format!("/v1/responses/{response}"), None),
        (Method::DELETE, format!("/v1/responses/{response}"), None),
        (Method::POST, format!("/v1/responses/{response}/cancel"), None),
        (Method::GET, format!("/v1/responses/{response}/input_items"), None),
        (Method::GET, format!("/v1/conversations/{conversation}"), None),
        (Method::POST, format!("/v1/conversations/{conversation}"), Some(br#"{"metadata":{}}"#.to_vec())),
        (Method::DELETE, format!("/v1/conversations/{conversation}"), None),
        (Method::GET, format!("/v1/conversations/{conversation}/items"), None),
        (Method::POST, format!("/v1/conversations/{conversation}/items"), Some(br#"{"items":[]}"#.to_vec())),
        (Method::GET, format!("/v1/conversations/{conversation}/items/msg_1"), None),
        (Method::DELETE, format!("/v1/conversations/{conversation}/items/msg_1"), None),
        (Method::GET, format!("/api/chat/{thread}/stream"), None),
        (Method::GET, format!("/api/chat/{thread}/messages"), None),
        (Method::POST, format!("/api/chat/{thread}/stop"), None),
        (Method::GET, format!("/agui/demo/threads/{thread}/events"), None),
        (Method::POST, format!("/agui/demo/stop/{thread}"), None),
        (Method::POST, format!("/copilotkit/agent/demo/stop/{thread}"), None),
        (Method::GET, "/v1/mcp/elsewhere/authorize".to_owned(), None),
        (Method::POST, "/v1/mcp/elsewhere/authorize".to_owned(), Some(b"{}".to_vec())),
        (Method::DELETE, "/v1/mcp/elsewhere/authorization".to_owned(), None),
    ];
    // A new route must have a row above. Models and agents belong to no user.
    let names = [
        (id, "{task_id}"),
        (thread, "{thread_id}"),
        (&response, "{response}"),
        (conversation, "{conversation}"),
        ("apr_1", "{key}"),
        (&blob, "{hash}"),
        ("share_1", "{share}"),
        ("msg_1", "{item}"),
        ("elsewhere", "{server}"),
        ("/demo/", "/{agent}/"),
    ];
    let named = |path: &str| names.iter().fold(path.to_owned(), |path, (id, name)| path.replace(id, name));
    let tried: Vec<String> = routes
        .iter()
        .map(|(method, path, _)| {
            format!("{} {}", method.as_str().to_lowercase(), named(path.split('?').next().unwrap()))
        })
        .collect();
    let document = crate::harness::openapi();
    let owned = |path: &String| path.replace("{model}", "").replace("{agent}", "").contains('{');
    for (path, methods) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| owned(path)) {
        for method in methods.as_object().unwrap().keys().filter(|name| *name != "parameters") {
            assert!(tried.contains(&format!("{method} {path}")), "{method} {path} is not tried");
        }
    }
    for (method, path, body) in routes {
        let headers = [("content-type", "application/json")];
        let reply = hw.request(method.clone(), &path, &headers, body.clone()).await;
        assert_eq!(reply.status, 404, "{method} {path}");
        // A resource of another user gets the same response as a missing one.
        let nobodys = |text: &str| {
            let other = |id: &str| id.replace(|c: char| c.is_ascii_hexdigit(), "0");
            let ids = [id, thread, &response, conversation];
            ids.iter().fold(text.to_owned(), |text, id| {
                let (prefix, suffix) = id.split_once('_').unwrap();
                text.replace(id, &format!("{prefix}_{}", other(suffix)))
            })
        };
        let none = hw.request(method.clone(), &nobodys(&path), &headers, body).await;
        assert_eq!((none.status, nobodys(&reply.text)), (404, none.text), "{method} {path}");
    }
    let front_end =
        json!({"threadId": thread, "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]});
    for path in ["/agui/demo", "/copilotkit/agent/demo/run"] {
        assert_eq!(hw.post(path, front_end.clone()).await.status, 404, "{path}");
    }
    let joined = hw.post("/agui/demo/connect", front_end).await;
    assert!(joined.status == 200 && !joined.text.contains("data:"), "{}", joined.text);
    let into = format!(r#"{{"model":"demo","input":"hi","thread_id":"{thread}"}}"#);
    assert_eq!(hw.post_text("/v1/tasks", into).await.text, missing);
    let previous = format!(r#"{{"model":"demo","input":"hi","previous":"{id}"}}"#);
    assert_eq!(hw.post_text("/v1/tasks", previous).await.problem(), (422, "unknown_previous".to_owned()));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"], json!([]));
    assert_eq!(hw.get(&format!("/v1/tasks?thread_id={thread}")).await.json()["data"], json!([]));
    assert_eq!(hw.get("/v1/threads").await.json()["data"], json!([]));
    // The same Idempotency-Key of two users is two keys.
    let once = [("content-type", "application/json"), ("idempotency-key", "k")];
    let bens = hw.request(Method::POST, "/v1/tasks", &once, body()).await.json();
    let hw = hw.with_key(&ann);
    let anns = hw.request(Method::POST, "/v1/tasks", &once, body()).await.json();
    assert_ne!(anns["task_id"], bens["task_id"]);
    hw.wait_ended(anns["task_id"].as_str().unwrap()).await;
    assert_eq!(hw.count_threads_and_records().await.0, before.0 + 1);
}

#[tokio::test]
async fn keys_can_change_while_the_server_runs() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let ann_id = live_key_id(&hw, "ann");
    let _second = create_key(&hw, "ben");
    let hw = hw.with_key(&ann);
    let task = hw.start_run("story 1 fast").await;
    let mut watcher = hw.open_stream(&format!("/v1/threads/{}/events", task["thread_id"].as_str().unwrap())).await;
    watcher.read_until("task.completed").await;
    assert_eq!(stdout_line(&hw.run_cli(&["keys", "revoke", &ann_id])), "revoked");
    assert_eq!(hw.get("/v1/tasks").await.problem().0, 401, "at once");
    assert!(watcher.read_to_end().await.is_err(), "its streams are cut");
    let list = stdout_line(&hw.run_cli(&["keys", "list"]));
    assert_eq!((list.lines().count(), list.matches("live").count()), (2, 1), "{list}");
    assert!(!list.contains(&ann[3..]) && !list.contains("digest"));
    for bad in [
        vec!["keys", "revoke", "key_nothing"],
        vec!["keys", "create", "--user", "a b"],
        vec!["keys", "create", "--user", ""],
    ] {
        let output = hw.run_cli(&bad);
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).lines().count()),
            (Some(1), 1),
            "{bad:?}"
        );
    }
}

#[tokio::test]
async fn keys_can_be_created_before_the_server_runs_and_persist() {
    let mut hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    hw.kill9();
    let ben = create_key(&hw, "ben");
    let ben_id = live_key_id(&hw, "ben");
    // The socket file of the killed server still exists; the next one replaces it.
    assert!(hw.data_dir().join("control.sock").exists());
    hw.restart();
    let hw = hw.with_key(&ben);
    assert_eq!(hw.get("/v1/tasks").await.status, 200);
    stdout_line(&hw.run_cli(&["keys", "revoke", &ben_id]));
    assert_eq!(hw.get("/v1/tasks").await.status, 401);
    assert_eq!(hw.with_key(&ann).get("/v1/tasks").await.status, 200);
}

#[tokio::test]
async fn the_admin_socket_is_accessible_to_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let hw = Server::demo();
    let mode = std::fs::metadata(hw.data_dir().join("control.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!hw.data_dir().join("control.new").exists());
}
