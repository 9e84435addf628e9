//! `docs/scenarios.md` is correct: every TOML example in it with scenarios parses, and two are played.

use crate::vocabulary::{answer, asked, call, ended, lines, played, scripted, user};
use model::item::ResultStatus;
use providers::scripted::Scenarios;

const PAGE: &str = include_str!("../../../../docs/scenarios.md");

/// The page's TOML examples that are scenario files.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("[[scenario]]")).collect()
}

#[test]
fn every_example_parses() {
    assert!(examples().len() >= 3, "{} examples", examples().len());
    for example in examples() {
        drop(scripted(example));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_example_does_what_the_page_says() {
    let models = scripted(examples()[0]);
    assert_eq!(answer(&models, "count to 3").await, "1 2 3 ");
    assert_eq!(answer(&models, "Count!").await, "1 2 3 4 5 6 7 8 9 10 ");
    let lines = played(&models, [user("look up Oslo")]).await;
    assert_eq!(lines[..3], ["0+ reasoning", "0.0 A place. ", "0.0 I look it up."]);
    assert_eq!(answer(&models, "hi").await, "Say `look up Oslo` or `count to 5`.");
}

#[tokio::test]
async fn the_example_of_several_agents_does_what_the_page_says() {
    let models = scripted(examples()[1]);
    let tools = ["get_weather", "execute_trade", "scout", "transfer_to_expert", "pick"];
    let first = async |model: &str, message: &str| lines(&models, asked(model, [user(message)], &tools)).await;
    assert_eq!(first("mine/guide", "ask the scout").await[0], "0+ call scout");
    assert_eq!(first("mine/scout", "What is the weather?").await[0], "0+ call get_weather");
    assert_eq!(first("mine/guide", "an expert, please").await[0], "0+ call transfer_to_expert");
    assert_eq!(first("mine/expert", "an expert, please").await[1], "0 I have taken over.");
    assert_eq!(first("mine/guide", "hi").await[0], "0+ call pick");
    assert_eq!(answer(&models, "hi").await, "There is nothing that I could call.");
    let bought = [user("buy"), call("execute_trade"), ended(ResultStatus::Rejected, "too risky")];
    assert_eq!(played(&models, bought).await[1], "0 As you wish: too risky");
}

#[test]
fn the_documented_error_example_gives_the_documented_message() {
    let mistaken = examples()[0].replacen("every_ms", "evry_ms", 1);
    let error = Scenarios::parse(&mistaken, "scenarios.toml").unwrap_err().to_string();
    assert!(PAGE.contains(&format!("```text\n{error}\n```")), "{error}");
}
