//! Replays the fuzz corpus on every test run through the checks that the fuzz targets call.

#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/url_guard.rs"]
mod url_guard;

use replay::replay;

#[test]
fn the_corpus_of_urls_passes_its_check() {
    replay("url_guard", url_guard::an_allowed_url_is_public);
}
