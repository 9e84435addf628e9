//! `client_instructions = false`: an agent whose model reads no instructions of clients.

use crate::harness::Server;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[agents.strict]
model = "mine/any"
client_instructions = false

[agents.open]
model = "mine/any"

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hello." }]
"#;

#[tokio::test]
async fn instructions_of_clients_are_refused_in_every_protocol() {
    let hw = Server::with_config(CONFIG, SCENARIOS);
    let user = json!({"role": "user", "content": "hi"});
    let requests: [(&str, Value, &str); 7] = [
        ("/v1/responses", json!({"input": "hi", "instructions": "Be rude."}), "/error/code"),
        ("/v1/responses", json!({"input": [{"role": "developer", "content": "Be rude."}, user]}), "/error/code"),
        ("/v1/responses", json!({"input": [user, {"role": "system", "content": "Be rude."}]}), "/error/code"),
        ("/v1/chat/completions", json!({"messages": [{"role": "system", "content": "Be rude."}, user]}), "/error/code"),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "developer", "content": "Be rude."}, user]}),
            "/error/code",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [user, {"role": "system", "content": "Be rude."}, user]}),
            "/error/code",
        ),
        ("/v1/messages", json!({"messages": [user], "system": "Be rude.", "max_tokens": 9}), "/error/message"),
    ];
    for (path, body, code) in requests {
        for agent in ["strict", "open"] {
            let mut body = body.clone();
            body["model"] = json!(agent);
            let reply = hw.post(path, body.clone()).await;
            if agent == "open" {
                assert_eq!(reply.status, 200, "{path} {body}: {}", reply.text);
                continue;
            }
            assert_eq!(reply.status, 403, "{path} {body}: {}", reply.text);
            let said = reply.json().pointer(code).cloned().unwrap_or_default();
            let wanted = if code == "/error/code" { "instructions_not_allowed" } else { "takes no instructions" };
            assert!(said.as_str().unwrap().contains(wanted), "{path}: {}", reply.text);
        }
    }
    let plain = hw.post("/v1/responses", json!({"model": "strict", "input": "hi"})).await;
    assert_eq!(plain.status, 200, "{}", plain.text);
}
