//! One file for several models, conditional turns, and conditions on tools and results.

use crate::vocabulary::{asked, assistant, call, ended, lines, played, request, result, scripted, user};
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::ports::ModelClient;
use providers::scripted::ScriptedProvider;

async fn answer_text(models: &dyn ModelClient, model: &str, history: Vec<HistoryEntry>, tools: &[&str]) -> String {
    lines(models, asked(model, history, tools)).await.swap_remove(1)
}

#[tokio::test]
async fn a_scenario_is_played_by_the_models_that_it_names() {
    let models = scripted(
        r#"
        [[scenario]]
        model = "poet"
        match = '\bsea\b'
        [[scenario.turn]]
        steps = [{ text = "waves" }]
        [[scenario]]
        model = ["cook", "poet"]
        [[scenario.turn]]
        steps = [{ text = "salt" }]
        [[scenario]]
        [[scenario.turn]]
        steps = [{ text = "?" }]"#,
    );
    let cases = [
        ("mine/poet", "the sea", "0 waves"),
        ("mine/poet", "hi", "0 salt"),
        ("mine/cook", "the sea", "0 salt"),
        ("mine/Poet", "the sea", "0 ?"),
        ("mine/other", "the sea", "0 ?"),
        ("poet", "the sea", "0 waves"),
        // Everything after the first slash is the model's name.
        ("mine/a/poet", "the sea", "0 ?"),
    ];
    for (model, message, wanted) in cases {
        assert_eq!(answer_text(&models, model, vec![user(message)], &[]).await, wanted, "{model} {message}");
    }
}

#[tokio::test]
async fn a_model_without_a_scenario_fails_permanently() {
    let models = scripted("[[scenario]]\nmodel = 'a'\n[[scenario.turn]]\nsteps = []");
    let wanted =
        "failed no_scenario for good: no scenario of test.toml for the model `b` matches the last user message";
    assert_eq!(lines(&models, asked("mine/b", [user("hi")], &[])).await, [wanted]);
}

fn order() -> ScriptedProvider {
    scripted(
        r#"
        [[scenario]]
        [[scenario.turn]]
        when = { status = "failed" }
        steps = [{ text = "never: nothing was called yet" }]
        [[scenario.turn]]
        steps = [{ text = "first" }, { call = "order" }]
        [[scenario.turn]]
        when = { status = "completed" }
        steps = [{ text = "done: {result}" }]
        [[scenario.turn]]
        when = { status = ["rejected", "incomplete"] }
        steps = [{ text = "not allowed: {result}" }]
        [[scenario.turn]]
        steps = [{ text = "broken: {result}" }]
        [[scenario.turn]]
        steps = [{ text = "third" }]"#,
    )
}

#[tokio::test]
async fn the_status_of_the_last_result_selects_the_turn() {
    let models = order();
    let cases = [
        (ResultStatus::Completed, "0 done: x"),
        (ResultStatus::Rejected, "0 not allowed: x"),
        (ResultStatus::Incomplete, "0 not allowed: x"),
        (ResultStatus::Failed, "0 broken: x"),
        (ResultStatus::Unknown, "0 broken: x"),
    ];
    for (status, wanted) in cases {
        let history = [user("go"), assistant("first"), call("order"), ended(status, "x")];
        assert_eq!(played(&models, history).await[1], wanted);
    }
    assert_eq!(played(&models, [user("go")]).await[1], "0 first");
}

#[tokio::test]
async fn alternative_turns_count_as_one_turn() {
    let first = [user("go"), call("order"), ended(ResultStatus::Rejected, "no")];
    let second = [call("order"), ended(ResultStatus::Completed, "yes")];
    let history = [first.as_slice(), &second].concat();
    assert_eq!(played(&order(), history.clone()).await[1], "0 third");
    let again = [history.as_slice(), &[user("again")]].concat();
    assert_eq!(played(&order(), again).await[1], "0 first", "an earlier run's result decides nothing");
}

#[tokio::test]
async fn the_last_of_several_results_counts() {
    let results = [ended(ResultStatus::Rejected, "no"), ended(ResultStatus::Completed, "yes")];
    let history = [&[user("go"), call("a"), call("b")], results.as_slice()].concat();
    assert_eq!(played(&order(), history).await[1], "0 done: yes");
}

#[tokio::test]
async fn the_result_placeholder_has_no_reference_markers() {
    let text = |text: &str, tags: &[&str]| ContentPart::Text {
        text: text.to_owned(),
        id: Some(7),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    };
    let marks = [model::reference::REFERENCE_MANAGER_TAG];
    let content = vec![text("<item>", &marks), text("a", &[]), text("b", &[]), text("</item>", &marks)];
    let (call_id, status) = ("call_R1".into(), ResultStatus::Completed);
    let given = HistoryEntry::Result { call_id, status, content, acknowledged_checks: None };
    assert_eq!(played(&order(), [user("go"), call("order"), given]).await[1], "0 done: a\nb");
}

fn picker() -> ScriptedProvider {
    scripted(
        r#"
        [[scenario]]
        match = 'blindly'
        [[scenario.turn]]
        steps = [{ text = "I try." }, { call = "{tool}" }]
        [[scenario]]
        [[scenario.turn]]
        when = { tool = false }
        steps = [{ text = "none" }]
        [[scenario.turn]]
        steps = [{ call = "{tool}", arguments = '{"for":"{tool}"}' }]
        [[scenario.turn]]
        when = { tool = true, status = "completed" }
        steps = [{ text = "{tool}: {result}" }, { call = "known" }]
        [[scenario.turn]]
        steps = [{ text = "other" }]"#,
    )
}

#[tokio::test]
async fn a_tool_that_the_file_does_not_mention_can_be_called() {
    let models = picker();
    for (tools, wanted) in
        [(&["pick"][..], "pick"), (&["known", "pick", "choose"], "pick"), (&["choose", "pick"], "choose")]
    {
        let lines = lines(&models, asked("m/m", [user("go")], tools)).await;
        let wanted = [format!("0+ call {wanted}"), format!(r#"0 {{"for":"{wanted}"}}"#), "0-".to_owned()];
        assert_eq!(lines[..3], wanted, "{tools:?}");
        assert!(lines[3].starts_with("end ToolCalls "), "{lines:?}");
    }
    for tools in [&[][..], &["known"]] {
        assert_eq!(answer_text(&models, "m/m", vec![user("go")], tools).await, "0 none", "{tools:?}");
    }
}

#[tokio::test]
async fn all_conditions_of_when_must_hold() {
    let models = picker();
    let history = |status| vec![user("go"), call("pick"), ended(status, "red")];
    assert_eq!(answer_text(&models, "m/m", history(ResultStatus::Completed), &["pick"]).await, "0 pick: red");
    assert_eq!(answer_text(&models, "m/m", history(ResultStatus::Failed), &["pick"]).await, "0 other");
    assert_eq!(answer_text(&models, "m/m", history(ResultStatus::Completed), &[]).await, "0 other");
}

#[tokio::test]
async fn a_call_without_a_name_fails_before_any_output() {
    let wanted = "failed scenario_value for good: `tool` has no value in scenario 1 of test.toml, and a call needs \
                  the name of a tool";
    assert_eq!(lines(&picker(), asked("m/m", [user("blindly")], &["known"])).await, [wanted]);
    let lines = lines(&picker(), asked("m/m", [user("blindly")], &["pick"])).await;
    assert_eq!(lines[..5], ["0+ message", "0 I try.", "0-", "1+ call pick", "1 {}"]);
}

fn transfer(call_id: &str, status: ResultStatus) -> [HistoryEntry; 2] {
    let call = HistoryEntry::Call {
        call_id: call_id.into(),
        name: "transfer_to_expert".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: None,
        raw: None,
    };
    let content = vec![ContentPart::text(r#"{"assistant":"expert"}"#)];
    [call, HistoryEntry::Result { call_id: call_id.into(), status, content, acknowledged_checks: None }]
}

#[tokio::test]
async fn after_a_handoff_the_scenario_starts_with_its_first_turn() {
    let models = scripted(
        r#"
        [[scenario]]
        [[scenario.turn]]
        steps = [{ text = "one" }]
        [[scenario.turn]]
        steps = [{ text = "two [^{ref}]" }]
        [[scenario.turn]]
        steps = [{ text = "three" }]"#,
    );
    let [handing, handed] = transfer("call_R9", ResultStatus::Completed);
    let [ignored, refused] = transfer("call_R9", ResultStatus::Failed);
    let before = [user("go"), call("t"), result(Some(4))];
    let after = [call("t"), ended(ResultStatus::Completed, "x")];
    let cases: [(Vec<HistoryEntry>, &str); 5] = [
        ([before.as_slice(), &[handing.clone(), handed.clone()]].concat(), "0 one"),
        ([before.as_slice(), &[handing.clone(), handed.clone()], &after].concat(), "0 two [^4]"),
        // Next to an ordinary tool, in either order.
        (vec![user("go"), handing.clone(), call("t"), handed.clone(), result(None)], "0 one"),
        (vec![user("go"), call("t"), handing, result(None), handed], "0 one"),
        // A hand-off that did not take place is an ordinary tool.
        ([before.as_slice(), &[ignored, refused]].concat(), "0 three"),
    ];
    for (history, wanted) in cases {
        assert_eq!(lines(&models, request(history.clone())).await[1], wanted, "{history:?}");
    }
}
