//! Anthropic Messages, as its client.
//!
//! [`ingest`] reads a stream, [`request`] writes the body that asks for one, [`refused`] reads an error answer. A content
//! block of the provider is an item of ours, with three exceptions that make the answer whole again: text blocks that
//! follow each other are one message (the provider starts a new one for every citation), a tool that the provider runs
//! itself is one item with its result, and what the provider calls neither is passed on as unknown.
//!
//! A raw item is the list of the blocks that the item came as, ready to be sent back. A message of plain words has none:
//! its words are enough.
//!
//! `pause_turn` (the provider's own tools took too many rounds, and it wants to be asked again with what it said) ends
//! the turn as a limit would: what was said stands, the run is incomplete, and whoever goes on with the thread continues
//! it. To call it whole would be untrue, and would give back calls that have no result, which the provider refuses.

mod block_builder;
mod block_delta;
mod cache_control;
mod content;
mod conversation;
mod ingest;
mod item_builder;
mod refusal;
mod request;
mod settings;
mod thinking;

pub use ingest::new_ingest;
pub use refusal::classify_error;
pub use request::{build_request, without_reasoning};

use model::json::JsonObject;
use serde_json::Value;

/// Where to, behind the base address.
pub const ENDPOINT_PATH: &str = "/v1/messages";
/// The header that carries the key.
pub const API_KEY_HEADER: &str = "x-api-key";
/// The version of the protocol that is spoken here.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The wish that names beta features (`betas = ["…"]`): it goes into a header, not into the body.
const BETAS_OPTION: &str = "betas";

/// The headers of every request, without the key.
#[must_use]
pub fn request_headers(options: &JsonObject) -> Vec<(&'static str, String)> {
    let mut headers = vec![("anthropic-version", ANTHROPIC_VERSION.to_owned())];
    let named = options.get(BETAS_OPTION).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let plain = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let betas: Vec<&str> = named.iter().filter_map(Value::as_str).filter(plain).collect();
    if !betas.is_empty() {
        headers.push(("anthropic-beta", betas.join(",")));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn beta_features_go_into_a_header_that_nothing_can_break_out_of() {
        let options = json!({"betas": ["a-2025", "b-2026", "x\r\ny: z", "", 7]});
        let options = options.as_object().unwrap();
        assert_eq!(
            request_headers(options),
            [("anthropic-version", "2023-06-01".to_owned()), ("anthropic-beta", "a-2025,b-2026".to_owned())]
        );
        assert_eq!(request_headers(&JsonObject::new()).len(), 1);
    }
}
