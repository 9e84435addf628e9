//! Schemas that would take a worker for ever: refused in every protocol, and nobody else notices.

use crate::harness::{Server, headwater_command};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Each of 45 levels applies the next one twice.
fn doubling_schema() -> Value {
    let twice = |level: usize| json!({"allOf": vec![json!({"$ref": format!("#/$defs/a{}", level + 1)}); 2]});
    let mut definitions: Map<String, Value> = (0..45).map(|level| (format!("a{level}"), twice(level))).collect();
    definitions.insert("a45".to_owned(), json!({"type": "object"}));
    json!({"type": "object", "$ref": "#/$defs/a0", "$defs": definitions})
}

/// The same tools in the protocols that have them, and the status of an invalid request there.
fn requests(tools: &[(String, Value)]) -> Vec<(&'static str, u16, Value)> {
    let list = |tool: &dyn Fn(&str, &Value) -> Value| -> Vec<Value> {
        tools.iter().map(|(name, schema)| tool(name, schema)).collect()
    };
    let native = list(&|name, schema| json!({"name": name, "parameters": schema}));
    let flat = list(&|name, schema| json!({"type": "function", "name": name, "parameters": schema}));
    let nested = list(&|name, schema| json!({"type": "function", "function": {"name": name, "parameters": schema}}));
    let messages = list(&|name, schema| json!({"name": name, "input_schema": schema}));
    let words = json!([{"role": "user", "content": "client"}]);
    vec![
        ("/v1/tasks", 422, json!({"model": "demo", "input": "client", "tools": native})),
        ("/v1/responses", 400, json!({"model": "demo", "input": "client", "tools": flat})),
        ("/v1/chat/completions", 400, json!({"model": "demo", "messages": words, "tools": nested})),
        ("/v1/messages", 400, json!({"model": "demo", "max_tokens": 99, "messages": words, "tools": messages})),
    ]
}

#[tokio::test]
async fn a_doubling_schema_is_refused_in_every_protocol_and_the_server_goes_on() {
    let mut hw = Server::demo();
    for (path, status, body) in requests(&[("evil".to_owned(), doubling_schema())]) {
        let reply = hw.post(path, body).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text);
        assert!(reply.text.contains("`evil`") && reply.text.contains("/$defs/a"), "{path}: {}", reply.text);
    }
    assert_eq!(hw.get("/healthz").await.status, 200);
    assert_eq!(hw.get("/v1/tasks").await.json()["data"], json!([]), "nothing was started");
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
}

/// Asks `/healthz` until `others` has ended, and returns the longest answer.
async fn slowest_health_check(hw: &Server, others: impl Future<Output = ()>) -> Duration {
    let mut slowest = Duration::ZERO;
    tokio::pin!(others);
    loop {
        let start = Instant::now();
        let mut done = false;
        let asked = hw.get("/healthz");
        tokio::pin!(asked);
        tokio::select! {
            reply = &mut asked => assert_eq!(reply.status, 200),
            () = &mut others => done = true,
        }
        if done {
            return slowest;
        }
        slowest = slowest.max(start.elapsed());
    }
}

#[tokio::test]
async fn expensive_patterns_are_refused_or_compiled_beside_the_workers() {
    let hw = Server::demo();
    let schema = |pattern: &str, count: usize| {
        let properties: Map<String, Value> = (0..count)
            .map(|n| (format!("p{n}"), json!({"type": "string", "pattern": format!("{pattern}{n}")})))
            .collect();
        json!({"type": "object", "properties": properties})
    };
    let tools =
        |schema: &Value| -> Vec<(String, Value)> { (0..64).map(|n| (format!("tool{n}"), schema.clone())).collect() };
    let story = hw.start_run("story 100").await;
    let mut stream = hw.open_stream(&format!("/v1/tasks/{}/events", story["task_id"].as_str().unwrap())).await;
    stream.read_until("task.text.delta").await;
    let (_, status, body) = requests(&tools(&schema(r"[\p{L}\p{N}]{150}", 40))).swap_remove(0);
    let reply = hw.post("/v1/tasks", body).await;
    assert_eq!(reply.status, status, "{}", reply.text);
    assert!(reply.text.contains("`tool0`") && reply.text.contains("/pattern` takes more than"), "{}", reply.text);
    // As expensive as is allowed, in many tools that differ.
    let allowed: Vec<(String, Value)> =
        (0..64).map(|n| (format!("tool{n}"), schema(&format!("[a-z]{{1,30}}{n}x"), 4))).collect();
    let slowest = slowest_health_check(&hw, async {
        for (path, _, body) in requests(&allowed) {
            let reply = hw.post(path, body).await;
            assert_eq!(reply.status / 100, 2, "{path}: {}", reply.text);
        }
    })
    .await;
    // A second is promised; this is neither optimised nor alone.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let text = stream.read_to_end().await.unwrap();
    assert!(text.contains("task.completed"), "the other stream went on: {text}");
}

#[test]
fn a_configured_schema_beyond_the_bounds_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let check = |parameters: &str| {
        let config = format!("[tools.t]\nkind = \"http\"\nurl = \"http://127.0.0.1:9/\"\nparameters = {parameters}\n");
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        let output = headwater_command(dir.path()).args(["check-config", "--config", "c.toml"]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let pattern =
        |pattern: &str| format!("{{ type = \"object\", properties = {{ a = {{ pattern = '{pattern}' }} }} }}");
    let said = check(&pattern("^(?=.*a)b"));
    assert!(
        said.contains("c.toml:4") && said.contains("look-around") && said.contains("/properties/a/pattern"),
        "{said}"
    );
    let said = check("{ type = \"object\", allOf = [{ \"$ref\" = \"#\" }] }");
    assert!(said.contains("never end"), "{said}");
}
