//! Every hop is checked like the first.

use crate::canary::Canary;
use crate::names::fetch;
use crate::site::{Site, answer, redirect};
use fetch::{FetchError, FetchLimits};
use tokio::io::AsyncWriteExt;

/// Redirects `/N` to `/N-1`, and has a body at `/0`.
async fn redirect_chain() -> Site {
    Site::with_handler(|path, mut socket| async move {
        let step: u32 = path.trim_start_matches('/').parse().unwrap();
        let said = match step.checked_sub(1) {
            Some(next) => redirect(302, &format!("/{next}")),
            None => answer("text/plain", "arrived"),
        };
        let _ = socket.write_all(&said).await;
    })
    .await
}

#[tokio::test]
async fn no_redirect_reaches_an_internal_address() {
    let canary = Canary::at("127.0.0.2:0").await;
    let port = canary.address.port();
    let targets = [
        format!("http://127.0.0.2:{port}/"),
        format!("//127.0.0.2:{port}/"),
        format!("http://[::ffff:127.0.0.2]:{port}/"),
        format!("http://2130706434:{port}/"),
        "file:///etc/passwd".to_owned(),
        "//10.0.0.1/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "gopher://127.0.0.2/".to_owned(),
        "http://[bad".to_owned(),
    ];
    for status in [301, 302, 303, 307, 308] {
        for target in &targets {
            let site = Site::with_response(redirect(status, target)).await;
            let mut rules = site.rules();
            rules.ports.extend([80, port]);
            let fetcher = fetch::Fetcher::new(rules, FetchLimits::default());
            assert_eq!(fetch(&fetcher, &site.url("/")).await, Err(FetchError::NotAllowed), "{status} {target}");
            assert_eq!(site.heads().len(), 1);
        }
    }
    assert_eq!(canary.seen().await, 0);
}

#[tokio::test]
async fn three_hops_are_followed_and_the_fourth_is_not() {
    let site = redirect_chain().await;
    let fetcher = site.fetcher(FetchLimits::default());
    let found = fetch(&fetcher, &site.url("/3")).await.unwrap();
    assert_eq!((found.bytes.as_ref(), found.url.path(), found.name.as_str()), (&b"arrived"[..], "/0", "3"));
    assert_eq!(site.heads().len(), 4);

    assert_eq!(fetch(&fetcher, &site.url("/20")).await, Err(FetchError::NotAllowed));
    assert_eq!(site.heads().len(), 4 + 4, "nobody asks for the fifth");
}

#[tokio::test]
async fn an_internationalised_url_is_followed() {
    let site = Site::with_handler(|path, mut socket| async move {
        let said = match path.as_str() {
            "/b%C3%A1o%20c%C3%A1o" => answer("text/plain", "arrived"),
            _ => redirect(302, "/báo cáo"),
        };
        let _ = socket.write_all(&said).await;
    })
    .await;
    let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await.unwrap();
    assert_eq!((found.bytes.as_ref(), site.heads().len()), (&b"arrived"[..], 2));
}

#[tokio::test]
async fn a_redirect_loop_ends() {
    let site = Site::with_response(redirect(307, "/")).await;
    assert_eq!(fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await, Err(FetchError::NotAllowed));
    assert_eq!(site.heads().len(), 4);
}

#[tokio::test]
async fn no_hop_sends_credentials_or_cookies() {
    let site = redirect_chain().await;
    fetch(&site.fetcher(FetchLimits::default()), &site.url("/2")).await.unwrap();
    for head in site.heads() {
        for name in ["authorization", "cookie", "referer", "headwater-", "forwarded", "x-"] {
            assert!(!head.lines().any(|line| line.starts_with(name)), "{head}");
        }
    }
}

#[tokio::test]
async fn a_response_that_cannot_be_followed_is_its_status() {
    for (said, status) in [
        ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", 302),
        ("HTTP/1.1 304 Not Modified\r\nlocation: /x\r\n\r\n", 304),
        ("HTTP/1.1 404 Not Found\r\nlocation: /x\r\ncontent-length: 2\r\n\r\nno", 404),
        ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", 500),
        ("HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\n\r\nno", 206),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
    ] {
        let site = Site::with_response(said).await;
        let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await;
        assert_eq!(found, Err(FetchError::Status(status)), "{said:?}");
    }
    assert!(FetchError::Status(503).is_retryable() && !FetchError::Status(404).is_retryable());
}
