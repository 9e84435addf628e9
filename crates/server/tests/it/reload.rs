//! SIGHUP: a changed config counts for the runs that start from then on.

use crate::harness::Server;
use serde_json::{Value, json};
use std::fs;

const SCENARIOS: &str = r#"
[[scenario]]
match = 'trade'
[[scenario.turn]]
steps = [{ call = "t", arguments = '{}' }]
[[scenario.turn]]
steps = [{ text = "done" }]
[[scenario]]
[[scenario.turn]]
steps = [{ text = "hi" }]
"#;

fn config(approval: &str, more: &str) -> String {
    format!(
        "[agents.a]\nmodel = \"mine/a\"\ntools = [\"t\"]\n[tools.t]\nkind = \"command\"\ncommand = \"true\"\napproval = \"{approval}\"\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n{more}"
    )
}

/// Writes the config, sends the signal and returns the line that the server logs.
async fn reload(hw: &Server, text: &str, message: &str) -> String {
    let count = |log: &str| log.matches(message).count();
    let before = count(&hw.log());
    fs::write(hw.path("headwater.toml"), text).unwrap();
    hw.signal("-HUP");
    hw.wait_until("the config is read", async || count(&hw.log()) > before).await;
    hw.log().lines().rfind(|line| line.contains(message)).unwrap().to_owned()
}

async fn run_trade(hw: &Server, agent: &str) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": agent, "input": "trade", "wait": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn new_runs_use_the_new_config_and_old_ones_keep_theirs() {
    let mut hw = Server::with_config(&config("always", ""), SCENARIOS);
    let paused = run_trade(&hw, "a").await;
    assert_eq!(paused["status"], "paused");
    let more = "[agents.b]\nmodel = \"new/b\"\n[providers.new]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n\
                [prices.\"mine/a\"]\ninput = 1\noutput = 1\n[server]\nlisten = \"127.0.0.1:1\"\n";
    let line = reload(&hw, &config("never", more), "config reloaded").await;
    let changes = "agents +b; tools ~t; prices +mine/a; providers changed";
    assert!(line.contains(changes) && line.contains("restart_needed=\"server.listen\""), "{line}");
    assert_eq!(run_trade(&hw, "a").await["status"], "completed", "the new rule");
    let task = hw.post("/v1/tasks", json!({"model": "b", "input": "hello", "wait": true})).await.json();
    assert_eq!(task["status"], "completed", "a new agent of a new provider: {task}");
    let models = hw.get("/v1/models").await.text;
    assert!(models.contains("\"b\""), "{models}");

    // The run that waited does so still, also after a restart, and asks again by its own rule.
    let id = paused["task_id"].as_str().unwrap();
    assert_eq!(hw.get(&format!("/v1/tasks/{id}")).await.json()["status"], "paused");
    fs::write(hw.path("headwater.toml"), config("never", "")).unwrap();
    hw.kill9();
    hw.restart();
    let key = paused["pending"][0]["key"].as_str().unwrap();
    let reply = hw.post(&format!("/v1/tasks/{id}/approvals/{key}"), json!({"decision": "approve"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(hw.wait_ended(id).await["status"], "completed");
}

#[tokio::test]
async fn a_broken_file_keeps_the_old_config() {
    let hw = Server::with_config(&config("never", ""), SCENARIOS);
    let line = reload(&hw, "[agents.a]\nmodel = \"no/a\"\n", "config not reloaded").await;
    assert!(line.contains("headwater.toml:2: agents.a.model: no provider for `no/a`"), "{line}");
    assert_eq!(run_trade(&hw, "a").await["status"], "completed");
    let line = reload(&hw, &config("never", ""), "config reloaded").await;
    assert!(line.contains("changes=\"nothing\"") && line.contains("restart_needed=\"\""), "{line}");
}
