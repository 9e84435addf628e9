//! Tools of MCP servers: what clients are shown of their servers, and what happens when a connection dies.

use crate::fixtures::{
    agent, agent_tool, approve, build_definitions, call_id, demo_definitions, idempotent, model_call, model_text,
    needs_approval, tool, tool_text, with_handoffs, with_kind,
};
use crate::sim::Sim;
use machine::MachineInput;
use model::definition::{
    CommandTool, Definitions, HandoffHistory, McpList, McpProgram, McpScope, McpTarget, McpTool, McpTransport, OnCrash,
    Tool, ToolExecutor, mcp_list_digest,
};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ActionRequest, CancelMode, Event};
use model::item::{HostedCall, Item, ItemStatus, ToolCall};
use model::thread::ThreadReplay;
use model::tool::ToolEvent;
use serde_json::json;
use std::sync::Arc;

/// A tool `NAME__read` of a server.
fn mcp_tool(server: &str) -> Tool {
    let program = McpProgram {
        transport: McpTransport::Command(CommandTool::default()),
        scope: McpScope::User,
        start_timeout_ms: 1,
    };
    let executor = ToolExecutor::Mcp(McpTool {
        server: server.to_owned(),
        tool: "read".to_owned(),
        spec_digest: "d".to_owned(),
        program: Arc::new(program),
        target: McpTarget::Tool,
        is_changed: false,
        has_user_credential: false,
    });
    with_kind(tool(&format!("{server}__read")), executor)
}

/// Adds what the servers answered: those whose label begins with `bad` did not.
fn with_lists(mut definitions: Definitions, lists: &[(&str, &[&str])]) -> Definitions {
    for (label, agents) in lists {
        let error = label.starts_with("bad").then(|| "It is gone.".to_owned());
        let agents = agents.iter().map(|agent| (*agent).to_owned()).collect();
        definitions.mcp_lists.insert((*label).to_owned(), McpList { agents, error, digest: None });
        let digest = mcp_list_digest(&definitions.mcp_list_action(label));
        definitions.mcp_lists.get_mut(*label).unwrap().digest = (!label.starts_with("bad")).then_some(digest);
    }
    definitions
}

fn demo() -> Definitions {
    with_lists(demo_definitions([mcp_tool("files")]), &[("files", &["demo"])])
}

/// The complete lists of a run, each with its task.
fn shown_lists(sim: &Sim) -> Vec<(String, HostedCall)> {
    let list = |event: &Event| match event {
        Event::ItemDone(e) => match &e.item {
            Item::HostedCall(call) => Some((e.task_id.to_string(), call.clone())),
            _ => None,
        },
        _ => None,
    };
    sim.drafts.iter().filter_map(|draft| list(&draft.event)).collect()
}

fn call_of(sim: &Sim, id: &str) -> ToolCall {
    sim.run.fold.root().expect("the run began").call(&call_id(id)).expect("it was called").1.clone()
}

/// A sim of the next run of the same thread.
fn next_run(sim: &Sim, definitions: Definitions) -> Sim {
    let mut replay = ThreadReplay::default();
    sim.records().iter().for_each(|record| replay.push(record));
    assert!(replay.run.is_none(), "it has ended");
    let mut next = Sim::new(definitions);
    next.run.thread_fold = Arc::new(replay.thread);
    next.start(Vec::new());
    next
}

#[test]
fn a_server_is_listed_before_the_first_step_and_a_call_has_its_label() {
    let mut sim = Sim::started(demo());
    sim.expect_trace("created started hc_R1 step.started{1}");
    let [(_, list)] = shown_lists(&sim).try_into().expect("one list");
    let tool = json!({"name": "read", "description": "", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}});
    assert_eq!(
        (list.name.as_str(), list.action),
        ("mcp_list_tools", Some(json!({"server_label": "files", "tools": [tool]})))
    );
    sim.model_turn([model_call("files__read", r#"{"n":1}"#)]);
    let call = call_of(&sim, "call_R2");
    assert_eq!((call.name.as_str(), call.server_label.as_deref()), ("files__read", Some("files")));
    assert_eq!((call.server_tool.as_deref(), call.own_tool_name()), (Some("read"), "read"));
    sim.finish_tool("call_R2", tool_text("15"));
    sim.model_turn([model_text("Done.")]);
    assert_eq!(shown_lists(&sim).len(), 1, "the second step does not repeat it");
    assert!(!sim.request_summary().contains("mcp_list_tools"), "the model does not read it");
}

#[test]
fn a_list_is_shown_once_in_a_thread_and_again_when_it_changes() {
    let finished = |mut sim: Sim| {
        sim.model_turn([model_text("Done.")]);
        sim
    };
    let first = finished(Sim::started(demo()));
    let same = finished(next_run(&first, demo()));
    assert_eq!(shown_lists(&same).len(), 0);
    let mut changed = demo_definitions([mcp_tool("files")]);
    changed.tools.get_mut("files__read").unwrap().spec.description = "Reads.".to_owned();
    let changed = with_lists(changed, &[("files", &["demo"])]);
    assert_eq!(shown_lists(&next_run(&first, changed)).len(), 1);
}

#[test]
fn a_server_that_does_not_answer_is_shown_with_its_error_in_every_run() {
    let definitions = || with_lists(demo_definitions([tool("look")]), &[("bad", &["demo"])]);
    let mut sim = Sim::started(definitions());
    sim.expect_trace("created started hc_R1{failed} step.started{1}");
    let (_, list) = shown_lists(&sim).remove(0);
    assert_eq!(list.status, Some(ItemStatus::Failed));
    assert_eq!(list.action, Some(json!({"server_label": "bad", "tools": [], "error": "It is gone."})));
    sim.model_turn([model_text("Done.")]);
    assert_eq!(shown_lists(&next_run(&sim, definitions())).len(), 1);
}

#[test]
fn a_server_is_listed_where_an_agent_first_has_it() {
    let front = with_handoffs(agent("demo", &["ask_helper"]), &[("heir", HandoffHistory::All)]);
    let agents = [front, agent("helper", &["files__read"]), agent("heir", &["wiki__read", "files__read"])];
    let tools = [agent_tool("ask_helper", "helper"), mcp_tool("files"), mcp_tool("wiki")];
    let lists: [(&str, &[&str]); 2] = [("files", &["helper", "heir"]), ("wiki", &["heir"])];
    let mut sim = Sim::started(with_lists(build_definitions(agents, tools), &lists));
    assert_eq!(shown_lists(&sim).len(), 0, "the first agent has none");
    sim.model_turn([model_call("ask_helper", r#"{"prompt":"look"}"#)]);
    sim.model_turn([model_text("Looked.")]);
    sim.model_turn([model_call("transfer_to_heir", "{}")]);
    let shown: Vec<String> = shown_lists(&sim)
        .iter()
        .map(|(task, list)| format!("{} {}", list.server_label().unwrap(), task.starts_with("task_call")))
        .collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("files") && shown[1].starts_with("wiki"), "{shown:?}");
}

/// The list is not of the model: the step that failed has shown nothing.
#[test]
fn a_list_does_not_keep_a_step_from_being_tried_again() {
    let mut sim = Sim::started(demo());
    sim.fail_turn_with("overloaded", true, None);
    let is_retry = |event: &Event| matches!(event, Event::Retrying(_));
    assert!(sim.drafts.iter().any(|draft| is_retry(&draft.event)));
    sim.crash();
    assert_eq!(shown_lists(&sim).len(), 1, "and a lost step does not repeat it");
}

#[test]
fn people_are_asked_about_a_tool_with_its_server() {
    let definitions = with_lists(demo_definitions([needs_approval(mcp_tool("files"))]), &[("files", &["demo"])]);
    let mut sim = Sim::started(definitions);
    sim.model_turn([model_call("files__read", r#"{"n":1}"#)]);
    let asked = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some(e.action_requests[0].clone()),
        _ => None,
    });
    let (name, args, server_label) = ("files__read".to_owned(), json!({"n": 1}).into(), Some("files".to_owned()));
    assert_eq!(asked, Some(ActionRequest { name, args, server_label, editable: None, note: None }));
    sim.decide("apr_R2", approve());
    assert_eq!(sim.tool_requests.len(), 1);
}

/// A run whose call of `files__read` is lost with its connection.
fn lost_call(tool: Tool) -> Sim {
    let mut sim = Sim::started(demo_definitions([tool]));
    sim.model_turn([model_call("files__read", r#"{"n":1}"#)]);
    sim.skip_trace();
    lose(&mut sim);
    sim
}

fn lose(sim: &mut Sim) {
    let id = sim.tools.last().expect("it runs").clone();
    let gone = ErrorInfo::new(ErrorCode::McpUnavailable, "The MCP server `files` exited with status 3.");
    sim.input(MachineInput::Tool { id, event: ToolEvent::Lost(gone) });
}

#[test]
fn a_lost_call_of_an_idempotent_tool_is_made_again_three_times_at_most() {
    let mut sim = lost_call(idempotent(mcp_tool("files")));
    sim.expect_trace("tool.started{call_R1,2}");
    lose(&mut sim);
    sim.expect_trace("tool.started{call_R1,3}");
    lose(&mut sim);
    sim.expect_trace("fco_R1{unknown,outcome_unknown} step.started{2}");
    assert_eq!(sim.tool_requests.len(), 3);
}

#[test]
fn a_lost_call_of_another_tool_ends_as_its_rule_for_a_crash_says() {
    let with_rule = |on_crash| lost_call(Tool { on_crash, ..mcp_tool("files") });
    with_rule(OnCrash::Fail).expect_trace("fco_R1{failed,outcome_unknown} step.started{2}");
    let mut sim = with_rule(OnCrash::Unknown);
    sim.expect_trace("fco_R1{unknown,outcome_unknown} step.started{2}");
    let told = "The MCP server `files` exited with status 3. It may or may not have done its work";
    assert!(sim.request_summary().contains(told), "{}", sim.request_summary());
    let mut sim = with_rule(OnCrash::Ask);
    sim.expect_trace("approval.requested{apr_R1} paused{apr_R1}");
    sim.decide("apr_R1", approve());
    assert_eq!(sim.tool_requests.len(), 2, "a person lets it run again");
}

#[test]
fn a_lost_call_is_not_made_again_in_a_run_that_stops() {
    let mut sim = Sim::started(demo_definitions([idempotent(mcp_tool("files"))]));
    sim.model_turn([model_call("files__read", r#"{"n":1}"#)]);
    sim.cancel(CancelMode::AfterTurn);
    sim.skip_trace();
    lose(&mut sim);
    assert_eq!(sim.tool_requests.len(), 1);
    assert!(sim.run.fold.has_ended());
}

#[test]
fn people_are_told_that_a_tool_has_changed() {
    let mut changed = needs_approval(mcp_tool("files"));
    let ToolExecutor::Mcp(tool) = &mut changed.executor else { unreachable!("it is of a server") };
    tool.is_changed = true;
    let mut sim = Sim::started(demo_definitions([changed]));
    sim.model_turn([model_call("files__read", r#"{"n":1}"#)]);
    let note = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => e.action_requests[0].note.clone(),
        _ => None,
    });
    assert!(note.expect("there is a note").starts_with("The MCP server `files` describes this tool in another way"));
}
