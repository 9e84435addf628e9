//! Law 6: a client that joins anywhere has what a client has that saw everything.

use super::reducer::{Client, reduce};
use super::verifier::Verifier;
use super::{THREAD, VERSIONS, parse_events, random_log, thread_events, thread_projection};
use crate::resumes;
use model::condense::condense_records;
use model::ports::{Frames, Projection};
use model::{Record, TaskId};
use model_testing::test_seeds;
use protocol::agui::{AgUiHistory, AgUiRunSnapshot, AgUiVersion, agui_prelude};
use serde_json::Value;

/// The runs of a log, read from condensed records as the store has them.
pub(super) fn snapshots(version: AgUiVersion, records: &[Record]) -> Vec<AgUiRunSnapshot> {
    let mut runs: Vec<(TaskId, AgUiRunSnapshot)> = Vec::new();
    for record in condense_records(records.to_vec()) {
        if runs.last().is_none_or(|(run, _)| *run != record.run) {
            runs.push((record.run.clone(), AgUiRunSnapshot::new(version, THREAD)));
        }
        runs.last_mut().unwrap().1.read_record(&record);
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The events of a client that joins after these records.
fn joined_events(version: AgUiVersion, known: &[Record], new: &[Record]) -> Vec<Value> {
    let prelude = agui_prelude(&snapshots(version, known), AgUiHistory::Complete);
    assert!(!prelude.starts_with(b"id:"), "a prelude has no position");
    let mut projection = thread_projection(version);
    known.iter().for_each(|record| projection.project(record, &mut Frames::discarded()));
    let tail = resumes::frames(Box::new(projection), new);
    let mut events = parse_events(&prelude);
    events.extend(parse_events(&tail));
    events
}

/// The messages of a client as a set: only ids and contents, in order.
fn differences(joined: &Client, whole: &Client) -> Option<String> {
    (joined != whole).then(|| format!("joined: {joined:#?}\nwhole: {whole:#?}"))
}

#[test]
fn law_6_a_client_that_joins_anywhere_has_everything() {
    for seed in test_seeds() {
        let (_, records) = random_log(seed);
        let version = VERSIONS[usize::try_from(seed % 2).unwrap()];
        let whole = reduce(&thread_events(version, &records));
        // Every position of a long log would take quadratic time.
        let step = (records.len() / 60).max(1);
        for cut in (1..=records.len()).filter(|cut| cut % step == 0 || *cut < 8 || records.len() - cut < 8) {
            let (known, new) = records.split_at(cut);
            let events = joined_events(version, known, new);
            let mut verifier = Verifier::default();
            events.iter().for_each(|event| verifier.check(event));
            verifier.check_end();
            let difference = differences(&reduce(&events), &whole);
            assert_eq!(difference, None, "SEED={seed}, joined after {cut} of {} records", records.len());
        }
    }
}
