//! Plans the output of a model turn and of a tool.

use super::item_writer::ItemStep;
use super::log_builder::LogBuilder;
use super::rng::Rng;
use super::text::{random_long_text, random_text, split_randomly};
use model::content::{Annotation, TextBlock};
use model::item::{ApprovalGate, CallKind};
use model::reference::CitationScanner;
use serde_json::json;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct ItemPlan {
    pub(super) item: PlannedItem,
    pub(super) steps: VecDeque<ItemStep>,
}

#[derive(Clone, Debug)]
pub(super) enum PlannedItem {
    Reasoning,
    Message { phase: Option<String> },
    Call { name: &'static str, kind: CallKind, gate: ApprovalGate },
    Hosted { name: &'static str },
}

/// For tasks that may start sub-agents.
pub(super) const CHILD_CALL_KINDS: &[CallKind] = &[CallKind::Tool, CallKind::Client, CallKind::Agent];
/// For tasks that may not.
pub(super) const LEAF_CALL_KINDS: &[CallKind] = &[CallKind::Tool, CallKind::Client];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnGoal {
    Answer,
    CallTools,
    /// Either: the turn is going to be aborted.
    Any,
}

pub(super) fn plan_turn(log: &mut LogBuilder, goal: TurnGoal, call_kinds: &[CallKind]) -> VecDeque<ItemPlan> {
    let mut plans = VecDeque::new();
    if log.rng.chance(40) {
        plans.push_back(ItemPlan { item: PlannedItem::Reasoning, steps: reasoning_steps(log) });
    }
    if log.rng.chance(12) {
        plans.push_back(plan_hosted_call(log));
    }
    let calls = goal == TurnGoal::CallTools || (goal == TurnGoal::Any && log.rng.chance(40));
    if !calls || log.rng.chance(35) {
        for _ in 0..log.rng.choose(1, &[1, 1, 1, 2]) {
            plans.push_back(plan_message(log));
        }
    }
    if calls {
        // At most the first call is a handoff.
        let mut kinds = if log.rng.chance(10) { &[CallKind::Handoff] } else { call_kinds };
        for _ in 0..log.rng.choose(1, &[1, 2, 3]) {
            plans.push_back(plan_call(log, kinds));
            kinds = call_kinds;
        }
    }
    plans
}

fn reasoning_steps(log: &mut LogBuilder) -> VecDeque<ItemStep> {
    let mut out = VecDeque::new();
    for _ in 0..log.rng.choose(1, &[0, 2, 2, 3]) {
        let text = random_text(&mut log.rng, 0, 10);
        if log.rng.chance(15) {
            out.push_back(ItemStep::SummaryWhole(text));
            continue;
        }
        out.push_back(ItemStep::SummaryAdded);
        out.extend(split_randomly(&mut log.rng, &text).into_iter().map(ItemStep::SummaryDelta));
        out.push_back(ItemStep::SummaryDone);
    }
    out
}

fn plan_message(log: &mut LogBuilder) -> ItemPlan {
    let phase = log.rng.chance(20).then(|| "commentary".to_owned());
    let mut out = VecDeque::new();
    for _ in 0..log.rng.choose(1, &[1, 1, 2, 3]) {
        let long = log.rng.chance(log.options.long_text_percent);
        let references = log.reference_count;
        let text =
            if long { random_long_text(&mut log.rng, references) } else { random_text(&mut log.rng, references, 16) };
        out.extend(text_block_steps(&mut log.rng, &text, references));
    }
    ItemPlan { item: PlannedItem::Message { phase }, steps: out }
}

/// A text block with the citations that its markers make.
fn text_block_steps(rng: &mut Rng, text: &str, references: u32) -> Vec<ItemStep> {
    let refusal = rng.chance(5).then_some(true);
    let mut scan = CitationScanner::default();
    if rng.chance(20) && text.len() < 1000 {
        let citations = scan.push(text, &(1..=references).collect());
        let id = citations.iter().find_map(Annotation::reference_id);
        let annotations = (!citations.is_empty()).then_some(citations);
        let text = Some(text.into());
        return vec![ItemStep::TextWhole(TextBlock { text, id, annotations, refusal })];
    }
    let empty = TextBlock { refusal, ..TextBlock::new("") };
    let mut out = vec![ItemStep::TextAdded(empty)];
    for piece in split_randomly(rng, text) {
        let citations = scan.push(&piece, &(1..=references).collect());
        let logprobs = rng.chance(4).then(|| json!([{"token": piece.clone(), "logprob": -0.25}]));
        out.push(ItemStep::TextDelta(piece, logprobs));
        out.extend(citations.into_iter().map(ItemStep::Annotation));
        if rng.chance(3) {
            out.push(ItemStep::Annotation(provider_citation(rng)));
        }
    }
    out.push(ItemStep::TextDone);
    out
}

/// A citation in the provider's format.
fn provider_citation(rng: &mut Rng) -> Annotation {
    if rng.chance(50) {
        let title = rng.chance(50).then(|| "A page".to_owned());
        Annotation::UrlCitation { url: "https://example.org/?a=1".to_owned(), title, start_index: 0, end_index: 1 }
    } else {
        let filename = rng.chance(50).then(|| "übersicht.pdf".to_owned());
        Annotation::FileCitation {
            file_id: "file_1".to_owned(),
            filename,
            index: 0,
            quote: None,
            start_index: None,
            end_index: None,
        }
    }
}

fn plan_hosted_call(log: &mut LogBuilder) -> ItemPlan {
    let name = log.rng.choose("image_generation", &["web_search"]);
    let mut out = VecDeque::new();
    out.push_back(ItemStep::HostedUpdate("in_progress".to_owned(), None));
    if name == "web_search" {
        out.push_back(ItemStep::HostedUpdate("searching".to_owned(), Some(json!({"query": "weather", "n": 3}))));
    } else {
        out.push_back(ItemStep::HostedUpdate("generating".to_owned(), None));
        out.extend(image_steps(log, None));
    }
    if log.rng.chance(50) {
        out.push_back(ItemStep::HostedUpdate("completed".to_owned(), None));
    }
    ItemPlan { item: PlannedItem::Hosted { name }, steps: out }
}

/// An image block with previews.
fn image_steps(log: &mut LogBuilder, group: Option<u32>) -> Vec<ItemStep> {
    let rng = &mut log.rng;
    let mut out = vec![ItemStep::ImageAdded(group)];
    out.extend((0..rng.between(0, 3)).map(|n| ItemStep::ImagePartial(format!("data:image/png;base64,cGFydA{n}"))));
    out.push(ItemStep::ImageDone(log.random_file_url()));
    out
}

fn plan_call(log: &mut LogBuilder, kinds: &[CallKind]) -> ItemPlan {
    use CallKind::{Agent, Client, Handoff, Hosted, Tool, ToolSearch};
    let kind = match log.rng.below(10) {
        _ if kinds == [Handoff] => Handoff,
        0..=3 if kinds.contains(&Agent) => Agent,
        4 => Client,
        5 if log.options.hosted_approvals => Hosted,
        6 if log.options.tool_searches => ToolSearch,
        _ => Tool,
    };
    let (name, arguments) = match kind {
        Tool => ("get_weather", json!({"location": "Paris, France", "note": random_text(&mut log.rng, 0, 6)})),
        Agent => ("ask_for_help", json!({"name": "WeatherAgent", "prompt": random_text(&mut log.rng, 0, 6)})),
        Handoff => ("transfer_to_specialist", json!({})),
        Client => ("pick", json!({"colours": ["red", "green"]})),
        Hosted => ("search", json!({"query": random_text(&mut log.rng, 0, 6)})),
        ToolSearch => ("tool_search", json!({"query": random_text(&mut log.rng, 0, 6)})),
    };
    let gate = match kind {
        Tool | Agent => log.rng.choose(
            ApprovalGate::Never,
            &[ApprovalGate::Never, ApprovalGate::Never, ApprovalGate::Maybe, ApprovalGate::Always],
        ),
        Handoff | Client | ToolSearch => ApprovalGate::Never,
        Hosted => ApprovalGate::Always,
    };
    let mut text = arguments.to_string();
    if log.rng.chance(log.options.long_text_percent) {
        text.push_str(&" ".repeat(model::limits::DONE_REPEAT_BYTES_MAX));
    }
    let mut out: VecDeque<ItemStep> =
        split_randomly(&mut log.rng, &text).into_iter().map(ItemStep::ArgumentsDelta).collect();
    out.push_back(ItemStep::ArgumentsDone);
    ItemPlan { item: PlannedItem::Call { name, kind, gate }, steps: out }
}

/// The server of a tool that the provider runs.
pub(super) fn server_label(kind: CallKind) -> Option<String> {
    (kind == CallKind::Hosted).then(|| "docs".to_owned())
}

/// The output of a tool, with up to two reference groups.
pub(super) fn tool_result_steps(log: &mut LogBuilder) -> VecDeque<ItemStep> {
    let mut out = VecDeque::new();
    for _ in 0..log.rng.choose(1, &[0, 1, 2]) {
        log.reference_count = log.reference_count.saturating_add(1);
        let group = Some(log.reference_count).filter(|_| log.rng.chance(90));
        let text = random_text(&mut log.rng, 0, 8);
        if log.rng.chance(log.options.long_text_percent) {
            let text = random_long_text(&mut log.rng, 0);
            out.push_back(ItemStep::TextAdded(TextBlock { id: group, ..TextBlock::new("") }));
            out.extend(split_randomly(&mut log.rng, &text).into_iter().map(|piece| ItemStep::TextDelta(piece, None)));
            out.push_back(ItemStep::TextDone);
        } else {
            out.push_back(ItemStep::TextWhole(TextBlock { id: group, ..TextBlock::new(text) }));
        }
        if log.rng.chance(30) {
            out.extend(image_steps(log, group));
        }
        // A group without a block does not count.
        log.reference_count = group.unwrap_or(log.reference_count.saturating_sub(1));
    }
    out
}
