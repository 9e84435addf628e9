//! What a thread keeps between runs, and what the next run is given of it.

use crate::fold::{event, item, run, step_done, try_push};
use model::content::{ContentPart, FileRef};
use model::definition::HistoryWindow;
use model::event::{HistoryCompacted, RunHidden, TaskStarted};
use model::fold::RunFold;
use model::history::RawItem;
use model::history::{HistoryEntry, PriorHistory};
use model::record::RECORD_FORMAT;
use model::thread::{CompactedHistory, PastRun, ThreadFold, ThreadReplay, estimate_tokens, history_entries};
use model::{Epoch, Event, ItemId, PrivatePayload, Record, RecordDraft, Seq, TaskId, ThreadId};
use serde_json::{Value, json};

const ALL: HistoryWindow = HistoryWindow { turns: None, tokens: None };

fn said(words: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(words)] }
}

/// A run that said its own name, and ended with the record `last`.
fn past(run: &str, previous: Option<&str>, last: u64) -> PastRun {
    PastRun {
        run: TaskId::from(run),
        previous: previous.map(TaskId::from),
        last_seq: Seq(last),
        entries: vec![said(run)],
    }
}

/// Four runs; `c` went on after `a`, as `b` had.
fn thread() -> ThreadFold {
    let runs = vec![past("a", None, 10), past("b", Some("a"), 20), past("c", Some("a"), 30), past("d", Some("c"), 40)];
    ThreadFold { runs, ..ThreadFold::default() }
}

/// What the model is given, in short.
fn given(thread: &ThreadFold, previous: Option<&str>, window: HistoryWindow) -> Vec<String> {
    let word = |entry: HistoryEntry| match entry {
        HistoryEntry::Summary { text } => format!("({text})"),
        HistoryEntry::User { content } => {
            serde_json::to_value(&content[0]).unwrap()["text"].as_str().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    };
    let previous = previous.map(TaskId::from);
    thread.history(previous.as_ref(), window).into_iter().map(word).collect()
}

fn summed_up(up_to: u64) -> HistoryCompacted {
    HistoryCompacted { up_to: Seq(up_to), summary: format!("until {up_to}"), details: serde_json::Map::new() }
}

#[test]
fn a_run_is_given_the_runs_that_lead_to_it() {
    assert_eq!(given(&thread(), None, ALL), ["a", "c", "d"]);
    assert_eq!(given(&thread(), Some("c"), ALL), ["a", "c"]);
    assert_eq!(given(&thread(), Some("b"), ALL), ["a", "b"]);
    assert_eq!(given(&thread(), Some("given up"), ALL), ["a", "c", "d"], "it never began");
    let after = past("e", Some("given up"), 50);
    let thread = ThreadFold { runs: [thread().runs, vec![after]].concat(), ..ThreadFold::default() };
    assert_eq!(given(&thread, None, ALL), ["a", "c", "d", "e"]);
    assert_eq!(given(&ThreadFold::default(), None, ALL), [""; 0]);
}

#[test]
fn a_summary_stands_for_the_runs_until_the_last_one_that_had_ended_by_then() {
    for (up_to, expected) in [
        (9, vec!["a", "c", "d"]),
        (10, vec!["(until 10)", "c", "d"]),
        (30, vec!["(until 30)", "d"]),
        (39, vec!["(until 39)", "d"]),
        (40, vec!["(until 40)"]),
    ] {
        let mut thread = thread();
        thread.apply_compaction(&summed_up(up_to));
        assert_eq!(given(&thread, None, ALL), expected, "up to {up_to}");
    }
    let mut thread = thread();
    thread.apply_compaction(&summed_up(20));
    assert_eq!(given(&thread, None, ALL), ["a", "c", "d"], "`b` does not lead here");
    assert_eq!(given(&thread, Some("b"), ALL), ["(until 20)"]);
}

#[test]
fn a_summary_of_nothing_leaves_the_one_before_it() {
    let mut thread = thread();
    thread.apply_compaction(&summed_up(10));
    thread.apply_compaction(&summed_up(9));
    assert_eq!(thread.compacted, Some(CompactedHistory { run: TaskId::from("a"), summary: "until 10".to_owned() }));
}

#[test]
fn a_window_keeps_the_newest_runs_that_fit_and_no_summary_of_what_it_left_out() {
    let turns = |turns| HistoryWindow { turns: Some(turns), ..ALL };
    assert_eq!(given(&thread(), None, turns(0)), [""; 0]);
    assert_eq!(given(&thread(), None, turns(2)), ["c", "d"]);
    assert_eq!(given(&thread(), None, turns(3)), ["a", "c", "d"]);
    let each = estimate_tokens(&thread().runs[0].entries);
    let fits = |tokens| HistoryWindow { tokens: Some(tokens), ..ALL };
    assert_eq!(given(&thread(), None, fits(each * 2)), ["c", "d"]);
    assert_eq!(given(&thread(), None, fits(each * 2 - 1)), ["d"]);
    assert_eq!(given(&thread(), None, fits(each - 1)), [""; 0]);
    let mut thread = thread();
    thread.apply_compaction(&summed_up(10));
    assert_eq!(given(&thread, None, turns(2)), ["(until 10)", "c", "d"]);
    assert_eq!(given(&thread, None, turns(1)), ["d"]);
}

#[test]
fn four_letters_are_a_token() {
    let entry = said("words");
    let letters = serde_json::to_string(&entry).unwrap().len() as u64;
    assert_eq!(estimate_tokens(&[entry.clone(), entry]), letters * 2 / 4);
}

#[test]
fn what_an_entry_only_names_is_counted_as_well() {
    let file = |size| FileRef { url: Some("/v1/blobs/00".to_owned()), size, ..FileRef::default() };
    let count = |part: ContentPart| estimate_tokens(&[HistoryEntry::User { content: vec![part] }]);
    let named = count(ContentPart::File { file: file(None) });
    assert!(count(ContentPart::File { file: file(Some(40_000)) }) >= named + 10_000);
    assert!(count(ContentPart::File { file: file(Some(u64::MAX)) }) < 300_000, "nobody is given more of a file");
    assert!(count(ContentPart::image("/v1/blobs/00")) > 1_000);
    assert!(count(ContentPart::image("data:image/png;base64,AA")) < 100, "what stands in it is counted as it stands");
}

#[test]
fn the_next_run_goes_on_after_the_last_record_with_the_shared_state() {
    let thread = ThreadFold { seq: Seq(7), at: 5, state: json!({"a": 1}), ..ThreadFold::default() };
    let next = RunFold { seq: Seq(7), at: 5, state: Some(json!({"a": 1})), ..RunFold::default() };
    assert_eq!(thread.new_run_fold(), next);
    let untouched = ThreadFold { state: Value::Null, ..thread };
    assert_eq!(untouched.new_run_fold(), RunFold { state: None, ..next });
}

#[test]
fn a_checkpoint_is_read_back_and_one_that_cannot_be_read_is_none() {
    let kept = ThreadFold { seq: Seq(7), ..thread() };
    let body = serde_json::to_string(&kept).unwrap();
    assert_eq!(ThreadReplay::from_checkpoint(Some(&body)).thread, kept);
    for body in [None, Some("nonsense")] {
        assert_eq!(ThreadReplay::from_checkpoint(body).thread, ThreadFold::default());
    }
    // A later version may have kept more than this one reads: its records are asked instead, and say so.
    let later = serde_json::to_string(&ThreadFold { format: RECORD_FORMAT + 1, ..kept }).unwrap();
    assert_eq!(ThreadReplay::from_checkpoint(Some(&later)).thread, ThreadFold::default());
}

#[test]
fn between_runs_only_what_is_the_threads_own_has_a_place() {
    let body = serde_json::to_string(&ThreadFold { seq: Seq(40), at: 9, ..thread() }).unwrap();
    let mut replay = ThreadReplay::from_checkpoint(Some(&body));
    let mut push = |seq: u64, at: u64, event: Event| {
        let draft = RecordDraft { seq: Seq(seq), at, event, private: None };
        replay.push(&Record::seal(&ThreadId::from("thr_1"), &TaskId::from("d"), Epoch(1), draft));
        (replay.thread.seq, replay.thread.at, replay.thread.fold_errors, replay.thread.compacted.is_some())
    };
    let hidden = Event::RunHidden(RunHidden { run_id: TaskId::from("a") });
    assert_eq!(push(41, 10, hidden), (Seq(41), 10, 0, false));
    assert_eq!(push(42, 8, Event::HistoryCompacted(summed_up(40))), (Seq(42), 10, 0, true));
    let stray = Event::Started(TaskStarted { task_id: TaskId::from("d") });
    assert_eq!(push(43, 11, stray), (Seq(43), 11, 1, true));
}

/// What a client kept itself is read by every later run of the thread, and the numbers that were given there stay good.
#[test]
fn what_was_said_elsewhere_comes_before_its_run_and_stays() {
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
    let before =
        |words: &str, references| Some(PriorHistory { entries: vec![said(words)], reference_count: references });
    push("a", created("a"), before("elsewhere", 7));
    push("a", ended("a"), None);
    push("b", created("b"), before("elsewhere too", 3));
    push("b", ended("b"), None);
    push("c", created("c"), None);
    assert_eq!(replay.thread.fold_errors, 0);
    assert_eq!(given(&replay.thread, None, ALL), ["elsewhere", "to a", "elsewhere too", "to b"]);
    assert_eq!(given(&replay.thread, Some("a"), ALL), ["elsewhere", "to a"]);
    assert_eq!(replay.thread.reference_count, 7, "a lower count takes no number back");
    let body = serde_json::to_string(&replay.thread).unwrap();
    assert_eq!(ThreadReplay::from_checkpoint(Some(&body)).thread, replay.thread);
}

/// Of a turn that was cut a provider would miss what it did meanwhile.
#[test]
fn what_a_provider_did_itself_is_given_back_of_whole_turns_alone() {
    let raw = RawItem { origin: "openai/gpt".to_owned(), item: json!({"q": 1}) };
    let hosted = HistoryEntry::Hosted { id: ItemId::from("hc_1"), name: "web_search".to_owned(), raw: raw.clone() };
    for (stop, given) in [("stop", vec![hosted]), ("max_tokens", vec![]), ("cancelled", vec![])] {
        let call = json!({"type": "hosted_call", "id": "hc_1", "name": "web_search"});
        let mut run = run([item("added", 0, call.clone())]);
        let private = PrivatePayload { raw: Some(raw.clone()), ..PrivatePayload::default() };
        run.apply_event(run.seq.next(), 5, &event(item("done", 0, call)), Some(&private)).unwrap();
        try_push(&mut run, step_done(1, stop)).unwrap();
        assert_eq!(history_entries(run.root().unwrap()), given, "{stop}");
    }
}
