//! Every kind of step and its events.

use crate::vocabulary::{CLOCK_US, events, lines, played, request, scripted, steps, user};
use model::event::StopReason;
use model::model_turn::{ModelEvent, ModelRequest};
use model::usage::Usage;

/// The events of these steps, without the last one.
async fn deltas(text: &str) -> Vec<String> {
    let mut lines = played(&steps(text), [user("hi")]).await;
    assert!(lines.pop().is_some_and(|line| line.starts_with("end ")), "{lines:?}");
    lines
}

#[tokio::test]
async fn a_text_is_one_delta_and_a_list_is_several() {
    assert_eq!(deltas(r#"{ text = "one" }"#).await, ["0+ message", "0 one", "0-"]);
    assert_eq!(deltas(r#"{ text = ["a ", "b"] }"#).await, ["0+ message", "0 a ", "0 b", "0-"]);
}

#[tokio::test(start_paused = true)]
async fn consecutive_texts_belong_to_one_message() {
    let text = r#"{ text = "a" }, { pause_ms = 5 }, { text = ["b", "c"] }, { call = "t" }, { text = "d" }"#;
    let wanted = ["0+ message", "0 a", "0 b", "0 c", "0-", "1+ call t", "1 {}", "1-", "2+ message", "2 d", "2-"];
    assert_eq!(deltas(text).await, wanted);
}

#[tokio::test(start_paused = true)]
async fn consecutive_reasoning_steps_are_parts_of_one_item() {
    let text =
        r#"{ reasoning = ["a", "b"] }, { pause_ms = 5 }, { reasoning = "c" }, { text = "d" }, { reasoning = "e" }"#;
    let wanted =
        ["0+ reasoning", "0.0 a", "0.0 b", "0.1 c", "0-", "1+ message", "1 d", "1-", "2+ reasoning", "2.0 e", "2-"];
    assert_eq!(deltas(text).await, wanted);
}

#[tokio::test]
async fn every_call_is_a_separate_item_and_stops_for_tools() {
    let models = steps(r#"{ call = "a", arguments = ['{"n":', '1}'] }, { call = "b" }"#);
    let wanted = ["0+ call a", "0 {\"n\":", "0 1}", "0-", "1+ call b", "1 {}", "1-", "end ToolCalls 1/3"];
    assert_eq!(played(&models, [user("hi")]).await, wanted);
}

#[tokio::test]
async fn a_hosted_call_has_states_partial_images_and_the_image() {
    let text = r#"{ hosted = "image_generation", states = ["generating"], images = ["p0", "p1", "url"] }"#;
    let wanted =
        ["0+ hosted image_generation", "0 generating", "0 partial 0 p0", "0 partial 1 p1", "0 image url", "0-"];
    assert_eq!(deltas(text).await, wanted);
    assert_eq!(
        deltas(r#"{ hosted = "web_search", states = "searching" }"#).await,
        ["0+ hosted web_search", "0 searching", "0-"]
    );
    assert_eq!(deltas(r#"{ hosted = "h", images = "url" }"#).await, ["0+ hosted h", "0 image url", "0-"]);
}

#[tokio::test]
async fn a_question_and_a_computer_call_have_arguments_and_stop_for_others() {
    let models = steps(
        r#"{ approval = "roll", server = "dice", arguments = '{"n":6}' }, { computer = '{"actions":[]}' }, { approval = "b", server = "s" }"#,
    );
    let wanted = [
        "0+ approval dice/roll",
        "0 {\"n\":6}",
        "0- mcp_approval_request",
        "1+ computer",
        "1 {\"actions\":[]}",
        "1-",
        "2+ approval s/b",
        "2 {}",
        "2- mcp_approval_request",
        "end ToolCalls 1/6",
    ];
    assert_eq!(played(&models, [user("hi")]).await, wanted);
}

#[tokio::test]
async fn an_error_interrupts_the_open_item_and_ends_the_turn() {
    let models = steps(r#"{ text = "mid" }, { error = { code = "overloaded", message = "later", retryable = true } }"#);
    let wanted = ["0+ message", "0 mid", "failed overloaded retryable: later"];
    assert_eq!(played(&models, [user("hi")]).await, wanted);
}

#[tokio::test]
async fn an_error_may_have_retry_after_and_usage() {
    let text = r#"
        [[scenario]]
        [[scenario.turn]]
        usage = { input_tokens = 7 }
        steps = [{ error = { code = "c", message = "m", retry_after_ms = 250 } }]"#;
    let models = scripted(text);
    assert_eq!(played(&models, [user("hi")]).await, ["usage 7/0", "failed c for good: m"]);
    let events = events(&models, [user("hi")]).await;
    let Some(ModelEvent::Failed(failure)) = events.last() else { panic!("{events:?}") };
    assert_eq!(failure.retry_after_ms, Some(250));
}

#[tokio::test]
async fn an_error_may_apply_to_the_first_attempts_only() {
    let error = r#"{ error = { code = "overloaded", message = "later", retryable = true, times = 2 } }"#;
    let models = steps(&format!(r#"{error}, {{ text = "at last" }}"#));
    for attempt in 1..=4 {
        let told = lines(&models, ModelRequest { attempt, ..request([user("hi")]) }).await;
        match attempt {
            1 | 2 => assert_eq!(told, ["failed overloaded retryable: later"], "{attempt}"),
            _ => assert_eq!(told, ["0+ message", "0 at last", "0-", "end Stop 1/2"], "{attempt}"),
        }
    }
}

#[tokio::test]
async fn a_limit_leaves_the_last_item_open() {
    for (word, stop) in [("max_tokens", StopReason::MaxTokens), ("content_filter", StopReason::ContentFilter)] {
        let text = r#"{ call = "t" }, { text = "and so" }"#;
        let text = format!("[[scenario]]\n[[scenario.turn]]\nstop = \"{word}\"\nsteps = [{text}]");
        let lines = played(&scripted(&text), [user("hi")]).await;
        assert_eq!(lines[..lines.len() - 1], ["0+ call t", "0 {}", "0-", "1+ message", "1 and so"]);
        assert_eq!(lines[lines.len() - 1], format!("end {stop:?} 1/2"));
    }
}

#[tokio::test]
async fn a_turn_may_be_empty() {
    assert_eq!(played(&steps(""), [user("hi")]).await, ["end Stop 1/0"]);
    assert_eq!(deltas(r#"{ text = "a", repeat = 0 }"#).await, ["0+ message", "0-"]);
}

#[tokio::test]
async fn repeat_cycles_through_the_deltas_up_to_its_count() {
    let text = r#"{ text = ["a{i} ", "b "], repeat = 5 }"#;
    assert_eq!(deltas(text).await, ["0+ message", "0 a1 ", "0 b ", "0 a3 ", "0 b ", "0 a5 ", "0-"]);
    assert_eq!(deltas(r#"{ reasoning = "{i}", repeat = 2 }"#).await, ["0+ reasoning", "0.0 1", "0.0 2", "0-"]);
    assert_eq!(deltas(r#"{ text = ["a", "b", "c"], repeat = 2 }"#).await, ["0+ message", "0 a", "0 b", "0-"]);
}

#[tokio::test]
async fn the_clock_is_the_injected_one() {
    assert_eq!(deltas(r#"{ text = "{clock_us} tick" }"#).await[1], format!("0 {CLOCK_US} tick"));
}

#[tokio::test]
async fn usage_is_what_the_file_says_or_four_characters_a_token() {
    let usage = async |text: &str| {
        let text = format!("[[scenario]]\n[[scenario.turn]]\n{text}");
        let events = events(&scripted(&text), [user("five!")]).await;
        let Some(ModelEvent::End(end)) = events.last() else { panic!("{events:?}") };
        end.usage
    };
    let said = usage("usage = { input_tokens = 9, cached_tokens = 8, output_tokens = 4 }\nsteps = []").await;
    assert_eq!(said, Usage { input_tokens: 9, cached_tokens: 8, output_tokens: 4, ..Usage::default() });
    let counted = usage(r#"steps = [{ reasoning = "ééééé" }, { text = ["123", "45"] }, { call = "t" }]"#).await;
    let wanted = Usage { input_tokens: 2, output_tokens: 3, reasoning_tokens: 2, ..Usage::default() };
    assert_eq!(counted, wanted);
}
