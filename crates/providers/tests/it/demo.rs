//! The demo's files: what `headwater serve` plays without a config.

use crate::vocabulary::{answer, asked, assistant, call, ended, events, lines, played, result, scripted, user};
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::model_turn::{ModelDelta, ModelEvent};
use model::ports::ModelClient;
use providers::scripted::ScriptedProvider;

const SCENARIOS: &str = include_str!("../../../server/demo/scenarios.toml");
const CONFIG: &str = include_str!("../../../server/demo/headwater.toml");

fn demo() -> ScriptedProvider {
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
fn the_config_gives_the_agents_what_the_scenarios_call() {
    let config: toml::Table = CONFIG.parse().unwrap();
    let (agents, tools) = (config["agents"].as_table().unwrap(), config["tools"].as_table().unwrap());
    let names = |agent: &str, key: &str| -> Vec<String> {
        let list = agents[agent].get(key).and_then(toml::Value::as_array).into_iter().flatten();
        list.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let own = names("demo", "tools");
    assert_eq!(own, ["get_weather", "ask_for_help", "tool_a", "tool_b", "tool_c", "execute_trade", "slow"]);
    assert!(own.iter().all(|tool| tools.contains_key(tool)));
    assert_eq!(
        (names("demo", "handoffs"), names("WeatherAgent", "tools")),
        (vec!["specialist".into()], vec!["get_weather".into()])
    );
    let models = ["demo", "WeatherAgent", "specialist"].map(|agent| agents[agent]["model"].as_str().unwrap());
    assert_eq!(models, ["scripted/demo", "scripted/weather", "scripted/specialist"]);
    // A name that no `call` uses would be taken for a client tool.
    let calls = |tool: &str| SCENARIOS.contains(&format!("{{ call = \"{tool}\""));
    assert!(own.iter().all(|tool| calls(tool)) && calls("transfer_to_specialist"));
    assert_eq!(config["tools"]["ask_for_help"]["agent"].as_str(), Some("WeatherAgent"));
    assert_eq!(config["providers"]["scripted"]["file"].as_str(), Some("scenarios.toml"));
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

/// The text of the next turn after a tool with this outcome.
async fn after(message: &str, tool: &str, given: HistoryEntry) -> Vec<String> {
    let lines = played(&demo(), [user(message), call(tool), given]).await;
    assert!(lines.last().is_some_and(|line| line.starts_with("end Stop ")), "{lines:?}");
    lines[1..lines.len() - 2].to_vec()
}

#[tokio::test(start_paused = true)]
async fn help_calls_the_other_agent_and_returns_its_answer() {
    let lines = played(&demo(), [user("Help me with the trade!")]).await;
    let asks = [
        "1+ call ask_for_help",
        r#"1 {"name":"WeatherAgent","description":"An agent that provides weather information.","#,
        r#"1 "prompt":"Get the current weather in Paris, France."}"#,
        "1-",
    ];
    assert_eq!((lines[0].as_str(), &lines[6..10]), ("0+ reasoning", asks.map(str::to_owned).as_slice()));
    assert_eq!(after("help", "ask_for_help", result(Some(3))).await, ["0 WeatherAgent says: sunny, 15C.[^3]"]);
    let failed = ended(ResultStatus::Failed, "no");
    assert_eq!(after("help", "ask_for_help", failed).await, ["0 WeatherAgent could not help."]);
}

#[tokio::test(start_paused = true)]
async fn the_sub_agent_reasons_calls_and_cites_for_any_input() {
    let prompt = user("Get the current weather in Paris, France.");
    let first = lines(&demo(), asked("scripted/weather", [prompt.clone()], &["get_weather"])).await;
    assert_eq!(first, played(&demo(), [user("weather")]).await.into_iter().map(usage_of(&first)).collect::<Vec<_>>());
    let trade = lines(&demo(), asked("scripted/weather", [user("trade")], &[])).await;
    assert_eq!(trade[..trade.len() - 1], first[..first.len() - 1]);
    let history = [prompt, call("get_weather"), result(Some(1))];
    let second = lines(&demo(), asked("scripted/weather", history, &["get_weather"])).await;
    assert_eq!(second[1..4], ["0 The weather in Paris is sunny ", "0 with a temperature of 15C.[^", "0 1]"]);
}

/// The same line without the tokens, which depend on the input.
fn usage_of(lines: &[String]) -> impl Fn(String) -> String {
    let last = lines.last().cloned().unwrap_or_default();
    move |line| if line.starts_with("end ") { last.clone() } else { line }
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_three_tools_in_one_turn() {
    let lines = played(&demo(), [user("in parallel")]).await;
    let wanted = ["0+ call tool_a", "0 {}", "0-", "1+ call tool_b", "1 {}", "1-", "2+ call tool_c", "2 {}", "2-"];
    assert_eq!(lines[..lines.len() - 1], wanted);
    assert_eq!(after("parallel", "tool_a", result(Some(3))).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn trade_says_whether_the_order_was_placed() {
    let lines = played(&demo(), [user("A trade, please")]).await;
    let wanted = [
        "0+ message",
        "0 I will place the order.",
        "0-",
        "1+ call execute_trade",
        r#"1 {"symbol":"VNM","#,
        r#"1 "quantity":100}"#,
        "1-",
    ];
    assert_eq!(lines[..lines.len() - 1], wanted);
    assert_eq!(after("trade", "execute_trade", result(Some(12))).await, ["0 Done: bought VNM.[^12]"]);
    for status in [ResultStatus::Rejected, ResultStatus::Failed, ResultStatus::Unknown] {
        let said = after("trade", "execute_trade", ended(status, "too risky")).await;
        assert_eq!(said, ["0 The order was not placed: too risky"]);
    }
}

#[tokio::test(start_paused = true)]
async fn handoff_calls_the_transfer_and_the_specialist_answers() {
    let first = played(&demo(), [user("handoff")]).await;
    assert_eq!(first[..first.len() - 1], ["0+ call transfer_to_specialist", "0 {}", "0-"]);
    let history = [user("handoff"), call("transfer_to_specialist"), result(None)];
    let second = lines(&demo(), asked("scripted/specialist", history, &[])).await;
    assert_eq!(second[1..3], ["0 I am the specialist. ", "0 I have taken over from the demo agent."]);
}

#[tokio::test(start_paused = true)]
async fn client_calls_the_declared_tool_and_repeats_its_result() {
    let offered = ["get_weather", "execute_trade", "transfer_to_specialist", "pick", "other"];
    let first = lines(&demo(), asked("scripted/demo", [user("my client")], &offered)).await;
    assert_eq!(first[..first.len() - 1], ["0+ call pick", "0 {}", "0-"]);
    let history = |status| [user("my client"), call("pick"), ended(status, "red")];
    let gave = lines(&demo(), asked("scripted/demo", history(ResultStatus::Completed), &offered)).await;
    assert_eq!(gave[1], "0 Your tool pick says: red");
    let failed = lines(&demo(), asked("scripted/demo", history(ResultStatus::Failed), &offered)).await;
    assert_eq!(failed[1], "0 Your tool pick could not do it: red");
    let none = lines(&demo(), asked("scripted/demo", [user("client")], &offered[..3])).await;
    assert_eq!(none[1], "0 You declared no tool that I could call.");
}

#[tokio::test(start_paused = true)]
async fn slow_takes_its_seconds_from_the_message() {
    for (message, seconds) in [("slow 3", "3"), ("be SLOW", "5"), ("slow 007", "7"), ("slow 0", "0"), ("slow 2x", "5")]
    {
        let lines = played(&demo(), [user(message)]).await;
        assert_eq!(lines[..2], ["0+ call slow".to_owned(), format!(r#"0 {{"seconds":{seconds}}}"#)], "{message}");
    }
    let done = ended(ResultStatus::Completed, "done after 3 s");
    assert_eq!(after("slow 3", "slow", done).await, ["0 The slow tool is done after 3 s."]);
    let refused = ended(ResultStatus::Failed, "too long");
    assert_eq!(after("slow 9999", "slow", refused).await, ["0 The slow tool did not do it: too long"]);
}

#[tokio::test(start_paused = true)]
async fn image_is_a_hosted_call_with_three_partial_images() {
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
async fn a_story_has_the_exact_number_of_deltas_one_per_20_ms() {
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
    let words = ["weather", "help", "parallel", "trade", "handoff", "image", "story 200", "client", "fail", "slow 5"];
    for word in words {
        assert!(greeting.contains(word), "{greeting}");
    }
    let deltas = texts(&events(&demo(), [user("hello")]).await).len();
    assert_eq!(deltas, 2);
    for other in ["helpless", "trader", "clients", "slowly", "storyteller", "failed", "weathered", "hand off", ""] {
        assert_eq!(answer(&demo(), other).await, greeting, "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_matching_keyword_in_the_file_wins() {
    let demo: &dyn ModelClient = &demo();
    let mut words =
        vec!["slow 1", "fail", "client", "story 3 fast", "image", "handoff", "trade", "parallel", "help", "weather"];
    let first = [
        "0+ reasoning",
        "0+ reasoning",
        "0+ call tool_a",
        "0+ message",
        "0+ call transfer_to_specialist",
        "0+ hosted image_generation",
        "0+ message",
        "0+ message",
        "0+ message",
        "0+ call slow",
    ];
    for wanted in first {
        let lines = played(demo, [user(&words.join(" and "))]).await;
        assert_eq!(lines[0], wanted, "{words:?}");
        words.pop();
    }
    assert_eq!(words, [""; 0]);
    assert!(answer(demo, "fail a story 3").await.starts_with("Once upon "));
}
