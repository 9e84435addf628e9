//! Anthropic Messages.
//!
//! - `ingest` reads a stream: `block_builder` and `block_delta` are its content blocks, `item_builder` the items made of
//!   them.
//! - `request` builds the body: `conversation` and `content` are its messages, `thinking` and `cache_control` the two
//!   features that depend on the whole conversation.
//! - `refusal` classifies errors.
//!
//! A content block becomes an item, with three exceptions: consecutive text blocks are one message (the provider starts a
//! block for every citation), a tool that the provider runs itself is one item with its result, and unknown blocks are
//! passed on as `Unknown`.
//!
//! A raw item is the array of its blocks, ready to be sent back. A message that is only text has none: the text is enough.
//!
//! `pause_turn` (the provider's own tools took too many rounds, and it wants to be called again with its output) ends the
//! turn as a limit does: the output stays, the run is incomplete, and the next run of the thread continues it. If the turn
//! counted as complete, the history would contain calls without results, which the provider refuses.

mod block_builder;
mod block_delta;
mod cache_control;
mod classify_error;
mod content;
mod conversation;
mod exact_inputs;
mod ingest;
mod item_builder;
mod request;
mod settings;
mod thinking;
mod wire;

pub use classify_error::classify_error;
pub use exact_inputs::{ExactInputs, exact_inputs, write_body};
#[cfg(test)]
pub(crate) use ingest::MessagesIngest;
pub use ingest::new_ingest;
pub use request::{build_request, without_reasoning, write_request};

use model::json::JsonObject;
use serde_json::Value;

/// Follows the base URL.
pub const ENDPOINT_PATH: &str = "/v1/messages";
/// The header of the API key.
pub const API_KEY_HEADER: &str = "x-api-key";
/// The version of the protocol that this crate implements.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The option that names beta features (`betas = ["…"]`). It goes into a header, not into the body.
const BETAS_OPTION: &str = "betas";

/// The headers of every request, without the API key.
pub fn request_headers(options: &JsonObject) -> Vec<(&'static str, String)> {
    let mut headers = vec![("anthropic-version", ANTHROPIC_VERSION.to_owned())];
    let betas = options.get(BETAS_OPTION).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_plain = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let betas: Vec<&str> = betas.iter().filter_map(Value::as_str).filter(is_plain).collect();
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
    fn beta_features_cannot_inject_headers() {
        let options = json!({"betas": ["a-2025", "b-2026", "x\r\ny: z", "", 7]});
        let options = options.as_object().unwrap();
        assert_eq!(
            request_headers(options),
            [("anthropic-version", "2023-06-01".to_owned()), ("anthropic-beta", "a-2025,b-2026".to_owned())]
        );
        assert_eq!(request_headers(&JsonObject::new()).len(), 1);
    }
}
