//! The demo's files: what `headwater serve` plays without a config.

use crate::vocabulary::{answer, assistant, call, events, played, result, scripted, user};
use model::delta::{ModelDelta, ModelEvent};
use model::ports::Models;
use providers::scripted::Scripted;

const SCENARIOS: &str = include_str!("../../../server/demo/scenarios.toml");
const CONFIG: &str = include_str!("../../../server/demo/headwater.toml");

fn demo() -> Scripted {
    scripted(SCENARIOS)
}

fn texts(events: &[ModelEvent]) -> Vec<&str> {
    let texts = events.iter().filter_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Text { text, .. }) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn the_config_names_the_agent_its_tool_and_the_file() {
    let config: toml::Table = CONFIG.parse().unwrap();
    let wanted: toml::Table = r#"
        [agents.demo]
        model = "scripted/demo"
        tools = ["get_weather"]
        [tools.get_weather]
        kind = "builtin"
        [providers.scripted]
        kind = "scripted"
        file = "scenarios.toml""#
        .parse()
        .unwrap();
    let mut config = config;
    let agent = config["agents"]["demo"].as_table_mut().unwrap();
    assert!(agent.remove("instructions").is_some_and(|words| words.is_str()));
    assert_eq!(config, wanted);
}

#[tokio::test(start_paused = true)]
async fn weather_thinks_in_two_parts_and_calls_the_tool() {
    let lines = played(&demo(), [user("What's the WEATHER like?")]).await;
    let wanted = [
        "0+ reasoning",
        "0.0 Thinking about the weather ",
        "0.0 in Paris.",
        "0.1 Decided to call ",
        "0.1 get_weather function.",
        "0-",
        "1+ call get_weather",
        r#"1 {"location":"#,
        r#"1 "Paris, France"}"#,
        "1-",
    ];
    assert_eq!(lines[..lines.len() - 1], wanted);
    assert!(lines[lines.len() - 1].starts_with("end ToolCalls "), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn weather_cites_this_runs_result_over_a_split_marker() {
    let first = vec![user("weather"), call("get_weather"), result(Some(1))];
    let lines = played(&demo(), first.clone()).await;
    let wanted = ["0+ message", "0 The weather in Paris is sunny ", "0 with a temperature of 15C.[^", "0 1]", "0-"];
    assert_eq!(lines[..lines.len() - 1], wanted);
    assert!(lines[lines.len() - 1].starts_with("end Stop "), "{lines:?}");

    let second = vec![assistant("… 15C.[^1]"), user("weather"), call("get_weather"), result(Some(2))];
    let events = events(&demo(), [first, second].concat()).await;
    assert_eq!(texts(&events).last(), Some(&"2]"));
}

#[tokio::test(start_paused = true)]
async fn image_is_a_hosted_call_with_three_partial_pictures() {
    let lines = played(&demo(), [user("an image, please")]).await;
    assert_eq!(lines[..3], ["0+ hosted image_generation", "0 in_progress", "0 generating"]);
    let pictures = &lines[3..7];
    for (line, start) in pictures.iter().zip(["0 partial 0 ", "0 partial 1 ", "0 partial 2 ", "0 image "]) {
        assert!(line.starts_with(&format!("{start}data:image/png;base64,iVBORw0KGgo")), "{line}");
    }
    assert_eq!(lines[7..9], ["0-", "1+ message"]);
    assert!(lines.last().is_some_and(|line| line.starts_with("end Stop ")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_story_has_exactly_so_many_deltas_one_per_20_ms() {
    for (message, deltas) in [("story 7", 7), ("Tell me a story 120 please", 120), ("a story", 50), ("story 0", 0)] {
        let began = tokio::time::Instant::now();
        let events = events(&demo(), [user(message)]).await;
        assert_eq!(texts(&events).len(), deltas, "{message}");
        let wanted = 20 * u128::try_from(deltas.saturating_sub(1)).unwrap();
        assert_eq!(began.elapsed().as_millis(), wanted, "{message}");
    }
    let words = answer(&demo(), "story 40").await;
    assert!(words.starts_with("Once upon a time a spring rose"), "{words}");
    assert!(words.ends_with("home. Once upon "), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_fast_story_takes_no_time() {
    for (message, deltas) in [("story 5000 fast", 5000), ("STORY 7 FAST!", 7), ("story fast", 50)] {
        let began = tokio::time::Instant::now();
        let events = events(&demo(), [user(message)]).await;
        assert_eq!((texts(&events).len(), began.elapsed().as_millis()), (deltas, 0), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn fail_fails_in_mid_text() {
    let lines = played(&demo(), [user("please fail")]).await;
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], "0+ message");
    assert!(lines[3].starts_with("failed provider_error retryable: "), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn everything_else_is_greeted() {
    let greeting = answer(&demo(), "hello").await;
    for word in ["weather", "image", "story", "fail"] {
        assert!(greeting.contains(word), "{greeting}");
    }
    let deltas = texts(&events(&demo(), [user("hello")]).await).len();
    assert!((2..=3).contains(&deltas), "{deltas} deltas");
    for other in ["help", "parallel", "trade", "handoff", "client", "slow 3", "storyteller", "failed", "weathered", ""]
    {
        assert_eq!(answer(&demo(), other).await, greeting, "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_order_of_words_is_the_order_of_the_file() {
    let demo: &dyn Models = &demo();
    for (message, first) in [
        ("fail to tell a story about an image of the weather", "0+ reasoning"),
        ("fail a story about an image", "0+ hosted image_generation"),
    ] {
        assert_eq!(played(demo, [user(message)]).await[0], first);
    }
    assert!(answer(demo, "fail a story 3").await.starts_with("Once upon "));
}
