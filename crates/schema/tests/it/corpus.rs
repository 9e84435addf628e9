//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/schema.rs"]
mod check;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_schemas_passes_its_check() {
    replay("tool_schema", check::a_schema_judges_any_arguments);
}
