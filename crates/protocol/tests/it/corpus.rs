//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/requests.rs"]
mod requests;

use replay::replay;

#[test]
fn the_corpus_of_responses_requests_passes_its_check() {
    replay("request_responses", requests::a_responses_request);
}

#[test]
fn the_corpus_of_chat_requests_passes_its_check() {
    replay("request_chat", requests::a_chat_request);
}

#[test]
fn the_corpus_of_messages_requests_passes_its_check() {
    replay("request_messages", requests::a_messages_request);
}

#[test]
fn the_corpus_of_task_requests_passes_its_check() {
    replay("request_task", requests::a_task_request);
}

#[test]
fn the_corpus_of_agent_run_requests_passes_its_check() {
    replay("request_agent_runs", requests::an_agent_run_request);
}

#[test]
fn the_corpus_of_agui_requests_passes_its_check() {
    replay("request_agui", requests::an_agui_request);
}

#[test]
fn the_corpus_of_blocks_messages_passes_its_check() {
    replay("request_blocks", requests::a_blocks_message);
}

#[test]
fn the_corpus_of_ui_chat_requests_passes_its_check() {
    replay("request_ui", requests::a_ui_chat_request);
}
