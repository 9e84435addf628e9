//! The kit on itself: mock, proxies and load client in one process, and every planted fault found.

use crate::check::Fault;
use crate::fanout::{self, Crowd};
use crate::load::{self, Plan};
use crate::proxy::Mode;
use crate::story::Planted;
use crate::target::{Dialect, Target};
use crate::{check, mock, proxy};
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

async fn mock_target(dialect: Dialect) -> Target {
    let (listener, authority) = listener().await;
    tokio::spawn(mock::serve(listener));
    Target { name: "mock", authority, pid: std::process::id(), dialect }
}

async fn behind_proxy(mode: Mode, target: &Target) -> Target {
    let (listener, authority) = listener().await;
    tokio::spawn(proxy::serve(mode, target.authority.clone(), listener));
    Target { name: "proxy", authority, ..target.clone() }
}

fn small(interval_ms: u64) -> Plan {
    Plan { streams: 20, deltas: 30, interval_ms, waves: 2 }
}

#[tokio::test]
async fn whole_streams_pass_directly_and_through_both_proxies() {
    let direct = mock_target(Dialect::Stream).await;
    let pass = behind_proxy(Mode::Pass, &direct).await;
    let parse = behind_proxy(Mode::Parse, &direct).await;
    for target in [direct, pass, parse] {
        for plan in [small(1), small(0)] {
            let sample = load::run(&target, plan).await.unwrap();
            assert_eq!((sample.streams, sample.faults.total()), (40, 0), "{} {}", target.name, sample.faults);
            assert!(sample.added.p50_ms > 0.0 && sample.first_delta.p50_ms > 0.0);
        }
    }
}

async fn fault_of(target: &Target, planted: Planted) -> Option<Fault> {
    let name = planted.to_possible_value().unwrap().get_name().to_owned();
    let request = Request::post(format!("/any?count=10&interval_ms=0&fault={name}")).body(Full::<Bytes>::default());
    let check = check::StreamCheck::new(10, check::Latency::OfAll);
    load::read(target, request.unwrap(), check, Duration::from_millis(300)).await.fault
}

#[tokio::test]
async fn every_planted_fault_is_found_and_named() {
    let target = mock_target(Dialect::Stream).await;
    for planted in Planted::value_variants() {
        let expected = match planted {
            Planted::Drop | Planted::Repeat | Planted::Swap | Planted::Epilogue => Fault::Disordered,
            Planted::Cut | Planted::Hang => Fault::Cut,
            Planted::Garbage => Fault::Malformed,
            Planted::Short => Fault::Miscounted,
            Planted::Fail => Fault::Failed,
        };
        assert_eq!(fault_of(&target, *planted).await, Some(expected), "{planted:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_refuses_is_an_http_fault() {
    let (listener, authority) = listener().await;
    drop(listener);
    let gone = Target { name: "gone", authority, pid: std::process::id(), dialect: Dialect::Stream };
    assert_eq!(fault_of(&gone, Planted::Cut).await, Some(Fault::Http));

    let proxy = behind_proxy(Mode::Pass, &gone).await;
    let sample = load::run(&proxy, Plan { streams: 3, waves: 1, ..small(0) }).await.unwrap();
    assert_eq!(sample.faults.count(Fault::Http), 3);
}

#[tokio::test]
async fn stories_are_asked_for_as_headwater_takes_them() {
    let target = mock_target(Dialect::Tasks).await;
    for plan in [small(20), small(0)] {
        let sample = load::run(&target, plan).await.unwrap();
        assert_eq!(sample.faults.to_string(), "0");
    }
    assert!(load::run(&target, small(7)).await.is_err());
}

#[tokio::test]
async fn every_viewer_of_a_task_is_checked() {
    let target = mock_target(Dialect::Tasks).await;
    let sample = fanout::measure(&target, Crowd { viewers: 5, tasks: 2, deltas: 10 }).await.unwrap();
    // Ten deltas and the terminal event, for each of ten viewers.
    assert_eq!((sample.deliveries, sample.faults.to_string().as_str()), (110, "0"));
}
