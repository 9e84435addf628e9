//! Provider failures: which model is retried, when, and when none is.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, run_id, task_id,
};
use crate::sim::{Sim, model_end};
use machine::EffectId;
use model::Millis;
use model::definition::{Agent, Definitions};
use model::error::ErrorInfo;
use model::event::{CancelMode, Event, StepDone, StepRetrying, StopReason};
use model::model_turn::{ModelDelta, ModelItemKind};
use model::usage::Usage;
use serde_json::json;

/// An agent with two models.
fn two_models() -> Definitions {
    let models = vec!["scripted/first".to_owned(), "other/second".to_owned()];
    build_definitions([Agent { models, ..agent("demo", &[]) }], [])
}

/// The last `task.retrying`, and its time.
fn last_retry(sim: &Sim) -> (StepRetrying, Millis) {
    let found = sim.drafts.iter().rev().find_map(|draft| match &draft.event {
        Event::Retrying(e) => Some(((**e).clone(), draft.at)),
        _ => None,
    });
    found.expect("it is tried again")
}

fn last_retry_delay(sim: &Sim) -> u64 {
    let (e, at) = last_retry(sim);
    e.not_before - at
}

fn error(sim: &Sim) -> ErrorInfo {
    let Some(Event::Failed(failed)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it failed") };
    failed.error.clone()
}

fn step_done(sim: &Sim) -> StepDone {
    let found = sim.drafts.iter().rev().find_map(|draft| match &draft.event {
        Event::StepDone(e) => Some((**e).clone()),
        _ => None,
    });
    found.expect("a step ended")
}

/// The models that were called, by the second half of their names.
fn called_models(sim: &Sim) -> Vec<&str> {
    sim.model_requests.iter().filter_map(|request| Some(request.model.split_once('/')?.1)).collect()
}

#[test]
fn a_provider_that_fails_before_showing_anything_gets_the_same_request_again() {
    let mut sim = Sim::started(demo_definitions([]));
    let first = sim.last_model();
    sim.fail_turn();
    sim.expect_trace("created started step.started{1} retrying{1,2,provider_error}");
    let (mut again, before) = (sim.model_requests[1].clone(), sim.model_requests[0].clone());
    assert_eq!((again.step, again.attempt), (1, 2));
    again.attempt = 1;
    assert_eq!(again, before);
    let (e, _) = last_retry(&sim);
    assert_eq!(sim.model_due.get(&sim.last_model()), Some(&e.not_before));
    sim.input(model_end(first, StopReason::Stop));
    sim.expect_trace("");
    sim.model_turn([model_text("Hi")]);
    sim.expect_trace("msg_R1 step.done{1,stop} completed");
}

#[test]
fn retries_are_limited_and_the_last_error_is_the_tasks() {
    for retries in 0..4 {
        let mut definitions = demo_definitions([]);
        definitions.limits.model_retries_max = retries;
        let mut sim = Sim::started(definitions);
        for number in 0..retries {
            sim.fail_turn_with(&format!("e{number}"), true, None);
        }
        sim.skip_trace();
        sim.fail_turn_with("last", true, None);
        sim.expect_trace("step.done{1,error} failed{last}");
        let attempts = if retries == 0 { json!({}) } else { json!({"attempts": retries + 1}) };
        assert_eq!(error(&sim).details, Some(attempts));
        assert_eq!(sim.model_requests.len(), retries as usize + 1);
    }
}

#[test]
fn each_turn_has_its_own_attempts() {
    let mut sim = Sim::started(demo_definitions([crate::fixtures::tool("t")]));
    sim.fail_turn();
    sim.fail_turn();
    sim.model_turn([model_call("t", "{}")]);
    sim.finish_tool("call_R1", crate::fixtures::tool_text("ok"));
    sim.skip_trace();
    sim.fail_turn();
    sim.fail_turn();
    sim.model_turn([model_text("Hi")]);
    sim.expect_trace("retrying{2,2,provider_error} retrying{2,3,provider_error} msg_R2 step.done{2,stop} completed");
}

#[test]
fn after_the_first_shown_delta_nothing_is_retried() {
    let item = |item: ModelItemKind| ModelDelta::Started { slot: 0, item };
    for shown in [
        item(ModelItemKind::Reasoning),
        item(ModelItemKind::Message { phase: None }),
        item(ModelItemKind::ToolCall { name: "t".to_owned(), provider_call_id: None }),
        item(ModelItemKind::HostedCall { name: "web_search".to_owned(), action: None }),
    ] {
        let mut sim = Sim::started(two_models());
        sim.fail_turn();
        sim.delta(shown.clone());
        sim.fail_turn_with("upstream_unreachable", true, None);
        assert_eq!(sim.model_requests.len(), 2, "{shown:?}");
        assert_eq!(sim.trace().last().map(String::as_str), Some("failed{upstream_unreachable}"));
    }
}

#[test]
fn events_outside_items_count_as_nothing_shown() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.delta(ModelDelta::Unknown(json!({"type": "ping"})));
    sim.skip_trace();
    sim.fail_turn();
    sim.expect_trace("retrying{1,2,provider_error}");
}

#[test]
fn the_fallback_model_is_called_at_once_with_its_own_attempts() {
    let mut sim = Sim::started(two_models());
    for _ in 0..3 {
        sim.fail_turn();
    }
    assert_eq!(called_models(&sim), ["first", "first", "first", "second"]);
    assert_eq!(last_retry_delay(&sim), 0);
    assert_eq!(sim.model_due.get(&sim.last_model()), None, "it does not wait");
    for _ in 0..2 {
        sim.fail_turn();
        assert!(last_retry_delay(&sim) > 0);
    }
    sim.skip_trace();
    sim.fail_turn();
    sim.expect_trace("step.done{1,error} failed{provider_error}");
    assert_eq!(called_models(&sim), ["first", "first", "first", "second", "second", "second"]);
    assert_eq!(error(&sim).details, Some(json!({"attempts": 6})));
    assert_eq!(step_done(&sim).model, "other/second");
}

#[test]
fn the_step_names_the_model_that_answered() {
    let mut sim = Sim::started(two_models());
    sim.fail_turn_with("provider_auth", false, None);
    sim.model_turn([model_text("Hi")]);
    assert_eq!(step_done(&sim).model, "other/second");
}

/// The effect of a failure with and without another model.
#[test]
fn permanent_failures_switch_models_at_once_and_rejected_requests_fail() {
    let cases = [
        ("unknown_provider", false, "other", "failed"),
        ("provider_auth", false, "other", "failed"),
        ("upstream_unreachable", false, "other", "failed"),
        ("upstream_unreachable", true, "other", "same"),
        ("rate_limited", false, "other", "failed"),
        ("overloaded", false, "other", "failed"),
        ("provider_error", false, "other", "failed"),
        ("rate_limited", true, "same", "same"),
        ("upstream_timeout", true, "same", "same"),
        ("provider_refused", false, "failed", "failed"),
        ("context_too_long", false, "failed", "failed"),
        ("history_refused", false, "failed", "failed"),
        ("no_scenario", false, "failed", "failed"),
    ];
    for (code, retryable, of_two, of_one) in cases {
        for (definitions, wanted) in [(two_models(), of_two), (demo_definitions([]), of_one)] {
            let mut sim = Sim::started(definitions);
            sim.fail_turn_with(code, retryable, None);
            let found = match sim.model_requests.last() {
                _ if sim.run.fold.has_ended() => "failed",
                Some(request) if request.model == sim.model_requests[0].model => "same",
                _ => "other",
            };
            assert_eq!(found, wanted, "{code} {retryable}");
        }
    }
}

#[test]
fn a_failure_without_a_retry_flag_is_not_retried() {
    let mut sim = Sim::started(two_models());
    let id = sim.last_model();
    let failure = model::model_turn::ModelFailure { error: ErrorInfo::external("odd", "?"), retry_after_ms: None };
    sim.skip_trace();
    sim.input(machine::MachineInput::Model { id, event: model::model_turn::ModelEvent::Failed(failure) });
    sim.expect_trace("step.done{1,error} failed{odd}");
}

fn retry_delays() -> Vec<u64> {
    let mut definitions = demo_definitions([]);
    definitions.limits.model_retries_max = 9;
    let mut sim = Sim::started(definitions);
    let mut waits = Vec::new();
    for _ in 0..9 {
        sim.fail_turn();
        waits.push(last_retry_delay(&sim));
    }
    waits
}

#[test]
fn backoff_doubles_up_to_a_limit_with_deterministic_jitter() {
    let (found, plain) = (retry_delays(), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000, 20_000]);
    for (wait, plain) in found.iter().zip(plain) {
        let most = (plain * 5 / 4).min(20_000);
        assert!((plain * 3 / 4..=most).contains(wait), "{wait} ms for {plain} ms");
    }
    let exact = found.iter().zip(plain).filter(|(wait, plain)| *wait == plain).count();
    assert!(exact < 9 && found[0] * 2 != found[1], "there is a jitter: {found:?}");
    assert_eq!(found, retry_delays(), "another node decides the same");
}

#[test]
fn retry_after_is_respected_up_to_a_limit() {
    for (asked_for, waited) in [(0, None), (10, None), (5_000, Some(5_000)), (60_000, Some(60_000))] {
        let mut sim = Sim::started(two_models());
        sim.fail_turn_with("rate_limited", true, Some(asked_for));
        let wait = last_retry_delay(&sim);
        assert!(waited.map_or((375..=625).contains(&wait), |waited| wait == waited), "{asked_for}: {wait}");
        assert_eq!(called_models(&sim), ["first", "first"]);
    }
    let mut sim = Sim::started(two_models());
    sim.fail_turn_with("rate_limited", true, Some(60_001));
    assert_eq!(called_models(&sim), ["first", "second"]);
    sim.skip_trace();
    sim.fail_turn_with("rate_limited", true, Some(60_001));
    sim.expect_trace("step.done{1,error} failed{rate_limited}");
}

#[test]
fn no_retry_waits_beyond_the_deadline_of_the_run() {
    let fails = |left: u64| {
        let mut definitions = two_models();
        definitions.limits.run_deadline_ms = 5_000 + left;
        let mut sim = Sim::started(definitions);
        // One input later, the delay is five seconds.
        sim.fail_turn_with("overloaded", true, Some(5_000));
        sim
    };
    assert_eq!(called_models(&fails(1)), ["first", "second"], "the run would be over then");
    assert_eq!(called_models(&fails(2)), ["first", "first"]);
    let mut sim = fails(1);
    sim.skip_trace();
    sim.fail_turn_with("overloaded", true, Some(5_000));
    sim.expect_trace("step.done{1,error} failed{overloaded}");
}

#[test]
fn a_retry_delay_follows_the_clock_even_when_the_log_is_ahead_of_it() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.now = 10;
    sim.fail_turn();
    let (e, at) = last_retry(&sim);
    assert_eq!((at, sim.now), (1_001, 11));
    assert_eq!(sim.model_due.get(&sim.last_model()), Some(&(11 + e.not_before - at)));
}

const SEVEN: Usage =
    Usage { input_tokens: 7, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 0, reasoning_tokens: 0 };

#[test]
fn tokens_of_failed_attempts_are_counted() {
    let mut sim = Sim::started(two_models());
    for _ in 0..2 {
        sim.delta(ModelDelta::Usage(SEVEN));
        sim.fail_turn_with("provider_auth", true, None);
    }
    sim.delta(ModelDelta::Usage(Usage { input_tokens: 5, ..SEVEN }));
    sim.model_turn([model_text("Hi")]);
    assert_eq!(step_done(&sim).usage.input_tokens, 7 + 7 + 9);
    let Some(Event::Completed(end)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it completed") };
    assert_eq!(end.usage.input_tokens, 7 + 7 + 9);
}

#[test]
fn tokens_of_failed_attempts_are_counted_even_when_the_run_ends() {
    let failed = || {
        let mut sim = Sim::started(two_models());
        sim.delta(ModelDelta::Usage(SEVEN));
        sim.fail_turn();
        sim
    };
    let ends: [fn(&mut Sim); 3] = [
        Sim::crash,
        |sim| sim.cancel(CancelMode::Immediate),
        |sim| sim.fail_turn_with("provider_refused", false, None),
    ];
    for end in ends {
        let mut sim = failed();
        end(&mut sim);
        assert_eq!(step_done(&sim).usage, SEVEN);
    }
    let mut sim = failed();
    sim.delta(ModelDelta::Usage(SEVEN));
    sim.model_outputs([model_text("Hi")]);
    sim.crash();
    assert_eq!(step_done(&sim).usage.input_tokens, 14, "those of the try that was lost, too");
}

#[test]
fn a_cancel_between_two_attempts_ends_the_run_without_another_call() {
    for mode in [CancelMode::Immediate, CancelMode::AfterTurn] {
        let mut sim = Sim::started(two_models());
        sim.fail_turn();
        sim.skip_trace();
        sim.cancel(mode);
        match mode {
            CancelMode::Immediate => sim.expect_trace("step.done{1,cancelled} cancelled{immediate,user}"),
            CancelMode::AfterTurn => {
                sim.expect_trace("cancelling{after_turn} step.done{1,cancelled} cancelled{after_turn,user}");
            }
        }
        assert!(sim.models.is_empty(), "it is aborted");
        assert_eq!(sim.model_requests.len(), 2, "the one that waited, and no other");
    }
}

#[test]
fn after_turn_lets_a_started_attempt_finish_as_the_last_one() {
    let mut sim = Sim::started(two_models());
    sim.fail_turn();
    sim.now = sim.model_due[&sim.last_model()] - 1; // an input takes a millisecond
    sim.skip_trace();
    sim.cancel(CancelMode::AfterTurn);
    sim.expect_trace("cancelling{after_turn}");
    let mut other = Sim::started(two_models());
    other.cancel(CancelMode::AfterTurn);
    other.skip_trace();
    other.fail_turn();
    other.expect_trace("step.done{1,error} failed{provider_error}");
    sim.model_turn([model_text("Hi")]);
    sim.expect_trace("msg_R1 step.done{1,stop} completed");
}

#[test]
fn a_sub_agent_is_retried_too_and_can_be_cancelled_meanwhile() {
    let mut sim =
        Sim::started(build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#), model_call("ask", r#"{"prompt":"!"}"#)]);
    sim.skip_trace();
    sim.fail_turn();
    sim.expect_trace("call_R2/retrying{1,2,provider_error}");
    sim.cancel_task(task_id("call_R2"), CancelMode::AfterTurn);
    sim.expect_trace(
        "call_R2/cancelling{after_turn} call_R2/step.done{1,cancelled} call_R2/cancelled{after_turn,user}
         fco_R2{incomplete,cancelled}",
    );
    assert_eq!(sim.models, [EffectId::Model { task: task_id("call_R1"), step: 1, attempt: 1 }]);
    sim.fail_turn();
    sim.cancel_task(run_id(), CancelMode::AfterTurn);
    assert!(sim.run.fold.has_ended(), "nobody was in the middle of a turn");
    assert_eq!(sim.trace().last().map(String::as_str), Some("cancelled{after_turn,user}"));
}

#[test]
fn a_steer_between_two_attempts_is_for_the_next_turn() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.fail_turn();
    sim.steer("and two?");
    sim.fail_turn();
    assert_eq!(sim.request_summary(), "user:go", "the same turn again");
    sim.skip_trace();
    sim.model_turn([model_text("One")]);
    sim.expect_trace("msg_R2 step.done{1,stop} step.started{2}");
    assert_eq!(sim.request_summary(), "user:go | said:One | user:and two?");
}

#[test]
fn a_deadline_between_two_attempts_ends_the_run() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.fail_turn();
    sim.skip_trace();
    sim.fire_run_deadline();
    sim.expect_trace("step.done{1,cancelled} incomplete{deadline}");
}

#[test]
fn after_a_crash_between_two_attempts_the_turn_restarts_with_the_first_model() {
    let mut sim = Sim::started(two_models());
    sim.fail_turn_with("provider_auth", false, None);
    sim.fail_turn();
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("step.done{1,lost} recovered{1,4} step.started{1,4}");
    assert_eq!(step_done(&sim).model, "other/second", "who was asked stands in the log");
    assert_eq!(called_models(&sim), ["first", "second", "second", "first"]);
    assert_eq!(sim.model_due.get(&sim.last_model()), None);
    for _ in 0..2 {
        sim.fail_turn();
    }
    sim.model_turn([model_text("Hi")]);
    assert_eq!(step_done(&sim).model, "scripted/first", "it has all its tries again");
}
