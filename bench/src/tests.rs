//! Tests of the benchmark itself: mock, proxies and load client in one process, and every planted fault is found.

use crate::delta_stream::PlantedFault;
use crate::fanout::{self, FanoutPlan};
use crate::load::{self, LoadPlan};
use crate::probe::{ReadUntil, probe};
use crate::proxy::ProxyMode;
use crate::stream_check::{LatencyScope, StreamChecker, StreamFault};
use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;
use crate::{mock_provider, proxy};
use clap::ValueEnum;
use hyper::http::uri::Authority;
use std::time::Duration;
use tokio::net::TcpListener;

async fn listener() -> (TcpListener, Authority) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string().parse().unwrap();
    (listener, authority)
}

async fn mock_target(protocol: StreamProtocol) -> LoadTarget {
    let (listener, authority) = listener().await;
    tokio::spawn(mock_provider::serve_mock(listener));
    LoadTarget { name: "mock", authority, pid: std::process::id(), protocol, model: "story" }
}

async fn behind_proxy(mode: ProxyMode, target: &LoadTarget) -> LoadTarget {
    let (listener, authority) = listener().await;
    tokio::spawn(proxy::serve_proxy(mode, target.authority.clone(), listener));
    LoadTarget { name: "proxy", authority, ..target.clone() }
}

fn small(interval_ms: u64) -> LoadPlan {
    LoadPlan { streams: 20, deltas: 30, interval_ms, waves: 2 }
}

#[tokio::test]
async fn complete_streams_pass_directly_and_through_both_proxies_in_every_protocol() {
    for protocol in StreamProtocol::ALL {
        let direct = mock_target(protocol).await;
        let mut targets = vec![direct.clone()];
        // The proxies forward HTTP alone.
        if protocol != StreamProtocol::Blocks {
            targets.push(behind_proxy(ProxyMode::Pass, &direct).await);
            targets.push(behind_proxy(ProxyMode::Parse, &direct).await);
        }
        for target in targets {
            for plan in [small(1), small(0)] {
                let sample = load::run_load(&target, plan).await.unwrap();
                let (streams, faults) = (sample.streams, sample.faults.to_string());
                assert_eq!((streams, faults.as_str()), (40, "0"), "{} {protocol:?}", target.name);
                assert!(sample.added_latency.p50_ms > 0.0 && sample.first_delta_latency.p50_ms > 0.0);
            }
        }
    }
}

async fn fault_of(target: &LoadTarget, planted: PlantedFault) -> Option<StreamFault> {
    let name = planted.to_possible_value().unwrap().get_name().to_owned();
    let request = target.stream_request(&format!("story 10 fast fault {name}")).unwrap();
    let check = StreamChecker::new(target.protocol, 10, LatencyScope::AllDeltas);
    load::read_checked_stream(target, request, check, Duration::from_millis(300)).await.fault
}

#[tokio::test]
async fn every_planted_fault_is_found_and_named_in_every_protocol() {
    for protocol in StreamProtocol::ALL {
        let target = mock_target(protocol).await;
        for planted in PlantedFault::value_variants() {
            let expected = match planted {
                PlantedFault::Drop | PlantedFault::Repeat | PlantedFault::Swap | PlantedFault::Epilogue => {
                    StreamFault::Disordered
                }
                PlantedFault::Cut | PlantedFault::Hang => StreamFault::Cut,
                PlantedFault::Garbage => StreamFault::Malformed,
                PlantedFault::Short => StreamFault::Miscounted,
                PlantedFault::Fail => StreamFault::Failed,
            };
            assert_eq!(fault_of(&target, *planted).await, Some(expected), "{protocol:?} {planted:?}");
        }
    }
}

#[tokio::test]
async fn an_unreachable_or_refusing_server_is_an_http_fault() {
    let (listener, authority) = listener().await;
    drop(listener);
    let protocol = StreamProtocol::Chat;
    let gone = LoadTarget { name: "gone", authority, pid: std::process::id(), protocol, model: "story" };
    let blocks = LoadTarget { protocol: StreamProtocol::Blocks, ..gone.clone() };
    assert_eq!(fault_of(&gone, PlantedFault::Cut).await, Some(StreamFault::Http));
    assert_eq!(fault_of(&blocks, PlantedFault::Cut).await, Some(StreamFault::Http));

    let proxy = behind_proxy(ProxyMode::Pass, &gone).await;
    let sample = load::run_load(&proxy, LoadPlan { streams: 3, waves: 1, ..small(0) }).await.unwrap();
    assert_eq!(sample.faults.count(StreamFault::Http), 3);
}

#[tokio::test]
async fn the_last_story_of_a_conversation_is_told() {
    let target = mock_target(StreamProtocol::Chat).await;
    let request = target.stream_request("story 9 fast\nand now: story 4 every 1").unwrap();
    let check = StreamChecker::new(target.protocol, 4, LatencyScope::AllDeltas);
    let reading = load::read_checked_stream(&target, request, check, Duration::from_secs(5)).await;
    assert_eq!((reading.deltas, reading.fault), (4, None));
}

#[tokio::test]
async fn every_viewer_of_a_run_is_checked() {
    // Ten deltas and what surrounds them, for each of ten viewers.
    for (protocol, events) in [(StreamProtocol::Tasks, 110), (StreamProtocol::Responses, 180)] {
        let target = mock_target(protocol).await;
        let sample = fanout::measure_fanout(&target, FanoutPlan { viewers: 5, tasks: 2, deltas: 10 }).await.unwrap();
        assert_eq!((sample.deliveries, sample.faults.to_string().as_str()), (events, "0"));
    }
}

#[tokio::test]
async fn a_probe_waits_for_an_event_and_reports_a_refusal_with_its_text() {
    let target = mock_target(StreamProtocol::Tasks).await;
    let get = |uri: &str| target.get(uri).unwrap();
    let error = probe(&target, get("/v1/threads/thr_1"), ReadUntil::End).await.err().unwrap();
    assert!(error.to_string().contains("404 Not Found no such path"), "{error}");

    // A stream that never sends a second event: the probe does not wait for more than the first.
    let first = probe(&target, get("/v1/tasks/task_2_3600000/events"), ReadUntil::FirstEvent).await.unwrap();
    let whole = probe(&target, get("/v1/tasks/task_2_0/events"), ReadUntil::End).await.unwrap();
    assert!(first.bytes > 0 && first.bytes < whole.bytes, "{} of {}", first.bytes, whole.bytes);
}
