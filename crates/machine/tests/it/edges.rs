//! Where a decision turns: exactly at a limit, exactly at its moment, and not one later.

use crate::fixtures::{
    agent, agent_tool, build_definitions, call_id, demo_definitions, model_call, model_text, run_id, task_id, tool,
    tool_text,
};
use crate::sim::{Sim, start_command};
use machine::MachineInput;
use model::command::StartCommand;
use model::content::{ContentPart, ImageBlock, ImageUrl, TextBlock};
use model::definition::Price;
use model::event::{CancelMode, Event};
use model::history::HistoryEntry;
use model::item::Block;
use model::item::Item;
use model::limits::{CostMicros, DONE_REPEAT_BYTES_MAX, RECORD_BYTES_MAX};
use model::ports::Spend;
use model::record::PrivatePayload;
use model::tool::ToolOutput;
use model::usage::Usage;

/// `demo` asks `helper`, which has begun and has a tool.
fn asked() -> Sim {
    let agents = [agent("demo", &["ask"]), agent("helper", &["look"])];
    let mut sim = Sim::started(build_definitions(agents, [agent_tool("ask", "helper"), tool("look")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim
}

/// What the run's first record has for the server alone.
fn private_of_created(sim: &Sim) -> PrivatePayload {
    let created = sim.drafts.iter().find(|draft| matches!(draft.event, Event::Created(_)));
    created.and_then(|draft| draft.private.as_deref()).cloned().expect("a run begins with what it may use")
}

#[test]
fn a_run_remembers_its_definitions_its_deadline_and_the_past_that_a_hook_gave_it() {
    let mut sim = Sim::new(demo_definitions([]));
    let history = Some(vec![HistoryEntry::User { content: vec![ContentPart::text("before")] }]);
    sim.input(MachineInput::Start(Box::new(StartCommand {
        rewritten_history: history.clone(),
        ..start_command(Vec::new())
    })));
    let private = private_of_created(&sim);
    assert_eq!(private.definitions_digest.as_ref(), Some(&sim.run.definitions.digest));
    assert_eq!(private.deadline, Some(sim.now + sim.run.definitions.limits.run_deadline_ms));
    assert_eq!(private.rewritten_history, history);
    assert_eq!(sim.request_summary(), "user:before | user:go");
}

#[test]
fn arguments_of_the_greatest_length_run_and_one_byte_more_does_not() {
    let longest = RECORD_BYTES_MAX * 3 / 8;
    for (length, code) in [(longest, None), (longest + 1, Some("invalid_arguments"))] {
        let arguments = format!(r#"{{"x":"{}"}}"#, "y".repeat(length - r#"{"x":""}"#.len()));
        assert_eq!(arguments.len(), length);
        let mut sim = Sim::started(demo_definitions([tool("t")]));
        sim.model_turn([model_call("t", &arguments)]);
        assert_eq!(sim.tool_requests.len(), usize::from(code.is_none()), "{length} bytes");
        assert_eq!(sim.trace().iter().any(|line| line.contains("invalid_arguments")), code.is_some());
        assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
    }
}

#[test]
fn a_turn_that_went_well_long_ago_does_not_make_up_for_four_that_did_not() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.model_turn([model_call("t", "{}")]);
    sim.finish_tool("call_R1", tool_text("ok"));
    for _ in 0..3 {
        sim.model_turn([model_call("nonsense", "{}")]);
    }
    sim.skip_trace();
    sim.model_turn([model_call("nonsense", "{}")]);
    sim.expect_trace("fc_R5 step.done{5,tool_calls} fco_R5{failed,unknown_tool} failed{invalid_tool_calls}");
}

#[test]
fn a_parent_reads_the_groups_that_its_agent_cites_and_no_others() {
    let mut sim = asked();
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.finish_tool("call_R2", tool_text("first"));
    sim.finish_tool("call_R3", tool_text("second"));
    sim.model_turn([model_text("It is so.[^2]")]);
    assert_eq!(sim.request_summary(), "user:go | call:ask | result:second It is so.[^2]");
}

#[test]
fn groups_that_fit_no_record_beside_the_answer_are_left_out_of_it() {
    let mut sim = asked();
    let long = "x".repeat(RECORD_BYTES_MAX * 2 / 5);
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.finish_tool("call_R2", tool_text(&long));
    sim.finish_tool("call_R3", tool_text(&long));
    sim.model_turn([model_text("So.[^1][^2]")]);
    assert_eq!(sim.request_summary(), "user:go | call:ask | result:So.[^1][^2]");
}

/// The quotes of a JSON text count as well.
#[test]
fn an_answer_of_a_quarter_record_is_read_whole_and_of_a_longer_one_most_of_that() {
    for (length, is_whole) in [(RECORD_BYTES_MAX / 4 - 2, true), (RECORD_BYTES_MAX / 4 - 1, false)] {
        let mut sim = asked();
        sim.model_turn([model_text(&"x".repeat(length))]);
        let given = sim.request_summary();
        assert_eq!(given.ends_with(" […]"), !is_whole, "{length} bytes");
        let read = given.matches('x').count();
        assert!(read * 5 > length * 3, "{read} of {length} bytes are read");
    }
}

/// A run whose tool `call_R1` is running, and may give so many bytes.
fn running(output_bytes_max: usize) -> Sim {
    let mut house = demo_definitions([tool("t")]);
    house.limits.tool_output_bytes_max = output_bytes_max;
    let mut sim = Sim::started(house);
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim
}

#[test]
fn a_result_of_the_greatest_size_is_taken_and_of_one_byte_more_is_not() {
    let output = tool_text("some words");
    let size = serde_json::to_vec(&output).unwrap().len();
    for (limit, told) in [(size, "fco_R1{completed}"), (size - 1, "fco_R1{failed,output_too_large}")] {
        let mut sim = running(limit);
        sim.finish_tool("call_R1", output.clone());
        sim.expect_trace(&format!("{told} step.started{{2}}"));
    }
}

/// The summary's own bytes, beside the quotes and brackets of the four that must fit one record together.
#[test]
fn what_comes_beside_a_result_is_taken_up_to_what_its_last_record_repeats() {
    let frame = r#"["",null,null,null]"#.len();
    for (length, told) in [
        (DONE_REPEAT_BYTES_MAX - frame, "fco_R1{completed}"),
        (DONE_REPEAT_BYTES_MAX - frame + 1, "fco_R1{failed,output_too_large}"),
        (DONE_REPEAT_BYTES_MAX * 2, "fco_R1{failed,output_too_large}"),
    ] {
        let mut sim = running(1024 * 1024);
        sim.finish_tool("call_R1", ToolOutput { summary: Some("s".repeat(length)), ..tool_text("ok") });
        sim.expect_trace(&format!("{told} step.started{{2}}"));
    }
}

fn picture(bytes: usize) -> Block {
    Block::Image(ImageBlock { image_url: ImageUrl::new("p".repeat(bytes)), id: None })
}

#[test]
fn a_tools_picture_that_fits_no_record_is_left_out_in_words_that_can_be_cited() {
    let largest = RECORD_BYTES_MAX / 2;
    let left_out = |bytes: usize| {
        let words = format!("[an image of {bytes} bytes was left out]");
        Block::Text(TextBlock { id: Some(1), ..TextBlock::new(words) })
    };
    for bytes in [largest, largest + 1, RECORD_BYTES_MAX] {
        let mut sim = running(1024 * 1024);
        sim.finish_tool("call_R1", ToolOutput { block_list: vec![picture(bytes)], ..ToolOutput::default() });
        let shown = match picture(bytes) {
            Block::Image(image) if bytes <= largest => Block::Image(ImageBlock { id: Some(1), ..image }),
            _ => left_out(bytes),
        };
        let object = sim.run.fold.task_object(&run_id()).expect("the run began");
        let Some(Item::ToolResult(result)) = object.output.last() else { panic!("a result") };
        assert_eq!(result.block_list.as_deref(), Some(&[shown][..]), "{bytes} bytes");
        assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
    }
}

#[test]
fn a_tool_has_as_long_in_the_log_as_it_was_told() {
    let sim = running(1024);
    let started = sim.drafts.iter().find(|draft| matches!(draft.event, Event::ToolStarted(_))).expect("it started");
    let deadline = started.private.as_ref().and_then(|private| private.deadline);
    assert_eq!(deadline, Some(sim.tool_requests[0].deadline));
    assert_eq!(deadline, Some(sim.now + sim.run.definitions.limits.tool_timeout_ms));
}

#[test]
fn a_turn_that_is_given_up_may_be_asked_for_again() {
    let mut sim = Sim::started(demo_definitions([]));
    for _ in 0..3 {
        sim.model_outputs([model_text("boom")]);
        sim.crash();
    }
    let Some(Event::Failed(failed)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it failed") };
    assert_eq!((failed.error.retryable, &failed.error.details), (Some(true), &Some(serde_json::json!({}))));
}

#[test]
fn a_run_whose_agent_is_gone_goes_on_with_the_model_that_it_began_with() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.run.definitions = std::sync::Arc::default();
    sim.crash();
    assert_eq!(sim.model_requests.last().map(|request| request.model.as_str()), Some("scripted/demo"));
    sim.model_turn([model_call("t", "{}")]);
    assert!(
        sim.request_summary().ends_with("result:There is no tool `t`: demo has none."),
        "{}",
        sim.request_summary()
    );
}

#[test]
fn a_days_sum_has_each_run_once() {
    let spent = |tokens: u64, cost: u64| Spend {
        usage: Usage { input_tokens: tokens, cached_tokens: 1, ..Usage::default() },
        cost: CostMicros(cost),
    };
    let mut house = demo_definitions([tool("t")]);
    // 9 tokens read and 4 written: 17 millionths.
    house.prices.insert("scripted/demo".to_owned(), Price { input: 1.0, output: 2.0, ..Price::default() });
    let mut sim = Sim::started(house);
    sim.run.prior_spend = spent(100, 1_000);
    sim.model_turn([model_call("t", "{}")]);
    let all = machine::user_spend_today(&sim.run);
    assert_eq!((all.usage.input_tokens, all.usage.output_tokens, all.cost), (109, 4, CostMicros(1_017)));
    // Whoever takes the run up reads the day's sum from the store, where this run is in it.
    sim.run.prior_spend = all;
    machine::exclude_own_spend(&mut sim.run);
    assert_eq!(sim.run.prior_spend, spent(100, 1_000));
}

#[test]
fn a_call_that_a_cancel_cut_says_what_was_cancelled() {
    let why = |sim: &Sim| {
        let ends = sim.drafts.iter().filter_map(|draft| match &draft.event {
            Event::ItemDone(e) => Some(&e.item),
            _ => None,
        });
        let mut errors = ends.filter_map(|item| match item {
            Item::ToolResult(result) if result.call_id == call_id("call_R2") => result.error.clone(),
            _ => None,
        });
        errors.next().expect("the tool was cut").message
    };
    for (task, words) in [(run_id(), "The run was cancelled."), (task_id("call_R1"), "The agent was cancelled.")] {
        let mut sim = asked();
        sim.model_turn([model_call("look", "{}")]);
        sim.cancel_task(task, CancelMode::Immediate);
        assert_eq!(why(&sim), words);
    }
}
