//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/sse.rs"]
mod checks;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_sse_corpus_passes_its_check() {
    replay("sse", checks::any_split_gives_the_same_events);
}
