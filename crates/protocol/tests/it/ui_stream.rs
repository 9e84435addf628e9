//! The UI message stream: its chunks, the SDK's reducer over them, and what clients do on their own.

mod auto_send;
mod chunks;
mod laws;
mod messages;
mod reducer;

use crate::resumes::frames;
use model::{Record, TaskId};
use protocol::ui_stream::{UiStreamProjection, UiVersion};
use serde_json::Value;

const VERSIONS: [UiVersion; 2] = [UiVersion::Six, UiVersion::Seven];

fn projection(records: &[Record], segments: (u32, u32), version: UiVersion) -> UiStreamProjection {
    let run: TaskId = records[0].run.clone();
    UiStreamProjection::new(run, segments.0, segments.1, version)
}

/// The chunks of some segments of a run.
fn project(records: &[Record], segments: (u32, u32), version: UiVersion) -> Vec<Value> {
    parse_frames(&frames(Box::new(projection(records, segments, version)), records))
}

fn parse_frames(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The number of segments that a run has.
fn count_segments(records: &[Record]) -> u32 {
    let resumed = records.iter().filter(|record| record.event_type() == "task.resumed").count();
    u32::try_from(resumed).unwrap() + 1
}
