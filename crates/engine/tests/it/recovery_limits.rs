//! Runs that nobody can resume: they fail after three attempts, and their thread goes on.

use crate::fake_ports::AppendFailure;
use crate::fixtures::text_parts;
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, TestEnv, TestSetup};
use engine::{NewRun, StartError, StartedRun};
use model::command::{CancelCause, CancelCommand};
use model::error::ErrorInfo;
use model::event::{CancelMode, ClientTool};
use model::item::{Item, ResultStatus};
use model::ports::{RecoveryAttempts as _, StoreError, SubmitError};
use model::task::{TaskObject, TaskStatus};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

fn error_code(object: &TaskObject) -> Option<&str> {
    object.error.as_ref().map(|error: &ErrorInfo| error.code.as_str())
}

/// Runs a process that crashes before its `append`-th append.
fn crash_process(env: &Arc<TestEnv>, append: usize, start: Option<&str>) -> Option<StartedRun> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let append_failure = Some((append, AppendFailure::CrashBefore));
        let setup = TestSetup { append_failure, one_delta_at_a_time: true, ..TestSetup::default() };
        let test_engine = TestEngine::start_in(Arc::clone(env), setup).await;
        let run = match start {
            Some(words) => Some(test_engine.start_run(None, words).await),
            None => None,
        };
        test_engine.journal.wait_for_crash().await;
        run
    })
}

/// Starts a run in a process that crashes before `append`, and resumes it in processes that log nothing.
fn crash_on_recovery(kind: StoreKind, append: usize, recoveries: usize) -> (TaskObject, TaskObject) {
    let env = Arc::new(TestEnv::new(kind));
    let run = crash_process(&env, append, Some("one")).unwrap();
    for _ in 0..recoveries {
        crash_process(&env, 1, None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let test_engine = TestEngine::start_in(Arc::clone(&env), TestSetup::default()).await;
        let first = test_engine.wait_settled(&run).await;
        let next = test_engine.start_run(Some(&run.thread), "two").await;
        (first, test_engine.wait_settled(&next).await)
    })
}

#[test]
fn a_run_whose_recovery_crashed_three_times_fails_and_its_thread_goes_on() {
    for kind in STORE_KINDS {
        // Once after the run was logged, once before.
        for (append, recoveries) in [(2, 3), (1, 3)] {
            let (first, next) = crash_on_recovery(kind, append, recoveries);
            let ended = (first.status, error_code(&first));
            assert_eq!(ended, (TaskStatus::Failed, Some("recovery_failed")), "{kind:?} {append}");
            assert_eq!(next.status, TaskStatus::Completed, "{kind:?} {append}");
            let (first, next) = crash_on_recovery(kind, append, recoveries - 1);
            assert_eq!(
                (first.status, next.status),
                (TaskStatus::Completed, TaskStatus::Completed),
                "{kind:?} {append}"
            );
        }
    }
}

/// The process crashed even while it only ended the run: commands must not wake the thread any more, and get an error.
#[test]
fn a_parked_thread_refuses_commands_and_can_be_read_and_deleted() {
    for kind in STORE_KINDS {
        let env = Arc::new(TestEnv::new(kind));
        let run = crash_process(&env, 2, Some("one")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            env.recovery_attempts.save(&BTreeMap::from([(run.thread.clone(), 3)])).await.unwrap();
            let test_engine = TestEngine::start_in(Arc::clone(&env), TestSetup::default()).await;
            let (engine, user) = (&test_engine.engine, &test_engine.user);
            let (task_id, mode) = (run.task.clone(), CancelMode::Immediate);
            let cancel = CancelCommand { task_id, mode, cause: CancelCause::User };
            let cancelled = engine.cancel(user, &run.thread, cancel, None).await;
            assert_eq!(cancelled, Err(SubmitError::ThreadParked), "{kind:?}");
            let steered = engine.steer(user, &run.thread, run.task.clone(), text_parts("more"), None).await;
            assert_eq!(steered, Err(SubmitError::ThreadParked), "{kind:?}");
            let (agent, thread) = ("demo".to_owned(), Some(run.thread.clone()));
            let next = NewRun { agent, input: text_parts("two"), thread, ..NewRun::default() };
            let next = engine.start(user, next).await;
            assert!(matches!(next, Err(StartError::Submit(SubmitError::ThreadParked))), "{kind:?}: {next:?}");
            assert_eq!(engine.live_threads(), 0, "{kind:?}: nothing woke it");
            assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Running, "{kind:?}");
            let stranger = engine.steer(&"stranger".into(), &run.thread, run.task.clone(), text_parts("x"), None).await;
            assert_eq!(stranger, Err(SubmitError::Store(StoreError::ThreadNotFound)), "{kind:?}");

            assert_eq!(engine.delete_thread(user, &run.thread).await, Ok(true), "{kind:?}");
            assert_eq!(env.recovery_attempts.load().await.unwrap(), BTreeMap::new(), "{kind:?}");
            let other = test_engine.start_run(None, "three").await;
            assert_eq!(test_engine.wait_settled(&other).await.status, TaskStatus::Completed, "{kind:?}");
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_frees_the_thread() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        test_engine.models.panics_left.store(1, SeqCst);
        let run = test_engine.start_run(None, "one").await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}: it is tried again");
        test_engine.models.panics_left.store(usize::MAX, SeqCst);
        let run = test_engine.start_run(Some(&run.thread), "two").await;
        let failed = test_engine.wait_settled(&run).await;
        assert_eq!((failed.status, error_code(&failed)), (TaskStatus::Failed, Some("recovery_failed")), "{kind:?}");
        test_engine.models.panics_left.store(0, SeqCst);
        let run = test_engine.start_run(Some(&run.thread), "three").await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        test_engine.wait_idle().await;
    }
}

/// An earlier version accepted the schema; validating against it would take for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_schema_beyond_the_bounds_is_an_error_of_its_call_also_after_a_restart() {
    let twice = |level: usize| json!({"allOf": vec![json!({"$ref": format!("#/$defs/a{}", level + 1)}); 2]});
    let mut definitions: Map<String, Value> = (0..45).map(|level| (format!("a{level}"), twice(level))).collect();
    definitions.insert("a45".to_owned(), json!({"type": "object"}));
    let parameters = json!({"type": "object", "$ref": "#/$defs/a0", "$defs": definitions});
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let mut tools = crate::fixtures::client_tools();
    for tool in &mut tools {
        *tool = ClientTool { parameters: parameters.clone(), ..tool.clone() };
    }
    let input = text_parts("client");
    let new = NewRun { agent: "demo".to_owned(), input, tools, ..NewRun::default() };
    let run = test_engine.engine.start(&test_engine.user, new).await.unwrap();
    let test_engine = test_engine.restart().await;
    let object = test_engine.wait_settled(&run).await;
    let result =
        object.output.iter().find_map(|item| if let Item::ToolResult(result) = item { Some(result) } else { None });
    let result = result.unwrap();
    let code = result.error.as_ref().map(|error| error.code.as_str());
    assert_eq!((result.status, code), (Some(ResultStatus::Failed), Some("invalid_tool")));
    assert!(object.status.is_terminal(), "{object:?}");
}
