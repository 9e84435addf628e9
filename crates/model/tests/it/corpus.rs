//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/arguments.rs"]
mod arguments;
#[path = "../../../../fuzz/checks/cursor.rs"]
mod cursor;
#[path = "../../../../fuzz/checks/record.rs"]
mod record;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_cursors_passes_its_check() {
    replay("cursor", cursor::a_cursor_means_one_position);
}

#[test]
fn the_corpus_of_records_passes_its_check() {
    replay("record", record::a_record_decodes_the_same_twice);
}

#[test]
fn the_corpus_of_arguments_passes_its_check() {
    replay("tool_arguments", arguments::a_rule_judges_any_arguments);
}
