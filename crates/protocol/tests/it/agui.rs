//! The AG-UI projection: its frames, the rules of its clients, and what clients make of it.

mod dialects;
mod frames;
mod laws;
mod prelude;
mod reducer;
mod verifier;

use crate::resumes;
use model::{Record, TaskId, ThreadId};
use model_testing::{LogOptions, generate_thread_log};
use protocol::agui::{AgUiProjection, AgUiScope, AgUiVersion};
use serde_json::Value;
use sse::{DecodeLimits, Decoder};

const VERSIONS: [AgUiVersion; 2] = [AgUiVersion::V1, AgUiVersion::V0_0_59];
const THREAD: &str = "t-1";

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
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut events = Vec::new();
    while let Some(frame) = decoder.decode(&mut bytes).expect("an event stream") {
        let event: Value = serde_json::from_str(&frame.data).expect("JSON");
        assert_eq!(frame.event.as_deref(), event["type"].as_str());
        events.push(event);
    }
    events
}

fn random_log(seed: u64) -> (ThreadId, Vec<Record>) {
    generate_thread_log(seed, LogOptions::small())
}
