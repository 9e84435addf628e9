//! What a request carries besides its input: model settings and prior history.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, tool, with_handoffs,
};
use crate::sim::{Sim, start_command};
use machine::{MachineInput, RunState};
use model::command::StartCommand;
use model::content::{ContentPart, TextBlock};
use model::definition::{Agent, ClientInstructions, HandoffHistory, HistoryWindow};
use model::event::StopReason;
use model::history::{HistoryEntry, PriorHistory};
use model::item::Block;
use model::item::ResultStatus;
use model::model_settings::{ModelSettings, ToolChoice};
use model::thread::ThreadFold;
use model::tool::ToolOutput;
use model::{CallId, ItemId};
use std::sync::Arc;

fn start_with(mut sim: Sim, start: StartCommand) -> Sim {
    sim.input(MachineInput::Start(Box::new(start)));
    sim
}

fn settings_with_tool_choice() -> ModelSettings {
    let tool_choice = Some(ToolChoice::Tool { name: "ask".to_owned() });
    ModelSettings {
        max_output_tokens: Some(9),
        instructions: Some("Rhyme.".to_owned()),
        tool_choice,
        ..ModelSettings::default()
    }
}

/// The models that were called, each with its settings.
fn requested_settings(sim: &Sim) -> Vec<(&str, ModelSettings)> {
    sim.model_requests.iter().map(|request| (request.model.as_str(), (*request.model_settings).clone())).collect()
}

#[test]
fn model_settings_apply_to_every_turn_of_the_run_and_to_no_sub_agent() {
    let demo = with_handoffs(agent("demo", &["ask"]), &[("heir", HandoffHistory::All)]);
    let definitions =
        build_definitions([demo, agent("helper", &[]), agent("heir", &[])], [agent_tool("ask", "helper")]);
    let mut sim = start_with(
        Sim::new(definitions),
        StartCommand { model_settings: settings_with_tool_choice(), ..start_command(Vec::new()) },
    );
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    sim.model_turn([model_text("Hm.")]);
    sim.crash();
    sim.model_turn([model_call("transfer_to_heir", "{}")]);
    sim.model_turn([model_text("There.")]);
    // The tool had to be called once: a model that is always forced to call a tool never answers.
    let later = ModelSettings { tool_choice: None, ..settings_with_tool_choice() };
    let expected = [
        ("scripted/demo", settings_with_tool_choice()),
        ("scripted/helper", ModelSettings::default()),
        ("scripted/demo", later.clone()),
        ("scripted/demo", later.clone()),
        ("scripted/heir", later),
    ];
    assert_eq!(requested_settings(&sim), expected);
}

/// An agent that takes no instructions of clients gets none from the agent before it, nor from the history.
#[test]
fn instructions_of_clients_do_not_reach_an_agent_that_forbids_them() {
    let demo = with_handoffs(agent("demo", &[]), &[("heir", HandoffHistory::All)]);
    let heir = Agent { client_instructions: ClientInstructions::Forbidden, ..agent("heir", &[]) };
    let before =
        PriorHistory { entries: vec![HistoryEntry::System { text: "Be rude.".to_owned() }], reference_count: 0 };
    let start = StartCommand {
        model_settings: ModelSettings { instructions: Some("Rhyme.".to_owned()), ..ModelSettings::default() },
        prior_history: Some(before),
        ..start_command(Vec::new())
    };
    let mut sim = start_with(Sim::new(build_definitions([demo, heir], [])), start);
    sim.model_turn([model_call("transfer_to_heir", "{}")]);
    let read = |index: usize| {
        let request = &sim.model_requests[index];
        let has_system = request.history.iter().any(|entry| matches!(entry, HistoryEntry::System { .. }));
        (request.model.as_str(), request.model_settings.instructions.as_deref(), has_system)
    };
    assert_eq!(read(0), ("scripted/demo", Some("Rhyme."), true));
    assert_eq!(read(1), ("scripted/heir", None, false));
}

#[test]
fn a_retried_first_turn_sends_the_same_request() {
    let mut sim = start_with(
        Sim::new(demo_definitions([])),
        StartCommand { model_settings: settings_with_tool_choice(), ..start_command(Vec::new()) },
    );
    sim.fail_turn();
    sim.crash();
    assert_eq!(sim.model_requests.len(), 3);
    assert!(
        requested_settings(&sim).iter().all(|(_, wishes)| *wishes == settings_with_tool_choice()),
        "{:?}",
        requested_settings(&sim)
    );
}

/// A conversation kept by the client, with seven numbered reference groups.
fn prior_history() -> PriorHistory {
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
        HistoryEntry::Result {
            call_id,
            status: ResultStatus::Completed,
            content: vec![ContentPart::text("seen")],
            acknowledged_checks: None,
        },
        HistoryEntry::Assistant { id: ItemId::from("msg_elsewhere"), text: "Hello.".to_owned(), raw: None },
    ];
    PriorHistory { entries, reference_count: 7 }
}

const ELSEWHERE: &str = "system:Be kind. | user:hi | call:look | result:seen | said:Hello.";

#[test]
fn prior_history_reaches_its_run_and_the_next_and_reference_numbers_continue() {
    let mut sim = start_with(
        Sim::new(demo_definitions([tool("look")])),
        StartCommand { prior_history: Some(prior_history()), ..start_command(Vec::new()) },
    );
    assert_eq!(sim.request_summary(), format!("{ELSEWHERE} | user:go"));
    sim.model_turn([model_call("look", "{}")]);
    let more = Block::Text(TextBlock::new("more"));
    sim.finish_tool("call_R1", ToolOutput { block_list: vec![more], ..ToolOutput::default() });
    let shown = format!("{ELSEWHERE} | user:go | call:look | result:more");
    assert_eq!(sim.request_summary(), shown);
    let read = serde_json::to_string(sim.model_requests.last().expect("asked").history.entries()).expect("JSON");
    assert!(read.contains("ID: 8") && !read.contains("ID: 1"), "{read}");
    sim.crash();
    assert_eq!(sim.request_summary(), shown, "the log has it");
    sim.model_turn([model_text("See [^7] and [^8].")]);

    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    assert_eq!(thread.reference_count, 8);
    let mut next = Sim::new(demo_definitions([tool("look")]));
    let (user, name) = (next.run.user.clone(), next.run.thread.clone());
    next.run = RunState::new(user, name, next.run.definitions.clone(), Arc::new(thread), None);
    let next = start_with(next, start_command(Vec::new()));
    assert_eq!(next.request_summary(), format!("{shown} | said:See [^7] and [^8]. | user:go"));
    assert_eq!(*next.model_requests[0].model_settings, ModelSettings::default());
}

#[test]
fn a_sub_agent_does_not_see_the_prior_history() {
    let definitions = build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]);
    let mut sim = start_with(
        Sim::new(definitions),
        StartCommand { prior_history: Some(prior_history()), ..start_command(Vec::new()) },
    );
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    assert!(!sim.request_summary().contains("Hello."), "{}", sim.request_summary());
    sim.model_outputs([model_text("Hm.")]);
    sim.end_turn(StopReason::Stop);
    assert!(sim.request_summary().starts_with(ELSEWHERE), "{}", sim.request_summary());
}

/// The next run of a thread after one with a reply.
fn second_run(sim: Sim, start: StartCommand) -> (Sim, Arc<ThreadFold>) {
    let mut sim = start_with(sim, start_command(Vec::new()));
    sim.model_turn([model_text("Hello.")]);
    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    let thread = Arc::new(thread);
    let RunState { user, thread: name, definitions, .. } = sim.run.clone();
    let mut next = Sim::new((*definitions).clone());
    next.run = RunState::new(user, name, definitions, Arc::clone(&thread), None);
    (start_with(next, start), thread)
}

/// Its text may be kept for the next turn, which has the same entries.
#[test]
fn a_turn_has_the_entries_of_its_thread_first() {
    let demo = with_handoffs(agent("demo", &["ask"]), &[("heir", HandoffHistory::Messages)]);
    let definitions =
        build_definitions([demo, agent("helper", &[]), agent("heir", &[])], [agent_tool("ask", "helper")]);
    let (mut sim, thread) = second_run(Sim::new(definitions.clone()), start_command(Vec::new()));
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    sim.model_turn([model_text("Hm.")]);
    sim.model_turn([model_call("transfer_to_heir", "{}")]);
    let past_counts: Vec<usize> = sim.model_requests.iter().map(|request| request.history.past_count()).collect();
    assert_eq!(past_counts, [2, 0, 2, 0], "not the sub-agent, nor the agent that takes over");
    let past = thread.history(None, HistoryWindow::default());
    let same = |(read, kept): (&Arc<HistoryEntry>, &Arc<HistoryEntry>)| Arc::ptr_eq(read, kept);
    assert!(sim.model_requests[2].history.entries().iter().zip(&past).all(same));

    let rewritten = Some(vec![HistoryEntry::User { content: vec![ContentPart::text("hi")] }]);
    let start = StartCommand { rewritten_history: rewritten, ..start_command(Vec::new()) };
    let (sim, _) = second_run(Sim::new(definitions), start);
    assert_eq!(sim.model_requests[0].history.past_count(), 0, "nor what a hook has written");
}
