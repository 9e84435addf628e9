//! What a provider sends besides text: refusals, citations, images, hosted tools. A delta that belongs to no part is
//! dropped.

use crate::fixtures::{demo_definitions, run_id, tool};
use crate::sim::Sim;
use model::content::{Annotation, ImageBlock, ImageUrl, TextBlock};
use model::event::{Event, StopReason};
use model::item::Block;
use model::item::{Item, ItemStatus};
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelItemKind};
use serde_json::json;

/// The blocks of the run's only item, after its turn.
fn blocks(sim: &Sim) -> Vec<Block> {
    let object = sim.run.fold.task_object(&run_id()).expect("the run began");
    object.output.first().expect("something was said").blocks().to_vec()
}

/// The model sends this and ends its turn.
fn run_with_deltas(deltas: impl IntoIterator<Item = ModelDelta>) -> Sim {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    for delta in deltas {
        sim.delta(delta);
    }
    sim.end_turn(StopReason::Stop);
    sim
}

fn text_delta(part: u32, text: &str) -> ModelDelta {
    ModelDelta::Text { slot: 0, part, text: text.to_owned(), logprobs: None }
}

fn image_delta(part: u32, partial: Option<u32>, url: &str) -> ModelDelta {
    ModelDelta::Image { slot: 0, part, partial, url: url.to_owned() }
}

fn image_block(url: &str) -> Block {
    Block::Image(ImageBlock { image_url: ImageUrl::new(url), id: None })
}

fn url_citation(url: &str) -> Annotation {
    Annotation::UrlCitation { url: url.to_owned(), title: None, start_index: 0, end_index: 1 }
}

#[test]
fn a_refusal_is_marked_as_a_refusal() {
    let sim = run_with_deltas([ModelDelta::Refusal { slot: 0, part: 0, text: "No.".to_owned() }]);
    assert_eq!(blocks(&sim), [Block::Text(TextBlock { refusal: Some(true), ..TextBlock::new("No.") })]);
    assert_eq!(blocks(&run_with_deltas([text_delta(0, "No.")])), [Block::Text(TextBlock::new("No."))]);
}

#[test]
fn a_delta_of_a_finished_part_is_dropped() {
    let sim = run_with_deltas([text_delta(0, "one"), text_delta(1, "two"), text_delta(0, "late"), text_delta(1, "!")]);
    assert_eq!(blocks(&sim), [Block::Text(TextBlock::new("one")), Block::Text(TextBlock::new("two!"))]);
}

/// An item has the type that it was announced with, or that of its first delta.
#[test]
fn a_part_of_the_wrong_type_for_its_item_is_dropped() {
    let thought = |part| ModelDelta::Reasoning { slot: 0, part, text: "hm".to_owned() };
    let hosted = ModelItemKind::HostedCall { name: "image_generation".to_owned(), action: None };
    let hosted = ModelDelta::Started { slot: 0, item: hosted };
    for (first, others) in [
        (thought(0), vec![text_delta(1, "x"), image_delta(1, None, "data:,x")]),
        (text_delta(0, "a"), vec![thought(1)]),
        (hosted, vec![text_delta(0, "x"), thought(0)]),
    ] {
        let alone = run_with_deltas([first.clone()]).trace();
        let sim = run_with_deltas([first].into_iter().chain(others));
        assert_eq!(sim.trace(), alone);
    }
}

#[test]
fn a_citation_belongs_to_the_open_text() {
    let refers = |part, url| ModelDelta::Annotation { slot: 0, part, annotation: url_citation(url) };
    let sim = run_with_deltas([
        refers(0, "before there is anything"),
        text_delta(0, "a"),
        refers(0, "a page"),
        refers(1, "a part that is not there"),
        image_delta(1, Some(0), "data:,x"),
        refers(1, "a picture"),
        refers(0, "a part that is done"),
    ]);
    let told = sim.trace().iter().filter(|line| line.starts_with("annotation")).count();
    assert_eq!(told, 1, "{:?}", sim.trace());
    let cited = TextBlock { annotations: Some(vec![url_citation("a page")]), ..TextBlock::new("a") };
    assert_eq!(blocks(&sim), [Block::Text(cited), image_block("data:,x")]);
}

/// A citation ends with its text. One that lies outside is kept as it came.
#[test]
fn a_citation_stays_within_its_text() {
    let cites = |start_index, end_index| {
        let annotation = Annotation::UrlCitation { url: "u".to_owned(), title: None, start_index, end_index };
        let sim =
            run_with_deltas([text_delta(0, "été 12345 🌊"), ModelDelta::Annotation { slot: 0, part: 0, annotation }]);
        let Some(Block::Text(text)) = blocks(&sim).into_iter().next() else { panic!("{:?}", sim.trace()) };
        let is_kept = sim.drafts.iter().any(|draft| matches!(draft.event, Event::ProviderEvent(_)));
        let range = text.annotations.map(|all| match all[..] {
            [Annotation::UrlCitation { start_index, end_index, .. }] => (start_index, end_index),
            _ => panic!("{all:?}"),
        });
        assert_ne!(range.is_some(), is_kept, "{start_index} to {end_index}");
        range
    };
    assert_eq!(cites(0, 11), Some((0, 11)));
    assert_eq!(cites(0, 5_000), Some((0, 11)));
    assert_eq!(cites(4, u32::MAX), Some((4, 11)));
    assert_eq!(cites(11, 11), Some((11, 11)));
    assert_eq!([cites(5, 2), cites(12, 20), cites(u32::MAX, u32::MAX)], [None, None, None]);
}

#[test]
fn arguments_belong_to_calls_only() {
    let sim = run_with_deltas([text_delta(0, "Hi"), ModelDelta::Arguments { slot: 0, text: "{}".to_owned() }]);
    assert_eq!(blocks(&sim), [Block::Text(TextBlock::new("Hi"))]);
    assert!(!sim.trace().iter().any(|line| line.contains("arguments")), "{:?}", sim.trace());
}

#[test]
fn partial_images_replace_each_other_and_end_with_the_turn_at_the_latest() {
    for done in [Some(image_delta(0, None, "data:,sharp")), None] {
        let sim = run_with_deltas(
            [image_delta(0, Some(0), "data:,dim"), image_delta(0, Some(1), "data:,sharp")].into_iter().chain(done),
        );
        assert_eq!(blocks(&sim), [image_block("data:,sharp")]);
        let ends = sim.drafts.iter().filter(|draft| matches!(draft.event, Event::ImageDone(_))).count();
        assert_eq!(ends, 1, "{:?}", sim.trace());
    }
}

#[test]
fn an_image_that_fits_no_record_leaves_the_previous_one() {
    let largest = RECORD_BYTES_MAX / 2;
    for (bytes, stays) in [(largest, false), (largest + 1, true), (RECORD_BYTES_MAX * 2, true)] {
        let large = "p".repeat(bytes);
        for partial in [Some(1), None] {
            let sim = run_with_deltas([image_delta(0, Some(0), "data:,dim"), image_delta(0, partial, &large)]);
            let expected = if stays { "data:,dim" } else { large.as_str() };
            assert!(blocks(&sim) == [image_block(expected)], "{bytes} bytes, {partial:?}");
            assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
        }
    }
}

#[test]
fn a_hosted_call_ends_as_its_last_state_says() {
    for (state, status) in [("failed", ItemStatus::Failed), ("completed", ItemStatus::Completed)] {
        let action = Some(json!({"name": "ask", "server_label": "wiki"}));
        let item = ModelItemKind::HostedCall { name: "mcp".to_owned(), action: action.clone() };
        let started = ModelDelta::Started { slot: 0, item };
        let ended = ModelDelta::Hosted { slot: 0, state: state.to_owned(), action: None };
        let sim = run_with_deltas([started, ended, ModelDelta::Done { slot: 0, raw: None }]);
        let object = sim.run.fold.task_object(&run_id()).expect("the run began");
        let Some(Item::HostedCall(call)) = object.output.first() else { panic!("a hosted call") };
        assert_eq!((call.status, &call.action), (Some(status), &action));
    }
}

#[test]
fn a_hosted_tool_reports_its_progress() {
    let item = ModelItemKind::HostedCall { name: "web_search".to_owned(), action: None };
    let searching = |slot| ModelDelta::Hosted { slot, state: "searching".to_owned(), action: None };
    let sim = run_with_deltas([ModelDelta::Started { slot: 0, item }, searching(0)]);
    let object = sim.run.fold.task_object(&run_id()).expect("the run began");
    let Some(Item::HostedCall(call)) = object.output.first() else { panic!("a hosted call") };
    assert_eq!(call.state.as_deref(), Some("searching"));
    let sim = run_with_deltas([text_delta(0, "Hi"), searching(0)]);
    assert!(!sim.trace().iter().any(|line| line.contains("hosted")), "{:?}", sim.trace());
}
