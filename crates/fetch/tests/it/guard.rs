//! Forbidden URLs, against a listener that must receive no connection.

use crate::canary::Canary;
use crate::names::{Names, fetch, fetcher, rules_for};
use fetch::{FetchError, FetchLimits, Fetcher, OwnAddress, PrivateAddresses, Resolver, UrlGuard, UrlRules};
use std::sync::Arc;
use url::Url;

/// Notations of this machine's address. `PORT` is the listener's.
const THIS_MACHINE: &[&str] = &[
    "http://127.0.0.1:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://a.localhost:PORT/",
    "http://[::1]:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://[::]:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://017700000001:PORT/",
    "http://127.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://①②⑦.0.0.1:PORT/",
    "http://127。0。0。1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:/127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    " \thttp://127.0.0.1:PORT/\n",
    "ht\ntp://127.0.0.1:PORT/",
    "http://127.0.0.1:PORT#@site.example/",
    "http://site.example@127.0.0.1:PORT/",
    "http://site.example:80@127.0.0.1:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b:1::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2001:0:7f00:1::80ff:fffe]:PORT/",
];

/// Other internal addresses.
const INSIDE: &[&str] = &[
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:a9fe:a9fe]/latest/meta-data/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata/",
    "http://printer.local/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://198.18.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://224.0.0.1/",
    "http://[ff02::1]/",
];

/// Not web URLs, or of an unsupported scheme.
const SCHEMES: &[&str] = &[
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:PORT/_GET%20/",
    "ftp://127.0.0.1:PORT/x",
    "data:text/plain,hello",
    "jar:http://127.0.0.1:PORT/x!/y",
    "unix:/var/run/docker.sock",
    "dict://127.0.0.1:PORT/",
    "ldap://127.0.0.1:PORT/",
    "ws://127.0.0.1:PORT/",
    "javascript:alert(1)",
    "blob:http://127.0.0.1:PORT/x",
    "view-source:http://127.0.0.1:PORT/",
    "foo://127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "127.0.0.1:PORT",
    "/etc/passwd",
    "",
    "http://",
    "http://[::1",
    "http://site.example:99999/",
];

fn public_names() -> Arc<Names> {
    Names::with_answers(&[&["93.184.215.14"]])
}

fn guard(rules: UrlRules, names: &Arc<Names>) -> UrlGuard {
    UrlGuard::with_resolver(rules, Arc::clone(names) as Arc<dyn Resolver>)
}

#[tokio::test]
async fn no_notation_of_an_address_reaches_a_listener_on_loopback() {
    let canaries = [Canary::at("127.0.0.1:0").await, Canary::at("[::1]:0").await];
    for canary in &canaries {
        let port = canary.address.port();
        let rules = UrlRules { ports: vec![80, 443, port], ..UrlRules::default() };
        let closed = Fetcher::new(rules.clone(), FetchLimits::default());
        for address in THIS_MACHINE.iter().chain(INSIDE).chain(SCHEMES) {
            let address = address.replace("PORT", &port.to_string());
            assert_eq!(fetch(&closed, &address).await, Err(FetchError::NotAllowed), "{address}");
        }
        assert_eq!(canary.seen().await, 0);

        // Proves that the listener counts.
        let open =
            Fetcher::new(UrlRules { private_addresses: PrivateAddresses::AllowAll, ..rules }, FetchLimits::default());
        let found = fetch(&open, &format!("http://{}/", canary.address)).await;
        assert_eq!(found, Err(FetchError::InvalidResponse));
        assert_eq!(canary.seen().await, 1);
    }
}

#[tokio::test]
async fn urls_refused_by_syntax_are_not_resolved() {
    let names = public_names();
    let guard = guard(UrlRules::default(), &names);
    let refused = ["http://localhost/", "http://metadata.google.internal/", "http://x/", "http://user@site.example/"];
    for address in
        refused.iter().chain(&["http://site.example:22/", "file://site.example/", "https://:pw@site.example/"])
    {
        assert_eq!(guard.check(address).await, Err(FetchError::NotAllowed), "{address}");
    }
    assert_eq!(names.queries(), Vec::<String>::new());
}

#[tokio::test]
async fn only_web_ports_are_contacted() {
    let guard = guard(UrlRules::default(), &public_names());
    for port in [1, 21, 22, 25, 3306, 5432, 6379, 8080, 11211, 65535] {
        let address = format!("http://site.example:{port}/");
        assert_eq!(guard.check(&address).await, Err(FetchError::NotAllowed), "{address}");
    }
    for address in
        ["http://site.example:443/", "https://site.example:80/", "http://site.example/", "https://site.example/"]
    {
        assert!(guard.check(address).await.is_ok(), "{address}");
    }
}

#[tokio::test]
async fn a_name_is_allowed_only_if_all_of_its_addresses_are() {
    let many = vec!["93.184.215.14"; 65];
    let refused: &[&[&str]] = &[
        &["127.0.0.1"],
        &["10.1.2.3"],
        &["169.254.169.254"],
        &["::1"],
        &["::ffff:10.0.0.1"],
        &["64:ff9b::a00:1"],
        &["fd00::1"],
        &["93.184.215.14", "10.0.0.1"],
        &["2606:2800:21f::1", "93.184.215.14", "fe80::1"],
        &["0.0.0.0"],
        &[],
        &many,
    ];
    for answer in refused {
        let guard = guard(UrlRules::default(), &Names::with_answers(&[answer]));
        assert_eq!(guard.check("http://site.example/").await, Err(FetchError::NotAllowed), "{answer:?}");
    }
    let nobody = guard(UrlRules::default(), &Names::with_answers(&[]));
    assert_eq!(nobody.check("http://site.example/").await, Err(FetchError::NotAllowed), "a name that does not exist");

    let good = guard(UrlRules::default(), &Names::with_answers(&[&["93.184.215.14", "2606:2800:21f::1"]]));
    let target = good.check("https://Site.Example./a?b#c").await.unwrap();
    assert_eq!(target.url.as_str(), "https://site.example./a?b");
    let wanted = ["93.184.215.14:443", "[2606:2800:21f::1]:443"].map(|address| address.parse().unwrap());
    assert_eq!(target.addresses, wanted);
}

#[tokio::test]
async fn dns_rebinding_fails_because_a_name_is_resolved_once() {
    let site = crate::site::Site::with_response(crate::site::answer("text/plain", "first")).await;
    let canary = Canary::at(&format!("127.0.0.2:{}", site.port)).await;
    let names = Names::with_answers(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let fetcher = fetcher(site.rules(), &names, FetchLimits::default());
    let address = format!("http://rebind.example:{}/", site.port);

    let found = fetch(&fetcher, &address).await.unwrap();
    assert_eq!(found.bytes.as_ref(), b"first");
    assert_eq!(names.queries(), ["rebind.example"]);
    assert!(site.heads()[0].contains(&format!("host: rebind.example:{}", site.port)));

    // The second answer of the resolver differs, and is refused.
    assert_eq!(fetch(&fetcher, &address).await, Err(FetchError::NotAllowed));
    assert_eq!((names.queries().len(), canary.seen().await), (2, 0));
}

#[tokio::test]
async fn the_server_refuses_its_own_address() {
    let own = ["agents.example", "203.0.112.9", "[2a00::9]"].map(OwnAddress::parse).to_vec();
    let rules = UrlRules { own_addresses: own, ..UrlRules::default() };
    let own_guard = guard(rules.clone(), &public_names());
    for host in ["agents.example", "AGENTS.EXAMPLE", "agents.example.", "203.0.112.9", "[2a00::9]", "[2a00:0::9]"] {
        assert_eq!(own_guard.check(&format!("https://{host}/v1/tasks")).await, Err(FetchError::NotAllowed), "{host}");
    }
    for answer in ["203.0.112.9", "::ffff:203.0.112.9"] {
        let guard = guard(rules.clone(), &Names::with_answers(&[&[answer]]));
        assert_eq!(guard.check("https://other.example/").await, Err(FetchError::NotAllowed), "{answer}");
    }
    assert!(own_guard.check("https://not-agents.example/").await.is_ok());
    assert!(own_guard.check("https://sub.agents.example/").await.is_ok());
}

#[tokio::test]
async fn the_server_refuses_its_own_address_in_every_notation() {
    let canary = Canary::at("127.0.0.1:0").await;
    let port = canary.address.port();
    for listen in [format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}"), format!("[::]:{port}")] {
        let rules = UrlRules {
            ports: vec![port, 80],
            own_addresses: vec![OwnAddress::parse(&listen)],
            private_addresses: PrivateAddresses::AllowAll,
        };
        let open = Fetcher::new(rules.clone(), FetchLimits::default());
        for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "127.1"] {
            let address = format!("http://{host}:{port}/");
            assert_eq!(fetch(&open, &address).await, Err(FetchError::NotAllowed), "{address} of {listen}");
        }
        // Another port is another server.
        assert!(UrlGuard::new(rules.clone()).check("http://127.0.0.1/").await.is_ok(), "{listen}");
    }
    assert_eq!(canary.seen().await, 0);

    let elsewhere = OwnAddress::parse(&format!("127.0.0.1:{}", port - 1));
    let open =
        UrlRules { ports: vec![port], own_addresses: vec![elsewhere], private_addresses: PrivateAddresses::AllowAll };
    assert_eq!(
        fetch(&Fetcher::new(open, FetchLimits::default()), &format!("http://{}/", canary.address)).await,
        Err(FetchError::InvalidResponse)
    );
    assert_eq!(canary.seen().await, 1);
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let guard = guard(UrlRules::default(), &public_names());
    let (secure, clear) = (Url::parse("https://a.example/x/y").unwrap(), Url::parse("http://a.example/").unwrap());
    let ends = |from: &Url, to: &str| {
        let (guard, from, to) = (guard.clone(), from.clone(), to.to_owned());
        async move { guard.check_redirect(&from, &to).await.map(|target| target.url.to_string()) }
    };
    assert_eq!(ends(&secure, "http://a.example/x").await, Err(FetchError::NotAllowed));
    assert_eq!(ends(&secure, "z").await, Ok("https://a.example/x/z".to_owned()));
    assert_eq!(ends(&secure, "//b.example/").await, Ok("https://b.example/".to_owned()));
    assert_eq!(ends(&clear, "https://a.example/x").await, Ok("https://a.example/x".to_owned()));
    assert_eq!(ends(&clear, "http://b.example/").await, Ok("http://b.example/".to_owned()));
    for to in
        ["file:///etc/passwd", "//127.0.0.1/", "http://10.0.0.1/", "http://u@a.example/", "data:,x", "//a.example:22/"]
    {
        assert_eq!(ends(&clear, to).await, Err(FetchError::NotAllowed), "{to}");
        assert_eq!(ends(&secure, to).await, Err(FetchError::NotAllowed), "{to}");
    }
}

#[tokio::test]
async fn an_overlong_url_is_refused() {
    let guard = guard(rules_for(&[], &[80]), &public_names());
    let long = format!("http://site.example/{}", "a".repeat(10_000));
    assert_eq!(guard.check(&long).await, Err(FetchError::NotAllowed));
    let from = Url::parse("http://site.example/").unwrap();
    assert_eq!(guard.check_redirect(&from, &long).await, Err(FetchError::NotAllowed));
    assert!(guard.check(long.get(..8000).unwrap()).await.is_ok());
}

#[test]
fn every_refusal_has_the_same_text() {
    assert_eq!(FetchError::NotAllowed.code(), "url_not_allowed");
    assert_eq!(FetchError::NotAllowed.to_string(), "this address may not be fetched");
    assert!(!FetchError::NotAllowed.is_retryable());
}
