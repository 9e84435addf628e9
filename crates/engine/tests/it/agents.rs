//! Sub-agents and hand-offs, with the whole engine.

use crate::test_engine::{STORE_KINDS, TestEngine};
use model::event::{CancelMode, Event, Initiator};
use model::task::TaskStatus;
use model::{Record, TaskId};
use model_testing::invariants;

/// A sub-agent's question that is answered after a restart runs the sub-agent's tool exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_reaches_the_right_one_of_two_sub_agents_after_a_restart() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "twins").await;
        let paused = test_engine.wait_settled(&run).await;
        assert_eq!((paused.status, paused.pending.len()), (TaskStatus::Paused, 1), "{kind:?}");
        let asking = paused.pending[0].task_id.clone();
        assert_ne!(asking, run.task, "{kind:?}: it is the sub-agent's call");
        assert_eq!(test_engine.task_object(&asking).await.agent, "broker", "{kind:?}");
        assert_eq!(
            (test_engine.tools.call_count("get_weather"), test_engine.tools.call_count("trade")),
            (1, 0),
            "{kind:?}"
        );
        test_engine.wait_idle().await;
        let test_engine = test_engine.restart().await;
        test_engine.approve(&paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            (test_engine.tools.call_count("get_weather"), test_engine.tools.call_count("trade")),
            (1, 1),
            "{kind:?}: each once"
        );
        assert_eq!(test_engine.task_object(&asking).await.status, TaskStatus::Completed, "{kind:?}");
        let log = test_engine.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        let begun = log.iter().filter(|record| matches!(record.event(), Event::Created(_))).count();
        assert_eq!(begun, 3, "{kind:?}: the run and two sub-agents");
        let last = test_engine.models.last_request();
        assert_eq!(last.task, run.task, "{kind:?}");
        let read = serde_json::to_string(last.history.entries()).expect("JSON");
        assert!(read.contains("Sunny.") && read.contains("Done."), "{kind:?}: {read}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sub_agents_run_in_parallel() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "twins").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.approve(&paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let log = test_engine.read_log(&run.thread).await;
        let place = |kind: &str, nth: usize| {
            let found = log.iter().enumerate().filter(|(_, record)| record.event_type() == kind);
            found.map(|(place, _)| place).nth(nth).expect("it is there")
        };
        assert!(place("task.created", 2) < place("task.completed", 0), "{kind:?}: neither waited for the other");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_sub_agents_before_the_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "twins").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.cancel(&run.task, Default::default()).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        assert_eq!(test_engine.task_object(&paused.pending[0].task_id).await.status, TaskStatus::Cancelled, "{kind:?}");
        invariants::check_one_terminal_event(&test_engine.read_log(&run.thread).await).expect("law 9");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_after_a_handoff_also_answers_the_next_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "handoff").await;
        let object = test_engine.wait_settled(&run).await;
        assert_eq!((object.status, object.agent.as_str()), (TaskStatus::Completed, "specialist"), "{kind:?}");
        assert_eq!(test_engine.models.last_request().model, "scripted/specialist", "{kind:?}");
        // The steer arrives too late for the run: it starts the next one, with the agent that answered last.
        test_engine.steer(&run, "hello").await;
        let twice = async {
            while test_engine.event_types(&run.thread).await.iter().filter(|kind| *kind == "task.completed").count() < 2
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), twice).await.expect("the next run ends");
        assert_eq!(test_engine.models.last_request().model, "scripted/specialist", "{kind:?}");
    }
}

/// The sub-agents of a log, in the order in which they were called.
fn children(log: &[Record]) -> Vec<TaskId> {
    let child = |record: &Record| match record.event() {
        Event::Created(created) if created.task.parent_task_id.is_some() => Some(created.task_id.clone()),
        _ => None,
    };
    log.iter().filter_map(child).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_sub_agent_lets_its_run_continue() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "one hangs").await;
        // The other one has ended, and this one is still streaming.
        test_engine.wait_for_event(&run.thread, "task.completed").await;
        test_engine.wait_for_event(&run.thread, "task.text.delta").await;
        let hangs = children(&test_engine.read_log(&run.thread).await)[0].clone();
        assert_eq!(test_engine.task_object(&hangs).await.status, TaskStatus::Running, "{kind:?}");
        test_engine.cancel(&hangs, CancelMode::Immediate).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let stopped = test_engine.task_object(&hangs).await;
        assert_eq!((stopped.status, stopped.reason.as_deref()), (TaskStatus::Cancelled, Some("user")), "{kind:?}");
        let read = serde_json::to_string(test_engine.models.last_request().history.entries()).expect("JSON");
        assert!(read.contains("Once upon ") && read.contains("The agent was cancelled."), "{kind:?}: {read}");
        assert!(read.contains("Sunny."), "{kind:?}: its sibling was heard out: {read}");
        assert_eq!(test_engine.models.live_streams(), 0, "{kind:?}: its model was let go");
        let log = test_engine.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        // It has ended: a second cancel changes nothing.
        test_engine.cancel(&hangs, CancelMode::Immediate).await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, log, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_a_sub_agent_continues_when_it_is_cancelled_even_after_a_crash() {
    for kind in STORE_KINDS {
        for (mode, crash) in [(CancelMode::Immediate, false), (CancelMode::AfterTurn, true)] {
            let mut test_engine = TestEngine::new(kind).await;
            let run = test_engine.start_run(None, "twins").await;
            let paused = test_engine.wait_settled(&run).await;
            let pending = paused.pending[0].clone();
            test_engine.wait_idle().await;
            if crash {
                // The process ends before it applies the cancel; the next one finds it in the inbox.
                test_engine.engine.stop(std::time::Duration::ZERO).await;
            }
            test_engine.cancel(&pending.task_id, mode).await;
            if crash {
                test_engine = test_engine.restart().await;
            }
            test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
            assert_eq!(test_engine.task_object(&pending.task_id).await.status, TaskStatus::Cancelled, "{kind:?}");
            assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
            let key = pending.key.expect("a question");
            let row = test_engine.engine.ports().directory.approval(&test_engine.user, &key).await.expect("readable");
            assert_eq!(row.expect("there").answer.expect("closed").by, Initiator::System, "{kind:?}");
            let log = test_engine.read_log(&run.thread).await;
            let place = log.iter().position(|record| record.event_type() == "task.paused").expect("it paused");
            assert!(
                matches!(log[place + 1].event(), Event::Resumed(resumed) if resumed.by == Initiator::Cancel),
                "{kind:?}"
            );
            invariants::check_one_terminal_event(&log).expect("law 9");
        }
    }
}
