//! The laws of projections, for the native protocol in every scope, over random logs. A failure prints its seed.

use bytes::Bytes;
use model::cursor::Cursor;
use model::fold::RunFold;
use model::ports::{FrameEnd, Frames, Projection};
use model::task::TaskObject;
use model::{Event, Record, Seq, TaskId};
use model_testing::{LogOptions, Rng, generate_thread_log, test_seeds};
use protocol::task::{RecordScope, TaskFrame, TaskFrameReader, TaskProjection, resume_seq};

/// The thread, each of its runs, and each sub-agent.
fn scopes(log: &[Record]) -> Vec<RecordScope> {
    let mut scopes = vec![RecordScope::Thread];
    scopes.extend(log.iter().filter_map(|record| match record.event() {
        Event::Created(e) if e.task.parent_task_id.is_none() => Some(RecordScope::Run(e.task_id.clone())),
        Event::Created(e) => Some(RecordScope::Task(e.task_id.clone())),
        _ => None,
    }));
    scopes
}

type Shown = (Bytes, Vec<FrameEnd>, bool);

fn project<'a>(projection: &mut dyn Projection, records: impl IntoIterator<Item = &'a Record>) -> Shown {
    let mut out = Frames::default();
    records.into_iter().for_each(|record| projection.project(record, &mut out));
    out.into_parts()
}

/// All events of some frames, read in chunks of random sizes.
fn read(chance: &mut Rng, mut bytes: &[u8]) -> Vec<TaskFrame> {
    let mut reader = TaskFrameReader::new();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (mut chunk, rest) = bytes.split_at(chance.below(bytes.len().min(5000)) + 1);
        bytes = rest;
        while let Some(frame) = reader.next_frame(&mut chunk).unwrap() {
            frames.push(frame);
        }
    }
    frames
}

/// Logs for laws 4 and 5, which take quadratic time: fewer and shorter ones, but with nested sub-agents, whose frames
/// depend on earlier records. A prefix of a log is a log.
fn short_logs() -> impl Iterator<Item = (u64, Vec<Record>)> {
    const RECORDS_MAX: usize = 140;
    const NESTED: LogOptions = LogOptions { steps_max: 3, depth_max: 3, children_max: 4, ..LogOptions::small() };
    test_seeds().step_by(3).map(|seed| {
        let (_, mut log) = generate_thread_log(seed, NESTED);
        log.truncate(RECORDS_MAX);
        (seed, log)
    })
}

#[test]
fn law_4_prefix_stable() {
    for (seed, log) in short_logs() {
        for scope in scopes(&log) {
            let (all, ends, over) = project(&mut TaskProjection::new(scope.clone()), &log);
            for length in 0..=log.len() {
                let at = format!("SEED={seed}, {scope:?}, {length} records");
                let (some, some_ends, some_over) = project(&mut TaskProjection::new(scope.clone()), &log[..length]);
                assert!(all.starts_with(&some), "{at}: other bytes");
                assert!(ends.starts_with(&some_ends), "{at}: other frames");
                assert!(!some_over || (over && some == all), "{at}: something follows the end");
            }
        }
    }
}

/// The frames after `cursor` for a new viewer: from the next record on, or, where a projection needs the history of its
/// run, from that run's first record with the frames up to the cursor suppressed.
fn resumed(scope: &RecordScope, log: &[Record], cursor: usize) -> Shown {
    let mut projection = TaskProjection::new(scope.clone());
    let rest = &log[cursor..];
    if projection.needs_history() {
        let run = rest.first().map(|record| &record.run);
        let seen = log[..cursor].iter().filter(|record| Some(&record.run) == run);
        let (_, _, over) = project(&mut projection, seen);
        if over {
            return (Bytes::new(), Vec::new(), true);
        }
    }
    project(&mut projection, rest)
}

#[test]
fn law_5_resume() {
    for (seed, log) in short_logs() {
        for scope in scopes(&log) {
            let (all, _, _) = project(&mut TaskProjection::new(scope.clone()), &log);
            let mut live = TaskProjection::new(scope.clone());
            let mut before = Vec::new();
            for cursor in 0..=log.len() {
                let at = format!("SEED={seed}, {scope:?}, cursor {cursor}");
                let (after, ..) = resumed(&scope, &log, cursor);
                assert!([&before[..], &after[..]].concat() == all, "{at}: begun anew");
                let (after, ..) = project(&mut *live.boxed_clone(), &log[cursor..]);
                assert!([&before[..], &after[..]].concat() == all, "{at}: from a copy");
                if let Some(record) = log.get(cursor) {
                    before.extend_from_slice(&project(&mut live, [record]).0);
                }
            }
        }
    }
}

/// Every frame's id is a cursor of its own record and of no other thread.
#[test]
fn every_frame_carries_a_cursor_of_its_record() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::small());
        let (_, other) = generate_thread_log(seed.wrapping_add(1), LogOptions::small());
        let head = Seq(log.len() as u64);
        let (bytes, ends, over) = project(&mut TaskProjection::new(RecordScope::Thread), &log);
        assert_eq!((ends.len(), over), (log.len(), false), "SEED={seed}");
        let text = std::str::from_utf8(&bytes).unwrap();
        let ids = text.split("\n\n").filter_map(|frame| frame.strip_prefix("id: ")?.split('\n').next());
        let mut seen = 0;
        for (record, id) in log.iter().zip(ids) {
            let cursor: Cursor = id.parse().unwrap();
            assert_eq!(resume_seq(&cursor, head, Some(record)), Ok(record.seq), "SEED={seed}: {id}");
            if let Some(foreign) = other.iter().find(|foreign| foreign.seq == record.seq) {
                assert!(resume_seq(&cursor, head, Some(foreign)).is_err(), "SEED={seed}: {id} of another thread");
            }
            seen += 1;
        }
        assert_eq!(seen, log.len(), "SEED={seed}");
    }
}

/// A run's stream ends with its root, whatever follows in the log; a thread's never ends.
#[test]
fn a_stream_ends_with_its_task() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        for scope in scopes(&log) {
            let (_, ends, over) = project(&mut TaskProjection::new(scope.clone()), &log);
            let (RecordScope::Run(id) | RecordScope::Task(id)) = &scope else {
                assert!(!over, "SEED={seed}");
                continue;
            };
            let last = &log[usize::try_from(ends.last().unwrap().seq.0).unwrap() - 1];
            assert!(over && last.event().is_terminal(), "SEED={seed}: {scope:?} ends with {}", last.event_type());
            assert_eq!(last.event().task_id(), Some(id), "SEED={seed}");
        }
    }
}

/// Law 6 for this protocol: folding the frames gives the object that the server returns.
#[test]
fn law_6_the_client_agrees() {
    for seed in test_seeds() {
        let mut chance = Rng::new(seed);
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        for scope in scopes(&log) {
            let RecordScope::Run(run) = &scope else { continue };
            let (bytes, ..) = project(&mut TaskProjection::new(scope.clone()), &log);
            let (mut client, mut server) = (RunFold::default(), RunFold::default());
            let records = log.iter().filter(|record| record.run == *run);
            for (frame, record) in read(&mut chance, &bytes).iter().zip(records) {
                client.apply_event(frame.seq, frame.at, &frame.event, None).unwrap();
                server.apply(record).unwrap();
                assert_eq!((frame.kind.as_str(), frame.seq), (record.event_type(), record.seq), "SEED={seed}");
                if chance.chance(10) || record.event().is_terminal() {
                    let same = client.task_object(run) == server.task_object(run);
                    assert!(same, "SEED={seed}: {run} at {}", frame.seq);
                }
            }
            assert!(client.has_ended(), "SEED={seed}: {run}");
        }
    }
}

/// A sub-agent's own stream is that of an ordinary task: by itself it gives the sub-agent's object.
#[test]
fn a_sub_agents_stream_is_self_contained() {
    for seed in test_seeds() {
        let mut chance = Rng::new(seed);
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        for scope in scopes(&log) {
            let RecordScope::Task(task) = &scope else { continue };
            let (bytes, ..) = project(&mut TaskProjection::new(scope.clone()), &log);
            let mut client = RunFold::default();
            for mut frame in read(&mut chance, &bytes) {
                if let Event::Created(created) = &mut frame.event
                    && created.task_id == *task
                {
                    // Here it is the root: its parent is not part of the stream.
                    created.task.parent_task_id = None;
                }
                // The shared state belongs to the run and may predate this stream; it is in no task's object.
                if !matches!(frame.event, Event::StateSnapshot(_) | Event::StateDelta(_)) {
                    client.apply_event(client.seq.next(), frame.at, &frame.event, None).unwrap();
                }
            }
            let server = object_at_its_end(&log, task);
            let client = client.task_object(task).map(|object| TaskObject { seq: server.seq, ..object });
            assert!(client.as_ref() == Some(&server), "SEED={seed}: {task}");
        }
    }
}

fn object_at_its_end(log: &[Record], task: &TaskId) -> TaskObject {
    let ends = |record: &&Record| record.event().is_terminal() && record.event().task_id() == Some(task);
    let end = log.iter().find(ends).unwrap();
    let mut run = RunFold::default();
    for record in log.iter().filter(|record| record.run == end.run && record.seq <= end.seq) {
        run.apply(record).unwrap();
    }
    run.task_object(task).unwrap()
}
