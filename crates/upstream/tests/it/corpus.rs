//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

use std::path::Path;

#[path = "../../../../fuzz/checks/ingest.rs"]
mod ingest;

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
fn the_corpus_of_messages_passes_its_check() {
    replay("ingest_messages", |bytes| ingest::a_turn_ends_once(upstream::messages::new_ingest, bytes));
}

#[test]
fn the_corpus_of_chat_passes_its_check() {
    replay("ingest_chat", |bytes| ingest::a_turn_ends_once(upstream::chat::new_ingest, bytes));
}

#[test]
fn the_corpus_of_responses_passes_its_check() {
    replay("ingest_responses", |bytes| ingest::a_turn_ends_once(upstream::responses::new_ingest, bytes));
}
