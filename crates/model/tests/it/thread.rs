//! What a thread keeps between runs, and what the next run receives of it.

use crate::fold::{event, item, run, step_done, try_push};
use model::content::{ContentPart, FileRef};
use model::definition::HistoryWindow;
use model::event::{HistoryCompacted, RunHidden, TaskStarted};
use model::fold::RunFold;
use model::history::{HistoryEntry, PriorHistory, RawItem, SharedHistory};
use model::record::RECORD_FORMAT_MAX;
use model::thread::{CompactedHistory, PastRun, ThreadFold, ThreadReplay, estimate_tokens, history_entries};
use model::{Epoch, Event, ItemId, PrivatePayload, Record, RecordDraft, Seq, TaskId, ThreadId};
use serde_json::{Value, json};
use std::sync::Arc;

const ALL: HistoryWindow = HistoryWindow { turns: None, tokens: None };

fn user_message(words: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(words)] }
}

/// A run whose output is its own name, and that ended with the record `last`.
fn past_run(run: &str, previous: Option<&str>, last: u64) -> Arc<PastRun> {
    Arc::new(PastRun {
        run: TaskId::from(run),
        previous: previous.map(TaskId::from),
        last_seq: Seq(last),
        entries: vec![Arc::new(user_message(run))],
    })
}

/// Four runs; `c` continued from `a`, as did `b`.
fn thread_of_four_runs() -> ThreadFold {
    let runs = vec![
        past_run("a", None, 10),
        past_run("b", Some("a"), 20),
        past_run("c", Some("a"), 30),
        past_run("d", Some("c"), 40),
    ];
    ThreadFold { runs, ..ThreadFold::default() }
}

/// What the model receives, in short.
fn history_summary(thread: &ThreadFold, previous: Option<&str>, window: HistoryWindow) -> Vec<String> {
    let word = |entry: Arc<HistoryEntry>| match &*entry {
        HistoryEntry::Summary { text } => format!("({text})"),
        HistoryEntry::User { content } => {
            serde_json::to_value(&content[0]).unwrap()["text"].as_str().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    };
    let previous = previous.map(TaskId::from);
    let history = thread.history(previous.as_ref(), window);
    // A turn goes on from the list of the last one, whatever that was.
    let turn = thread.turn_history(previous.as_ref(), window);
    assert_eq!(turn, history);
    drop(SharedHistory::in_thread(turn, history.len(), thread.history_cache.clone()));
    history.into_iter().map(word).collect()
}

#[test]
fn the_list_of_a_turn_comes_back_for_the_next_one() {
    let thread = thread_of_four_runs();
    let mut entries = thread.turn_history(None, ALL);
    let past_count = entries.len();
    entries.push(Arc::new(user_message("the input of this turn")));
    let turn = SharedHistory::in_thread(entries, past_count, thread.history_cache.clone());
    assert_eq!(thread.history_cache.take_entries(), Vec::new(), "the turn has it");
    drop(turn.clone());
    assert_eq!(thread.history_cache.take_entries(), Vec::new(), "the turn still has it");
    drop(turn);
    assert_ne!(thread.history_cache.size_bytes(), 0);
    let kept = thread.history_cache.take_entries();
    let again = SharedHistory::in_thread(kept, past_count, thread.history_cache.clone());
    let mut with_file = again.entries().to_vec();
    with_file[1] = Arc::new(user_message("a file"));
    let with_file = again.with_entries(with_file);
    drop(again);
    drop(with_file);
    let kept = thread.history_cache.take_entries();
    assert!(kept.iter().zip(thread.history(None, ALL)).all(|(kept, own)| Arc::ptr_eq(kept, &own)));
    assert_eq!(kept.len(), past_count, "without what is the turn's own");
}

fn compacted(up_to: u64) -> HistoryCompacted {
    HistoryCompacted { up_to: Seq(up_to), summary: format!("until {up_to}"), details: serde_json::Map::new() }
}

#[test]
fn the_history_of_a_run_is_its_chain_of_previous_runs() {
    assert_eq!(history_summary(&thread_of_four_runs(), None, ALL), ["a", "c", "d"]);
    assert_eq!(history_summary(&thread_of_four_runs(), Some("c"), ALL), ["a", "c"]);
    assert_eq!(history_summary(&thread_of_four_runs(), Some("b"), ALL), ["a", "b"]);
    assert_eq!(history_summary(&thread_of_four_runs(), Some("given up"), ALL), ["a", "c", "d"], "it never began");
    let after = past_run("e", Some("given up"), 50);
    let thread = ThreadFold { runs: [thread_of_four_runs().runs, vec![after]].concat(), ..ThreadFold::default() };
    assert_eq!(history_summary(&thread, None, ALL), ["a", "c", "d", "e"]);
    assert_eq!(history_summary(&ThreadFold::default(), None, ALL), [""; 0]);
}

#[test]
fn a_run_that_continues_none_begins_a_chain() {
    assert_eq!(history_summary(&thread_of_four_runs(), Some("task_none"), ALL), [""; 0]);
    let again = [past_run("e", Some("task_none"), 50), past_run("f", Some("e"), 60)];
    let thread = ThreadFold { runs: [thread_of_four_runs().runs, again.into()].concat(), ..ThreadFold::default() };
    assert_eq!(history_summary(&thread, None, ALL), ["e", "f"]);
    assert_eq!(history_summary(&thread, Some("d"), ALL), ["a", "c", "d"]);
    let mut compacted_thread = thread;
    compacted_thread.apply_compaction(&compacted(40));
    assert_eq!(history_summary(&compacted_thread, None, ALL), ["e", "f"], "the summary is of another chain");
}

#[test]
fn a_summary_replaces_the_runs_that_had_ended_before_it() {
    for (up_to, expected) in [
        (9, vec!["a", "c", "d"]),
        (10, vec!["(until 10)", "c", "d"]),
        (30, vec!["(until 30)", "d"]),
        (39, vec!["(until 39)", "d"]),
        (40, vec!["(until 40)"]),
    ] {
        let mut thread = thread_of_four_runs();
        thread.apply_compaction(&compacted(up_to));
        assert_eq!(history_summary(&thread, None, ALL), expected, "up to {up_to}");
    }
    let mut thread = thread_of_four_runs();
    thread.apply_compaction(&compacted(20));
    assert_eq!(history_summary(&thread, None, ALL), ["a", "c", "d"], "`b` does not lead here");
    assert_eq!(history_summary(&thread, Some("b"), ALL), ["(until 20)"]);
}

#[test]
fn a_summary_that_covers_nothing_keeps_the_previous_one() {
    let mut thread = thread_of_four_runs();
    thread.apply_compaction(&compacted(10));
    thread.apply_compaction(&compacted(9));
    assert_eq!(thread.compacted, Some(CompactedHistory { run: TaskId::from("a"), summary: "until 10".to_owned() }));
}

#[test]
fn a_window_keeps_the_newest_runs_that_fit_without_a_summary_of_the_rest() {
    let turns = |turns| HistoryWindow { turns: Some(turns), ..ALL };
    assert_eq!(history_summary(&thread_of_four_runs(), None, turns(0)), [""; 0]);
    assert_eq!(history_summary(&thread_of_four_runs(), None, turns(2)), ["c", "d"]);
    assert_eq!(history_summary(&thread_of_four_runs(), None, turns(3)), ["a", "c", "d"]);
    let each = estimate_tokens([&user_message("a")]);
    let fits = |tokens| HistoryWindow { tokens: Some(tokens), ..ALL };
    assert_eq!(history_summary(&thread_of_four_runs(), None, fits(each * 2)), ["c", "d"]);
    assert_eq!(history_summary(&thread_of_four_runs(), None, fits(each * 2 - 1)), ["d"]);
    assert_eq!(history_summary(&thread_of_four_runs(), None, fits(each - 1)), [""; 0]);
    let mut thread = thread_of_four_runs();
    thread.apply_compaction(&compacted(10));
    assert_eq!(history_summary(&thread, None, turns(2)), ["(until 10)", "c", "d"]);
    assert_eq!(history_summary(&thread, None, turns(1)), ["d"]);
}

#[test]
fn token_estimates_count_four_letters_per_token() {
    let entry = user_message("words");
    let letters = serde_json::to_string(&entry).unwrap().len() as u64;
    assert_eq!(estimate_tokens(&[entry.clone(), entry]), letters * 2 / 4);
}

#[test]
fn token_estimates_include_references() {
    let file = |size| FileRef { url: Some("/v1/blobs/00".to_owned()), size, ..FileRef::default() };
    let count = |part: ContentPart| estimate_tokens(&[HistoryEntry::User { content: vec![part] }]);
    let named = count(ContentPart::File { file: file(None) });
    assert!(count(ContentPart::File { file: file(Some(40_000)) }) >= named + 10_000);
    assert!(count(ContentPart::File { file: file(Some(u64::MAX)) }) < 300_000, "nobody is given more of a file");
    assert!(count(ContentPart::image("/v1/blobs/00")) > 1_000);
    assert!(count(ContentPart::image("data:image/png;base64,AA")) < 100, "what stands in it is counted as it stands");
}

#[test]
fn the_next_run_continues_after_the_last_record_with_the_shared_state() {
    let thread = ThreadFold { seq: Seq(7), at: 5, state: json!({"a": 1}), ..ThreadFold::default() };
    let next = RunFold { seq: Seq(7), at: 5, state: Some(json!({"a": 1})), ..RunFold::default() };
    assert_eq!(thread.new_run_fold(), next);
    let untouched = ThreadFold { state: Value::Null, ..thread };
    assert_eq!(untouched.new_run_fold(), RunFold { state: None, ..next });
}

/// The thread as its checkpoint stores it, and then reads it.
fn stored_and_read(thread: &ThreadFold) -> ThreadReplay {
    let rows: Vec<String> = thread.runs.iter().map(|run| run.checkpoint_row().unwrap()).collect();
    ThreadReplay::from_checkpoint(&thread.checkpoint_body().unwrap(), rows.iter().map(String::as_str))
}

#[test]
fn a_checkpoint_round_trips_and_an_unreadable_one_is_ignored() {
    let kept = ThreadFold { seq: Seq(7), ..thread_of_four_runs() };
    let read = stored_and_read(&kept);
    assert_eq!((&read.thread, read.stored_runs), (&kept, 4));
    assert_eq!(ThreadReplay::from_checkpoint("nonsense", []).thread, ThreadFold::default());
    // A later version may have stored more than this one reads: this version falls back to the records.
    let later = ThreadFold { format: RECORD_FORMAT_MAX + 1, ..kept };
    let read = stored_and_read(&later);
    assert_eq!((read.thread, read.stored_runs), (ThreadFold::default(), 0));
}

#[test]
fn a_checkpoint_that_lacks_a_run_is_ignored() {
    let kept = ThreadFold { seq: Seq(7), ..thread_of_four_runs() };
    let body = kept.checkpoint_body().unwrap();
    let rows: Vec<String> = kept.runs.iter().map(|run| run.checkpoint_row().unwrap()).collect();
    for missing in 0..rows.len() {
        let others = rows.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, row)| row.as_str());
        let read = ThreadReplay::from_checkpoint(&body, others);
        assert_eq!((read.thread, read.stored_runs), (ThreadFold::default(), 0), "without run {missing}");
    }
    let read = ThreadReplay::from_checkpoint(&body, rows.iter().map(|row| row.get(1..).unwrap()));
    assert_eq!(read.thread, ThreadFold::default(), "rows that cannot be read");
}

/// The body does not grow with the thread, and neither does the row of a run.
#[test]
fn the_body_of_a_checkpoint_has_no_runs() {
    let mut thread = thread_of_four_runs();
    let of_four = thread.checkpoint_body().unwrap().len();
    thread.runs = thread.runs.iter().cycle().take(4_000).cloned().collect();
    assert!(thread.checkpoint_body().unwrap().len() <= of_four + 3, "three more digits");
}

/// What a version before rows of runs has written.
#[test]
fn a_checkpoint_of_an_older_version_has_its_runs_in_its_body() {
    let body = r#"{"v":1,"seq":9,"at":5,"runs":[{"run":"a","previous":null,"last":4,"entries":[{"type":"user",
        "content":[{"type":"text","text":"hello"}]}]},{"run":"b","previous":"a","last":9,"entries":[]}],"references":2,
        "agent":"demo","state":{"n":1},"usage":{"input_tokens":3,"output_tokens":4},"misfits":0}"#;
    let read = ThreadReplay::from_checkpoint(body, []);
    assert_eq!((read.thread.seq, read.thread.reference_count, read.stored_runs), (Seq(9), 2, 0));
    assert_eq!(read.thread.agent.as_deref(), Some("demo"));
    let runs: Vec<_> =
        read.thread.runs.iter().map(|past| (past.run.as_str(), past.last_seq, past.entries.len())).collect();
    assert_eq!(runs, [("a", Seq(4), 1), ("b", Seq(9), 0)]);
    let again = stored_and_read(&read.thread);
    assert_eq!((again.thread, again.stored_runs), (read.thread, 2), "and the next checkpoint has rows");
}

#[test]
fn a_thread_accepts_only_its_own_events_between_runs() {
    let mut replay = stored_and_read(&ThreadFold { seq: Seq(40), at: 9, ..thread_of_four_runs() });
    let mut push = |seq: u64, at: u64, event: Event| {
        let draft = RecordDraft { seq: Seq(seq), at, event, private: None };
        replay.push(&Record::seal(&ThreadId::from("thr_1"), &TaskId::from("d"), Epoch(1), draft));
        (replay.thread.seq, replay.thread.at, replay.thread.fold_errors, replay.thread.compacted.is_some())
    };
    let hidden = Event::RunHidden(RunHidden { run_id: TaskId::from("a") });
    assert_eq!(push(41, 10, hidden), (Seq(41), 10, 0, false));
    assert_eq!(push(42, 8, Event::HistoryCompacted(compacted(40))), (Seq(42), 10, 0, true));
    let stray = Event::Started(TaskStarted { task_id: TaskId::from("d") });
    assert_eq!(push(43, 11, stray), (Seq(43), 11, 1, true));
}

/// Later runs of the thread read the history that a client kept itself, and its reference numbers stay valid.
#[test]
fn prior_history_comes_before_its_run_and_stays() {
    let created = |task: &str| {
        let spec = json!({"thread_id": "thr_1", "agent": "demo", "model": "m",
            "input": [{"id": "msg_0", "role": "user", "content": [{"type": "text", "text": format!("to {task}")}]}]});
        event(json!({"type": "task.created", "task_id": task, "task": spec}))
    };
    let ended = |task: &str| {
        let completed = json!({"type": "task.completed", "task_id": task, "usage": {}, "cost": null, "duration_ms": 0});
        event(completed)
    };
    let mut replay = ThreadReplay::default();
    let mut seq = Seq::ZERO;
    let mut push = |task: &str, event: Event, before: Option<PriorHistory>| {
        seq = seq.next();
        let private =
            before.map(|before| Box::new(PrivatePayload { prior_history: Some(before), ..PrivatePayload::default() }));
        let draft = RecordDraft { seq, at: 5, event, private };
        replay.push(&Record::seal(&ThreadId::from("thr_1"), &TaskId::from(task), Epoch(1), draft));
    };
    let before = |words: &str, references| {
        Some(PriorHistory { entries: vec![user_message(words)], reference_count: references })
    };
    push("a", created("a"), before("elsewhere", 7));
    push("a", ended("a"), None);
    push("b", created("b"), before("elsewhere too", 3));
    push("b", ended("b"), None);
    push("c", created("c"), None);
    assert_eq!(replay.thread.fold_errors, 0);
    assert_eq!(history_summary(&replay.thread, None, ALL), ["elsewhere", "to a", "elsewhere too", "to b"]);
    assert_eq!(history_summary(&replay.thread, Some("a"), ALL), ["elsewhere", "to a"]);
    assert_eq!(replay.thread.reference_count, 7, "a lower count takes no number back");
    assert_eq!(stored_and_read(&replay.thread).thread, replay.thread);
}

#[test]
fn hosted_calls_are_sent_back_for_complete_turns_only() {
    let raw = RawItem { origin: "openai/gpt".to_owned(), item: json!({"q": 1}) };
    let hosted = HistoryEntry::Hosted { id: ItemId::from("hc_1"), name: "web_search".to_owned(), raw: raw.clone() };
    for (stop, history_summary) in [("stop", vec![hosted]), ("max_tokens", vec![]), ("cancelled", vec![])] {
        let call = json!({"type": "hosted_call", "id": "hc_1", "name": "web_search"});
        let mut run = run([item("added", 0, call.clone())]);
        let private = PrivatePayload { raw: Some(raw.clone()), ..PrivatePayload::default() };
        run.apply_event(run.seq.next(), 5, &event(item("done", 0, call)), Some(&private)).unwrap();
        try_push(&mut run, step_done(1, stop)).unwrap();
        assert_eq!(history_entries(run.root().unwrap()), history_summary, "{stop}");
    }
}
