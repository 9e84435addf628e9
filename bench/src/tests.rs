//! Tests of the benchmark itself: mock, proxies and load client in one process, and every planted fault is found.

use crate::delta_stream::PlantedFault;
use crate::fanout::{self, FanoutPlan};
use crate::load::{self, LoadPlan};
use crate::proxy::ProxyMode;
use crate::stream_check::StreamFault;
use crate::target::{LoadTarget, TargetApi};
use crate::{mock_provider, proxy, stream_check};
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::Full;
use hyper::Request;
use hyper::http::uri::Authority;
use std::time::Duration;
use tokio::net::TcpListener;

async fn listener() -> (TcpListener, Authority) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string().parse().unwrap();
    (listener, authority)
}

async fn mock_target(dialect: TargetApi) -> LoadTarget {
    let (listener, authority) = listener().await;
    tokio::spawn(mock_provider::serve_mock(listener));
    LoadTarget { name: "mock", authority, pid: std::process::id(), dialect }
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
async fn complete_streams_pass_directly_and_through_both_proxies() {
    let direct = mock_target(TargetApi::Stream).await;
    let pass = behind_proxy(ProxyMode::Pass, &direct).await;
    let parse = behind_proxy(ProxyMode::Parse, &direct).await;
    for target in [direct, pass, parse] {
        for plan in [small(1), small(0)] {
            let sample = load::run_load(&target, plan).await.unwrap();
            assert_eq!((sample.streams, sample.faults.total()), (40, 0), "{} {}", target.name, sample.faults);
            assert!(sample.added_latency.p50_ms > 0.0 && sample.first_delta_latency.p50_ms > 0.0);
        }
    }
}

async fn fault_of(target: &LoadTarget, planted: PlantedFault) -> Option<StreamFault> {
    let name = planted.to_possible_value().unwrap().get_name().to_owned();
    let request = Request::post(format!("/any?count=10&interval_ms=0&fault={name}")).body(Full::<Bytes>::default());
    let check = stream_check::StreamChecker::new(10, stream_check::LatencyScope::AllDeltas);
    load::read_checked_stream(target, request.unwrap(), check, Duration::from_millis(300)).await.fault
}

#[tokio::test]
async fn every_planted_fault_is_found_and_named() {
    let target = mock_target(TargetApi::Stream).await;
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
        assert_eq!(fault_of(&target, *planted).await, Some(expected), "{planted:?}");
    }
}

#[tokio::test]
async fn an_unreachable_or_refusing_server_is_an_http_fault() {
    let (listener, authority) = listener().await;
    drop(listener);
    let gone = LoadTarget { name: "gone", authority, pid: std::process::id(), dialect: TargetApi::Stream };
    assert_eq!(fault_of(&gone, PlantedFault::Cut).await, Some(StreamFault::Http));

    let proxy = behind_proxy(ProxyMode::Pass, &gone).await;
    let sample = load::run_load(&proxy, LoadPlan { streams: 3, waves: 1, ..small(0) }).await.unwrap();
    assert_eq!(sample.faults.count(StreamFault::Http), 3);
}

#[tokio::test]
async fn story_requests_match_the_demo_scenario() {
    let target = mock_target(TargetApi::Tasks).await;
    for plan in [small(20), small(0)] {
        let sample = load::run_load(&target, plan).await.unwrap();
        assert_eq!(sample.faults.to_string(), "0");
    }
    assert!(load::run_load(&target, small(7)).await.is_err());
}

#[tokio::test]
async fn every_viewer_of_a_task_is_checked() {
    let target = mock_target(TargetApi::Tasks).await;
    let sample = fanout::measure_fanout(&target, FanoutPlan { viewers: 5, tasks: 2, deltas: 10 }).await.unwrap();
    // Ten deltas and the terminal event, for each of ten viewers.
    assert_eq!((sample.deliveries, sample.faults.to_string().as_str()), (110, "0"));
}
