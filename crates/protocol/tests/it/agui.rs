//! The AG-UI projection: its frames, the rules of its clients, and what clients make of it.

mod dialects;
mod frames;
mod laws;
mod prelude;
mod reducer;
mod verifier;

use crate::resumes;
use jsonschema::Validator;
use model::{Record, TaskId};
use model_testing::{LogOptions, generate_thread_log};
use protocol::agui::{AgUiProjection, AgUiScope, AgUiVersion, SNAPSHOT_BYTES_MAX};
use serde_json::Value;
use sse::{DecodeLimits, Decoder};

const VERSIONS: [AgUiVersion; 2] = [AgUiVersion::V1, AgUiVersion::V0_0_59];
const THREAD: &str = "t-1";
const EVENT_SCHEMA: &str = include_str!("agui/schemas/agui-1.0-event.json");
const MESSAGE_SCHEMA: &str = include_str!("agui/schemas/agui-1.0-message.json");

fn thread_projection(version: AgUiVersion) -> AgUiProjection {
    AgUiProjection::new(version, THREAD.to_owned(), AgUiScope::Thread)
}

fn segments(version: AgUiVersion, run: &TaskId, first: u32, last: u32) -> AgUiProjection {
    AgUiProjection::new(version, THREAD.to_owned(), AgUiScope::Segments { run: run.clone(), first, last })
}

/// The events of the whole thread.
fn thread_events(version: AgUiVersion, records: &[Record]) -> Vec<Value> {
    parse_events(&resumes::frames(Box::new(thread_projection(version)), records))
}

/// The events of frames, whose names are their types.
fn parse_events(mut bytes: &[u8]) -> Vec<Value> {
    // A snapshot is one line.
    let limits = DecodeLimits { line_bytes_max: 2 * SNAPSHOT_BYTES_MAX, event_bytes_max: 2 * SNAPSHOT_BYTES_MAX };
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    while let Some(frame) = decoder.decode(&mut bytes).expect("an event stream") {
        let event: Value = serde_json::from_str(&frame.data).expect("JSON");
        assert_eq!(frame.event.as_deref(), event["type"].as_str());
        events.push(event);
    }
    events
}

/// The records of a random thread.
fn random_log(seed: u64, options: LogOptions) -> Vec<Record> {
    generate_thread_log(seed, options).1
}

/// The schema of an event or of a message of 1.0.
fn validator(schema: &str) -> Validator {
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
}
