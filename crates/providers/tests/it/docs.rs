//! `docs/scenarios.md` says what is true: every TOML example in it that has scenarios is read, and the first is played.

use crate::vocabulary::{answer, played, scripted, user};
use providers::scripted::Scenarios;

const PAGE: &str = include_str!("../../../../docs/scenarios.md");

/// The page's TOML examples that are scenario files.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("[[scenario]]")).collect()
}

#[test]
fn every_example_is_read() {
    assert!(examples().len() >= 2, "{} examples", examples().len());
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

#[test]
fn the_mistake_on_the_page_is_refused_as_the_page_says() {
    let mistaken = examples()[0].replacen("every_ms", "evry_ms", 1);
    let error = Scenarios::parse(&mistaken, "scenarios.toml").unwrap_err().to_string();
    assert!(PAGE.contains(&format!("```text\n{error}\n```")), "{error}");
}
