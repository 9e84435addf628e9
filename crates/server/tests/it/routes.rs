//! Successful responses of each route.

use crate::harness::{Server, openapi, openapi_text};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_task_is_started_followed_and_read() {
    let hw = Server::demo();
    let begun = hw.post("/v1/tasks", json!({"model": "demo", "input": "weather", "metadata": {"title": "t"}})).await;
    assert_eq!(begun.status, 202);
    let task = begun.json();
    let id = task["task_id"].as_str().unwrap();
    assert_eq!(begun.header("location"), format!("/v1/tasks/{id}"));
    assert!(matches!(task["status"].as_str().unwrap(), "queued" | "running"), "{task}");

    let done = hw.wait_ended(id).await;
    assert_eq!(done["status"], "completed");
    assert_eq!(done["metadata"], json!({"title": "t"}));
    let kinds: Vec<&str> =
        done["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "tool_call", "tool_result", "message"]);
    assert!(!done.to_string().contains("referencable-item"), "what only the model reads stays inside");
}

#[tokio::test]
async fn waiting_gives_the_ended_object() {
    let hw = Server::demo();
    let reply = hw.post("/v1/tasks", json!({"model": "demo", "input": "story 5 fast", "wait": true})).await;
    assert_eq!((reply.status, reply.json()["status"].as_str().unwrap()), (200, "completed"));
    assert!(reply.header("location").starts_with("/v1/tasks/task_"));
}

#[tokio::test]
async fn streaming_gives_the_same_bytes_as_the_event_route() {
    let hw = Server::demo();
    let reply = hw.post("/v1/tasks", json!({"model": "demo", "input": "weather", "stream": true})).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), "no-cache, no-store, no-transform");
    assert_eq!(reply.header("x-accel-buffering"), "no");
    assert!(reply.text.starts_with(":\n\nretry: "), "{}", reply.text);
    let location = reply.header("location").to_owned();
    let again = hw.frames(&format!("{location}/events"), None).await;
    assert_eq!(crate::harness::parse_frames(&reply.text), again);
    assert_eq!(again.last().unwrap().event, "task.completed");
}

#[tokio::test]
async fn content_parts_are_accepted_as_input() {
    let hw = Server::demo();
    let input = json!([
        {"type": "text", "text": "story 2 fast"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="}},
        {"type": "file", "file": {"url": "https://example.com/x"}},
    ]);
    let tools = json!([{"name": "mine", "description": "d", "parameters": {"type": "object"}}]);
    let reply =
        hw.post("/v1/tasks", json!({"model": "scripted/any", "input": input, "tools": tools, "wait": true})).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.text);
}

#[tokio::test]
async fn listings_are_paged_newest_first() {
    let hw = Server::demo();
    let mut begun = Vec::new();
    for _ in 0..5 {
        let task = hw.start_run("story 1 fast").await;
        begun.insert(0, task["task_id"].as_str().unwrap().to_owned());
        hw.wait_ended(&begun[0]).await;
    }
    let ids = |page: &Value, name: &str| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()).collect()
    };
    let first = hw.get("/v1/tasks?limit=2").await.json();
    assert_eq!((ids(&first, "task_id"), first["has_more"].as_bool()), (begun[..2].to_vec(), Some(true)));
    let rest = hw.get(&format!("/v1/tasks?limit=3&before={}", begun[1])).await.json();
    assert_eq!((ids(&rest, "task_id"), rest["has_more"].as_bool()), (begun[2..].to_vec(), Some(false)));
    let done = hw.get("/v1/tasks?status=completed,failed").await.json();
    assert_eq!(ids(&done, "task_id"), begun);
    assert_eq!(ids(&hw.get("/v1/tasks?status=running").await.json(), "task_id"), Vec::<String>::new());

    let threads = hw.get("/v1/threads?limit=2").await.json();
    assert_eq!((ids(&threads, "thread_id").len(), threads["has_more"].as_bool()), (2, Some(true)));
    let newest = ids(&threads, "thread_id")[0].clone();
    let of_thread = hw.get(&format!("/v1/tasks?thread_id={newest}")).await.json();
    assert_eq!(ids(&of_thread, "task_id"), [begun[0].clone()]);
    // A cursor stays valid after deletions.
    let gone = hw.request(Method::DELETE, &format!("/v1/threads/{newest}"), &[], None).await;
    assert_eq!(gone.status, 204);
    let rest = hw.get(&format!("/v1/threads?before={newest}")).await.json();
    assert_eq!(ids(&rest, "thread_id").len(), 4);
    assert_eq!(hw.get(&format!("/v1/tasks?before={}", begun[0])).await.json()["data"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_deleted_thread_is_gone_and_its_streams_end() {
    let hw = Server::demo();
    let task = hw.start_run("story 2000").await;
    let (id, thread) = (task["task_id"].as_str().unwrap(), task["thread_id"].as_str().unwrap());
    let mut watcher = hw.open_stream(&format!("/v1/threads/{thread}/events")).await;
    watcher.read_until("task.text.delta").await;
    let path = format!("/v1/threads/{thread}");
    assert_eq!(hw.request(Method::DELETE, &path, &[], None).await.status, 204);
    assert!(watcher.read_to_end().await.is_err(), "it must not look like the end");
    for gone in [path.clone(), format!("{path}/events"), format!("/v1/tasks/{id}"), format!("/v1/tasks/{id}/events")] {
        assert_eq!(hw.get(&gone).await.problem(), (404, "not_found".to_owned()), "{gone}");
    }
    assert_eq!(hw.request(Method::DELETE, &path, &[], None).await.problem(), (404, "not_found".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, (0, 0));
}

#[tokio::test]
async fn the_remaining_routes_answer() {
    let hw = Server::demo();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/openapi.json", "application/json"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let reply = hw.get(path).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/web")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(kind) = [(".js", "text/javascript; charset=utf-8"), (".css", "text/css; charset=utf-8")]
            .iter()
            .find_map(|(end, kind)| name.ends_with(end).then_some(*kind))
        else {
            assert_eq!(name, "index.html");
            continue;
        };
        let reply = hw.get(&format!("/page/{name}")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{name}");
    }
    assert_eq!(hw.get("/page/no.js").await.problem(), (404, "not_found".to_owned()));
    let task = hw.start_run("story 1 fast").await;
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let metrics = hw.get("/metrics").await.text;
    for name in [
        "headwater_http_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"202\"} 1",
        "headwater_records_total",
        "headwater_store_commits_total",
        "headwater_streams_open 0",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
    let printed = openapi_text();
    assert_eq!(printed, hw.get("/openapi.json").await.text);
    assert_eq!(printed, openapi_text(), "another process writes the same bytes");
}

#[tokio::test]
async fn documented_and_served_routes_agree() {
    let hw = Server::demo();
    let document = openapi();
    let brew = Method::from_bytes(b"BREW").unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{task_id}", "task_1").replace("{thread_id}", "thr_1").replace("{key}", "apr_1");
        let reply = hw.request(brew.clone(), &path, &[], None).await;
        let mut served: Vec<String> = reply.header("allow").split(',').map(str::to_lowercase).collect();
        // Beside its route, this path has the page that browsers come back to.
        let is_page = |method: &str| path == "/v1/mcp/callback" && method == "get";
        served.retain(|method| method != "head" && !is_page(method));
        served.sort();
        let methods = methods.as_object().unwrap().keys().filter(|name| *name != "parameters");
        let mut documented: Vec<String> = methods.cloned().collect();
        documented.sort();
        assert_eq!(served, documented, "{path}");
    }
    // The other direction cannot fail, but for the page: its routes are the only ones outside the table.
    let page = include_str!("../../src/routes/page.rs");
    let outside: Vec<&str> = page.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(outside, ["/", "/page/{asset}"]);
    assert!(!include_str!("../../src/router.rs").contains(".route(\"/"), "a route without documentation");
}

#[tokio::test]
async fn documented_query_parameters_are_those_that_are_parsed() {
    let hw = Server::demo();
    let ids = hw.start_run("story 1 fast").await;
    let mut count = 0;
    for (path, methods) in openapi()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            // Routes that are lenient, that ignore their query, or that need more than a query.
            let has_status = |status: &str| operation["responses"].get(status).is_some();
            if !has_status("422") || path == "/ws" {
                continue;
            }
            let path = path.replace("{task_id}", ids["task_id"].as_str().unwrap());
            let path = path.replace("{thread_id}", ids["thread_id"].as_str().unwrap());
            let path = path
                .replace("{key}", "apr_1")
                .replace("{share}", "s")
                .replace("{server}", "s")
                .replace("{hash}", &"0".repeat(64));
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let reply = hw.request(method.clone(), &format!("{path}?no_such=1"), &[], None).await;
            assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{method} {path}");
            let detail = reply.json()["detail"].as_str().unwrap().to_owned();
            let mut parsed: Vec<&str> = detail.split('`').skip(3).step_by(2).collect();
            let parameters = operation["parameters"].as_array().unwrap().iter();
            // A middleware takes these out of the query.
            let of_middleware: &[&str] = match path.starts_with("/v1/blobs/") {
                true => &["user", "expires", "signature"],
                false => &["ticket", "blobs"],
            };
            let is_handled_before = |parameter: &Value| of_middleware.contains(&parameter["name"].as_str().unwrap());
            let query = parameters.filter(|parameter| parameter["in"] == "query" && !is_handled_before(parameter));
            let mut documented: Vec<&str> = query.map(|parameter| parameter["name"].as_str().unwrap()).collect();
            parsed.sort_unstable();
            documented.sort_unstable();
            assert_eq!(parsed, documented, "{method} {path}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn the_document_refers_to_what_it_has() {
    let document = openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let mut references = Vec::new();
    collect_references(document, &mut references);
    assert!(references.len() > 200, "{}", references.len());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
        assert!(!name.ends_with(|last: char| last.is_ascii_digit()), "{name}: two types have this name");
    }
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let mut ids: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
}

fn collect_references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| collect_references(member, found));
        }
        _ => {}
    }
}

#[tokio::test]
async fn an_answer_to_a_call_that_is_not_pending_is_refused() {
    let hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    let id = task["task_id"].as_str().unwrap();
    let approve = hw.post(&format!("/v1/tasks/{id}/approvals/apr_1"), json!({"decision": "approve"})).await;
    assert_eq!(approve.problem(), (404, "approval_not_found".to_owned()));
    let results = json!([{"call_id": "call_1", "content": "done"}]);
    let results = hw.post(&format!("/v1/tasks/{id}/tool_results"), results).await;
    assert_eq!(results.problem(), (409, "nothing_pending".to_owned()));
}
