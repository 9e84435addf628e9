//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/file_path.rs"]
mod file_path;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_paths_passes_its_check() {
    replay("attachment_path", file_path::a_path_names_one_file);
}
