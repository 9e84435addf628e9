//! The laws of the fold, each under its name, over random logs.

use model::condense::condense_records;
use model::definition::HistoryWindow;
use model::event::Event;
use model::fold::RunFold;
use model::history::SharedHistory;
use model::item::Item;
use model::record::{Record, RecordHeader};
use model::task::TaskObject;
use model::thread::{ThreadReplay, history_entries};
use model::{Seq, TaskId};
use model_testing::{LogOptions, Rng, generate_thread_log, invariants, test_seeds};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The record as another process reads it: bytes that have not been parsed.
fn as_stored(record: &Record) -> Record {
    let Record { seq, at, run, epoch, format: v, checksum: check, public, private, .. } = record.clone();
    Record::from_stored(RecordHeader { seq, at, run, epoch, format: v, checksum: check }, public, private)
}

/// The record as a client gets it: without its private part.
fn as_received(record: &Record) -> Record {
    let mut record = as_stored(record);
    record.private = Default::default();
    record
}

/// Every task of a run as JSON, which is all that is visible of the fold.
fn visible_tasks(run: Option<&RunFold>) -> Vec<TaskObject> {
    run.into_iter().flat_map(|run| run.tasks.iter().filter_map(|task| run.task_object(&task.id))).collect()
}

/// Like `assert_eq!` for large values: shows only where they differ.
pub(crate) fn assert_same<T: PartialEq + Debug>(left: &T, right: &T, what: &str) {
    if left == right {
        return;
    }
    let (left, right) = (format!("{left:?}"), format!("{right:?}"));
    let same = left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count();
    let near = |text: &str| text.chars().skip(same.saturating_sub(200)).take(400).collect::<String>();
    panic!("{what}\n left: …{}…\nright: …{}…", near(&left), near(&right));
}

#[test]
fn law_1_condensed_records_fold_to_the_same_state() {
    let (mut all, mut kept) = (0, 0);
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut chance = Rng::new(seed);
        let (mut records, mut condensed) = (ThreadReplay::default(), ThreadReplay::default());
        let mut rest = &log[..];
        while !rest.is_empty() {
            let (block, after) = rest.split_at(1 + chance.below(rest.len().min(200)));
            let short: Vec<Record> = condense_records(block.iter().map(as_stored).collect());
            (all, kept) = (all + block.len(), kept + short.len());
            block.iter().for_each(|record| records.push(record));
            short.iter().for_each(|record| condensed.push(record));
            let at = format!("SEED={seed}, up to record {}", log.len() - after.len());
            assert_same(&records.thread, &condensed.thread, &at);
            assert_same(&records.run, &condensed.run, &at);
            rest = after;
        }
        // What does not fit counts in the same way, too: here, everything after the run's first record is missing.
        let (mut records, mut condensed) = (RunFold::default(), RunFold::default());
        let misfits = log.iter().skip(1).filter(|record| records.apply(record).is_err()).count();
        assert!(misfits > 0);
        for record in condense_records(log[1..].to_vec()) {
            let _counted = condensed.apply(&record);
        }
        assert_same(&records, &condensed, &format!("SEED={seed}, without its first record"));
    }
    assert!(kept * 10 < all * 9, "{kept} of {all} records are left: nothing was tested");
}

#[test]
fn law_1_fold() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut chance = Rng::new(seed);
        let (mut live, mut restarted, mut client) =
            (ThreadReplay::default(), ThreadReplay::default(), ThreadReplay::default());
        for (place, record) in log.iter().enumerate() {
            live.push(record);
            restarted.push(&as_stored(record));
            client.push(&as_received(record));
            if !chance.chance(5) && live.run.is_some() {
                continue;
            }
            let at = format!("SEED={seed}, after record {}", record.seq);
            assert_same(&live.thread, &restarted.thread, &format!("{at}: from memory and from bytes"));
            assert_same(&live.run, &restarted.run, &format!("{at}: from memory and from bytes"));
            let (all, public) = (visible_tasks(live.run.as_ref()), visible_tasks(client.run.as_ref()));
            assert_same(&all, &public, &format!("{at}: with and without private halves"));

            let rows: Vec<String> = live.thread.runs.iter().map(|run| run.checkpoint_row().unwrap()).collect();
            let body = live.thread.checkpoint_body().unwrap();
            let mut resumed = ThreadReplay::from_checkpoint(&body, rows.iter().map(String::as_str));
            let known = resumed.thread.seq;
            log[..=place]
                .iter()
                .filter(|record| record.seq > known)
                .for_each(|record| resumed.push(&as_stored(record)));
            assert_same(&live.thread, &resumed.thread, &format!("{at}: from a checkpoint"));
            assert_same(&live.run, &resumed.run, &format!("{at}: from a checkpoint"));
        }
        assert_eq!((live.thread.fold_errors, live.run), (0, None), "SEED={seed}");
    }
}

#[test]
fn law_2_every_prefix_is_valid() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::small());
        let mut run = RunFold::default();
        for record in &log {
            if run.has_ended() && record.event().task_id().is_some() {
                run = RunFold::default();
            }
            let at = format!("SEED={seed}, record {}: {}", record.seq, record.event_type());
            assert_eq!(run.apply(record), Ok(()), "{at}");
            for object in visible_tasks(Some(&run)) {
                let text = serde_json::to_string(&object).unwrap();
                assert_same(&serde_json::from_str::<TaskObject>(&text).unwrap(), &object, &at);
                assert_eq!(object.seq, record.seq, "{at}");
            }
        }
    }
}

#[test]
fn law_9_one_terminal_event_always_last() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut last: BTreeMap<&TaskId, &Record> = BTreeMap::new();
        let mut ends: BTreeMap<&TaskId, u32> = BTreeMap::new();
        for record in &log {
            let Some(task) = record.event().task_id() else { continue };
            last.insert(task, record);
            *ends.entry(task).or_default() += u32::from(record.event().is_terminal());
        }
        for (task, record) in &last {
            assert_eq!(ends[task], 1, "SEED={seed}: ends of {task}");
            assert!(record.event().is_terminal(), "SEED={seed}: {task} goes on after its end, with {record:?}");
        }
        assert_eq!(invariants::check_one_terminal_event(&log), Ok(()), "SEED={seed}");
        nothing_fits_after_an_end(seed, &log);
    }
}

/// After its end a task accepts no event, and after the root's end the whole run accepts none.
fn nothing_fits_after_an_end(seed: u64, log: &[Record]) {
    let mut chance = Rng::new(seed);
    let mut run = RunFold::default();
    for record in log {
        if run.has_ended() && record.event().task_id().is_some() {
            run = RunFold::default();
        }
        run.apply(record).unwrap();
        if !record.event().is_terminal() {
            continue;
        }
        let over = run.has_ended();
        let of_the_dead: Vec<&Record> = log
            .iter()
            .filter(|other| other.run == record.run && !other.event_type().starts_with("thread."))
            .filter(|other| over || other.event().task_id() == record.event().task_id())
            .collect();
        for _ in 0..20 {
            let late = chance.pick(&of_the_dead).unwrap().event();
            let mut after = run.clone();
            assert!(after.apply_event(run.seq.next(), run.at, late, None).is_err(), "SEED={seed}: {late:?} fits");
            let at = format!("SEED={seed}: {late:?} does not fit and changes something");
            assert_same(&without_counters(after, &run), &run, &at);
        }
    }
}

/// What remains of a difference when position, time and misfit counters are reset.
pub(crate) fn without_counters(after: RunFold, before: &RunFold) -> RunFold {
    RunFold { seq: before.seq, at: before.at, fold_errors: before.fold_errors, ..after }
}

#[test]
fn law_12_a_valid_history_always() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut replay = ThreadReplay::default();
        for record in &log {
            let children: Vec<TaskId> = ended_children(&replay);
            replay.push(record);
            if let Some(run) = &replay.run {
                for child in ended_children(&replay).iter().filter(|child| !children.contains(child)) {
                    let child = run.task(child).unwrap();
                    assert_eq!(invariants::check_history(&history_entries(child)), Ok(()), "SEED={seed}: {}", child.id);
                }
            }
        }
        for past in &replay.thread.runs {
            assert_eq!(
                invariants::check_history(past.entries.iter().map(AsRef::as_ref)),
                Ok(()),
                "SEED={seed}: {}",
                past.run
            );
        }
        assert_eq!(
            invariants::check_history(&SharedHistory::from(replay.thread.history(None, HistoryWindow::default()))),
            Ok(()),
            "SEED={seed}: the whole thread"
        );
    }
}

fn ended_children(replay: &ThreadReplay) -> Vec<TaskId> {
    let tasks = replay.run.iter().flat_map(|run| &run.tasks);
    tasks.filter(|task| task.status.is_terminal()).map(|task| task.id.clone()).collect()
}

/// The usage at the end is the sum of the steps, sub-agents included.
#[test]
fn the_usage_at_the_end_is_the_sum_of_the_steps() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut run = RunFold::default();
        for record in &log {
            if run.has_ended() && record.event().task_id().is_some() {
                run = RunFold::default();
            }
            let before = run.clone();
            run.apply(record).unwrap();
            let (Some(task), true) = (record.event().task_id(), record.event().is_terminal()) else { continue };
            let sum = before.total_usage(before.task(task).unwrap());
            assert_eq!(run.total_usage(run.task(task).unwrap()), sum, "SEED={seed}: {task}");
        }
    }
}

/// Ids and references are numbered from the log alone, so that the next executor continues the numbering.
#[test]
fn numbers_are_counted_from_the_log() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut replay = ThreadReplay::default();
        for record in &log {
            let numbers = replay.run.as_ref().map_or(0, |run| run.id_count);
            if let Event::ItemAdded(e) = record.event()
                && !matches!(e.item, Item::ToolResult(_))
            {
                let wanted = format!("{}{}", record.run.run_suffix(), numbers + 1);
                assert!(e.item.id().as_str().ends_with(&wanted), "SEED={seed}: {} is not {wanted}", e.item.id());
            }
            replay.push(record);
        }
        assert_eq!(replay.thread.seq, Seq(log.len() as u64), "SEED={seed}");
    }
}
