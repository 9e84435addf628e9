//! What a request brings beside its input: wishes, and what was said elsewhere.

use crate::sim::{Sim, begin};
use crate::words::{agent, asking, call, demo, handing, house, text, tool};
use machine::{MachineInput, RunState};
use model::block::{Block, ContentPart, TextBlock};
use model::command::StartCommand;
use model::definition::HandoffHistory;
use model::event::StopReason;
use model::history::{HistoryEntry, PriorHistory};
use model::item::ResultStatus;
use model::model_settings::{ModelSettings, ToolChoice};
use model::thread::ThreadFold;
use model::tool::ToolOutput;
use model::{CallId, ItemId};

fn started(mut sim: Sim, start: StartCommand) -> Sim {
    sim.input(MachineInput::Start(Box::new(start)));
    sim
}

fn short() -> ModelSettings {
    let tool_choice = Some(ToolChoice::Tool { name: "ask".to_owned() });
    ModelSettings {
        max_output_tokens: Some(9),
        instructions: Some("Rhyme.".to_owned()),
        tool_choice,
        ..ModelSettings::default()
    }
}

/// Who was asked, and what was wished of them.
fn wished(sim: &Sim) -> Vec<(&str, ModelSettings)> {
    sim.requests.iter().map(|request| (request.model.as_str(), (*request.model_settings).clone())).collect()
}

#[test]
fn what_a_caller_wishes_is_for_every_turn_of_the_run_and_no_sub_agent() {
    let demo = handing(agent("demo", &["ask"]), &[("heir", HandoffHistory::All)]);
    let house = house([demo, agent("helper", &[]), agent("heir", &[])], [asking("ask", "helper")]);
    let mut sim = started(Sim::new(house), StartCommand { model_settings: short(), ..begin(Vec::new()) });
    sim.turn([call("ask", r#"{"prompt":"hm?"}"#)]);
    sim.turn([text("Hm.")]);
    sim.crash();
    sim.turn([call("transfer_to_heir", "{}")]);
    sim.turn([text("There.")]);
    // The tool had to be called once: a model that always has to never answers.
    let later = ModelSettings { tool_choice: None, ..short() };
    let expected = [
        ("scripted/demo", short()),
        ("scripted/helper", ModelSettings::default()),
        ("scripted/demo", later.clone()),
        ("scripted/demo", later.clone()),
        ("scripted/heir", later),
    ];
    assert_eq!(wished(&sim), expected);
}

#[test]
fn a_first_turn_that_is_asked_again_is_asked_for_the_same() {
    let mut sim = started(Sim::new(demo([])), StartCommand { model_settings: short(), ..begin(Vec::new()) });
    sim.fail();
    sim.crash();
    assert_eq!(sim.requests.len(), 3);
    assert!(wished(&sim).iter().all(|(_, wishes)| *wishes == short()), "{:?}", wished(&sim));
}

/// A conversation that a client kept itself, in which seven groups were numbered.
fn elsewhere() -> PriorHistory {
    let call_id = CallId::from("call_elsewhere");
    let call = HistoryEntry::Call {
        call_id: call_id.clone(),
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: None,
        raw: None,
    };
    let entries = vec![
        HistoryEntry::System { text: "Be kind.".to_owned() },
        HistoryEntry::User { content: vec![ContentPart::text("hi")] },
        call,
        HistoryEntry::Result { call_id, status: ResultStatus::Completed, content: vec![ContentPart::text("seen")] },
        HistoryEntry::Assistant { id: ItemId::from("msg_elsewhere"), text: "Hello.".to_owned(), raw: None },
    ];
    PriorHistory { entries, reference_count: 7 }
}

const ELSEWHERE: &str = "system:Be kind. | user:hi | call:look | result:seen | said:Hello.";

#[test]
fn what_was_said_elsewhere_is_read_by_its_run_and_the_next_and_numbers_go_on_after_it() {
    let mut sim =
        started(Sim::new(demo([tool("look")])), StartCommand { prior_history: Some(elsewhere()), ..begin(Vec::new()) });
    assert_eq!(sim.given(), format!("{ELSEWHERE} | user:go"));
    sim.turn([call("look", "{}")]);
    let more = Block::Text(TextBlock::new("more"));
    sim.ends("call_R1", ToolOutput { block_list: vec![more], ..ToolOutput::default() });
    let shown = format!("{ELSEWHERE} | user:go | call:look | result:more");
    assert_eq!(sim.given(), shown);
    let read = serde_json::to_string(&sim.requests.last().expect("asked").history).expect("JSON");
    assert!(read.contains("ID: 8") && !read.contains("ID: 1"), "{read}");
    sim.crash();
    assert_eq!(sim.given(), shown, "the log has it");
    sim.turn([text("See [^7] and [^8].")]);

    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    assert_eq!(thread.reference_count, 8);
    let mut next = Sim::new(demo([tool("look")]));
    let (user, name) = (next.run.user.clone(), next.run.thread.clone());
    next.run = RunState::new(user, name, next.run.definitions.clone(), thread, None);
    let next = started(next, begin(Vec::new()));
    assert_eq!(next.given(), format!("{shown} | said:See [^7] and [^8]. | user:go"));
    assert_eq!(*next.requests[0].model_settings, ModelSettings::default());
}

#[test]
fn a_sub_agent_knows_nothing_of_what_was_said_elsewhere() {
    let house = house([agent("demo", &["ask"]), agent("helper", &[])], [asking("ask", "helper")]);
    let mut sim = started(Sim::new(house), StartCommand { prior_history: Some(elsewhere()), ..begin(Vec::new()) });
    sim.turn([call("ask", r#"{"prompt":"hm?"}"#)]);
    assert!(!sim.given().contains("Hello."), "{}", sim.given());
    sim.speak([text("Hm.")]);
    sim.end(StopReason::Stop);
    assert!(sim.given().starts_with(ELSEWHERE), "{}", sim.given());
}
