//! A service that refuses its own items costs one retry per thread, not one per turn.

use super::service::{Act, PATIENCE, Service, answer, send, stream, upstream};
use super::{REFUSED, spoken, streams};
use crate::vocabulary::{asked, user};
use futures_util::StreamExt;
use model::history::HistoryEntry;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::ports::ModelClient;
use providers::http::{HttpProvider, UpstreamDialect};

fn refusal() -> Vec<Act> {
    answer("400 Bad Request", "application/json", "", REFUSED)
}

fn words() -> Vec<Act> {
    let (_, bytes) =
        streams(UpstreamDialect::Responses).into_iter().find(|(path, _)| path.ends_with("text.sse")).unwrap();
    vec![stream(), send(bytes)]
}

/// Runs a turn to its end, and returns whether its history was sent twice.
async fn is_resent(upstream: &HttpProvider, request: ModelRequest) -> bool {
    let events = tokio::time::timeout(PATIENCE, upstream.stream_turn(request).collect::<Vec<_>>()).await.unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::End(_))), "{events:?}");
    let is_note = |event: &ModelEvent| match event {
        ModelEvent::Delta(ModelDelta::Unknown(note)) => note["type"] == "headwater.history_resent",
        _ => false,
    };
    events.iter().any(is_note)
}

/// The number of reasoning items in the last request.
async fn blobs(service: &mut Service) -> usize {
    service.request().await.1["input"].to_string().matches("blob").count()
}

#[tokio::test]
async fn later_turns_of_a_thread_omit_refused_items_and_other_threads_do_not() {
    let mut service = Service::start(vec![refusal(), words(), words(), words()]).await;
    let upstream = upstream(service.settings(UpstreamDialect::Responses));
    let old = spoken(&service.address);
    let new = old.clone().map(|entry| match entry {
        HistoryEntry::Reasoning { raw, .. } => HistoryEntry::Reasoning { id: "rs_R2".into(), raw },
        HistoryEntry::Assistant { text, raw, .. } => HistoryEntry::Assistant { id: "msg_R2".into(), text, raw },
        other => other,
    });
    let turn = |entries: &[&[HistoryEntry]], thread: &str| {
        let mut history = vec![user("a")];
        for more in entries {
            history.extend(more.iter().cloned().chain([user("more")]));
        }
        ModelRequest { thread: thread.into(), ..asked("up/m/1", history, &[]) }
    };
    assert!(is_resent(&upstream, turn(&[&old], "thr_1")).await);
    assert_eq!((blobs(&mut service).await, blobs(&mut service).await), (1, 0));
    assert!(!is_resent(&upstream, turn(&[&old, &new], "thr_1")).await);
    assert_eq!(blobs(&mut service).await, 1, "the new thought, and not the one that was refused");
    assert!(!is_resent(&upstream, turn(&[&old, &new], "thr_2")).await);
    assert_eq!(blobs(&mut service).await, 2);
}

#[tokio::test]
async fn a_refusal_is_remembered_even_if_the_second_attempt_fails() {
    let broken = || answer("503 Service Unavailable", "application/json", "", "{}");
    let mut service = Service::start(vec![refusal(), broken(), words()]).await;
    let upstream = upstream(service.settings(UpstreamDialect::Responses));
    let [thought, said] = spoken(&service.address);
    let turn = asked("up/m/1", [user("a"), thought, said, user("b")], &[]);
    let events: Vec<ModelEvent> =
        tokio::time::timeout(PATIENCE, upstream.stream_turn(turn.clone()).collect::<Vec<_>>()).await.unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Failed(_))), "{events:?}");
    assert_eq!((blobs(&mut service).await, blobs(&mut service).await), (1, 0));
    assert!(!is_resent(&upstream, ModelRequest { attempt: 2, ..turn }).await);
    assert_eq!(blobs(&mut service).await, 0);
}
