//! Every way to make the server fetch a forbidden URL, against listeners that must receive no connection.

use super::canary::Canary;
use super::file_server::{FileServer, PageResponse};
use super::network::Network;
use super::{Listener, REFUSED, begin, files, frames};
use crate::harness::Server;

/// Notations of this machine's address, other internal addresses, and non-web URLs. `PORT` is the listener's.
const INSIDE: &[&str] = &[
    "http://127.0.0.1:PORT/",
    "http://localhost:PORT/",
    "http://localhost.:PORT/",
    "http://a.localhost:PORT/",
    "http://[::1]:PORT/",
    "http://0:PORT/",
    "http://[::]:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f.1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://127.1:PORT/",
    "http://①②⑦.0.0.1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http:127.0.0.1:PORT",
    "http:\\\\127.0.0.1:PORT\\",
    "http://site.example@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT#@site.example/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2001:0:7f00:1::80ff:fffe]:PORT/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:a9fe:a9fe]/latest/meta-data/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://10.0.0.1/",
    "http://192.168.1.1/",
    "http://93.184.215.14:22/",
    "http://93.184.215.14:6379/",
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:PORT/_GET%20/",
    "ftp://127.0.0.1:PORT/x",
    "jar:http://127.0.0.1:PORT/x!/y",
    "unix:/var/run/docker.sock",
    "ws://127.0.0.1:PORT/",
    "https://no-such-name.invalid/",
];

/// Reads these in one run, which completes; each is refused with the same message.
async fn are_refused(hw: &Server, urls: &[String]) {
    let frames = frames(hw, &begin(hw, urls).await).await;
    assert_eq!(frames.last().unwrap().event, "task.completed", "{frames:#?}");
    let mut found = files(&frames);
    found.sort();
    let refused = |url: &String| (url.clone(), "failed".to_owned(), REFUSED.to_owned());
    let mut wanted: Vec<(String, String, String)> = urls.iter().map(refused).collect();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn no_notation_of_an_address_reaches_a_listener_on_loopback() {
    let (model, v4, v6) = (Listener::open().await, Canary::at("127.0.0.1:0").await, Canary::at("[::1]:0").await);
    let ports = [v4.address.port(), v6.address.port()];
    let closed = model.server(&format!("[fetch]\nports = [80, 443, {}, {}]", ports[0], ports[1]));
    for port in ports {
        let urls: Vec<String> = INSIDE.iter().map(|url| url.replace("PORT", &port.to_string())).collect();
        for urls in urls.chunks(8) {
            are_refused(&closed, urls).await;
        }
    }
    assert_eq!((v4.seen().await, v6.seen().await), (0, 0));
    // The model got a note about each, and was called.
    let notes = model.heard().join("\n");
    assert!(notes.contains(&format!("no-such-name.invalid/ could not be read: {REFUSED}")), "{notes}");

    // Proves that the listeners count.
    let open = model.server(&format!("[fetch]\nallow_private = true\nports = [{}, {}]", ports[0], ports[1]));
    for canary in [&v4, &v6] {
        let url = format!("http://{}/", canary.address);
        let found = files(&frames(&open, &begin(&open, &[url]).await).await);
        assert_eq!((found.len(), found[0].2.as_str()), (1, "The response is damaged."));
        assert_eq!(canary.seen().await, 1);
    }
}

#[tokio::test]
async fn no_redirect_from_an_allowed_site_reaches_an_internal_address() {
    let (model, canary) = (Listener::open().await, Canary::at("127.0.0.1:0").await);
    let port = canary.address.port();
    let inside = [
        format!("http://127.0.0.1:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://localhost:{port}/"),
        "file:///etc/passwd".to_owned(),
        "//10.0.0.1/".to_owned(),
        "/here".to_owned(),
    ];
    for status in [301, 302, 307, 308] {
        let paths: Vec<String> = (0..inside.len() - 1).map(|number| format!("/{number}")).collect();
        let mut pages: Vec<(&str, PageResponse)> = vec![("/here", PageResponse::Redirect(status, "/here".to_owned()))];
        pages.extend(
            paths.iter().zip(&inside).map(|(path, to)| (path.as_str(), PageResponse::Redirect(status, to.clone()))),
        );
        let web = FileServer::start("127.0.0.2:0", pages).await;
        let rules = format!("allow_private = [\"127.0.0.2\"]\nports = [80, {}, {port}]", web.address.port());
        let hw = model.server(&format!("[fetch]\n{rules}"));
        let urls: Vec<String> = paths.iter().map(String::as_str).chain(["/here"]).map(|path| web.url(path)).collect();
        are_refused(&hw, &urls).await;
        // The site itself was contacted, and a redirect loop ends.
        let asked = web.access_counts().by_path;
        assert!(paths.iter().all(|path| asked[path] == 1) && asked["/here"] == 4, "{asked:?}");
    }
    assert_eq!(canary.seen().await, 0);
}

#[tokio::test]
async fn the_server_refuses_its_own_urls_even_when_all_others_are_allowed() {
    let (model, host, public) =
        (Listener::open().await, Canary::at("127.0.0.1:0").await, Canary::at("127.0.0.1:0").await);
    let named = [&host, &public].map(|canary| format!("localhost:{}", canary.address.port()));
    // The server takes a free port, so all candidate ports are allowed.
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<u16> = range.split_whitespace().map(|port| port.parse().unwrap()).collect();
    let ports: Vec<String> = (range[0]..=range[1]).map(|port| port.to_string()).collect();
    let hw = model.server(&format!(
        "[server]\nhosts = [\"{}\"]\n[files]\npublic_url = \"http://{}/x\"\n[fetch]\nallow_private = true\nports = [{}]",
        named[0],
        named[1],
        ports.join(", ")
    ));
    let port = hw.address.rsplit_once(':').unwrap().1;
    let ways = ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0"].map(|host| format!("{host}:{port}"));
    let urls: Vec<String> = ways.iter().chain(&named).map(|place| format!("http://{place}/openapi.json")).collect();
    are_refused(&hw, &urls).await;
    assert_eq!((host.seen().await, public.seen().await), (0, 0));

    // Under another name they are another server.
    for canary in [host, public] {
        let found = files(&frames(&hw, &begin(&hw, &[format!("http://{}/", canary.address)]).await).await);
        assert_eq!((found.len(), found[0].2.as_str(), canary.seen().await), (1, "The response is damaged.", 1));
    }
}

#[tokio::test]
async fn a_neighbour_in_another_network_receives_nothing() {
    let Some(network) = Network::make_or_skip("a_neighbour_in_another_network_receives_nothing") else { return };
    let (model, canary) = (Listener::open().await, Canary::on(network.listen(80).unwrap()));
    let neighbour = &network.neighbour;
    let number = neighbour.split('.').fold(0_u32, |number, octet| number * 256 + octet.parse::<u32>().unwrap());
    let inside = format!("http://{neighbour}/");
    let web = FileServer::start("127.0.0.2:0", [("/", PageResponse::Redirect(302, inside.clone()))]).await;
    let rules = format!("allow_private = [\"127.0.0.2\"]\nports = [80, {}]", web.address.port());
    let hw = model.server(&format!("[fetch]\n{rules}"));
    let mapped = format!("http://[64:ff9b::{:x}:{:x}]/", number >> 16, number & 0xffff);
    let urls =
        [inside.clone(), format!("http://{number}/"), format!("http://[::ffff:{neighbour}]/"), mapped, web.url("/")];
    are_refused(&hw, &urls).await;
    assert_eq!(canary.seen().await, 0);

    // Proves that the route exists and that the listener counts.
    let open = model.server("[fetch]\nallow_private = true");
    let found = files(&frames(&open, &begin(&open, &[inside]).await).await);
    assert_eq!((found[0].2.as_str(), canary.seen().await), ("The response is damaged.", 1));
}
