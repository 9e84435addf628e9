//! The order of records, scenario by scenario.

use crate::sim::{Sim, definitions};
use machine::{Input, TimerId};
use model::block::Part;
use model::command::Steer;
use model::delta::{ModelDelta, ModelEvent};
use model::event::{Event, StopReason};
use model::history::Entry;
use model::item::{Item, ResultStatus};
use model::thread::entries;

#[test]
fn hello() {
    let mut sim = Sim::started();
    sim.say(0, &["Hi ", "there"]);
    sim.end(StopReason::Stop);
    assert_eq!(
        sim.story(),
        [
            "created",
            "started",
            "step.started 1 1",
            "item+ msg_R1",
            "text.added",
            "text.delta \"Hi \"",
            "text.delta \"there\"",
            "text.done \"Hi there\"",
            "item- msg_R1 completed",
            "step.done 1 stop",
            "completed"
        ]
    );
}

#[test]
fn weather() {
    let mut sim = Sim::started();
    sim.think(0, 0, &["Thinking about the weather ", "in Paris."]);
    sim.think(0, 1, &["Decided to call ", "get_weather function."]);
    sim.done(0);
    sim.call(1, "get_weather", &["{\"location\":", "\"Paris, France\"}"]);
    sim.done(1);
    sim.end(StopReason::Stop); // whatever the provider says: complete calls make it `tool_calls`
    sim.weather_result();
    sim.say(0, &["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"]);
    sim.end(StopReason::Stop);
    assert_eq!(
        sim.story(),
        [
            "created",
            "started",
            "step.started 1 1",
            "item+ rs_R1",
            "reasoning_summary_item.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_item.done",
            "reasoning_summary_item.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_item.done",
            "item- rs_R1 completed",
            "item+ fc_R2",
            "tool_call_arguments.delta",
            "tool_call_arguments.delta",
            "tool_call_arguments.done",
            "item- fc_R2 completed",
            "step.done 1 tool_calls",
            "tool.started call_R2",
            "item+ fco_R2",
            "text.done \"{\\\"temperature\\\":\\\"15C\\\",\\\"condition\\\":\\\"Sunny\\\"}\"",
            "image.added",
            "image.done",
            "item- fco_R2 2 completed",
            "step.started 2 1",
            "item+ msg_R3",
            "text.added",
            "text.delta \"The weather in Paris is sunny \"",
            "text.delta \"with a temperature of 15C.[^\"",
            "text.delta \"1]\"",
            "annotation {\"type\":\"reference_to_block\",\"reference_id\":1,\"start_index\":56,\"end_index\":60}",
            "text.done \"The weather in Paris is sunny with a temperature of 15C.[^1]\"",
            "item- msg_R3 completed",
            "step.done 2 stop",
            "completed"
        ]
    );
    assert_eq!(sim.drafts.len(), 36);
}

#[test]
fn what_the_model_reads_of_a_result_is_wrapped_and_private() {
    let mut sim = Sim::started();
    sim.call(0, "get_weather", &["{}"]);
    sim.end(StopReason::Stop);
    sim.weather_result();
    let root = sim.run.fold.root().expect("the run began");
    let Some(Entry::Result { content, status, .. }) = entries(root).pop() else {
        panic!("the last entry is the result")
    };
    assert_eq!(status, ResultStatus::Completed);
    let texts = serde_json::to_value(&content).expect("content has a JSON text");
    assert_eq!(texts[0]["text"], "<referencable-item>\nID: 1");
    assert_eq!(texts[0]["tags"][0], "added_by_reference_manager");
    assert_eq!(texts[2]["type"], "image_url");
    assert_eq!(texts[3]["text"], "</referencable-item>");
    assert!(sim.records().iter().all(|record| !String::from_utf8_lossy(&record.public).contains("referencable")));
}

#[test]
fn fail() {
    let mut sim = Sim::started();
    sim.say(0, &["Let me ", "see"]);
    sim.fail();
    assert_eq!(
        sim.story()[7..],
        ["text.done \"Let me see\"", "item- msg_R1 incomplete failed", "step.done 1 error", "failed provider_error"]
    );
}

#[test]
fn cancel() {
    let mut sim = Sim::started();
    sim.say(0, &["Once upon ", "a time"]);
    sim.cancel();
    assert_eq!(
        sim.story()[7..],
        ["text.done \"Once upon a time\"", "item- msg_R1 incomplete cancelled", "step.done 1 cancelled", "cancelled"]
    );
    let late = Input::Cancel(machine::CancelRun { mode: Default::default(), by: Default::default() });
    sim.input(late);
    assert_eq!(sim.drafts.len(), 11, "a second cancel changes nothing");
}

#[test]
fn a_cancel_answers_the_call_that_runs() {
    let mut sim = Sim::started();
    sim.call(0, "get_weather", &["{}"]);
    sim.end(StopReason::Stop);
    sim.cancel();
    let story = sim.story();
    assert_eq!(
        story[8..],
        [
            "tool.started call_R1",
            "item+ fco_R1",
            "text.done \"The run was cancelled.\"",
            "item- fco_R1 1 incomplete",
            "cancelled"
        ]
    );
}

#[test]
fn limit() {
    let mut sim = Sim::started();
    sim.say(0, &["Once"]);
    sim.call(1, "get_weather", &["{}"]);
    sim.done(1);
    sim.call(2, "get_weather", &["{\"cut"]);
    sim.end(StopReason::MaxTokens);
    assert_eq!(
        sim.story()[6..],
        [
            "item+ fc_R2",
            "tool_call_arguments.delta",
            "tool_call_arguments.done",
            "item- fc_R2 completed",
            "item+ fc_R3",
            "tool_call_arguments.delta",
            "text.done \"Once\"",
            "item- msg_R1 incomplete limit",
            "item- fc_R3 incomplete limit",
            "step.done 1 max_tokens",
            "item+ fco_R2",
            "text.done \"The turn ran into a limit: the call was not run.\"",
            "item- fco_R2 1 incomplete",
            "incomplete max_tokens"
        ]
    );
}

#[test]
fn a_process_that_died_leaves_one_clear_end() {
    let mut sim = Sim::started();
    sim.say(0, &["Once upon ", "a ti"]);
    sim.crash();
    assert_eq!(
        sim.story()[7..],
        ["text.done \"Once upon a ti\"", "item- msg_R1 incomplete failed", "step.done 1 lost", "failed interrupted"]
    );
}

#[test]
fn a_tool_that_ran_when_the_process_died_has_an_unknown_result() {
    let mut sim = Sim::started();
    sim.call(0, "get_weather", &["{}"]);
    sim.end(StopReason::Stop);
    sim.crash();
    assert!(sim.story().contains(&"item- fco_R1 1 unknown".to_owned()), "{:#?}", sim.story());
    assert_eq!(sim.story().last().map(String::as_str), Some("failed interrupted"));
}

#[test]
fn unknown_tools_foreign_tools_and_broken_arguments_never_run() {
    for (name, arguments, code) in [
        ("nonsense", "{}", "unknown_tool"),
        ("other", "{}", "unknown_tool"),
        ("get_weather", "{\"a\":", "invalid_arguments"),
        ("get_weather", "[]", "invalid_arguments"),
        ("get_weather", "", "invalid_arguments"),
    ] {
        let mut sim = Sim::started();
        sim.call(0, name, &[arguments]);
        sim.end(StopReason::Stop);
        assert!(sim.tools.is_empty(), "{name} {arguments}");
        let result = sim.drafts.iter().find_map(|draft| match &draft.event {
            Event::ItemDone(e) => match &e.item {
                Item::ToolResult(result) => result.error.clone(),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(result.map(|error| error.code).as_deref(), Some(code));
        assert_eq!(
            sim.story().last().map(String::as_str),
            Some("step.started 2 1"),
            "the model is told, and asked again"
        );
    }
}

#[test]
fn too_many_steps_end_the_task() {
    let mut definitions = definitions();
    definitions.limits.steps_max = 2;
    let mut sim = Sim::with(definitions);
    sim.start("loop");
    for _ in 0..2 {
        sim.call(0, "get_weather", &["{}"]);
        sim.end(StopReason::Stop);
        sim.weather_result();
    }
    assert_eq!(sim.story().last().map(String::as_str), Some("incomplete max_steps"));
}

#[test]
fn no_more_tools_run_at_once_than_allowed() {
    let mut definitions = definitions();
    definitions.limits.parallel_tools_max = 2;
    let mut sim = Sim::with(definitions);
    sim.start("many");
    for slot in 0..5 {
        sim.call(slot, "get_weather", &["{}"]);
    }
    sim.end(StopReason::Stop);
    assert_eq!(sim.tools.len(), 2);
    for left in [2, 2, 2, 1, 0] {
        sim.weather_result();
        assert_eq!(sim.tools.len(), left);
    }
    assert_eq!(sim.story().last().map(String::as_str), Some("step.started 2 1"));
}

#[test]
fn the_deadline_ends_the_run() {
    let mut sim = Sim::started();
    sim.say(0, &["Once"]);
    let root = sim.run.fold.root().expect("the run began").id.clone();
    sim.asked.retain(|id| !matches!(id, machine::EffectId::Timer(_)));
    sim.input(Input::Timer(TimerId::Run(root)));
    assert_eq!(sim.story().last().map(String::as_str), Some("incomplete deadline"));
}

#[test]
fn a_steer_is_read_after_the_turn_and_makes_one_more() {
    let mut sim = Sim::started();
    sim.say(0, &["One"]);
    let task_id = sim.run.fold.root().expect("the run began").id.clone();
    sim.input(Input::Steer(Steer {
        task_id: task_id.clone(),
        input: vec![Part::text("and two?")],
        otherwise: task_id,
    }));
    sim.end(StopReason::Stop);
    let story = sim.story();
    assert_eq!(
        story[6..],
        ["input.added", "text.done \"One\"", "item- msg_R1 completed", "step.done 1 stop", "step.started 2 1"]
    );
    let root = sim.run.fold.root().expect("the run began");
    assert!(matches!(entries(root).last(), Some(Entry::User { .. })));
}

#[test]
fn what_answers_nothing_outstanding_is_ignored() {
    let mut sim = Sim::started();
    let model = sim.model.clone().expect("a model was asked");
    sim.say(0, &["x"]);
    sim.cancel();
    let before = sim.drafts.len();
    let text = ModelDelta::Text { slot: 0, part: 0, text: "late".to_owned(), logprobs: None };
    sim.input(Input::Model { id: model, event: ModelEvent::Delta(text) });
    assert_eq!(sim.drafts.len(), before);
}

#[test]
fn a_providers_disorder_does_not_become_ours() {
    let mut sim = Sim::started();
    sim.say(3, &["a"]);
    sim.done(3);
    sim.say(3, &["late"]);
    sim.call(3, "get_weather", &["{}"]);
    sim.delta(ModelDelta::Arguments { slot: 9, text: "{}".to_owned() });
    sim.delta(ModelDelta::Done { slot: 9, raw: None });
    sim.delta(ModelDelta::Hosted { slot: 3, state: "x".to_owned(), action: None });
    sim.end(StopReason::ToolCalls);
    assert_eq!(
        sim.story()[3..],
        [
            "item+ msg_R1",
            "text.added",
            "text.delta \"a\"",
            "text.done \"a\"",
            "item- msg_R1 completed",
            "step.done 1 stop",
            "completed"
        ]
    );
}

#[test]
fn a_long_text_is_logged_in_pieces_and_not_repeated() {
    let mut sim = Sim::started();
    let long = "é".repeat(70 * 1024);
    sim.say(0, &[&long]);
    sim.end(StopReason::Stop);
    let sizes: Vec<usize> = sim.records().iter().map(model::Record::size).collect();
    assert!(sizes.iter().all(|size| *size <= model::limits::RECORD_BYTES_MAX), "{sizes:?}");
    let object = sim.run.fold.object(&crate::sim::run_id()).expect("the run began");
    let Some(Item::Message(message)) = object.output.first() else { panic!("a message") };
    assert_eq!(message.text(), long);
}
