//! Boundary values: exactly at a limit, exactly at a deadline, and one more.

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

/// `demo` calls `helper`, which has started and has a tool.
fn started_sub_agent() -> Sim {
    let agents = [agent("demo", &["ask"]), agent("helper", &["look"])];
    let mut sim = Sim::started(build_definitions(agents, [agent_tool("ask", "helper"), tool("look")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim
}

/// The private payload of the run's first record.
fn private_of_created(sim: &Sim) -> PrivatePayload {
    let created = sim.drafts.iter().find(|draft| matches!(draft.event, Event::Created(_)));
    created.and_then(|draft| draft.private.as_deref()).cloned().expect("a run begins with what it may use")
}

#[test]
fn a_run_records_its_definitions_its_deadline_and_the_history_from_its_hook() {
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
fn arguments_of_maximum_length_run_and_one_more_byte_does_not() {
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
fn an_old_valid_turn_does_not_reset_the_count_of_invalid_ones() {
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
fn a_parent_gets_only_the_reference_groups_that_its_sub_agent_cites() {
    let mut sim = started_sub_agent();
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.finish_tool("call_R2", tool_text("first"));
    sim.finish_tool("call_R3", tool_text("second"));
    sim.model_turn([model_text("It is so.[^2]")]);
    assert_eq!(sim.request_summary(), "user:go | call:ask | result:second It is so.[^2]");
}

#[test]
fn reference_groups_that_do_not_fit_into_the_record_are_left_out() {
    let mut sim = started_sub_agent();
    let long = "x".repeat(RECORD_BYTES_MAX * 2 / 5);
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.finish_tool("call_R2", tool_text(&long));
    sim.finish_tool("call_R3", tool_text(&long));
    sim.model_turn([model_text("So.[^1][^2]")]);
    assert_eq!(sim.request_summary(), "user:go | call:ask | result:So.[^1][^2]");
}

/// The quotes of a JSON text count as well.
#[test]
fn a_sub_agents_answer_is_truncated_to_a_quarter_of_a_record() {
    for (length, is_whole) in [(RECORD_BYTES_MAX / 4 - 2, true), (RECORD_BYTES_MAX / 4 - 1, false)] {
        let mut sim = started_sub_agent();
        sim.model_turn([model_text(&"x".repeat(length))]);
        let given = sim.request_summary();
        assert_eq!(given.ends_with(" […]"), !is_whole, "{length} bytes");
        let read = given.matches('x').count();
        assert!(read * 5 > length * 3, "{read} of {length} bytes are read");
    }
}

/// A run whose tool `call_R1` is running and may return this many bytes.
fn running_tool_with_limit(output_bytes_max: usize) -> Sim {
    let mut definitions = demo_definitions([tool("t")]);
    definitions.limits.tool_output_bytes_max = output_bytes_max;
    let mut sim = Sim::started(definitions);
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim
}

#[test]
fn a_result_of_maximum_size_is_accepted_and_one_more_byte_is_not() {
    let output = tool_text("some words");
    let size = serde_json::to_vec(&output).unwrap().len();
    for (limit, told) in [(size, "fco_R1{completed}"), (size - 1, "fco_R1{failed,output_too_large}")] {
        let mut sim = running_tool_with_limit(limit);
        sim.finish_tool("call_R1", output.clone());
        sim.expect_trace(&format!("{told} step.started{{2}}"));
    }
}

/// The summary's own bytes, in addition to the quotes and brackets of the four that must fit into one record together.
#[test]
fn the_extra_fields_of_a_result_are_limited_by_its_last_record() {
    let frame = r#"["",null,null,null]"#.len();
    for (length, told) in [
        (DONE_REPEAT_BYTES_MAX - frame, "fco_R1{completed}"),
        (DONE_REPEAT_BYTES_MAX - frame + 1, "fco_R1{failed,output_too_large}"),
        (DONE_REPEAT_BYTES_MAX * 2, "fco_R1{failed,output_too_large}"),
    ] {
        let mut sim = running_tool_with_limit(1024 * 1024);
        sim.finish_tool("call_R1", ToolOutput { summary: Some("s".repeat(length)), ..tool_text("ok") });
        sim.expect_trace(&format!("{told} step.started{{2}}"));
    }
}

fn image_block(bytes: usize) -> Block {
    Block::Image(ImageBlock { image_url: ImageUrl::new("p".repeat(bytes)), id: None })
}

#[test]
fn a_tool_image_that_fits_no_record_is_replaced_by_a_note_that_can_be_cited() {
    let largest = RECORD_BYTES_MAX / 2;
    let left_out = |bytes: usize| {
        let words = format!("[an image of {bytes} bytes was left out]");
        Block::Text(TextBlock { id: Some(1), ..TextBlock::new(words) })
    };
    for bytes in [largest, largest + 1, RECORD_BYTES_MAX] {
        let mut sim = running_tool_with_limit(1024 * 1024);
        sim.finish_tool("call_R1", ToolOutput { block_list: vec![image_block(bytes)], ..ToolOutput::default() });
        let shown = match image_block(bytes) {
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
fn a_tools_logged_deadline_is_the_one_it_was_given() {
    let sim = running_tool_with_limit(1024);
    let started = sim.drafts.iter().find(|draft| matches!(draft.event, Event::ToolStarted(_))).expect("it started");
    let deadline = started.private.as_ref().and_then(|private| private.deadline);
    assert_eq!(deadline, Some(sim.tool_requests[0].deadline));
    assert_eq!(deadline, Some(sim.now + sim.run.definitions.limits.tool_timeout_ms));
}

#[test]
fn an_aborted_turn_may_be_requested_again() {
    let mut sim = Sim::started(demo_definitions([]));
    for _ in 0..3 {
        sim.model_outputs([model_text("boom")]);
        sim.crash();
    }
    let Some(Event::Failed(failed)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it failed") };
    assert_eq!((failed.error.retryable, &failed.error.details), (Some(true), &Some(serde_json::json!({}))));
}

#[test]
fn a_run_whose_agent_was_removed_continues_with_its_original_model() {
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
fn the_daily_sum_counts_each_run_once() {
    let spent = |tokens: u64, cost: u64| Spend {
        usage: Usage { input_tokens: tokens, cached_tokens: 1, ..Usage::default() },
        cost: CostMicros(cost),
    };
    let mut definitions = demo_definitions([tool("t")]);
    // 9 input tokens and 4 output tokens: 17 millionths.
    definitions.prices.insert("scripted/demo".to_owned(), Price { input: 1.0, output: 2.0, ..Price::default() });
    let mut sim = Sim::started(definitions);
    sim.run.prior_spend = spent(100, 1_000);
    sim.model_turn([model_call("t", "{}")]);
    let all = machine::user_spend_today(&sim.run);
    assert_eq!((all.usage.input_tokens, all.usage.output_tokens, all.cost), (109, 4, CostMicros(1_017)));
    // After a restart the engine reads the day's sum from the store, which includes this run.
    sim.run.prior_spend = all;
    machine::exclude_own_spend(&mut sim.run);
    assert_eq!(sim.run.prior_spend, spent(100, 1_000));
}

#[test]
fn a_call_interrupted_by_a_cancel_reports_what_was_cancelled() {
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
        let mut sim = started_sub_agent();
        sim.model_turn([model_call("look", "{}")]);
        sim.cancel_task(task, CancelMode::Immediate);
        assert_eq!(why(&sim), words);
    }
}
