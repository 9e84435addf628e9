//! What a request brings beside its input: wishes, and what was said elsewhere.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, tool, with_handoffs,
};
use crate::sim::{Sim, start_command};
use machine::{MachineInput, RunState};
use model::command::StartCommand;
use model::content::{ContentPart, TextBlock};
use model::definition::HandoffHistory;
use model::event::StopReason;
use model::history::{HistoryEntry, PriorHistory};
use model::item::Block;
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
    sim.model_requests.iter().map(|request| (request.model.as_str(), (*request.model_settings).clone())).collect()
}

#[test]
fn what_a_caller_wishes_is_for_every_turn_of_the_run_and_no_sub_agent() {
    let demo = with_handoffs(agent("demo", &["ask"]), &[("heir", HandoffHistory::All)]);
    let house = build_definitions([demo, agent("helper", &[]), agent("heir", &[])], [agent_tool("ask", "helper")]);
    let mut sim = started(Sim::new(house), StartCommand { model_settings: short(), ..start_command(Vec::new()) });
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    sim.model_turn([model_text("Hm.")]);
    sim.crash();
    sim.model_turn([model_call("transfer_to_heir", "{}")]);
    sim.model_turn([model_text("There.")]);
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
    let mut sim =
        started(Sim::new(demo_definitions([])), StartCommand { model_settings: short(), ..start_command(Vec::new()) });
    sim.fail_turn();
    sim.crash();
    assert_eq!(sim.model_requests.len(), 3);
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
    let mut sim = started(
        Sim::new(demo_definitions([tool("look")])),
        StartCommand { prior_history: Some(elsewhere()), ..start_command(Vec::new()) },
    );
    assert_eq!(sim.request_summary(), format!("{ELSEWHERE} | user:go"));
    sim.model_turn([model_call("look", "{}")]);
    let more = Block::Text(TextBlock::new("more"));
    sim.finish_tool("call_R1", ToolOutput { block_list: vec![more], ..ToolOutput::default() });
    let shown = format!("{ELSEWHERE} | user:go | call:look | result:more");
    assert_eq!(sim.request_summary(), shown);
    let read = serde_json::to_string(&sim.model_requests.last().expect("asked").history).expect("JSON");
    assert!(read.contains("ID: 8") && !read.contains("ID: 1"), "{read}");
    sim.crash();
    assert_eq!(sim.request_summary(), shown, "the log has it");
    sim.model_turn([model_text("See [^7] and [^8].")]);

    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    assert_eq!(thread.reference_count, 8);
    let mut next = Sim::new(demo_definitions([tool("look")]));
    let (user, name) = (next.run.user.clone(), next.run.thread.clone());
    next.run = RunState::new(user, name, next.run.definitions.clone(), thread, None);
    let next = started(next, start_command(Vec::new()));
    assert_eq!(next.request_summary(), format!("{shown} | said:See [^7] and [^8]. | user:go"));
    assert_eq!(*next.model_requests[0].model_settings, ModelSettings::default());
}

#[test]
fn a_sub_agent_knows_nothing_of_what_was_said_elsewhere() {
    let house = build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]);
    let mut sim =
        started(Sim::new(house), StartCommand { prior_history: Some(elsewhere()), ..start_command(Vec::new()) });
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    assert!(!sim.request_summary().contains("Hello."), "{}", sim.request_summary());
    sim.model_outputs([model_text("Hm.")]);
    sim.end_turn(StopReason::Stop);
    assert!(sim.request_summary().starts_with(ELSEWHERE), "{}", sim.request_summary());
}
