//! Single requests with a body and credentials.

use crate::canary::Canary;
use crate::site::{Site, answer, redirect};
use bytes::Bytes;
use fetch::{FetchError, FetchLimits, GuardedClient, GuardedMethod, GuardedRequest, OwnAddress, UrlGuard, UrlRules};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use url::Url;

fn limits() -> FetchLimits {
    FetchLimits { bytes_max: 1024, ..FetchLimits::default() }
}

/// A client of an operator who wrote this URL.
fn client_for(url: &str) -> GuardedClient {
    let guard = UrlGuard::new(UrlRules::default()).with_trusted_url(Url::parse(url).unwrap());
    GuardedClient::new(guard, limits())
}

fn get(url: impl Into<String>) -> GuardedRequest {
    GuardedRequest { method: GuardedMethod::Get, url: url.into(), headers: Vec::new(), body: Bytes::new() }
}

fn post(url: impl Into<String>, body: &'static str) -> GuardedRequest {
    let headers = vec![("authorization", "Basic c2VjcmV0".to_owned())];
    GuardedRequest { method: GuardedMethod::Post, url: url.into(), headers, body: Bytes::from_static(body.as_bytes()) }
}

#[tokio::test]
async fn a_request_has_its_body_and_headers_and_every_status_is_a_response() {
    let head = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer a=\"b\"\r\nwww-authenticate: Basic\r\n";
    let site = Site::with_response(format!("{head}content-length: 2\r\n\r\nno")).await;
    let client = client_for(&site.url("/mcp"));
    let response = client.send(post(site.url("/token"), "grant_type=x")).await.unwrap();
    assert_eq!((response.status, response.body.as_ref()), (401, &b"no"[..]));
    assert_eq!(response.header_values("www-authenticate"), ["Bearer a=\"b\"", "Basic"]);
    let heads = site.heads();
    assert!(heads[0].starts_with("post /token http/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("authorization: basic c2vjcmv0") && heads[0].contains("content-length: 12"), "{heads:?}");
    let shown = format!("{:?} {response:?}", post(site.url("/token"), "grant_type=x"));
    assert!(!shown.contains("Basic") && !shown.contains("grant_type"), "{shown}");
}

#[tokio::test]
async fn the_operators_origin_is_trusted_and_what_it_names_is_not() {
    let canary = Canary::at("127.0.0.1:0").await;
    let port = canary.address.port();
    // Nobody trusts this machine here.
    let client = client_for("https://mcp.example/");
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        for request in [get(&url), post(&url, "x")] {
            assert_eq!(client.send(request).await.unwrap_err(), FetchError::NotAllowed, "{url}");
        }
    }
    assert_eq!(canary.seen().await, 0);
}

#[tokio::test]
async fn an_operator_who_writes_loopback_trusts_all_ports_of_it_but_no_other_address() {
    let site = Site::with_response(answer("text/plain", "yes")).await;
    for trusted in ["http://127.0.0.1:1/mcp", "http://localhost:1/mcp", "http://[::1]:1/mcp"] {
        assert_eq!(client_for(trusted).send(get(site.url("/"))).await.unwrap().body.as_ref(), b"yes", "{trusted}");
        for other in ["http://169.254.169.254/", "http://10.0.0.1/", "http://192.168.0.1:1/"] {
            let refused = client_for(trusted).send(get(other)).await.unwrap_err();
            assert_eq!(refused, FetchError::NotAllowed, "{trusted} {other}");
        }
    }
    // The server itself is never asked.
    let own = OwnAddress::parse(&format!("127.0.0.1:{}", site.port));
    let rules = UrlRules { own_addresses: vec![own], ..UrlRules::default() };
    let guard = UrlGuard::new(rules).with_trusted_url(Url::parse("http://127.0.0.1:1/").unwrap());
    let refused = GuardedClient::new(guard, limits()).send(get(site.url("/"))).await.unwrap_err();
    assert_eq!(refused, FetchError::NotAllowed);
}

#[tokio::test]
async fn a_get_follows_redirects_within_its_origin_and_a_post_none() {
    let site = Site::with_handler(|path, mut socket| async move {
        let said = match path.as_str() {
            "/start" => redirect(302, "/end"),
            "/away" => redirect(307, "http://localhost:1/end"),
            "/loop" => redirect(302, "/loop"),
            _ => answer("text/plain", "arrived"),
        };
        let _ = socket.write_all(&said).await;
    })
    .await;
    let client = client_for(&site.url("/"));
    let found = client.send(get(site.url("/start"))).await.unwrap();
    assert_eq!((found.status, found.url.path(), found.body.as_ref()), (200, "/end", &b"arrived"[..]));
    assert_eq!(client.send(get(site.url("/away"))).await.unwrap_err(), FetchError::NotAllowed);
    let before = site.heads().len();
    assert_eq!(client.send(get(site.url("/loop"))).await.unwrap_err(), FetchError::NotAllowed);
    assert_eq!(site.heads().len() - before, 4, "three redirects are followed");
    let before = site.heads().len();
    assert_eq!(client.send(post(site.url("/start"), "x")).await.unwrap().status, 302);
    assert_eq!(site.heads().len() - before, 1);
}

#[tokio::test]
async fn a_body_has_a_limit_in_bytes_and_time() {
    let large = Site::with_response(answer("text/plain", "x".repeat(1025))).await;
    assert_eq!(client_for(&large.url("/")).send(get(large.url("/"))).await.unwrap_err(), FetchError::TooLarge);
    // Never answers.
    let silent = Site::with_handler(|_, socket| async move {
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
    let guard = UrlGuard::new(UrlRules::default()).with_trusted_url(Url::parse(&silent.url("/")).unwrap());
    let short = FetchLimits { total_timeout: Duration::from_millis(50), ..limits() };
    let late = GuardedClient::new(guard, short).send(get(silent.url("/"))).await.unwrap_err();
    assert_eq!(late, FetchError::TimedOut);
}
