//! The fold is total: no log makes it panic or apply half an event.

use crate::laws::{assert_same, without_counters};
use model::event::Event;
use model::fold::RunFold;
use model::record::{Record, RecordHeader};
use model::task::TaskObject;
use model::thread::ThreadReplay;
use model_testing::{LogOptions, Rng, generate_thread_log, test_seeds};
use serde_json::Value;

/// A log in which records are missing, repeated, reordered or damaged.
fn damaged(rng: &mut Rng, log: &[Record]) -> Vec<Record> {
    let mut out: Vec<Record> = Vec::new();
    for record in log {
        match rng.below(12) {
            0 => {}
            1 => out.extend([record.clone(), record.clone()]),
            2 => out.insert(rng.below(out.len()), record.clone()),
            3 => out.extend([with_changed_json(rng, record, log), record.clone()]),
            4 => out.push(with_changed_json(rng, record, log)),
            5 => out.push(with_noise(rng, record)),
            _ => out.push(record.clone()),
        }
    }
    out
}

fn with_bytes(record: &Record, public: Vec<u8>) -> Record {
    let Record { seq, at, run, epoch, format: v, checksum: check, private, .. } = record.clone();
    Record::from_stored(RecordHeader { seq, at, run, epoch, format: v, checksum: check }, public.into(), private)
}

/// The record with one change in its JSON: a number, a name, a missing key.
fn with_changed_json(rng: &mut Rng, record: &Record, log: &[Record]) -> Record {
    let mut value: Value = serde_json::from_slice(&record.public).unwrap();
    let donor = rng.pick(log).unwrap();
    let donor: Value = serde_json::from_slice(&donor.public).unwrap();
    change_json(rng, &mut value, &donor);
    with_bytes(record, serde_json::to_vec(&value).unwrap())
}

fn change_json(rng: &mut Rng, value: &mut Value, donor: &Value) {
    match value {
        Value::Object(map) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let Some(key) = rng.pick(&keys) else { return };
            match (rng.below(6), donor.get(key)) {
                (0, _) => drop(map.remove(key)),
                (1 | 2, Some(other)) => drop(map.insert(key.clone(), other.clone())),
                _ => change_json(rng, &mut map[key], donor),
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let place = rng.below(list.len());
            if rng.chance(30) {
                list.remove(place);
            } else {
                change_json(rng, &mut list[place], donor);
            }
        }
        Value::Number(_) => *value = rng.choose(0_u64, &[1, 2, 3, 7, u64::from(u32::MAX), u64::MAX]).into(),
        Value::String(text) => *text = rng.choose("", &["task.text.done", "message", "call_1", "\0"]).to_owned(),
        Value::Bool(flag) => *flag = !*flag,
        Value::Null | Value::Array(_) => *value = Value::from(rng.choose("x", &[])),
    }
}

fn with_noise(rng: &mut Rng, record: &Record) -> Record {
    let mut bytes = record.public.to_vec();
    match rng.below(3) {
        0 => bytes.truncate(rng.below(bytes.len())),
        1 => {
            let place = rng.below(bytes.len());
            bytes[place] ^= 1 << rng.below(8);
        }
        _ => bytes = (0..rng.below(40)).map(|_| rng.next_u64().to_le_bytes()[0]).collect(),
    }
    with_bytes(record, bytes)
}

#[test]
fn a_misfit_is_counted_and_changes_nothing() {
    let (mut fits, mut misfits) = (0_u32, 0_u32);
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let (_, log) = generate_thread_log(seed, LogOptions::small());
        let mut run = RunFold::default();
        for record in damaged(&mut rng, &log) {
            if run.has_ended() && rng.chance(50) {
                run = RunFold::default();
            }
            let mut after = run.clone();
            // With the next sequence number, so that the event does not fit and not the gap before it.
            let private = record.private();
            let fit = after.apply_event(run.seq.next(), record.at, record.event(), private.as_ref());
            match fit {
                Ok(()) => fits += 1,
                Err(_) => {
                    misfits += 1;
                    assert_eq!(after.fold_errors, run.fold_errors + 1, "SEED={seed}: {record:?}");
                    assert_same(&without_counters(after.clone(), &run), &run, &format!("SEED={seed}: {record:?}"));
                }
            }
            run = after;
            for task in &run.tasks {
                let object = run.task_object(&task.id).unwrap();
                let text = serde_json::to_string(&object).unwrap();
                let again: TaskObject = serde_json::from_str(&text).unwrap();
                assert_same(&again, &object, &format!("SEED={seed}: {record:?}"));
            }
        }
    }
    assert!(fits > 0 && misfits > 0, "{fits} fitted, {misfits} did not");
}

#[test]
fn replaying_a_damaged_log_never_panics_and_detects_the_damage() {
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let (_, log) = generate_thread_log(seed, LogOptions::small());
        let mut replay = ThreadReplay::default();
        let damaged = damaged(&mut rng, &log);
        damaged.iter().for_each(|record| replay.push(record));
        let noticed = replay.thread.fold_errors + replay.run.as_ref().map_or(0, |run| run.fold_errors);
        let unknown = damaged.iter().any(|record| matches!(record.event(), Event::Unknown(_)));
        assert!(!unknown || noticed > 0, "SEED={seed}: an event of no known type was taken for one");
    }
}
