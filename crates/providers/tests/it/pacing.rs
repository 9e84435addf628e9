//! The timing of events. Time is paused in these tests and advances only when all tasks wait.

use crate::vocabulary::{request, scripted, steps, user};
use futures_util::{FutureExt, StreamExt};
use model::model_turn::{ModelDelta, ModelEvent};
use model::ports::{BoxStream, ModelClient};
use providers::scripted::{Scenarios, ScriptedProvider};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, advance};

fn turn(models: &ScriptedProvider, message: &str) -> BoxStream<'static, ModelEvent> {
    models.stream_turn(request([user(message)]))
}

/// The time of each text delta, in milliseconds after the first poll, and of the end.
async fn times(models: &ScriptedProvider, message: &str) -> (Vec<u128>, u128) {
    let mut stream = turn(models, message);
    let began = Instant::now();
    let mut times = Vec::new();
    while let Some(event) = stream.next().await {
        if matches!(event, ModelEvent::Delta(ModelDelta::Text { .. })) {
            times.push(began.elapsed().as_millis());
        }
    }
    (times, began.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn the_first_delta_comes_at_once_and_the_others_at_intervals() {
    assert_eq!(times(&steps(r#"{ text = "x", repeat = 4, every_ms = 20 }"#), "").await, (vec![0, 20, 40, 60], 60));
    let text = r#"{ text = ["a", "b"], every_ms = 10 }, { pause_ms = 100 }, { text = ["c", "d"], every_ms = 5 }"#;
    assert_eq!(times(&steps(text), "").await, (vec![0, 10, 110, 115], 115));
    assert_eq!(
        times(&steps(r#"{ pause_ms = 7 }, { text = ["a", "b"] }, { pause_ms = 3 }"#), "").await,
        (vec![7, 7], 10)
    );
}

#[tokio::test(start_paused = true)]
async fn numbers_in_the_message_set_the_pace() {
    let models = scripted(
        r#"
        [[scenario]]
        match = '(?<n>\d+) every (?<ms>\d+) after (?<wait>\d+)'
        [[scenario.turn]]
        steps = [{ pause_ms = "{wait}" }, { text = "x", repeat = "{n}", every_ms = "{ms}" }]"#,
    );
    assert_eq!(times(&models, "3 every 15 after 100").await, (vec![100, 115, 130], 130));
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_overdue_deltas_and_the_pace_does_not_drift() {
    let models = steps(r#"{ text = "{i}", repeat = 8, every_ms = 20 }"#);
    let mut stream = turn(&models, "");
    assert!(stream.next().await.is_some(), "started");
    let began = Instant::now();
    let mut times = Vec::new();
    for delta in 0..8 {
        if delta == 3 {
            advance(Duration::from_millis(65)).await;
        }
        assert!(stream.next().await.is_some());
        times.push(began.elapsed().as_millis());
    }
    // Due at 0, 20, 40, 60, 80, 100, 120, 140: those of 60, 80 and 100 were overdue at 105.
    assert_eq!(times, [0, 20, 40, 105, 105, 105, 120, 140]);
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_before_its_time() {
    let mut stream = turn(&steps(r#"{ text = ["a", "b"], every_ms = 20 }"#), "");
    assert!(stream.next().await.is_some() && stream.next().await.is_some());
    assert!(stream.next().now_or_never().is_none());
    advance(Duration::from_millis(19)).await;
    assert!(stream.next().now_or_never().is_none());
    advance(Duration::from_millis(1)).await;
    assert!(stream.next().now_or_never().flatten().is_some());
}

/// A story in which every delta reads a clock that counts its reads.
fn counted(text: &str) -> (ScriptedProvider, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let clock = {
        let asked = Arc::clone(&asked);
        Arc::new(move || asked.fetch_add(1, Ordering::Relaxed))
    };
    let scenarios =
        Scenarios::parse(&format!("[[scenario]]\n[[scenario.turn]]\nsteps = [{text}]"), "test.toml").unwrap();
    (ScriptedProvider::new(scenarios, clock), asked)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_generated_before_a_poll_or_after_a_drop() {
    let (models, asked) = counted(r#"{ text = "{clock_us}", repeat = 1000, every_ms = 20 }"#);
    let mut stream = turn(&models, "");
    advance(Duration::from_secs(1)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0, "before the first poll");
    for _ in 0..4 {
        assert!(stream.next().await.is_some());
    }
    advance(Duration::from_secs(1)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 3, "ahead of the reader");
    drop(stream);
    let users_of_the_clock = Arc::strong_count(&asked);
    drop(models);
    assert!(Arc::strong_count(&asked) < users_of_the_clock, "the provider held the clock, and nobody else does");
    assert_eq!(Arc::strong_count(&asked), 1);
    advance(Duration::from_secs(60)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 3, "after the drop");
}

#[tokio::test]
async fn a_story_without_pauses_yields_to_other_tasks() {
    let (models, asked) = counted(r#"{ text = "{clock_us}", repeat = 1000000 }"#);
    let mut stream = turn(&models, "");
    let story = tokio::spawn(async move { while stream.next().await.is_some() {} });
    // Single-threaded: a task that does not yield blocks all others.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let told = asked.load(Ordering::Relaxed);
    assert!((1..100_000).contains(&told), "{told} deltas while another task yielded 20 times");
    story.abort();
}

#[tokio::test]
async fn a_million_deltas_are_exactly_a_million() {
    let models = steps(r#"{ text = ["once ", "upon "], repeat = 1000000 }"#);
    let texts = turn(&models, "")
        .filter(|event| std::future::ready(matches!(event, ModelEvent::Delta(ModelDelta::Text { .. }))));
    assert_eq!(texts.count().await, 1_000_000);
}

#[tokio::test]
async fn an_ended_turn_stays_ended() {
    for text in [r#"{ text = "x" }"#, r#"{ error = { code = "c", message = "m" } }"#] {
        let mut stream = turn(&steps(text), "");
        while stream.next().await.is_some() {}
        assert!(stream.next().await.is_none());
    }
}
