//! A configuration with approvals: an agent whose orders need approval, a sub-agent with the same, client tools, and
//! tools that a crash interrupts. Every executed order is a line of the file `orders`.

use crate::harness::{Reply, Server};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[agents.broker]
model = "mine/broker"
tools = ["order", "brief_order", "unsure_order", "asking_order", "clerk"]

[agents.clerk]
model = "mine/clerk"
description = "Places small orders."
tools = ["order"]

[tools.order]
kind = "command"
command = ["sh", "-c", "cat >> orders; echo bought"]
env_pass = ["PATH"]
approval = "always"

[tools.order.parameters]
type = "object"
required = ["symbol", "quantity"]
properties.symbol = { type = "string" }
properties.quantity = { type = "integer", minimum = 1 }

[tools.brief_order]
kind = "command"
command = ["sh", "-c", "cat >> orders; echo bought"]
env_pass = ["PATH"]
approval = "always"
approval_timeout_seconds = 1

[tools.unsure_order]
kind = "command"
command = ["sh", "-c", "cat >> orders; until test -e go || ! test -e orders; do sleep 0.02; done; echo bought"]
env_pass = ["PATH"]

[tools.asking_order]
kind = "command"
command = ["sh", "-c", "cat >> orders; until test -e go || ! test -e orders; do sleep 0.02; done; echo bought"]
env_pass = ["PATH"]
on_crash = "ask"

[providers.mine]
kind = "scripted"
file = "scenarios.toml"

[prices."mine/broker"]
input = 1000
output = 2000
"#;

const SCENARIOS: &str = r#"
[[scenario]]
model = "clerk"
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"symbol":"FPT","quantity":1}' }]
[[scenario.turn]]
steps = [{ text = "The clerk: {result}" }]

[[scenario]]
match = '\bbuy\b'
[[scenario.turn]]
steps = [{ text = "I will." }, { call = "order", arguments = '{"symbol":"VNM","quantity":100}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bagain\b'
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"symbol":"A","quantity":1}' }]
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"symbol":"B","quantity":2}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\btwo clerks\b'
[[scenario.turn]]
steps = [{ call = "clerk", arguments = '{"prompt":"one"}' }, { call = "clerk", arguments = '{"prompt":"two"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bask the clerk\b'
[[scenario.turn]]
steps = [{ call = "clerk", arguments = '{"prompt":"one FPT"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\b(?<kind>brief|unsure|asking)\b'
[[scenario.turn]]
steps = [{ call = "{kind}_order", arguments = '{"symbol":"VNM"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bone thing twice\b'
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"symbol":"VNM","quantity":1,"quantity":100}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\blocate beside an order\b'
[[scenario.turn]]
steps = [{ call = "locate", arguments = '{"what":"keys"}' }, { call = "unsure_order", arguments = '{"symbol":"VNM"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\blocate\b'
[[scenario.turn]]
steps = [{ call = "locate", arguments = '{"what":"keys"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bboth\b'
[[scenario.turn]]
steps = [{ call = "locate", arguments = '{"what":"keys"}' }, { call = "measure" }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bcount (?<n>[0-9]+)'
[[scenario.turn]]
usage = { input_tokens = 10, output_tokens = 5 }
steps = [{ text = "{i} ", repeat = "{n}", every_ms = 20 }]

[[scenario]]
[[scenario.turn]]
usage = { input_tokens = 10, output_tokens = 5 }
steps = [{ text = "Hello." }]
"#;

/// The configuration with additions.
pub(crate) fn broker_server(more: &str) -> Server {
    Server::with_config(&format!("{CONFIG}\n{more}\n"), SCENARIOS)
}

/// Executed orders with their arguments.
pub(crate) fn placed_orders(hw: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(hw.path("orders")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a run and returns its object when it is paused.
pub(crate) async fn start_paused(hw: &Server, body: Value) -> Value {
    let mut body = body;
    if body.get("model").is_none() {
        body["model"] = json!("broker");
    }
    body["wait"] = json!(true);
    let reply = hw.post("/v1/tasks", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let task = reply.json();
    assert_eq!(task["status"], "paused", "{task}");
    task
}

/// The path for deciding the first approval of a paused run.
pub(crate) fn approval_path(task: &Value) -> String {
    let key = task["pending"][0]["key"].as_str().unwrap();
    format!("/v1/tasks/{}/approvals/{key}", task["task_id"].as_str().unwrap())
}

pub(crate) async fn decide(hw: &Server, task: &Value, body: Value) -> Reply {
    hw.post(&approval_path(task), body).await
}

/// The ended task, and the end of its last message.
pub(crate) async fn wait_outcome(hw: &Server, task: &Value) -> (Value, String) {
    let task = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let message = task["output"].as_array().unwrap().iter().rfind(|item| item["type"] == "message");
    let words = message.map(|item| item["block_list"][0]["text"].as_str().unwrap_or_default().to_owned());
    (task, words.unwrap_or_default())
}

pub(crate) fn tool_results(task: &Value) -> Vec<&Value> {
    task["output"].as_array().unwrap().iter().filter(|item| item["type"] == "tool_result").collect()
}
