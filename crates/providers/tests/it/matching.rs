//! Which scenario and which of its turns is played, and what its placeholders expand to.

use crate::vocabulary::{answer, assistant, call, events, played, request, result, scripted, steps, user};
use futures_util::StreamExt;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::model_turn::ModelEvent;
use model::ports::ModelClient;
use providers::scripted::ScriptedProvider;

const ANIMALS: &str = r#"
    [[scenario]]
    match = '\bcat\b'
    [[scenario.turn]]
    steps = [{ text = "meow" }]
    [[scenario]]
    match = '\bdog\b'
    [[scenario.turn]]
    steps = [{ text = "woof" }]
    [[scenario]]
    [[scenario.turn]]
    steps = [{ text = "?" }]"#;

#[tokio::test]
async fn the_first_scenario_in_the_file_that_matches_is_played() {
    let models = scripted(ANIMALS);
    let cases = [
        ("a cat", "meow"),
        ("CAT!", "meow"),
        ("a dog and a cat", "meow"),
        ("a Dog", "woof"),
        ("category", "?"),
        ("concat", "?"),
        ("cat_", "?"),
        ("écat", "?"),
        ("line\ncat\nline", "meow"),
        ("", "?"),
    ];
    for (message, wanted) in cases {
        assert_eq!(answer(&models, message).await, wanted, "{message:?}");
    }
}

#[tokio::test]
async fn only_the_last_user_message_is_matched() {
    let models = scripted(ANIMALS);
    let tagged = |text: &str| ContentPart::Text { text: text.to_owned(), id: None, tags: vec!["added".to_owned()] };
    let image = ContentPart::image("cat");
    let cases: [(Vec<HistoryEntry>, &str); 5] = [
        (vec![user("cat"), assistant("meow"), user("dog")], "0 woof"),
        (vec![user("cat"), user("dog")], "0 woof"),
        (
            vec![HistoryEntry::User {
                content: vec![tagged("cat"), image, ContentPart::text("a"), ContentPart::text("dog")],
            }],
            "0 woof",
        ),
        (vec![assistant("cat")], "0 ?"),
        (vec![], "0 ?"),
    ];
    for (history, wanted) in cases {
        assert_eq!(played(&models, history.clone()).await[1], wanted, "{history:?}");
    }
}

#[tokio::test]
async fn no_match_is_a_permanent_failure() {
    let models = scripted("[[scenario]]\nmatch = 'x'\n[[scenario.turn]]\nsteps = []");
    let wanted =
        ["failed no_scenario for good: no scenario of test.toml for the model `demo` matches the last user message"];
    assert_eq!(played(&models, [user("hi")]).await, wanted);
}

fn three_turns() -> ScriptedProvider {
    scripted(
        r#"
        [[scenario]]
        [[scenario.turn]]
        steps = [{ text = "one" }, { call = "t" }]
        [[scenario.turn]]
        steps = [{ text = "two" }, { call = "t" }, { call = "t" }]
        [[scenario.turn]]
        steps = [{ text = "three" }]"#,
    )
}

#[tokio::test]
async fn the_turn_is_the_number_of_tool_rounds_since_the_last_user_message() {
    let first = || vec![user("go"), assistant("one"), call("t"), result(None)];
    let second = || vec![assistant("two"), call("t"), call("t"), result(None), result(None)];
    let cases: [(Vec<HistoryEntry>, &str); 8] = [
        (vec![user("go")], "0 one"),
        (first(), "0 two"),
        ([first(), second()].concat(), "0 three"),
        // After the last turn, the last one repeats.
        ([first(), second(), second()].concat(), "0 three"),
        // The next run of a thread starts at the first turn.
        ([first(), second(), vec![assistant("three"), user("go")]].concat(), "0 one"),
        // So does a message in mid-run.
        ([first(), vec![user("wait")]].concat(), "0 one"),
        // An interrupted turn left only its text: it is played again.
        (vec![user("go"), assistant("on")], "0 one"),
        ([first(), vec![assistant("tw")]].concat(), "0 two"),
    ];
    for (history, wanted) in cases {
        assert_eq!(played(&three_turns(), history.clone()).await[1], wanted, "{history:?}");
    }
}

#[tokio::test]
async fn step_and_attempt_change_nothing() {
    let models = three_turns();
    let mut again = request([user("go")]);
    again.step = 7;
    again.attempt = 3;
    again.model = "scripted/another".to_owned();
    let again: Vec<ModelEvent> = models.stream_turn(again).collect().await;
    assert_eq!(again, events(&models, [user("go")]).await);
}

#[tokio::test]
async fn the_same_request_gives_the_same_events() {
    let models = scripted(
        r#"
        [[scenario]]
        match = '(?<n>\d+)'
        [[scenario.turn]]
        steps = [{ reasoning = "{n}" }, { text = ["{i} ", "x"], repeat = "{n}" }, { call = "t", arguments = "{n}" }]"#,
    );
    let first = events(&models, [user("say 20")]).await;
    assert_eq!(first.len(), 2 + 1 + 2 + 20 + 3 + 1);
    assert_eq!(events(&models, [user("say 20")]).await, first);
}

#[tokio::test]
async fn captures_fill_placeholders_with_defaults_as_fallback() {
    let models = scripted(
        r#"
        [[scenario]]
        match = 'from (?<from>\w+)( to (?<to>\w+))?( by (?<by>\w+))?'
        defaults = { to = "nowhere" }
        [[scenario.turn]]
        steps = [{ text = "{from}-{to}-{by}-{other}" }]"#,
    );
    assert_eq!(answer(&models, "From Rome to Oslo by sea").await, "Rome-Oslo-sea-{other}");
    assert_eq!(answer(&models, "from Rome").await, "Rome-nowhere--{other}");
}

#[tokio::test]
async fn user_text_cannot_break_the_arguments() {
    let models = scripted(
        r#"
        [[scenario]]
        match = 'find (?<what>.+)'
        [[scenario.turn]]
        steps = [{ call = "find", arguments = ['{"what":', '"{what}"}'] }]"#,
    );
    let lines = played(&models, [user(r#"find "a\b"} {what}"#)]).await;
    assert_eq!(lines[2], r#"0 "\"a\\b\"} {what}"}"#);
}

#[tokio::test]
async fn an_invalid_number_fails_before_any_output() {
    let models = scripted(
        r#"
        [[scenario]]
        match = 'story (?<n>\S+)'
        [[scenario.turn]]
        steps = [{ text = "before" }, { text = "x", repeat = "{n}" }]"#,
    );
    assert_eq!(answer(&models, "story 3").await, "beforexxx");
    for bad in ["1000001", "99999999999999999999999", "-1", "many", "1.5", "٣"] {
        let wanted = format!(
            "failed scenario_value for good: `n` must be a whole number from 0 to 1000000 in scenario 1 of test.toml, \
             not `{bad}`"
        );
        assert_eq!(played(&models, [user(&format!("story {bad}"))]).await, [wanted]);
    }
}

#[tokio::test]
async fn ref_is_the_reference_number_of_the_last_tool_result() {
    let models = steps(r#"{ text = "[^{ref}]" }"#);
    let cases: [(Vec<HistoryEntry>, &str); 5] = [
        (vec![user("go"), call("t"), result(Some(1))], "0 [^1]"),
        (vec![user("go"), call("t"), result(Some(1)), call("t"), result(Some(12))], "0 [^12]"),
        (vec![user("go"), call("t"), result(Some(4)), result(None)], "0 [^4]"),
        // The result of an earlier run is not cited.
        (vec![user("go"), call("t"), result(Some(1)), assistant("x"), user("again")], "0 [^]"),
        (vec![user("go")], "0 [^]"),
    ];
    for (history, wanted) in cases {
        assert_eq!(played(&models, history.clone()).await[1], wanted, "{history:?}");
    }
}

#[tokio::test]
async fn a_scenario_may_ask_for_an_image() {
    let models =
        scripted(&format!("[[scenario]]\nimage = true\n[[scenario.turn]]\nsteps = [{{ text = 'seen' }}]\n{ANIMALS}"));
    let with_image =
        |text: &str| HistoryEntry::User { content: vec![ContentPart::text(text), ContentPart::image("a")] };
    let cases = [
        (vec![with_image("a cat")], "0 seen"),
        (vec![user("a cat")], "0 meow"),
        (vec![with_image("a cat"), assistant("seen"), user("a dog")], "0 woof"),
    ];
    for (history, wanted) in cases {
        assert_eq!(played(&models, history).await[1], wanted);
    }
}
