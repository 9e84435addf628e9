//! Items that a crash or a cancel cut off: what a client folds from the events is what `GET` returns.

use crate::harness::{Server, SseFrame};
use serde_json::{Value, json};

const CONFIG: &str = "[agents.thinker]\nmodel = \"mine/thinker\"\n\
    [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n";
const SCENARIOS: &str = r#"
[[scenario]]
match = 'think'
[[scenario.turn]]
steps = [
  { reasoning = "I think first." },
  { text = "{i} ", repeat = 60, every_ms = 20 },
]
"#;

/// Index, id, status and reason of each item, from the events alone.
fn fold_items(frames: &[SseFrame]) -> Vec<(Value, Value, Value)> {
    let mut items: Vec<Value> = Vec::new();
    for frame in frames {
        let index = || usize::try_from(frame.data["output_index"].as_u64().unwrap()).unwrap();
        match frame.event.as_str() {
            "task.output_item.added" => {
                assert_eq!(index(), items.len(), "{}", frame.data);
                items.push(frame.data["item"].clone());
            }
            "task.output_item.done" => {
                let at = index();
                items[at] = frame.data["item"].clone();
            }
            _ => {}
        }
    }
    items.iter().map(summary).collect()
}

fn summary(item: &Value) -> (Value, Value, Value) {
    (item["id"].clone(), item["status"].clone(), item["reason"].clone())
}

async fn start(hw: &Server) -> String {
    let task = hw.create_task(json!({"model": "thinker", "input": "think"})).await;
    let id = task["task_id"].as_str().unwrap().to_owned();
    hw.open_stream(&format!("/v1/tasks/{id}/events")).await.read_until("task.text.delta").await;
    id
}

/// The items of the ended task, after checking that the events fold to them.
async fn folded_output(hw: &Server, id: &str) -> Vec<(Value, Value, Value)> {
    let task = hw.wait_ended(id).await;
    let output: Vec<_> = task["output"].as_array().unwrap().iter().map(summary).collect();
    let frames = hw.frames(&format!("/v1/tasks/{id}/events"), None).await;
    assert_eq!(fold_items(&frames), output, "{task:#}");
    output
}

fn statuses(output: &[(Value, Value, Value)]) -> Vec<&str> {
    output.iter().map(|(_, status, _)| status.as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn items_cut_off_by_a_crash_stay_in_the_output_at_their_index() {
    let mut hw = Server::with_config(CONFIG, SCENARIOS);
    let id = start(&hw).await;
    hw.kill9();
    hw.restart();
    let output = folded_output(&hw, &id).await;
    assert_eq!(statuses(&output), ["completed", "incomplete", "completed", "completed"], "{output:?}");
    assert_eq!(output[1].2, "recovered");
}

#[tokio::test]
async fn a_completed_item_stays_completed_when_a_later_one_is_cut_off_by_a_cancel() {
    let hw = Server::with_config(CONFIG, SCENARIOS);
    let id = start(&hw).await;
    assert_eq!(hw.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.status, 202);
    let output = folded_output(&hw, &id).await;
    assert_eq!(statuses(&output), ["completed", "incomplete"], "{output:?}");
    assert_eq!(output[1].2, "cancelled");
}
