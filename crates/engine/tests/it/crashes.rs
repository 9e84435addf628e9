//! A crash at every append: the run continues, ends once, and runs no tool twice.
//!
//! The model streams one word at a time, so that nearly every record is an append of its own. For every k there is a
//! process whose k-th append fails (see [`Trouble`]); where that kills it, a second process continues.

use crate::fake_ports::{AppendFailure, TestClock};
use crate::test_engine::{StoreKind, TestEngine, TestEnv, TestSetup, line_view, record_lines, utf8_lossy};
use engine::StartedRun;
use model::event::{ApprovalDecisionKind, Event, PendingKind};
use model::item::{Item, ResultStatus};
use model::ports::IdempotencyKey;
use model::task::TaskStatus;
use model::thread::ThreadReplay;
use model::{CallId, Record, Seq};
use model_testing::invariants;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// What one process saw.
struct ProcessOutcome {
    run: StartedRun,
    seen: String,
    ended: bool,
    failed: bool,
}

/// Runs one process until the run ends or the process crashes.
fn run_process(
    test_env: &Arc<TestEnv>,
    failure: Option<(usize, AppendFailure)>,
    started: Result<&StartedRun, &str>,
) -> ProcessOutcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if test_env.store_kind == StoreKind::Memory {
        builder.start_paused(true); // no disk is involved, so no real time has to pass
    }
    let runtime = builder.build().expect("a runtime");
    runtime.block_on(async {
        let clock = Arc::new(TestClock::default());
        if started.is_ok() {
            clock.advance(10_000);
        }
        let test_engine = TestEngine::start_in(
            Arc::clone(test_env),
            TestSetup { append_failure: failure, one_delta_at_a_time: true, clock, ..TestSetup::default() },
        )
        .await;
        let run = match started {
            Ok(run) => run.clone(),
            Err(words) => test_engine.start_run(None, words).await,
        };
        let seen = Mutex::new(String::new());
        let ended = tokio::select! {
            biased;
            () = test_engine.journal.wait_for_crash() => false,
            ((), ()) = async { tokio::join!(follow_run(&test_engine, &run, &seen), answer_until_ended(&test_engine, &run)) } => true,
        };
        for asked in test_engine.models.requests() {
            invariants::check_history(&asked.history).expect("law 12");
        }
        ProcessOutcome { run, seen: seen.into_inner().expect("nobody panicked"), ended, failed: test_engine.journal.has_failed() }
    })
    // Dropping the runtime aborts every task in the middle of its work.
}

async fn follow_run(test_engine: &TestEngine, run: &StartedRun, seen: &Mutex<String>) {
    let mut viewer = test_engine.engine.watch_from(&test_engine.user, &run.thread, line_view(&run.task), Seq::ZERO);
    while let Some(bytes) = viewer.next().await.expect("readable") {
        seen.lock().expect("nobody panicked").push_str(&utf8_lossy(bytes));
    }
    assert!(!viewer.is_interrupted());
}

/// Answers whatever the run waits for, until it has ended.
async fn answer_until_ended(test_engine: &TestEngine, run: &StartedRun) {
    let mut answered: HashSet<CallId> = HashSet::new();
    loop {
        let waits = test_engine.wait_until_unbounded(run, |object| {
            object.status.is_terminal() || object.pending.iter().any(|pending| !answered.contains(&pending.call_id))
        });
        let object = waits.await;
        if object.status.is_terminal() {
            return;
        }
        for pending in object.pending.iter().filter(|pending| answered.insert(pending.call_id.clone())) {
            match (&pending.kind, &pending.key) {
                (PendingKind::Approval, Some(key)) => {
                    test_engine.decide(&run.task, key, ApprovalDecisionKind::Approve).await.expect("taken");
                }
                _ => {
                    // The previous process may have stored the same result and crashed before it was applied: then this
                    // process applies it, perhaps after `object` was read. A client that retries sends its key.
                    let key = pending.call_id.to_string();
                    let idempotency = Some(IdempotencyKey { request_digest: key.clone(), key });
                    let calls = [&pending.call_id];
                    test_engine.submit_results_with_key(&run.task, &calls, idempotency).await.expect("taken");
                }
            }
        }
    }
}

/// Tool results with an unknown outcome.
fn unknown_results(log: &[Record]) -> usize {
    let is_unknown = |record: &&Record| match record.event() {
        Event::ItemDone(done) => matches!(&done.item, Item::ToolResult(r) if r.status == Some(ResultStatus::Unknown)),
        _ => false,
    };
    log.iter().filter(is_unknown).count()
}

/// What must hold at the end in every case.
fn check_outcome(test_env: &Arc<TestEnv>, scenario: &CrashScenario, run: &StartedRun, (seen, what): (&[String], &str)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let log = runtime.block_on(async {
        let test_engine = TestEngine::start_in(Arc::clone(test_env), TestSetup::default()).await;
        let status = test_engine.task_object(&run.task).await.status;
        assert_eq!(status, TaskStatus::Completed, "{what}");
        let waiting = test_engine.read_inbox(&run.thread).await;
        assert!(waiting.is_empty(), "{what}: {waiting:?}");
        let log = test_engine.read_log(&run.thread).await;
        test_engine.stop().await;
        log
    });
    invariants::check_one_terminal_event(&log).unwrap_or_else(|why| panic!("{what}: law 9: {why}"));
    invariants::check_done_matches_deltas(&log).unwrap_or_else(|why| panic!("{what}: law 3: {why}"));
    let mut replay = ThreadReplay::default();
    log.iter().for_each(|record| replay.push(record));
    assert_eq!((replay.thread.fold_errors, replay.run.is_none()), (0, true), "{what}");
    let seqs = log.iter().map(|record| record.seq.0);
    assert!(seqs.eq(1..=log.len() as u64), "{what}: gap-free");
    let whole = record_lines(&log);
    for seen in seen {
        assert!(whole.starts_with(seen), "{what}: shown and lost: {seen}\n{whole}");
    }
    let counts: Vec<usize> = scenario.once.iter().map(|name| test_env.tools.call_count(name)).collect();
    assert!(counts.iter().all(|count| *count <= 1), "{what}: {:?} ran {counts:?} times", scenario.once);
    let never = counts.iter().filter(|count| **count == 0).count();
    assert!(never <= unknown_results(&log), "{what}: {:?} ran {counts:?} times, and nobody says so", scenario.once);
    if test_env.store_kind == StoreKind::Sqlite {
        let report = store::verify_data_folder(test_env.folder.path()).expect("it can be looked at");
        assert!(report.is_clean(), "{what}: {report}");
    }
}

struct CrashScenario {
    words: &'static str,
    /// A scenario with fewer appends than this would test little.
    appends_min: usize,
    /// The tools that run, each at most once.
    once: &'static [&'static str],
}

impl CrashScenario {
    /// Plays the scenario with a failure at every `step`-th append, and returns the number of appends.
    fn crash_at_appends(&self, kind: StoreKind, failure: AppendFailure, step: usize) -> usize {
        let mut appends = 0;
        for k in (1..).step_by(step) {
            let test_env = Arc::new(TestEnv::new(kind));
            let what = format!("{kind:?}, {}, {failure:?} at append {k}", self.words);
            let first = run_process(&test_env, Some((k, failure)), Err(self.words));
            assert!(first.ended || (first.failed && !failure.is_survived()), "{what}");
            let mut seen = vec![first.seen];
            if !first.ended {
                let second = run_process(&test_env, None, Ok(&first.run));
                assert!(second.ended, "{what}");
                seen.push(second.seen);
            }
            check_outcome(&test_env, self, &first.run, (&seen, &what));
            if !first.failed {
                break;
            }
            appends = k;
        }
        appends
    }

    /// In memory at every append; with SQLite at some of them.
    fn crash_in_all_stores(&self) {
        for failure in AppendFailure::ALL {
            let appends = self.crash_at_appends(StoreKind::Memory, failure, 1);
            assert!(appends >= self.appends_min, "{}: {appends} appends only", self.words);
        }
        for (failure, step) in
            [(AppendFailure::CrashBefore, 5), (AppendFailure::CrashAfter, 4), (AppendFailure::UnknownKept, 9)]
        {
            self.crash_at_appends(StoreKind::Sqlite, failure, step);
        }
    }
}

#[test]
fn an_idempotent_tool() {
    CrashScenario { words: "weather", appends_min: 8, once: &[] }.crash_in_all_stores();
}

#[test]
fn a_sub_agent() {
    CrashScenario { words: "help", appends_min: 12, once: &[] }.crash_in_all_stores();
}

#[test]
fn two_sub_agents_of_which_one_needs_approval() {
    CrashScenario { words: "twins", appends_min: 15, once: &["trade"] }.crash_in_all_stores();
}

#[test]
fn three_parallel_tools() {
    CrashScenario { words: "parallel", appends_min: 8, once: &["tool_a", "tool_b", "tool_c"] }.crash_in_all_stores();
}

#[test]
fn an_approval() {
    CrashScenario { words: "trade", appends_min: 8, once: &["trade"] }.crash_in_all_stores();
}

#[test]
fn a_hand_off() {
    CrashScenario { words: "handoff", appends_min: 6, once: &[] }.crash_in_all_stores();
}

#[test]
fn input_files() {
    let words = "weather https://a.example/1 https://a.example/gone https://a.example/2";
    CrashScenario { words, appends_min: 9, once: &[] }.crash_in_all_stores();
}

#[test]
fn client_tools_of_the_caller() {
    CrashScenario { words: "client", appends_min: 8, once: &[] }.crash_in_all_stores();
}
