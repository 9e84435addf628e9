//! The law of [`model::ports::McpPins`].

use super::TestStore;
use super::fixtures::{other_user, test_user};
use model::ports::{Journal, MCP_PINS_MAX};
use std::collections::BTreeMap;

fn digests(pins: &[(&str, &str)]) -> BTreeMap<String, String> {
    pins.iter().map(|(tool, digest)| ((*tool).to_owned(), (*digest).to_owned())).collect()
}

/// 1, 2: the first pin of a tool stays, and is found by its owner and server alone.
pub async fn the_first_pin_of_a_tool_stays(_: &dyn Journal, store: &dyn TestStore) {
    let user = test_user();
    let first = digests(&[("read", "a"), ("write", "b")]);
    assert_eq!(store.pin_new(&user, "files", &first, 1).await, Ok(first.clone()));
    assert_eq!(store.pin_new(&user, "files", &digests(&[]), 2).await, Ok(first));
    let changed = digests(&[("list", "d"), ("read", "c")]);
    let all = digests(&[("list", "d"), ("read", "a"), ("write", "b")]);
    assert_eq!(store.pin_new(&user, "files", &changed, 2).await, Ok(all));
    assert_eq!(store.pin_new(&user, "wiki", &changed, 2).await, Ok(changed.clone()));
    assert_eq!(store.pin_new(&other_user(), "files", &changed, 2).await, Ok(changed));
}

/// 3: a new consent replaces the pin.
pub async fn a_pin_is_replaced(_: &dyn Journal, store: &dyn TestStore) {
    let user = test_user();
    store.pin_new(&user, "files", &digests(&[("read", "a")]), 1).await.unwrap();
    store.replace_pin(&user, "files", "read", "b", 2).await.unwrap();
    store.replace_pin(&user, "files", "write", "c", 2).await.unwrap();
    let expected = digests(&[("read", "b"), ("write", "c")]);
    assert_eq!(store.pin_new(&user, "files", &digests(&[("read", "x")]), 3).await, Ok(expected));
    assert_eq!(store.pin_new(&other_user(), "files", &digests(&[]), 3).await, Ok(digests(&[])));
}

/// 4: what is beyond the limit is not written, and the others stay.
pub async fn pins_are_bounded(_: &dyn Journal, store: &dyn TestStore) {
    let user = test_user();
    let many: BTreeMap<String, String> =
        (0..MCP_PINS_MAX + 5).map(|number| (format!("t{number:05}"), "a".to_owned())).collect();
    let kept = store.pin_new(&user, "files", &many, 1).await.unwrap();
    assert_eq!(kept.len(), MCP_PINS_MAX);
    assert_eq!(store.pin_new(&user, "files", &digests(&[("new", "b")]), 2).await.unwrap(), kept);
    store.replace_pin(&user, "files", "new", "b", 3).await.unwrap();
    store.replace_pin(&user, "files", "t00000", "b", 3).await.unwrap();
    let after = store.pin_new(&user, "files", &digests(&[]), 4).await.unwrap();
    assert_eq!((after.len(), after.get("new"), after["t00000"].as_str()), (MCP_PINS_MAX, None, "b"));
}
