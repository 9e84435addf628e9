//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

use std::path::Path;

#[path = "../../../../fuzz/checks/sse.rs"]
mod checks;

fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "no corpus in {}", folder.display());
}

#[test]
fn the_sse_corpus_passes_its_check() {
    replay("sse", checks::any_split_gives_the_same_events);
}
