//! Long runs are read from condensed records. Nobody notices, except that it is fast.

use crate::harness::{Server, SseFrame, concat_raw_frames};
use serde_json::{Value, json};

/// More records than a page or a short history has, and a text that is sent as a piece of its own: of sixty letters each time.
fn scenarios(text: &str) -> String {
    format!(
        "[[scenario]]\n[[scenario.turn]]\nsteps = [{{ reasoning = 'hm ', repeat = 400, every_ms = 0 }},\n\
         {{ text = '{text}', repeat = 4600, every_ms = 0 }}]\n"
    )
}

/// The frames of a response, which have no ids.
fn split_frames(text: &str) -> Vec<&str> {
    text.split_inclusive("\n\n").filter(|frame| frame.contains("data: {")).collect()
}

/// The response in a frame.
fn response_of(frame: &str) -> Value {
    let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    serde_json::from_str::<Value>(data).unwrap()["response"].clone()
}

/// Positions in a stream of this length: some in the middle of long texts, and all near its ends.
fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..length).filter(move |place| *place < 6 || length - place < 9 || place % 331 == 0)
}

/// Checks that resuming after a frame yields exactly the rest.
async fn check_resumes(hw: &Server, path: &str, all: &[SseFrame]) {
    for place in places(all.len()) {
        let rest = hw.frames(path, Some(&all[place].id)).await;
        assert_eq!(concat_raw_frames(&rest), concat_raw_frames(&all[place + 1..]), "{path} after {place}");
    }
}

#[tokio::test]
async fn a_packed_run_reads_and_resumes_as_it_was_streamed() {
    check_packed_run("some sixty letters, so that the whole text is of the long ones ").await;
}

#[tokio::test]
async fn so_does_one_whose_text_has_escapes() {
    check_packed_run(r#"some "sixty" letters, so that the "whole" text is a long one \ "#).await;
}

async fn check_packed_run(text: &str) {
    let mut hw = Server::with_scenarios(&scenarios(text));
    let body = json!({"model": "demo", "input": "many", "stream": true});
    let streamed = hw.post("/v1/responses", body).await.text;
    let response = split_frames(&streamed);
    assert!(response.len() > 5_000, "{} frames", response.len());
    let id = response_of(response[0])["id"].as_str().unwrap().to_owned();
    let task = format!("/v1/tasks/{}", id.replace("resp_", "task_"));
    let formats = [format!("{task}/events"), format!("{task}/events?format=run-items")];
    let streams = [hw.frames(&formats[0], None).await, hw.frames(&formats[1], None).await];
    let object = hw.get(&task).await.json();

    // A server that stops packs what it has not packed yet.
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    hw.restart();
    assert_eq!(hw.get(&task).await.json(), object);
    let ended = response_of(response[response.len() - 1]);
    assert_eq!(hw.get(&format!("/v1/responses/{id}")).await.json(), ended);
    for (path, all) in formats.iter().zip(&streams) {
        check_resumes(&hw, path, all).await;
    }
    for place in places(response.len()) {
        let rest = hw.get(&format!("/v1/responses/{id}?stream=true&starting_after={place}")).await.text;
        assert_eq!(split_frames(&rest), response[place + 1..], "after {place}");
    }
}
