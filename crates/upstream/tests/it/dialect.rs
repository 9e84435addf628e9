//! Properties of every model protocol; the `laws` module of each protocol applies them.

use model::model_turn::{ModelDelta, ModelEvent};
use model::usage::Usage;
use model_testing::{Rng, test_seeds};
use sse::{DecodeLimits, Decoder};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use upstream::Ingest;

/// Decodes a stream from chunks.
pub(crate) type Read<'a> = &'a dyn Fn(&[&[u8]]) -> Vec<ModelEvent>;

/// The events of a stream.
pub(crate) fn hear<'a>(mut ingest: Box<dyn Ingest>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<ModelEvent> {
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut out = Vec::new();
    for mut rest in pieces {
        while let Some(event) = decoder.decode(&mut rest).unwrap() {
            ingest.on_event(&event, &mut out);
        }
    }
    ingest.on_end(&mut out);
    out
}

pub(crate) fn folder(room: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/streams").join(room)
}

/// Every stream fixture of a protocol by name, those in `beyond-sdk` included.
pub(crate) fn fixtures(room: &str) -> Vec<(String, Vec<u8>)> {
    let folders = [folder(room), folder(room).join("beyond-sdk")];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let streams = paths.filter(|path| path.extension().is_some_and(|extension| extension == "sse"));
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut fixtures: Vec<_> = streams.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect();
    assert!(!fixtures.is_empty(), "no stream in {room}");
    fixtures.sort();
    fixtures
}

pub(crate) fn cuts_never_show(room: &str, read: Read<'_>) {
    for (name, bytes) in fixtures(room) {
        let whole = read(&[&bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole, "{name}, byte by byte");
        // At every byte of a short one, at about five hundred positions of a long one.
        for at in (0..=bytes.len()).step_by(1 + bytes.len() / 500) {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(read(&[head, tail]), whole, "{name}, cut at {at}");
        }
    }
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        for (name, bytes) in fixtures(room) {
            let mut rest = bytes.as_slice();
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(1 + rng.below(200)));
                pieces.push(piece);
                rest = after;
            }
            assert_eq!(read(&pieces), read(&[&bytes]), "{name}, SEED={seed}");
        }
    }
}

pub(crate) fn disorder_ends_once(room: &str, read: Read<'_>) {
    for (name, bytes) in fixtures(room) {
        ends_once(&read(&[&bytes]));
        for seed in test_seeds() {
            println!("{name}, SEED={seed}");
            ends_once(&read(&[&disordered(&bytes, &mut Rng::new(seed))]));
        }
    }
}

/// The same events reordered, duplicated or dropped; some bytes changed, removed or truncated.
fn disordered(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut events: Vec<&str> = text.split_inclusive("\n\n").collect();
    for _ in 0..rng.below(6) {
        let (one, other) = (rng.below(events.len()), rng.below(events.len()));
        match rng.below(3) {
            0 => events.swap(one, other),
            1 => events.insert(one, events[other]),
            _ if events.len() > 1 => drop(events.remove(one)),
            _ => {}
        }
    }
    let mut bytes = events.concat().into_bytes();
    for _ in 0..rng.below(4) {
        let (at, length) = (rng.below(bytes.len().max(1)), rng.below(40));
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at.min(bytes.len())..bytes.len().min(at + length))),
            2 => bytes.insert(at.min(bytes.len()), rng.choose(b'"', b"\\{}[]:,0an\n")),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.choose(b'"', b"\\{}[]:,0an1");
                }
            }
        }
    }
    bytes
}

/// A line per event (`what`, and a text delta); the deltas of one text are joined.
pub(crate) fn lines(events: &[ModelEvent], line: fn(&ModelEvent) -> (String, String)) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for event in events {
        let (what, text) = line(event);
        match lines.last_mut() {
            Some((before, said)) if !text.is_empty() && *before == what => said.push_str(&text),
            _ => lines.push((what, text)),
        }
    }
    lines
}

/// Input tokens, those read from and written to the cache, output tokens, reasoning tokens.
pub(crate) fn tokens(usage: Usage) -> String {
    let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } = usage;
    format!("{input_tokens}/{cached_tokens}/{cache_write_tokens}/{output_tokens}/{reasoning_tokens}")
}

/// One terminal event, which is the last. No event belongs to an item that has not started or is done; the parts of an
/// item are consecutive, from 0.
pub(crate) fn ends_once(events: &[ModelEvent]) {
    let (last, before) = events.split_last().expect("a turn ends");
    assert!(!matches!(last, ModelEvent::Delta(_)), "{last:?}");
    let mut begun = HashSet::new();
    let mut open: HashMap<u32, Option<u32>> = HashMap::new();
    for event in before {
        let ModelEvent::Delta(delta) = event else { panic!("{event:?} in the middle") };
        match delta {
            ModelDelta::Started { slot, .. } => {
                assert!(begun.insert(*slot), "{slot} begins twice");
                open.insert(*slot, None);
            }
            ModelDelta::Done { slot, .. } => assert!(open.remove(slot).is_some(), "{slot} is not open"),
            ModelDelta::Reasoning { slot, part, text: said }
            | ModelDelta::Refusal { slot, part, text: said }
            | ModelDelta::Text { slot, part, text: said, .. }
            | ModelDelta::Image { slot, part, url: said, .. } => {
                let at = open.get_mut(slot).unwrap_or_else(|| panic!("{slot} is not open: {delta:?}"));
                assert!(*at == Some(*part) || *part == at.map_or(0, |at| at + 1), "{part} after {at:?}");
                assert!(!said.is_empty(), "{delta:?} says nothing");
                *at = Some(*part);
            }
            ModelDelta::Annotation { slot, part, .. } => {
                assert!(open.get(slot).is_some_and(|at| at.is_some_and(|at| at >= *part)), "{delta:?} too early");
            }
            ModelDelta::Arguments { slot, .. } | ModelDelta::Hosted { slot, .. } => {
                assert!(open.contains_key(slot), "{slot} is not open: {delta:?}");
            }
            ModelDelta::Usage(_) | ModelDelta::Unknown(_) => {}
        }
    }
}
