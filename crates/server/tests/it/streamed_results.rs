//! Tools that speak while they run: what people see meanwhile, what every protocol shows at the end, and what a crash leaves.

use crate::harness::Server;
use serde_json::{Value, json};

const SCENARIOS: &str = r#"
[[scenario]]
[[scenario.turn]]
steps = [{ call = "speak", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]
"#;

/// Says something, waits for a file, and says the rest.
const SCRIPT: &str = r#"
echo '{"type":"text","text":"one "}'
echo '{"type":"image","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=","partial":0}'
until [ -e go ]; do sleep 0.02; done
echo '{"type":"text","text":"two"}'
"#;

fn server(keys: &str) -> Server {
    let config = format!(
        "[agents.helper]\nmodel = \"mine/any\"\ntools = [\"speak\"]\n\
         [tools.speak]\nkind = \"command\"\ncommand = [\"sh\", \"speak.sh\"]\nenv_pass = [\"PATH\"]\n{keys}\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n"
    );
    let hw = Server::with_config(&config, SCENARIOS);
    std::fs::write(hw.path("speak.sh"), SCRIPT).unwrap();
    hw
}

/// A run whose tool has shown a piece and waits.
async fn speaking(hw: &Server) -> String {
    let task = hw.create_task(json!({"model": "helper", "input": "go"})).await;
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("it speaks", async || {
        let blocks = &result_of(&hw.get(&path).await.json())["block_list"];
        blocks.as_array().is_some_and(|blocks| blocks.len() == 2)
    })
    .await;
    path
}

fn result_of(task: &Value) -> Value {
    let results = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result");
    results.cloned().unwrap_or_default()
}

fn texts(result: &Value) -> Vec<&str> {
    result["block_list"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

#[tokio::test]
async fn a_result_is_shown_while_its_tool_runs() {
    let hw = server("");
    let path = speaking(&hw).await;
    let result = result_of(&hw.get(&path).await.json());
    assert_eq!((&result["status"], texts(&result)), (&json!("in_progress"), vec!["one "]));
    let preview = result["block_list"][1]["image_url"]["url"].as_str().unwrap();
    assert!(preview.starts_with("/v1/blobs/"), "{preview}");
    assert_eq!(hw.get(preview).await.status, 200);
    std::fs::write(hw.path("go"), "").unwrap();
    let ended = hw.wait_ended(path.rsplit('/').next().unwrap()).await;
    assert_eq!((&ended["status"], texts(&result_of(&ended))), (&json!("completed"), vec!["one ", "two"]));
    let frames = hw.frames(&format!("{path}/events"), None).await;
    let of_result =
        frames.iter().filter(|frame| frame.data["item_id"].as_str().is_some_and(|id| id.starts_with("fco_")));
    let types: Vec<&str> = of_result.map(|frame| frame.event.as_str()).collect();
    let expected = [
        "task.text.added",
        "task.text.delta",
        "task.text.done",
        "task.image.added",
        "task.image.delta",
        "task.image.done",
        "task.text.added",
        "task.text.delta",
        "task.text.done",
    ];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn every_protocol_shows_the_complete_result() {
    let hw = server("");
    std::fs::write(hw.path("go"), "").unwrap();
    let said = |text: &str| text.contains("one ") && text.contains("two");
    let response = hw.post("/v1/responses", json!({"model": "helper", "input": "go"})).await.json();
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["status"]), (&json!("mcp_call"), &json!("completed")), "{response}");
    assert!(said(call["output"].as_str().unwrap()), "{call}");
    let message = json!([{"role": "user", "content": "go"}]);
    let body = json!({"model": "helper", "max_tokens": 100, "messages": message});
    let answer = hw.post("/v1/messages", body).await.json();
    assert_eq!(answer["content"][1]["type"], "mcp_tool_result", "{answer}");
    assert!(said(&answer["content"][1].to_string()), "{answer}");
    let answer = hw.post("/v1/chat/completions", json!({"model": "helper", "messages": message})).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.", "{answer}");
    let task = hw.post("/v1/tasks", json!({"model": "helper", "input": "go", "wait": true})).await.json();
    let path = format!("/v1/tasks/{}/events?format=run-items", task["task_id"].as_str().unwrap());
    let frames = hw.frames(&path, None).await;
    let output = frames.iter().find(|frame| frame.data["name"] == "tool_output").expect("an output");
    assert!(said(output.data["item"]["output"].as_str().unwrap()), "{}", output.data);
}

#[tokio::test]
async fn a_kill_in_mid_stream_leaves_what_was_shown() {
    let mut hw = server("");
    let path = speaking(&hw).await;
    hw.kill9();
    hw.restart();
    let ended = hw.wait_ended(path.rsplit('/').next().unwrap()).await;
    let result = result_of(&ended);
    assert_eq!((&ended["status"], &result["status"]), (&json!("completed"), &json!("unknown")), "{result}");
    assert_eq!((texts(&result), &result["error"]["code"]), (vec!["one "], &json!("outcome_unknown")));
}

#[tokio::test]
async fn a_tool_that_is_started_again_adds_to_its_result() {
    let mut hw = server("idempotent = true");
    let path = speaking(&hw).await;
    hw.kill9();
    std::fs::write(hw.path("go"), "").unwrap();
    hw.restart();
    let ended = hw.wait_ended(path.rsplit('/').next().unwrap()).await;
    let result = result_of(&ended);
    assert_eq!((&result["status"], texts(&result)), (&json!("completed"), vec!["one ", "one ", "two"]), "{result}");
}
