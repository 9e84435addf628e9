//! One turn: provider events out of order, and input during the turn.

use crate::fixtures::{demo_definitions, model_call, model_text, run_id, tool, tool_text};
use crate::sim::{Sim, start_command};
use machine::MachineInput;
use model::command::StartCommand;
use model::error::{ErrorCode, ErrorInfo};
use model::event::StopReason;
use model::item::Item;
use model::model_turn::ModelDelta;

#[test]
fn a_steer_is_read_after_the_turn_and_adds_another() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.model_outputs([model_text("One")]);
    sim.steer("and two?");
    sim.end_turn(StopReason::Stop);
    sim.expect_trace("input.added msg_R1 step.done{1,stop} step.started{2}");
    assert_eq!(sim.request_summary(), "user:go | said:One | user:and two?");
    sim.model_turn([model_text("Two")]);
    sim.expect_trace("msg_R3 step.done{2,stop} completed");
}

#[test]
fn a_steer_while_tools_run_is_read_after_their_results() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.model_turn([model_call("t", "{}")]);
    sim.steer("quickly");
    sim.skip_trace();
    sim.finish_tool("call_R1", tool_text("ok"));
    sim.expect_trace("fco_R1{completed} step.started{2}");
    assert_eq!(sim.request_summary(), "user:go | call:t | result:ok | user:quickly");
    sim.model_turn([model_text("there")]);
    sim.expect_trace("msg_R3 step.done{2,stop} completed");
}

#[test]
fn a_steer_is_refused_while_the_run_is_paused_or_ended() {
    let mut sim = Sim::started(demo_definitions([crate::fixtures::needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim.steer("hello?");
    sim.expect_trace("");
    sim.cancel(Default::default());
    sim.skip_trace();
    sim.steer("hello?");
    sim.expect_trace("");
}

#[test]
fn a_run_starts_once() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.start(Vec::new());
    sim.expect_trace("");
}

#[test]
fn a_run_that_may_not_start_reports_why_and_calls_no_model() {
    let mut sim = Sim::new(demo_definitions([]));
    let refused = Some(ErrorInfo::new(ErrorCode::HookFailed, "The hook did not answer."));
    sim.input(MachineInput::Start(Box::new(StartCommand { hook_error: refused, ..start_command(Vec::new()) })));
    sim.expect_trace("created started failed{hook_failed}");
    assert!(sim.model_requests.is_empty());
}

#[test]
fn an_empty_turn_completes() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.model_turn([]);
    sim.expect_trace("created started step.started{1} step.done{1,stop} completed");
}

#[test]
fn out_of_order_provider_events_give_an_ordered_log() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.text(3, &["a"]);
    sim.finish_item(3);
    sim.text(3, &["late"]);
    sim.call(3, "t", &["{}"]);
    sim.delta(ModelDelta::Arguments { slot: 9, text: "{}".to_owned() });
    sim.delta(ModelDelta::Done { slot: 9, raw: None });
    sim.delta(ModelDelta::Hosted { slot: 3, state: "x".to_owned(), action: None });
    sim.end_turn(StopReason::ToolCalls);
    assert_eq!(
        sim.trace()[3..],
        [
            "item+ msg_R1",
            "text.added",
            "text.delta \"a\"",
            "text.done \"a\"",
            "item- msg_R1",
            "step.done{1,stop}",
            "completed"
        ]
    );
}

#[test]
fn a_long_text_is_logged_in_several_records_and_not_repeated() {
    let mut sim = Sim::started(demo_definitions([]));
    let long = "é".repeat(70 * 1024);
    sim.text(0, &[&long]);
    sim.end_turn(StopReason::Stop);
    let sizes: Vec<usize> = sim.records().iter().map(model::Record::size_bytes).collect();
    assert!(sizes.iter().all(|size| *size <= model::limits::RECORD_BYTES_MAX), "{sizes:?}");
    let object = sim.run.fold.task_object(&run_id()).expect("the run began");
    let Some(Item::Message(message)) = object.output.first() else { panic!("a message") };
    assert_eq!(message.text(), long);
}
