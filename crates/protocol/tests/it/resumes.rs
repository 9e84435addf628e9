//! Laws 4 and 5 for any projection: its frames depend on records alone, and resuming after any frame yields exactly the
//! rest.

use model::condense::condense_records;
use model::cursor::Cursor;
use model::ports::{Frames, Projection};
use model::{Record, Seq, TaskId, ThreadId};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use protocol::record_frames::resume_position;
use protocol::task::{RecordScope, TaskProjection};
use sse::{DecodeLimits, Decoder};

/// How a client of a projection states its position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// By the `id` of an event, in this projection's format.
    Id(&'static str),
    /// By the `cursor` in each JSON line, in this projection's format.
    Line(&'static str),
    /// By the number of frames received.
    Count,
}

/// A run of a random log: its thread and its records, without what follows it.
pub(crate) fn runs(seed: u64) -> Vec<(ThreadId, Vec<Record>)> {
    let (thread, records) = generate_thread_log(seed, LogOptions::small());
    let mut ids: Vec<TaskId> = records.iter().map(|record| record.run.clone()).collect();
    ids.dedup();
    let of = |run: &TaskId| records.iter().filter(|record| record.run == *run).cloned().collect();
    ids.iter().map(|run| (thread.clone(), of(run))).collect()
}

/// All frames of a projection for these records.
pub(crate) fn frames(mut projection: Box<dyn Projection>, records: &[Record]) -> Vec<u8> {
    let mut out = Frames::default();
    records.iter().for_each(|record| projection.project(record, &mut out));
    out.into_parts().0.to_vec()
}

/// Checks laws 4 and 5 over every run of every seed.
pub(crate) fn hold(place: Place, make: impl Fn(&ThreadId, &[Record]) -> Box<dyn Projection>) {
    for seed in test_seeds() {
        for (thread, records) in runs(seed) {
            check(seed, place, &records, || make(&thread, &records));
        }
    }
}

/// Checks laws 4 and 5 over one run.
pub(crate) fn check(seed: u64, place: Place, records: &[Record], make: impl Fn() -> Box<dyn Projection>) {
    let whole = frames(make(), records);
    let pieces = pieces(&whole, place);
    assert_eq!(pieces.concat(), whole, "seed {seed}: frames are whole");
    // Law 4: the frames of a prefix are a prefix of the frames, and a clone continues like the original.
    let mut projection = make();
    let mut so_far = Vec::new();
    for record in records {
        let mut out = Frames::default();
        let mut copy = projection.boxed_clone();
        projection.project(record, &mut out);
        let bytes = out.into_parts().0;
        let mut again = Frames::default();
        copy.project(record, &mut again);
        assert_eq!(again.into_parts().0, bytes, "seed {seed}: a copy differs at record {}", record.seq);
        so_far.extend_from_slice(&bytes);
        assert!(whole.starts_with(&so_far), "seed {seed}: record {} took something back", record.seq);
    }
    // Law 5 at some positions: every position of a long run would take quadratic time.
    let step = (pieces.len() / 40).max(1);
    for cut in (0..=pieces.len()).filter(|cut| cut % step == 0 || pieces.len() - cut < 12) {
        let (had, rest) = pieces.split_at(cut);
        let (after, skip) = had.last().map_or((Seq::ZERO, 0), |last| resumed(last, cut, place));
        assert_eq!(resume(make(), records, after, skip), rest.concat(), "seed {seed}: cut after {cut} frames");
        if cut % 4 == 1 {
            let condensed = resume_condensed(make(), records, after, skip);
            assert_eq!(condensed, rest.concat(), "seed {seed}: cut after {cut} frames, from condensed records");
        }
    }
    check_condensed_prefixes(seed, records, make);
}

/// A projection that was brought to a position by condensed records continues like one that has seen every record.
fn check_condensed_prefixes(seed: u64, records: &[Record], make: impl Fn() -> Box<dyn Projection>) {
    let step = (records.len() / 8).max(1);
    for cut in (0..records.len()).skip(step / 2).step_by(step) {
        let (known, new) = records.split_at(cut);
        let mut from_records = make();
        known.iter().for_each(|record| from_records.project(record, &mut Frames::discarded()));
        let mut from_condensed = make();
        let mut shown = Frames::default();
        condense_in_blocks(known).iter().for_each(|record| match record.record_count() {
            // Not even where frames are wanted: they would not be those of the records.
            2.. => from_condensed.project(record, &mut shown),
            _ => from_condensed.project(record, &mut Frames::discarded()),
        });
        assert!(shown.is_empty(), "seed {seed}: a condensed record is shown");
        let expected = frames(from_records, new);
        assert_eq!(frames(from_condensed, new), expected, "seed {seed}: condensed up to {cut}");
    }
}

/// Records as a store has them: condensed block by block.
fn condense_in_blocks(records: &[Record]) -> Vec<Record> {
    records.chunks(97).flat_map(|block| condense_records(block.to_vec())).collect()
}

/// Like [`resume`], from condensed records as far as all of their frames are skipped.
fn resume_condensed(mut projection: Box<dyn Projection>, records: &[Record], after: Seq, skip: u64) -> Vec<u8> {
    let at = records.iter().position(|record| record.seq > after).unwrap_or(records.len());
    let (known, mut new) = records.split_at(at);
    condense_in_blocks(known).iter().for_each(|record| projection.project(record, &mut Frames::discarded()));
    let mut out = Frames::default().with_skip(skip);
    for record in condense_in_blocks(new) {
        let is_skipped = projection.counts_condensed_frames() && record.record_count() <= out.remaining_skip();
        if record.record_count() > 1 && !projection.is_hidden() && !is_skipped {
            break;
        }
        projection.project(&record, &mut out);
        new = &new[usize::try_from(record.record_count()).unwrap()..];
    }
    new.iter().for_each(|record| projection.project(record, &mut out));
    out.into_parts().0.to_vec()
}

#[test]
fn the_native_projection_continues_after_condensed_records() {
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let task = |record: &Record| record.task_id().map(TaskId::from);
            let mut tasks: Vec<TaskId> = records.iter().filter_map(task).collect();
            tasks.sort();
            tasks.dedup();
            let run = RecordScope::Run(records[0].run.clone());
            let scopes = tasks.into_iter().map(RecordScope::Task).chain([run, RecordScope::Thread]);
            for scope in scopes {
                check_condensed_prefixes(seed, &records, || Box::new(TaskProjection::new(scope.clone())));
            }
        }
    }
}

#[test]
fn random_logs_have_deltas_to_condense() {
    let counts = test_seeds().flat_map(runs).map(|(_, records)| (records.len(), condense_in_blocks(&records).len()));
    let (all, condensed) = counts.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    assert!(condensed * 10 < all * 9, "{condensed} of {all}");
}

fn resumed(last: &[u8], count: usize, place: Place) -> (Seq, u64) {
    let (text, projection) = match place {
        Place::Count => return (Seq::ZERO, count as u64),
        Place::Id(projection) => {
            let mut decoder = Decoder::new(DecodeLimits::default());
            let mut rest = last;
            decoder.decode(&mut rest).expect("an event").expect("whole");
            (decoder.last_event_id().expect("an id").to_owned(), projection)
        }
        Place::Line(projection) => {
            let line: serde_json::Value = serde_json::from_slice(last).expect("a line of JSON");
            (line["cursor"].as_str().expect("a cursor").to_owned(), projection)
        }
    };
    let cursor: Cursor = text.parse().expect("a cursor");
    resume_position(&cursor, projection).expect("of this projection")
}

fn resume(mut projection: Box<dyn Projection>, records: &[Record], after: Seq, skip: u64) -> Vec<u8> {
    let mut unseen = Frames::default();
    let (known, new): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.seq <= after);
    known.into_iter().for_each(|record| projection.project(record, &mut unseen));
    let mut out = Frames::default().with_skip(skip);
    new.into_iter().for_each(|record| projection.project(record, &mut out));
    out.into_parts().0.to_vec()
}

fn pieces(whole: &[u8], place: Place) -> Vec<Vec<u8>> {
    let end: &[u8] = if matches!(place, Place::Line(_)) { b"\n" } else { b"\n\n" };
    let mut pieces = Vec::new();
    let mut rest = whole;
    while let Some(at) = rest.windows(end.len()).position(|window| window == end) {
        let (piece, after) = rest.split_at(at + end.len());
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}
