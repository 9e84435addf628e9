//! Law 3, with independent code: `model_testing::json_fold` accumulates the events as plain JSON, and every `done` and
//! the fold are compared with it.

use model::event::{Event, TextEvent};
use model::fold::RunFold;
use model::record::RecordDraft;
use model::{Record, TaskId};
use model_testing::json_fold::JsonFold;
use model_testing::{LogOptions, generate_thread_log, invariants, test_seeds};

#[test]
fn law_3_done_repeats() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        assert_eq!(invariants::check_done_matches_deltas(&log), Ok(()), "SEED={seed}");
    }
}

/// No text passes with one delta missing or another end.
#[test]
fn a_lost_delta_is_detected() {
    let (mut lost, mut bent) = (0, 0);
    for seed in test_seeds() {
        let (thread, log) = generate_thread_log(seed, LogOptions::small());
        let pieces = |record: &&Record| matches!(record.event(), Event::TextDelta(e) if !e.delta.is_empty());
        for piece in log.iter().filter(pieces) {
            let without: Vec<Record> = log.iter().filter(|record| record.seq != piece.seq).cloned().collect();
            assert!(
                invariants::check_done_matches_deltas(&without).is_err(),
                "SEED={seed}: {} can be left out",
                piece.seq
            );
            lost += 1;
        }
        for (place, record) in log.iter().enumerate() {
            let Event::TextDone(TextEvent { block_index, .. }) = record.event() else { continue };
            let Event::TextDone(mut done) = record.event().clone() else { continue };
            let added = |other: &Record| matches!(other.event(), Event::TextAdded(e) if e.item_id == done.item_id && e.block_index == *block_index);
            if !log[..place].iter().any(added) {
                continue; // alone, it repeats nothing
            }
            let model::event::TaggedTextBlock::Text(block) = &mut done.item;
            block.text = Some(format!("{}!", block.text()).into());
            let draft = RecordDraft { seq: record.seq, at: record.at, event: Event::TextDone(done), private: None };
            let mut log = log.clone();
            log[place] = Record::seal(&thread, &record.run, record.epoch, draft);
            assert!(
                invariants::check_done_matches_deltas(&log).is_err(),
                "SEED={seed}: {} can say anything",
                record.seq
            );
            bent += 1;
        }
    }
    assert!(lost > 0 && bent > 0, "{lost} pieces lost, {bent} ends bent");
}

/// The fold accumulates the same, event by event: the `done` that repeats the text does not repair a lost delta.
#[test]
fn the_fold_accumulates_the_same() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let (mut run, mut sums) = (RunFold::default(), JsonFold::default());
        for record in &log {
            if run.has_ended() && record.event().task_id().is_some() {
                (run, sums) = (RunFold::default(), JsonFold::default());
            }
            run.apply(record).unwrap();
            let touched = sums.apply(record).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
            let Some((task, index)) = touched else { continue };
            // Long texts are compared only when they are complete: comparing after each delta would take minutes.
            if record.size_bytes() > 4096 && !record.event_type().ends_with(".done") {
                continue;
            }
            let fold = &run.task(&TaskId::from(task.as_str())).unwrap().items[usize::try_from(index).unwrap()];
            let folded = serde_json::to_value(&fold.item).unwrap();
            let same = sums.item(&(task, index)) == Some(&folded);
            assert!(same, "SEED={seed}, record {}: {}", record.seq, record.event_type());
        }
    }
}
