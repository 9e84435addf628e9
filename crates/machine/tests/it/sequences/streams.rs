//! Tools that show pieces of their result while they run.

use crate::fixtures::{
    approve, call_id, demo_definitions, idempotent, model_call, model_text, reject, run_id, tool, tool_text,
};
use crate::sim::Sim;
use machine::{EffectId, MachineInput};
use model::content::{ContentPart, ImageBlock, ImageUrl, TextBlock};
use model::definition::{Definitions, OnCrash, Tool};
use model::error::ErrorCode;
use model::event::{CancelMode, Event};
use model::item::{Block, Item, ResultStatus, ToolResult};
use model::limits::RECORD_BYTES_MAX;
use model::tool::{PiecePlace, ResultPiece, ToolEvent, ToolOutput};
use model_testing::invariants;

fn send(sim: &mut Sim, call: &str, event: ToolEvent) {
    let id = sim.running_tool(&call_id(call));
    sim.input(MachineInput::Tool { id, event });
}

fn say(sim: &mut Sim, call: &str, words: &str) {
    let piece = ResultPiece::Text(words.to_owned());
    send(sim, call, ToolEvent::Piece { piece, place: PiecePlace::OpenBlock });
}

fn say_anew(sim: &mut Sim, call: &str, words: &str) {
    let piece = ResultPiece::Text(words.to_owned());
    send(sim, call, ToolEvent::Piece { piece, place: PiecePlace::NewBlock });
}

fn draw(sim: &mut Sim, call: &str, url: &str, partial: Option<u32>) {
    let piece = ResultPiece::Image { url: url.to_owned(), partial };
    send(sim, call, ToolEvent::Piece { piece, place: PiecePlace::OpenBlock });
}

/// A run whose tool has started.
fn running(tool: Tool) -> Sim {
    running_with(demo_definitions([tool]))
}

fn running_with(definitions: Definitions) -> Sim {
    let mut sim = Sim::started(definitions);
    sim.model_turn([model_call("look", "{}")]);
    sim.skip_trace();
    sim
}

/// A result so far.
fn result_of(sim: &Sim, call: &str) -> ToolResult {
    let (_, fold) = sim.run.fold.task(&run_id()).unwrap().result(&call_id(call)).expect("something was shown");
    let Item::ToolResult(result) = &fold.item else { panic!("{fold:?}") };
    result.clone()
}

fn blocks(sim: &Sim, call: &str) -> Vec<String> {
    let result = result_of(sim, call);
    let text = |block: &Block| match block {
        Block::Text(text) => format!("{}#{}", text.text(), text.id.unwrap_or_default()),
        Block::Image(image) => format!("{}#{}", image.image_url.url, image.id.unwrap_or_default()),
        other => panic!("{other:?}"),
    };
    result.block_list.as_deref().unwrap_or_default().iter().map(text).collect()
}

/// What the model has read of the last result.
fn told(sim: &Sim) -> String {
    sim.request_summary().rsplit("result:").next().unwrap_or_default().to_owned()
}

#[test]
fn pieces_are_shown_as_they_come_and_are_the_result() {
    let mut sim = running(tool("look"));
    say(&mut sim, "call_R1", "Looking ");
    assert_eq!(result_of(&sim, "call_R1").status, Some(ResultStatus::InProgress));
    say(&mut sim, "call_R1", "around.");
    draw(&mut sim, "call_R1", "/v1/blobs/a", Some(0));
    draw(&mut sim, "call_R1", "/v1/blobs/b", None);
    say(&mut sim, "call_R1", "Done");
    say_anew(&mut sim, "call_R1", "and dusted.");
    let lines = sim.trace();
    let from = lines.iter().position(|line| line == "item+ fco_R1").unwrap();
    let expected = [
        "item+ fco_R1",
        "text.added",
        "text.delta \"Looking \"",
        "text.delta \"around.\"",
        "text.done \"Looking around.\"",
        "image.added",
        "image.delta",
        "image.done",
        "text.added",
        "text.delta \"Done\"",
        "text.done \"Done\"",
        "text.added",
        "text.delta \"and dusted.\"",
    ];
    assert_eq!(lines[from..], expected);
    sim.finish_tool("call_R1", ToolOutput::default());
    assert_eq!(blocks(&sim, "call_R1"), ["Looking around.#1", "/v1/blobs/b#1", "Done#1", "and dusted.#1"]);
    assert_eq!(result_of(&sim, "call_R1").status, Some(ResultStatus::Completed));
    let told = told(&sim);
    assert!(told.contains("Looking around.") && told.contains("and dusted."), "{told}");
    sim.model_turn([model_text("I see.[^1]")]);
    let cited = sim.drafts.iter().any(|draft| matches!(draft.event, Event::AnnotationAdded(_)));
    assert!(cited && sim.run.fold.has_ended());
    invariants::check_done_matches_deltas(&sim.records()).unwrap();
}

#[test]
fn the_end_adds_blocks_for_people_and_content_for_the_model() {
    let mut sim = running(tool("look"));
    say(&mut sim, "call_R1", "a");
    let output = ToolOutput {
        message_content: vec![ContentPart::text("the short form")],
        block_list: vec![Block::Text(TextBlock { id: Some(7), ..TextBlock::new("b") })],
        summary: Some("s".to_owned()),
        ..ToolOutput::default()
    };
    sim.finish_tool("call_R1", output);
    assert_eq!(blocks(&sim, "call_R1"), ["a#1", "b#1"]);
    assert_eq!(result_of(&sim, "call_R1").summary.as_deref(), Some("s"));
    assert!(told(&sim).contains("the short form") && !told(&sim).contains("\na"), "{}", told(&sim));
}

#[test]
fn tools_that_stream_side_by_side_have_results_and_numbers_of_their_own() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}"), model_call("look", "{}")]);
    say(&mut sim, "call_R2", "b");
    say(&mut sim, "call_R1", "a");
    sim.finish_tool("call_R3", tool_text("c"));
    say(&mut sim, "call_R2", "B");
    sim.finish_tool("call_R1", ToolOutput::default());
    sim.finish_tool("call_R2", ToolOutput::default());
    let all = ["call_R1", "call_R2", "call_R3"].map(|call| blocks(&sim, call).join(" "));
    assert_eq!(all, ["a#2", "bB#1", "c#3"]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 fc_R2 fc_R3 step.done{1,tool_calls} tool.started{call_R1}
         tool.started{call_R2} tool.started{call_R3} fco_R2+ fco_R1+ fco_R3{completed} fco_R1{completed}
         fco_R2{completed} step.started{2}",
    );
}

#[test]
fn a_tool_that_fails_after_pieces_leaves_them() {
    let mut sim = running(tool("look"));
    say(&mut sim, "call_R1", "half");
    sim.finish_tool("call_R1", ToolOutput::failed(ErrorCode::CommandFailed, "it broke"));
    sim.expect_trace("fco_R1{failed,command_failed} step.started{2}");
    assert_eq!(blocks(&sim, "call_R1"), ["half#1"]);
    assert_eq!(told(&sim), "half it broke");
}

#[test]
fn the_limit_counts_all_pieces_together() {
    let small = Tool { output_bytes_max: Some(10), ..tool("look") };
    let mut sim = running(small.clone());
    say(&mut sim, "call_R1", "12345");
    say(&mut sim, "call_R1", "67890");
    sim.expect_trace("fco_R1+");
    say(&mut sim, "call_R1", "!");
    sim.expect_trace("fco_R1{failed,output_too_large} step.started{2}");
    assert_eq!(blocks(&sim, "call_R1"), ["1234567890#1"]);
    assert!(!sim.tools.iter().any(|id| matches!(id, EffectId::Tool { .. })), "the tool was stopped");
    let mut sim = running(small);
    say(&mut sim, "call_R1", "12345");
    sim.finish_tool("call_R1", tool_text("much more than that"));
    sim.expect_trace("fco_R1{failed,output_too_large} step.started{2}");
}

#[test]
fn the_number_of_blocks_is_bounded() {
    let mut sim = running(tool("look"));
    for _ in 0..1_024 {
        say_anew(&mut sim, "call_R1", "x");
    }
    assert_eq!(blocks(&sim, "call_R1").len(), 1_024);
    say_anew(&mut sim, "call_R1", "x");
    assert_eq!(result_of(&sim, "call_R1").error.unwrap().code, "output_too_large");
}

#[test]
fn long_pieces_and_images_fit_records() {
    let mut sim = running(tool("look"));
    say(&mut sim, "call_R1", &"é".repeat(100_000));
    let long = "x".repeat(RECORD_BYTES_MAX);
    draw(&mut sim, "call_R1", &long, Some(0));
    draw(&mut sim, "call_R1", &long, None);
    sim.finish_tool("call_R1", ToolOutput::default());
    let sizes = sim.records().iter().map(|record| record.public.len()).max().unwrap();
    assert!(sizes <= RECORD_BYTES_MAX, "{sizes}");
    assert_eq!(blocks(&sim, "call_R1")[1], format!("[an image of {RECORD_BYTES_MAX} bytes was left out]#1"));
}

#[test]
fn a_crash_in_mid_stream_leaves_what_was_shown() {
    for (on_crash, status) in [(OnCrash::Unknown, "unknown"), (OnCrash::Fail, "failed")] {
        let mut sim = running(Tool { on_crash, ..tool("look") });
        say(&mut sim, "call_R1", "half of ");
        sim.skip_trace();
        sim.crash();
        sim.expect_trace(&format!("recovered{{1,1}} fco_R1{{{status},outcome_unknown}} step.started{{2}}"));
        assert_eq!(blocks(&sim, "call_R1"), ["half of #1"]);
        assert!(told(&sim).starts_with("half of  The server stopped"), "{}", told(&sim));
        invariants::check_done_matches_deltas(&sim.records()).unwrap();
    }
}

#[test]
fn another_attempt_adds_blocks_and_is_what_the_model_reads() {
    let mut sim = running(idempotent(tool("look")));
    say(&mut sim, "call_R1", "half of ");
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("recovered{1,1} tool.started{call_R1,2}");
    say(&mut sim, "call_R1", "all of it");
    sim.finish_tool("call_R1", ToolOutput::default());
    sim.expect_trace("fco_R1{completed} step.started{2}");
    assert_eq!(blocks(&sim, "call_R1"), ["half of #1", "all of it#1"]);
    assert!(told(&sim).contains("all of it") && !told(&sim).contains("half"), "{}", told(&sim));
}

#[test]
fn a_person_who_is_asked_after_a_crash_decides_about_an_open_result() {
    let ask = || Tool { on_crash: OnCrash::Ask, ..tool("look") };
    let crashed = || {
        let mut sim = running(ask());
        say(&mut sim, "call_R1", "half of ");
        sim.skip_trace();
        sim.crash();
        sim.expect_trace("recovered{1,1} approval.requested{apr_R1} paused{apr_R1}");
        sim
    };
    let mut sim = crashed();
    sim.decide("apr_R1", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1,2}");
    say(&mut sim, "call_R1", "all of it");
    sim.finish_tool("call_R1", ToolOutput::default());
    assert_eq!(blocks(&sim, "call_R1"), ["half of #1", "all of it#1"]);
    let mut sim = crashed();
    sim.decide("apr_R1", reject("it was done"));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,reject,user} fco_R1{unknown,outcome_unknown} step.started{2}",
    );
    assert!(told(&sim).contains("it was done"), "{}", told(&sim));
}

#[test]
fn a_cancel_closes_the_open_result() {
    let mut sim = running(tool("look"));
    say(&mut sim, "call_R1", "half of ");
    draw(&mut sim, "call_R1", "/v1/blobs/a", Some(0));
    sim.skip_trace();
    sim.cancel(CancelMode::Immediate);
    sim.expect_trace("fco_R1{incomplete,cancelled} cancelled{immediate,user}");
    assert_eq!(blocks(&sim, "call_R1"), ["half of #1", "/v1/blobs/a#1"]);
}

#[test]
fn pieces_that_come_too_late_or_are_empty_change_nothing() {
    let mut sim = running(tool("look"));
    let id = sim.running_tool(&call_id("call_R1"));
    say(&mut sim, "call_R1", "");
    assert!(sim.run.fold.task(&run_id()).unwrap().result(&call_id("call_R1")).is_none());
    sim.finish_tool("call_R1", tool_text("done"));
    sim.skip_trace();
    let piece = ResultPiece::Text("late".to_owned());
    sim.input(MachineInput::Tool { id, event: ToolEvent::Piece { piece, place: PiecePlace::OpenBlock } });
    sim.expect_trace("");
}

/// The blocks of a complete result keep the groups that its tool has given; pieces are one group.
#[test]
fn results_without_pieces_are_as_before() {
    let mut sim = running(tool("look"));
    let image = ImageBlock { image_url: ImageUrl::new("/v1/blobs/a"), id: Some(2) };
    let message_content = vec![
        ContentPart::Text { text: "one".to_owned(), id: Some(1), tags: Vec::new() },
        ContentPart::ImageUrl { image_url: image.image_url.clone(), id: Some(2) },
    ];
    let block_list = vec![Block::Text(TextBlock { id: Some(1), ..TextBlock::new("one") }), Block::Image(image)];
    sim.finish_tool("call_R1", ToolOutput { message_content, block_list, ..ToolOutput::default() });
    assert_eq!(blocks(&sim, "call_R1"), ["one#1", "/v1/blobs/a#2"]);
}
