//! `headwater chat` in a terminal.

use crate::harness::Server;
use crate::terminal::Terminal;
use serde_json::{Value, json};

fn chat(hw: &Server, more: &[&str]) -> Terminal {
    let url = hw.url("");
    let mut terminal = Terminal::run(&hw.path("."), &[&["chat", "--url", &url], more].concat());
    terminal.wait_for("headwater: agent demo; Ctrl-D ends the chat\n");
    terminal
}

async fn latest_task(hw: &Server) -> Value {
    let row = hw.get("/v1/tasks?limit=1").await.json()["data"][0].clone();
    hw.get(&format!("/v1/tasks/{}", row["task_id"].as_str().unwrap())).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_an_approval_and_a_thread_that_goes_on() {
    let hw = Server::demo();
    let mut terminal = chat(&hw, &[]);
    terminal.wait_for("> ");
    terminal.type_keys("How is the weather?\n");
    terminal.wait_for("→ get_weather {\"location\":\"Paris, France\"}\n");
    terminal.wait_for("← ");
    terminal.wait_for("[^1]\n");
    terminal.wait_for("> ");
    terminal.type_keys("trade\n");
    terminal.wait_for("approve execute_trade {\"symbol\":\"VNM\",\"quantity\":100}? [y/n/e] ");
    terminal.type_keys("what?\n");
    terminal.wait_for("write y to approve, n to reject, e to edit the arguments\n");
    terminal.wait_for("[y/n/e] ");
    terminal.type_keys("e\n");
    terminal.wait_for("arguments (JSON): ");
    terminal.type_keys("{\"symbol\":\"VNM\"}\n");
    terminal.wait_for("422");
    terminal.wait_for("[y/n/e] ");
    terminal.type_keys("e\n");
    terminal.wait_for("arguments (JSON): ");
    terminal.type_keys("{\"symbol\":\"VNM\",\"quantity\":7}\n");
    terminal.wait_for("← ");
    terminal.wait_for("\n> ");
    terminal.type_keys("\u{4}");
    terminal.wait_for("continue with `headwater chat thr_");
    let rest = terminal.wait_for("`\n");
    assert_eq!(terminal.wait_exit(), Some(0));

    let task = latest_task(&hw).await;
    assert_eq!((&task["status"], &task["thread_id"]), (&json!("completed"), &json!(format!("thr_{rest}"))));
    let edited = task.to_string();
    assert!(edited.contains("Order placed: VNM x7"), "{edited}");

    // The last answer is shown again, and the thread goes on.
    let mut terminal = chat(&hw, &[&format!("thr_{rest}")]);
    terminal.wait_for("execute_trade");
    terminal.wait_for("\n> ");
    terminal.type_keys("hello\n");
    terminal.wait_for("\n> ");
    terminal.type_keys("\u{3}");
    terminal.wait_for("continue with");
    assert_eq!(terminal.wait_exit(), Some(0));
    assert_eq!(latest_task(&hw).await["thread_id"], json!(format!("thr_{rest}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_after_the_turn_and_twice_at_once() {
    let hw = Server::demo();
    let mut terminal = chat(&hw, &[]);
    terminal.wait_for("> ");
    terminal.type_keys("story 60\n");
    terminal.wait_for("Once");
    terminal.type_keys("\u{3}");
    terminal.wait_for("stopping after this turn; Ctrl-C again stops at once\n");
    terminal.wait_for("\n> ");
    let whole = latest_task(&hw).await;
    let words = |task: &Value| task["output"][0]["block_list"][0]["text"].as_str().unwrap_or_default().len();
    terminal.type_keys("story 5000\n");
    terminal.wait_for("Once");
    terminal.type_keys("\u{3}");
    terminal.wait_for("stopping after this turn");
    terminal.type_keys("\u{3}");
    terminal.wait_for("stopping at once");
    terminal.wait_for("headwater: cancelled after ");
    terminal.wait_for("> ");
    let cut = latest_task(&hw).await;
    assert_eq!(cut["status"], json!("cancelled"));
    assert!(words(&whole) > 0 && words(&cut) > 0, "{whole} {cut}");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_exit(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_goes_on_when_the_server_was_killed() {
    let mut hw = Server::demo();
    let address = hw.address.clone();
    let mut terminal = chat(&hw, &[]);
    terminal.wait_for("> ");
    terminal.type_keys("story 100\n");
    terminal.wait_for("Once");
    hw.kill9();
    terminal.wait_for("reconnecting in ");
    hw.restart_at(&address);
    terminal.wait_for("the server restarted; the turn is repeated");
    terminal.wait_for("\n> ");
    let task = latest_task(&hw).await;
    assert_eq!(task["status"], json!("completed"));

    // Killed while nobody was speaking: the next message waits for the server.
    hw.kill9();
    terminal.type_keys("hello\n");
    terminal.wait_for("reconnecting in ");
    hw.restart_at(&address);
    terminal.wait_for("\n> ");
    assert_eq!(latest_task(&hw).await["thread_id"], task["thread_id"]);
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_exit(), Some(0));
}

/// An answer that was typed before the question was shown is not an answer to it.
#[tokio::test(flavor = "multi_thread")]
async fn lines_that_were_typed_ahead_do_not_answer_an_approval() {
    let hw = Server::demo();
    let mut terminal = chat(&hw, &[]);
    terminal.wait_for("> ");
    terminal.type_keys(&format!("trade\n{}y", "y\n".repeat(20)));
    terminal.wait_for("[y/n/e] ");
    // A run that was approved would end here: the question is still open, and this is its answer.
    terminal.type_keys("n\n");
    terminal.wait_for("\n> ");
    let task = latest_task(&hw).await;
    assert_eq!(task["status"], json!("completed"));
    assert!(task.to_string().contains("\"rejected\"") && !task.to_string().contains("Order placed"), "{task}");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_exit(), Some(0));
}
