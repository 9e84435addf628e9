//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/ingest.rs"]
mod ingest;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

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
