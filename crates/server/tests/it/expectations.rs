//! What users expect of an agent loop, one sentence per test: those about what a client sees, and that no other test
//! here covers. Where another test covers one, the sentence is its doc comment. `docs/promises.md` lists them all.
//!
//! `modes`: streamed or not. `cancels`: cancelling, disconnecting, time-outs. `visibility`: what is visible, and when.
//! `decisions`: approvals.

mod cancels;
mod decisions;
mod modes;
mod visibility;

use crate::harness::{Server, SseFrame};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[agents.guide]
model = "mine/guide"
tools = ["look", "dig", "order", "north", "south"]
handoffs = ["expert"]

[agents.north]
model = "mine/north"
description = "Knows the north."

[agents.south]
model = "mine/south"
description = "Knows the south."

[agents.expert]
model = "mine/expert"

[tools.look]
kind = "command"
command = ["echo", "seen"]
env_pass = ["PATH"]

[tools.dig]
kind = "command"
command = ["sh", "-c", '''
    for n in 1 2 3; do echo "{\"type\":\"progress\",\"progress\":$n,\"total\":3}"; done
    until test -e go || ! test -e headwater.toml; do sleep 0.02; done
    echo found''']
env_pass = ["PATH"]

[tools.order]
kind = "command"
command = ["sh", "-c", "cat >> orders; echo bought"]
env_pass = ["PATH"]
approval = "always"

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
model = ["north", "south"]
[[scenario.turn]]
steps = [{ text = "{i} ", repeat = 15, every_ms = 20 }]

[[scenario]]
model = "expert"
[[scenario.turn]]
steps = [{ text = "I have taken over." }]

[[scenario]]
match = '\blook\b'
[[scenario.turn]]
usage = { input_tokens = 10, output_tokens = 5 }
steps = [{ reasoning = ["I ", "look."] }, { call = "look" }]
[[scenario.turn]]
usage = { input_tokens = 20, output_tokens = 7 }
steps = [{ text = ["It says: ", "{result}[^{ref}]"] }]

[[scenario]]
match = '\bask north\b'
[[scenario.turn]]
steps = [{ call = "north", arguments = '{"prompt":"?"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bask both\b'
[[scenario.turn]]
steps = [{ call = "north", arguments = '{"prompt":"?"}' }, { call = "south", arguments = '{"prompt":"?"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bhand over\b'
[[scenario.turn]]
steps = [{ call = "look" }, { call = "transfer_to_expert" }]

[[scenario]]
match = '\bcut short\b'
[[scenario.turn]]
stop = "max_tokens"
steps = [{ text = ["This is ", "too lo"] }]

[[scenario]]
match = '\bfail\b'
[[scenario.turn]]
usage = { input_tokens = 10, output_tokens = 5 }
steps = [
  { text = ["It begins ", "well and "] },
  { error = { code = "provider_error", message = "The provider broke.", retryable = true } },
]

[[scenario]]
match = '\bdig\b'
[[scenario.turn]]
steps = [{ call = "dig" }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bcall and wait\b'
[[scenario.turn]]
steps = [{ call = "look" }, { pause_ms = 3600000 }]

[[scenario]]
match = '\bsilent\b'
[[scenario.turn]]
steps = [{ text = "Once " }, { pause_ms = 3600000 }, { text = "upon a time" }]

[[scenario]]
match = '\bcount (?<n>[0-9]+)'
[[scenario.turn]]
steps = [{ text = "{i} ", repeat = "{n}" }]

[[scenario]]
match = '\border thrice\b'
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"n":1}' }]
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"n":2}' }]
[[scenario.turn]]
steps = [{ call = "order", arguments = '{"n":3}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\border\b'
[[scenario.turn]]
steps = [{ text = "I will. " }, { call = "look" }, { call = "order", arguments = '{"n":1}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hello." }]
"#;

fn guide() -> Server {
    Server::with_config(CONFIG, SCENARIOS)
}

fn asks(input: &str) -> Value {
    json!({"model": "guide", "input": input})
}

/// The same request, with this field set.
fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}

fn id(task: &Value) -> &str {
    task["task_id"].as_str().unwrap()
}

fn events(task: &str) -> String {
    format!("/v1/tasks/{task}/events")
}

async fn cancel(hw: &Server, task: &str, mode: &str) -> u16 {
    hw.post(&format!("/v1/tasks/{task}/cancel"), json!({"mode": mode})).await.status
}

fn is_terminal(frame: &SseFrame) -> bool {
    ["task.completed", "task.incomplete", "task.failed", "task.cancelled"].contains(&frame.event.as_str())
}

/// The fastest of several attempts: a test fails on time only when it is never fast.
async fn fastest(tries: usize, once: impl AsyncFn() -> Duration) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..tries {
        best = best.min(once().await);
    }
    best
}

/// The duration of an operation.
async fn timed<T>(what: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (what.await, began.elapsed())
}
