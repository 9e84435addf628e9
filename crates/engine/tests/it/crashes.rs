//! A crash at every append: whatever was on its way, the run goes on, ends once, and does nothing twice.
//!
//! The model gives one word at a time, so that nearly every record is an append of its own. For every k there is a process
//! whose k-th append goes wrong (see [`Trouble`]); where that kills it, a second process takes up what it left.

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
struct Life {
    run: StartedRun,
    /// The lines that its viewer was shown.
    seen: String,
    /// Did it end the run?
    ended: bool,
    /// Was there trouble?
    troubled: bool,
}

/// One process. It ends with the run, or dies.
fn live(ground: &Arc<TestEnv>, trouble: Option<(usize, AppendFailure)>, begun: Result<&StartedRun, &str>) -> Life {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if ground.store_kind == StoreKind::Memory {
        builder.start_paused(true); // nothing waits for a disk, so nobody need wait for a clock
    }
    let runtime = builder.build().expect("a runtime");
    runtime.block_on(async {
        let clock = Arc::new(TestClock::default());
        if begun.is_ok() {
            clock.advance(10_000);
        }
        let house = TestEngine::start_in(
            Arc::clone(ground),
            TestSetup { append_failure: trouble, one_delta_at_a_time: true, clock, ..TestSetup::default() },
        )
        .await;
        let run = match begun {
            Ok(run) => run.clone(),
            Err(words) => house.start_run(None, words).await,
        };
        let seen = Mutex::new(String::new());
        let ended = tokio::select! {
            biased;
            () = house.journal.wait_for_crash() => false,
            ((), ()) = async { tokio::join!(watch(&house, &run, &seen), attend(&house, &run)) } => true,
        };
        for asked in house.models.requests() {
            invariants::check_history(&asked.history).expect("law 12");
        }
        Life { run, seen: seen.into_inner().expect("nobody panicked"), ended, troubled: house.journal.has_failed() }
    })
    // The runtime goes with everything in it, in the middle of whatever it did.
}

async fn watch(house: &TestEngine, run: &StartedRun, seen: &Mutex<String>) {
    let mut viewer = house.engine.watch_from(&house.user, &run.thread, line_view(&run.task), Seq::ZERO);
    while let Some(bytes) = viewer.next().await.expect("readable") {
        seen.lock().expect("nobody panicked").push_str(&utf8_lossy(bytes));
    }
    assert!(!viewer.is_interrupted());
}

/// Answers whatever the run waits for, until it has ended.
async fn attend(house: &TestEngine, run: &StartedRun) {
    let mut answered: HashSet<CallId> = HashSet::new();
    loop {
        let waits = house.wait_until_unbounded(run, |object| {
            object.status.is_terminal() || object.pending.iter().any(|pending| !answered.contains(&pending.call_id))
        });
        let object = waits.await;
        if object.status.is_terminal() {
            return;
        }
        for pending in object.pending.iter().filter(|pending| answered.insert(pending.call_id.clone())) {
            match (&pending.kind, &pending.key) {
                (PendingKind::Approval, Some(key)) => {
                    house.decide(&run.task, key, ApprovalDecisionKind::Approve).await.expect("taken");
                }
                _ => {
                    // The process before this one may have stored the same result and died before it was applied: then this
                    // process applies it, perhaps after `object` was read. A client that retries brings its key.
                    let key = pending.call_id.to_string();
                    let idempotency = Some(IdempotencyKey { request_digest: key.clone(), key });
                    let calls = [&pending.call_id];
                    house.submit_results_with_key(&run.task, &calls, idempotency).await.expect("taken");
                }
            }
        }
    }
}

/// Results of which nobody knows.
fn unknown(log: &[Record]) -> usize {
    let is_unknown = |record: &&Record| match record.event() {
        Event::ItemDone(done) => matches!(&done.item, Item::ToolResult(r) if r.status == Some(ResultStatus::Unknown)),
        _ => false,
    };
    log.iter().filter(is_unknown).count()
}

/// What must be true at the end, whatever happened.
fn judge(ground: &Arc<TestEnv>, scene: &Scene, run: &StartedRun, (seen, what): (&[String], &str)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let log = runtime.block_on(async {
        let house = TestEngine::start_in(Arc::clone(ground), TestSetup::default()).await;
        let status = house.task_object(&run.task).await.status;
        assert_eq!(status, TaskStatus::Completed, "{what}");
        let waiting = house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable");
        assert!(waiting.is_empty(), "{what}: {waiting:?}");
        let log = house.read_log(&run.thread).await;
        house.stop().await;
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
    let counts: Vec<usize> = scene.once.iter().map(|name| ground.tools.call_count(name)).collect();
    assert!(counts.iter().all(|count| *count <= 1), "{what}: {:?} ran {counts:?} times", scene.once);
    let never = counts.iter().filter(|count| **count == 0).count();
    assert!(never <= unknown(&log), "{what}: {:?} ran {counts:?} times, and nobody says so", scene.once);
    if ground.store_kind == StoreKind::Sqlite {
        let report = store::verify_data_folder(ground.folder.path()).expect("it can be looked at");
        assert!(report.is_clean(), "{what}: {report}");
    }
}

/// What is played.
struct Scene {
    words: &'static str,
    /// It has at least so many appends: else there is little to crash.
    appends_min: usize,
    /// The tools that run, and never twice.
    once: &'static [&'static str],
}

impl Scene {
    /// Plays it with trouble at every append, or every so many; says how many there were.
    fn at_every_append(&self, kind: StoreKind, trouble: AppendFailure, step: usize) -> usize {
        let mut appends = 0;
        for k in (1..).step_by(step) {
            let ground = Arc::new(TestEnv::new(kind));
            let what = format!("{kind:?}, {}, {trouble:?} at append {k}", self.words);
            let first = live(&ground, Some((k, trouble)), Err(self.words));
            assert!(first.ended || (first.troubled && !trouble.is_survived()), "{what}");
            let mut seen = vec![first.seen];
            if !first.ended {
                let second = live(&ground, None, Ok(&first.run));
                assert!(second.ended, "{what}");
                seen.push(second.seen);
            }
            judge(&ground, self, &first.run, (&seen, &what));
            if !first.troubled {
                break;
            }
            appends = k;
        }
        appends
    }

    /// In memory at every append; with a disk underneath at some of them.
    fn everywhere(&self) {
        for trouble in AppendFailure::ALL {
            let appends = self.at_every_append(StoreKind::Memory, trouble, 1);
            assert!(appends >= self.appends_min, "{}: {appends} appends only", self.words);
        }
        for (trouble, step) in
            [(AppendFailure::CrashBefore, 5), (AppendFailure::CrashAfter, 4), (AppendFailure::UnknownKept, 9)]
        {
            self.at_every_append(StoreKind::Sqlite, trouble, step);
        }
    }
}

#[test]
fn a_tool_that_may_run_again() {
    Scene { words: "weather", appends_min: 8, once: &[] }.everywhere();
}

#[test]
fn a_sub_agent() {
    Scene { words: "help", appends_min: 12, once: &[] }.everywhere();
}

#[test]
fn two_sub_agents_of_which_one_asks() {
    Scene { words: "twins", appends_min: 15, once: &["trade"] }.everywhere();
}

#[test]
fn three_tools_at_once() {
    Scene { words: "parallel", appends_min: 8, once: &["tool_a", "tool_b", "tool_c"] }.everywhere();
}

#[test]
fn a_question_to_a_person() {
    Scene { words: "trade", appends_min: 8, once: &["trade"] }.everywhere();
}

#[test]
fn a_hand_off() {
    Scene { words: "handoff", appends_min: 6, once: &[] }.everywhere();
}

#[test]
fn files_that_are_read_first() {
    let words = "weather https://a.example/1 https://a.example/gone https://a.example/2";
    Scene { words, appends_min: 9, once: &[] }.everywhere();
}

#[test]
fn tools_of_the_client() {
    Scene { words: "client", appends_min: 8, once: &[] }.everywhere();
}
