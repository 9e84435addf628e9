//! A Responses service that applies the checks of the real one to resent items.
//!
//! It knows every item that it ever sent: the account, the model, and the reasoning before it. It answers invalid
//! requests with the real service's status and message (`rules`), and valid ones with the kind of answer that the last
//! message asks for (`answers`). Models whose name begins with `gpt-4` do not reason.

mod answers;
mod rules;

use super::loopback::{Loopback, ReceivedRequest, ResponseAction, full_response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The service and its URL.
pub(crate) struct StrictResponses {
    pub(crate) server: Loopback,
    state: Arc<watch::Sender<ServiceState>>,
}

/// What the service knows.
#[derive(Default)]
pub(crate) struct ServiceState {
    /// Every item that was sent, by id.
    items: BTreeMap<String, SentItem>,
    /// The reasoning of each encrypted blob. A blob that is not here cannot be decrypted.
    blobs: BTreeMap<String, EncryptedReasoning>,
    /// Messages at which it stopped in mid-answer, once for each.
    stalled: BTreeSet<String>,
    last_number: u32,
    /// The requests that were answered.
    pub(crate) accepted_requests: Vec<Value>,
    /// The messages of error responses.
    pub(crate) refusals: Vec<String>,
    /// Received ids that were never sent.
    pub(crate) unknown_ids: Vec<String>,
    /// Items that came back under their own id with other content.
    pub(crate) altered_items: Vec<Value>,
    /// How often reasoning came back with its blob.
    pub(crate) returned_reasoning: usize,
    /// The messages that were sent complete.
    pub(crate) sent_messages: Vec<String>,
}

/// An item as it was sent.
struct SentItem {
    item: Value,
    /// The reasoning before it; for reasoning, the item after it.
    paired_item: Option<String>,
    /// Whether the service was allowed to store it.
    is_stored: bool,
}

#[derive(PartialEq)]
struct EncryptedReasoning {
    reasoning: String,
    account: String,
    model: String,
}

impl StrictResponses {
    pub(crate) async fn start() -> Self {
        let book = Arc::new(watch::Sender::<ServiceState>::default());
        let at = {
            let book = book.clone();
            Loopback::start(move |asked| handle_request(&book, &asked)).await
        };
        Self { server: at, state: book }
    }

    pub(crate) fn state(&self) -> watch::Ref<'_, ServiceState> {
        self.state.borrow()
    }

    /// Makes all existing blobs undecryptable.
    pub(crate) fn rotate_keys(&self) {
        self.state.send_modify(|book| book.blobs.clear());
    }
}

impl ServiceState {
    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Records the resent items of an accepted request.
    fn record_input(&mut self, input: &[Value]) {
        for item in input {
            let Some(id) = item["id"].as_str() else { continue };
            match self.items.get(id) {
                Some(known) if known.item == *item => {
                    self.returned_reasoning += usize::from(item["type"] == "reasoning");
                }
                Some(_) => self.altered_items.push(item.clone()),
                None => self.unknown_ids.push(id.to_owned()),
            }
        }
    }
}

fn handle_request(book: &watch::Sender<ServiceState>, asked: &ReceivedRequest) -> Vec<ResponseAction> {
    assert_eq!(asked.path, "/v1/responses");
    let account = asked.headers.get("authorization").cloned().unwrap_or_default();
    let mut acts = Vec::new();
    book.send_modify(|book| {
        acts = match rules::validate_request(book, &account, &asked.body) {
            Ok(()) => {
                book.record_input(asked.body["input"].as_array().map_or(&[], Vec::as_slice));
                book.accepted_requests.push(asked.body.clone());
                answers::build_answer(book, &account, &asked.body)
            }
            Err(refusal) => {
                book.refusals.push(refusal.message.clone());
                let error = json!({"message": refusal.message, "type": "invalid_request_error",
                    "param": refusal.param, "code": refusal.code});
                let body = json!({"error": error}).to_string();
                vec![full_response(refusal.status, "content-type: application/json\r\n", &body)]
            }
        };
    });
    acts
}
