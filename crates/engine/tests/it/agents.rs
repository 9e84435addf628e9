//! Sub-agents and hand-offs, through the whole house.

use crate::test_engine::{STORE_KINDS, TestEngine};
use model::event::{CancelMode, Event, Initiator};
use model::task::TaskStatus;
use model::{Record, TaskId};
use model_testing::invariants;

/// A sub-agent's question that is answered after a restart runs the sub-agent's tool exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_one_of_two_sub_agents_reaches_it_after_a_restart() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "twins").await;
        let paused = house.wait_settled(&run).await;
        assert_eq!((paused.status, paused.pending.len()), (TaskStatus::Paused, 1), "{kind:?}");
        let asking = paused.pending[0].task_id.clone();
        assert_ne!(asking, run.task, "{kind:?}: it is the sub-agent's call");
        assert_eq!(house.task_object(&asking).await.agent, "broker", "{kind:?}");
        assert_eq!((house.tools.call_count("get_weather"), house.tools.call_count("trade")), (1, 0), "{kind:?}");
        house.wait_idle().await;
        let house = house.restart().await;
        house.approve(&paused).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            (house.tools.call_count("get_weather"), house.tools.call_count("trade")),
            (1, 1),
            "{kind:?}: each once"
        );
        assert_eq!(house.task_object(&asking).await.status, TaskStatus::Completed, "{kind:?}");
        let log = house.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        let begun = log.iter().filter(|record| matches!(record.event(), Event::Created(_))).count();
        assert_eq!(begun, 3, "{kind:?}: the run and two sub-agents");
        let last = house.models.last_request();
        assert_eq!(last.task, run.task, "{kind:?}");
        let read = serde_json::to_string(&*last.history).expect("JSON");
        assert!(read.contains("Sunny.") && read.contains("Done."), "{kind:?}: {read}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sub_agents_work_at_the_same_time() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "twins").await;
        let paused = house.wait_settled(&run).await;
        house.approve(&paused).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let log = house.read_log(&run.thread).await;
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
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "twins").await;
        let paused = house.wait_settled(&run).await;
        house.cancel(&run.task, Default::default()).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        assert_eq!(house.task_object(&paused.pending[0].task_id).await.status, TaskStatus::Cancelled, "{kind:?}");
        invariants::check_one_terminal_event(&house.read_log(&run.thread).await).expect("law 9");
        assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_took_over_answers_the_next_run_too() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "handoff").await;
        let object = house.wait_settled(&run).await;
        assert_eq!((object.status, object.agent.as_str()), (TaskStatus::Completed, "specialist"), "{kind:?}");
        assert_eq!(house.models.last_request().model, "scripted/specialist", "{kind:?}");
        // Said too late for the run, it begins the next one with whoever answered last.
        house.steer(&run, "hello").await;
        let twice = async {
            while house.event_types(&run.thread).await.iter().filter(|kind| *kind == "task.completed").count() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), twice).await.expect("the next run ends");
        assert_eq!(house.models.last_request().model, "scripted/specialist", "{kind:?}");
    }
}

/// The sub-agents of a log, in the order in which they were asked.
fn children(log: &[Record]) -> Vec<TaskId> {
    let child = |record: &Record| match record.event() {
        Event::Created(created) if created.task.parent_task_id.is_some() => Some(created.task_id.clone()),
        _ => None,
    };
    log.iter().filter_map(child).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sub_agent_that_is_cancelled_lets_its_run_go_on() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "one hangs").await;
        // The other one has ended, and this one is in the middle of a sentence.
        house.wait_for_event(&run.thread, "task.completed").await;
        house.wait_for_event(&run.thread, "task.text.delta").await;
        let hangs = children(&house.read_log(&run.thread).await)[0].clone();
        assert_eq!(house.task_object(&hangs).await.status, TaskStatus::Running, "{kind:?}");
        house.cancel(&hangs, CancelMode::Immediate).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let stopped = house.task_object(&hangs).await;
        assert_eq!((stopped.status, stopped.reason.as_deref()), (TaskStatus::Cancelled, Some("user")), "{kind:?}");
        let read = serde_json::to_string(&*house.models.last_request().history).expect("JSON");
        assert!(read.contains("Once upon ") && read.contains("The agent was cancelled."), "{kind:?}: {read}");
        assert!(read.contains("Sunny."), "{kind:?}: its sibling was heard out: {read}");
        assert_eq!(house.models.live_streams(), 0, "{kind:?}: its model was let go");
        let log = house.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        // It is over: once more changes nothing, whoever asks.
        house.cancel(&hangs, CancelMode::Immediate).await;
        house.wait_idle().await;
        assert_eq!(house.read_log(&run.thread).await, log, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_a_sub_agent_goes_on_when_that_is_cancelled_also_after_a_crash() {
    for kind in STORE_KINDS {
        for (mode, crash) in [(CancelMode::Immediate, false), (CancelMode::AfterTurn, true)] {
            let mut house = TestEngine::new(kind).await;
            let run = house.start_run(None, "twins").await;
            let paused = house.wait_settled(&run).await;
            let pending = paused.pending[0].clone();
            house.wait_idle().await;
            if crash {
                // Nobody carries it out before the process ends; the next one finds it.
                house.engine.stop(std::time::Duration::ZERO).await;
            }
            house.cancel(&pending.task_id, mode).await;
            if crash {
                house = house.restart().await;
            }
            house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
            assert_eq!(house.task_object(&pending.task_id).await.status, TaskStatus::Cancelled, "{kind:?}");
            assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
            let key = pending.key.expect("a question");
            let row = house.engine.ports().directory.approval(&house.user, &key).await.expect("readable");
            assert_eq!(row.expect("there").answer.expect("closed").by, Initiator::System, "{kind:?}");
            let log = house.read_log(&run.thread).await;
            let place = log.iter().position(|record| record.event_type() == "task.paused").expect("it paused");
            assert!(
                matches!(log[place + 1].event(), Event::Resumed(resumed) if resumed.by == Initiator::Cancel),
                "{kind:?}"
            );
            invariants::check_one_terminal_event(&log).expect("law 9");
        }
    }
}
