//! What a model turn is going to say, and what a tool is going to give.

use super::item::Piece;
use super::rng::Rng;
use super::text::{long_prose, pieces, prose};
use super::world::World;
use model::block::{Annotation, TextBlock};
use model::item::{ApprovalGate, CallKind};
use model::reference::CitationScanner;
use serde_json::json;
use std::collections::VecDeque;

/// An item that a turn is going to give.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) what: What,
    pub(super) pieces: VecDeque<Piece>,
}

/// What it is.
#[derive(Clone, Debug)]
pub(super) enum What {
    Reasoning,
    Message { phase: Option<String> },
    Call { name: &'static str, kind: CallKind, gate: ApprovalGate },
    Hosted { name: &'static str },
}

/// What kind of turn is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// It says something and ends.
    Answer,
    /// It asks for tools.
    Tools,
    /// Either, for it will be broken off.
    Any,
}

/// A turn's items.
pub(super) fn turn(world: &mut World, wish: Wish, may_ask_agents: bool) -> VecDeque<Plan> {
    let mut plans = VecDeque::new();
    if world.rng.chance(40) {
        plans.push_back(Plan { what: What::Reasoning, pieces: reasoning(world) });
    }
    if world.rng.chance(12) {
        plans.push_back(hosted(world));
    }
    let calls = wish == Wish::Tools || (wish == Wish::Any && world.rng.chance(40));
    if !calls || world.rng.chance(35) {
        for _ in 0..world.rng.choose(1, &[1, 1, 1, 2]) {
            plans.push_back(message(world));
        }
    }
    if calls {
        let mut handoff = world.rng.chance(10);
        for _ in 0..world.rng.choose(1, &[1, 2, 3]) {
            plans.push_back(call(world, may_ask_agents, handoff));
            handoff = false;
        }
    }
    plans
}

fn reasoning(world: &mut World) -> VecDeque<Piece> {
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[0, 2, 2, 3]) {
        let text = prose(&mut world.rng, 0, 10);
        if world.rng.chance(15) {
            out.push_back(Piece::SummaryWhole(text));
            continue;
        }
        out.push_back(Piece::SummaryOpen);
        out.extend(pieces(&mut world.rng, &text).into_iter().map(Piece::Summary));
        out.push_back(Piece::SummaryClose);
    }
    out
}

fn message(world: &mut World) -> Plan {
    let phase = world.rng.chance(20).then(|| "commentary".to_owned());
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[1, 1, 2, 3]) {
        let long = world.rng.chance(world.options.long_text_percent);
        let references = world.references;
        let text = if long { long_prose(&mut world.rng, references) } else { prose(&mut world.rng, references, 16) };
        out.extend(text_block(&mut world.rng, &text, references));
    }
    Plan { what: What::Message { phase }, pieces: out }
}

/// A text block of a message, with the citations that its markers make.
fn text_block(rng: &mut Rng, text: &str, references: u32) -> Vec<Piece> {
    let refusal = rng.chance(5).then_some(true);
    let mut scan = CitationScanner::default();
    if rng.chance(20) && text.len() < 1000 {
        let found = scan.push(text, references);
        let annotations = (!found.is_empty()).then_some(found);
        let text = Some(text.to_owned());
        return vec![Piece::TextWhole(TextBlock { text, id: None, annotations, refusal })];
    }
    let empty = TextBlock { refusal, ..TextBlock::new("") };
    let mut out = vec![Piece::TextOpen(empty)];
    for piece in pieces(rng, text) {
        let found = scan.push(&piece, references);
        let logprobs = rng.chance(4).then(|| json!([{"token": piece.clone(), "logprob": -0.25}]));
        out.push(Piece::Text(piece, logprobs));
        out.extend(found.into_iter().map(Piece::Cite));
        if rng.chance(3) {
            out.push(Piece::Cite(foreign_citation(rng)));
        }
    }
    out.push(Piece::TextClose);
    out
}

/// A citation of the provider's own.
fn foreign_citation(rng: &mut Rng) -> Annotation {
    if rng.chance(50) {
        let title = rng.chance(50).then(|| "A page".to_owned());
        Annotation::UrlCitation { url: "https://example.org/?a=1".to_owned(), title, start_index: 0, end_index: 1 }
    } else {
        let filename = rng.chance(50).then(|| "übersicht.pdf".to_owned());
        Annotation::FileCitation { file_id: "file_1".to_owned(), filename, index: 0 }
    }
}

fn hosted(world: &mut World) -> Plan {
    let name = world.rng.choose("image_generation", &["web_search"]);
    let mut out = VecDeque::new();
    out.push_back(Piece::Hosted("in_progress".to_owned(), None));
    if name == "web_search" {
        out.push_back(Piece::Hosted("searching".to_owned(), Some(json!({"query": "weather", "n": 3}))));
    } else {
        out.push_back(Piece::Hosted("generating".to_owned(), None));
        out.extend(image(&mut world.rng, None));
    }
    if world.rng.chance(50) {
        out.push_back(Piece::Hosted("completed".to_owned(), None));
    }
    Plan { what: What::Hosted { name }, pieces: out }
}

/// An image block, sharper each time.
fn image(rng: &mut Rng, group: Option<u32>) -> Vec<Piece> {
    let mut out = vec![Piece::ImageOpen(group)];
    out.extend((0..rng.between(0, 3)).map(|n| Piece::ImagePartial(format!("data:image/png;base64,cGFydA{n}"))));
    out.push(Piece::ImageClose(format!("/v1/blobs/{:064x}", rng.bits())));
    out
}

fn call(world: &mut World, may_ask_agents: bool, handoff: bool) -> Plan {
    use CallKind::{Agent, Client, Handoff, Tool};
    let kind = match world.rng.below(10) {
        _ if handoff => Handoff,
        0..=3 if may_ask_agents => Agent,
        4 => Client,
        _ => Tool,
    };
    let (name, arguments) = match kind {
        Tool => ("get_weather", json!({"location": "Paris, France", "note": prose(&mut world.rng, 0, 6)})),
        Agent => ("ask_for_help", json!({"name": "WeatherAgent", "prompt": prose(&mut world.rng, 0, 6)})),
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
    let mut out: VecDeque<Piece> = pieces(&mut world.rng, &text).into_iter().map(Piece::Arguments).collect();
    out.push_back(Piece::ArgumentsClose);
    Plan { what: What::Call { name, kind, gate }, pieces: out }
}

/// What a tool gives, as blocks of up to two reference groups.
pub(super) fn result(world: &mut World) -> VecDeque<Piece> {
    let mut out = VecDeque::new();
    for _ in 0..world.rng.choose(1, &[0, 1, 2]) {
        world.references = world.references.saturating_add(1);
        let group = Some(world.references).filter(|_| world.rng.chance(90));
        let text = prose(&mut world.rng, 0, 8);
        if world.rng.chance(world.options.long_text_percent) {
            let text = long_prose(&mut world.rng, 0);
            out.push_back(Piece::TextOpen(TextBlock { id: group, ..TextBlock::new("") }));
            out.extend(pieces(&mut world.rng, &text).into_iter().map(|piece| Piece::Text(piece, None)));
            out.push_back(Piece::TextClose);
        } else {
            out.push_back(Piece::TextWhole(TextBlock { id: group, ..TextBlock::new(text) }));
        }
        if world.rng.chance(30) {
            out.extend(image(&mut world.rng, group));
        }
        // A group that no block bears does not count.
        world.references = group.unwrap_or(world.references.saturating_sub(1));
    }
    out
}
