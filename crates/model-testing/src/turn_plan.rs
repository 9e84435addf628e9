//! What a model turn is going to say, and what a tool is going to give.

use super::item_writer::ItemStep;
use super::log_builder::LogBuilder;
use super::rng::Rng;
use super::text::{random_long_text, random_text, split_randomly};
use model::content::{Annotation, TextBlock};
use model::item::{ApprovalGate, CallKind};
use model::reference::CitationScanner;
use serde_json::json;
use std::collections::VecDeque;

/// An item that a turn is going to give.
#[derive(Clone, Debug)]
pub(super) struct ItemPlan {
    pub(super) item: PlannedItem,
    pub(super) steps: VecDeque<ItemStep>,
}

/// What it is.
#[derive(Clone, Debug)]
pub(super) enum PlannedItem {
    Reasoning,
    Message { phase: Option<String> },
    Call { name: &'static str, kind: CallKind, gate: ApprovalGate },
    Hosted { name: &'static str },
}

/// What kind of turn is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnGoal {
    /// It says something and ends.
    Answer,
    /// It asks for tools.
    CallTools,
    /// Either, for it will be broken off.
    Any,
}

/// A turn's items.
pub(super) fn plan_turn(world: &mut LogBuilder, wish: TurnGoal, may_ask_agents: bool) -> VecDeque<ItemPlan> {
    let mut plans = VecDeque::new();
    if world.rng.chance(40) {
        plans.push_back(ItemPlan { item: PlannedItem::Reasoning, steps: reasoning_steps(world) });
    }
    if world.rng.chance(12) {
        plans.push_back(plan_hosted_call(world));
    }
    let calls = wish == TurnGoal::CallTools || (wish == TurnGoal::Any && world.rng.chance(40));
    if !calls || world.rng.chance(35) {
        for _ in 0..world.rng.choose(1, &[1, 1, 1, 2]) {
            plans.push_back(plan_message(world));
        }
    }
    if calls {
        let mut handoff = world.rng.chance(10);
        for _ in 0..world.rng.choose(1, &[1, 2, 3]) {
            plans.push_back(plan_call(world, may_ask_agents, handoff));
            handoff = false;
        }
    }
    plans
}

fn reasoning_steps(world: &mut LogBuilder) -> VecDeque<ItemStep> {
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[0, 2, 2, 3]) {
        let text = random_text(&mut world.rng, 0, 10);
        if world.rng.chance(15) {
            out.push_back(ItemStep::SummaryWhole(text));
            continue;
        }
        out.push_back(ItemStep::SummaryAdded);
        out.extend(split_randomly(&mut world.rng, &text).into_iter().map(ItemStep::SummaryDelta));
        out.push_back(ItemStep::SummaryDone);
    }
    out
}

fn plan_message(world: &mut LogBuilder) -> ItemPlan {
    let phase = world.rng.chance(20).then(|| "commentary".to_owned());
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[1, 1, 2, 3]) {
        let long = world.rng.chance(world.options.long_text_percent);
        let references = world.reference_count;
        let text = if long {
            random_long_text(&mut world.rng, references)
        } else {
            random_text(&mut world.rng, references, 16)
        };
        out.extend(text_block_steps(&mut world.rng, &text, references));
    }
    ItemPlan { item: PlannedItem::Message { phase }, steps: out }
}

/// A text block of a message, with the citations that its markers make.
fn text_block_steps(rng: &mut Rng, text: &str, references: u32) -> Vec<ItemStep> {
    let refusal = rng.chance(5).then_some(true);
    let mut scan = CitationScanner::default();
    if rng.chance(20) && text.len() < 1000 {
        let found = scan.push(text, references);
        let annotations = (!found.is_empty()).then_some(found);
        let text = Some(text.to_owned());
        return vec![ItemStep::TextWhole(TextBlock { text, id: None, annotations, refusal })];
    }
    let empty = TextBlock { refusal, ..TextBlock::new("") };
    let mut out = vec![ItemStep::TextAdded(empty)];
    for piece in split_randomly(rng, text) {
        let found = scan.push(&piece, references);
        let logprobs = rng.chance(4).then(|| json!([{"token": piece.clone(), "logprob": -0.25}]));
        out.push(ItemStep::TextDelta(piece, logprobs));
        out.extend(found.into_iter().map(ItemStep::Annotation));
        if rng.chance(3) {
            out.push(ItemStep::Annotation(provider_citation(rng)));
        }
    }
    out.push(ItemStep::TextDone);
    out
}

/// A citation of the provider's own.
fn provider_citation(rng: &mut Rng) -> Annotation {
    if rng.chance(50) {
        let title = rng.chance(50).then(|| "A page".to_owned());
        Annotation::UrlCitation { url: "https://example.org/?a=1".to_owned(), title, start_index: 0, end_index: 1 }
    } else {
        let filename = rng.chance(50).then(|| "übersicht.pdf".to_owned());
        Annotation::FileCitation { file_id: "file_1".to_owned(), filename, index: 0 }
    }
}

fn plan_hosted_call(world: &mut LogBuilder) -> ItemPlan {
    let name = world.rng.choose("image_generation", &["web_search"]);
    let mut out = VecDeque::new();
    out.push_back(ItemStep::HostedUpdate("in_progress".to_owned(), None));
    if name == "web_search" {
        out.push_back(ItemStep::HostedUpdate("searching".to_owned(), Some(json!({"query": "weather", "n": 3}))));
    } else {
        out.push_back(ItemStep::HostedUpdate("generating".to_owned(), None));
        out.extend(image_steps(&mut world.rng, None));
    }
    if world.rng.chance(50) {
        out.push_back(ItemStep::HostedUpdate("completed".to_owned(), None));
    }
    ItemPlan { item: PlannedItem::Hosted { name }, steps: out }
}

/// An image block, sharper each time.
fn image_steps(rng: &mut Rng, group: Option<u32>) -> Vec<ItemStep> {
    let mut out = vec![ItemStep::ImageAdded(group)];
    out.extend((0..rng.between(0, 3)).map(|n| ItemStep::ImagePartial(format!("data:image/png;base64,cGFydA{n}"))));
    out.push(ItemStep::ImageDone(format!("/v1/blobs/{:064x}", rng.next_u64())));
    out
}

fn plan_call(world: &mut LogBuilder, may_ask_agents: bool, handoff: bool) -> ItemPlan {
    use CallKind::{Agent, Client, Handoff, Tool};
    let kind = match world.rng.below(10) {
        _ if handoff => Handoff,
        0..=3 if may_ask_agents => Agent,
        4 => Client,
        _ => Tool,
    };
    let (name, arguments) = match kind {
        Tool => ("get_weather", json!({"location": "Paris, France", "note": random_text(&mut world.rng, 0, 6)})),
        Agent => ("ask_for_help", json!({"name": "WeatherAgent", "prompt": random_text(&mut world.rng, 0, 6)})),
        Handoff => ("transfer_to_specialist", json!({})),
        Client => ("pick", json!({"colours": ["red", "green"]})),
    };
    let gate = match kind {
        Tool | Agent => world.rng.choose(
            ApprovalGate::Never,
            &[ApprovalGate::Never, ApprovalGate::Never, ApprovalGate::Maybe, ApprovalGate::Always],
        ),
        Handoff | Client => ApprovalGate::Never,
    };
    let mut text = arguments.to_string();
    if world.rng.chance(world.options.long_text_percent) {
        text.push_str(&" ".repeat(model::limits::DONE_REPEAT_BYTES_MAX));
    }
    let mut out: VecDeque<ItemStep> =
        split_randomly(&mut world.rng, &text).into_iter().map(ItemStep::ArgumentsDelta).collect();
    out.push_back(ItemStep::ArgumentsDone);
    ItemPlan { item: PlannedItem::Call { name, kind, gate }, steps: out }
}

/// What a tool gives, as blocks of up to two reference groups.
pub(super) fn tool_result_steps(world: &mut LogBuilder) -> VecDeque<ItemStep> {
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[0, 1, 2]) {
        world.reference_count = world.reference_count.saturating_add(1);
        let group = Some(world.reference_count).filter(|_| world.rng.chance(90));
        let text = random_text(&mut world.rng, 0, 8);
        if world.rng.chance(world.options.long_text_percent) {
            let text = random_long_text(&mut world.rng, 0);
            out.push_back(ItemStep::TextAdded(TextBlock { id: group, ..TextBlock::new("") }));
            out.extend(split_randomly(&mut world.rng, &text).into_iter().map(|piece| ItemStep::TextDelta(piece, None)));
            out.push_back(ItemStep::TextDone);
        } else {
            out.push_back(ItemStep::TextWhole(TextBlock { id: group, ..TextBlock::new(text) }));
        }
        if world.rng.chance(30) {
            out.extend(image_steps(&mut world.rng, group));
        }
        // A group that no block bears does not count.
        world.reference_count = group.unwrap_or(world.reference_count.saturating_sub(1));
    }
    out
}
