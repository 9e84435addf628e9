//! Cancelling, disconnecting and time-outs of the caller: only the first one is a cancel.

use super::{asks, cancel, events, fastest, guide, id, is_terminal, timed, with};
use crate::harness::{Server, parse_frames};
use std::time::Duration;

/// Cancelling twice, before any stream, or in both modes is harmless: there is one end, and nothing after it.
#[tokio::test]
async fn cancelling_twice_early_or_in_both_modes_is_harmless() {
    let hw = guide();
    let orders = [["immediate", "immediate"], ["after_turn", "immediate"], ["after_turn", "after_turn"]];
    for (early, order) in [false, true].into_iter().flat_map(|early| orders.map(|order| (early, order))) {
        let task = hw.create_task(asks("silent")).await;
        let path = events(id(&task));
        if !early {
            hw.open_stream(&path).await.read_until("task.text.delta").await;
        }
        for mode in order {
            let status = cancel(&hw, id(&task), mode).await;
            assert!([202, 409].contains(&status), "{order:?}: {status}");
        }
        // `after_turn` waits as long as the turn takes, unless another cancel is immediate.
        cancel(&hw, id(&task), "immediate").await;
        let all = hw.frames(&path, None).await;
        // A run cancelled before its start has no record.
        let begun = !all.is_empty();
        assert!(begun || early, "{order:?}");
        assert_eq!(all.iter().filter(|frame| is_terminal(frame)).count(), usize::from(begun), "{order:?}");
        assert!(all.last().is_none_or(|last| last.event == "task.cancelled"), "{order:?}: {all:?}");
        let object = hw.get(&format!("/v1/tasks/{}", id(&task))).await.json();
        assert_eq!(object["status"], "cancelled", "{order:?}");
        assert_eq!(cancel(&hw, id(&task), "immediate").await, 409, "{order:?}: it has ended");
        assert_eq!(hw.frames(&path, None).await, all, "{order:?}: nothing follows the end");
    }
}

/// A cancel ends the stream within 100 ms while the provider is silent.
#[tokio::test]
async fn a_cancel_ends_the_stream_while_the_provider_is_silent() {
    let hw = guide();
    let took = fastest(3, async || {
        let task = hw.create_task(asks("silent")).await;
        let mut viewer = hw.open_stream(&events(id(&task))).await;
        viewer.read_until("task.text.delta").await;
        let ((), took) = timed(async {
            assert_eq!(cancel(&hw, id(&task), "immediate").await, 202);
            viewer.read_to_end().await.unwrap();
        })
        .await;
        took
    })
    .await;
    eprintln!("a cancelled stream ends after {took:?}");
    // A test fails on time only at five times the promise.
    assert!(took < Duration::from_millis(500), "{took:?}");
}

/// A cancel ends every active stream cleanly, with the cancel as the last event.
#[tokio::test]
async fn a_cancel_ends_active_streams_cleanly() {
    let hw = guide();
    let task = hw.create_task(asks("count 200000")).await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut reader = hw.open_stream(&events(id(&task))).await;
        reader.read_until("task.text.delta").await;
        readers.push(reader);
    }
    assert_eq!(cancel(&hw, id(&task), "immediate").await, 202);
    let mut ends = Vec::new();
    for mut reader in readers {
        let seen = parse_frames(reader.read_to_end().await.expect("a stream that was cut is no clean end"));
        assert_eq!(seen.iter().filter(|frame| is_terminal(frame)).count(), 1);
        ends.push(seen.last().unwrap().clone());
    }
    assert_eq!(ends[0].event, "task.cancelled");
    assert!(ends.iter().all(|end| *end == ends[0]));
}

/// The file without which `dig` does not end.
fn go(hw: &Server) {
    std::fs::write(hw.path("go"), "").unwrap();
}

/// Disconnecting and cancelling differ: closing the connection stops nothing, a cancel stops the run.
#[tokio::test]
async fn disconnecting_does_not_cancel() {
    let hw = guide();
    let (left, stopped) = (hw.create_task(asks("dig")).await, hw.create_task(asks("dig")).await);
    let mut viewer = hw.open_stream(&events(id(&left))).await;
    viewer.read_until("task.tool.started").await;
    drop(viewer);
    hw.wait_until("the server sees it leave", async || {
        hw.get("/metrics").await.text.contains("headwater_streams_open 0")
    })
    .await;
    hw.open_stream(&events(id(&stopped))).await.read_until("task.tool.started").await;
    assert_eq!(cancel(&hw, id(&stopped), "immediate").await, 202);
    assert_eq!(hw.wait_ended(id(&stopped)).await["status"], "cancelled");
    assert_eq!(hw.get(&format!("/v1/tasks/{}", id(&left))).await.json()["status"], "running");
    go(&hw);
    assert_eq!(hw.wait_ended(id(&left)).await["status"], "completed");
}

/// A caller's time-out is its own: it learns that it waited too long, and the run continues. Nothing but a cancel
/// cancels.
#[tokio::test]
async fn a_callers_time_out_does_not_cancel_the_run() {
    let hw = guide();
    for mode in ["wait", "stream"] {
        let body = with(asks("dig"), mode, true).to_string();
        let request = hw.client.post(hw.url("/v1/tasks")).header("content-type", "application/json").body(body);
        // The tool waits for a file that does not exist: no time-out is long enough.
        let gave_up = async {
            let reply = request.timeout(Duration::from_millis(500)).send().await?;
            reply.text().await
        };
        assert!(gave_up.await.unwrap_err().is_timeout(), "{mode}");
    }
    let runs = async || hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().clone();
    assert_eq!(runs().await.iter().filter(|run| run["status"] == "running").count(), 2);
    go(&hw);
    for run in runs().await {
        assert_eq!(hw.wait_ended(id(&run)).await["status"], "completed");
    }
}
