//! A Responses service that enforces what the real one enforces on items that come back.
//!
//! It knows every item that it ever sent: to whom, of which model, which reasoning it followed from. It answers what a
//! client gets wrong with the real service's status and words (`rules`), and everything else with an answer of the kind
//! that the last message asks for (`says`). Models whose name begins with `gpt-4` do not reason.

mod answers;
mod rules;

use super::loopback::{Loopback, ReceivedRequest, ResponseAction, full_response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The service and the address where it is.
pub(crate) struct StrictResponses {
    pub(crate) server: Loopback,
    state: Arc<watch::Sender<ServiceState>>,
}

/// What the service knows.
#[derive(Default)]
pub(crate) struct ServiceState {
    /// Every item that was sent, by its id.
    items: BTreeMap<String, SentItem>,
    /// What each blob is the reasoning of. A blob that is not here cannot be read.
    blobs: BTreeMap<String, EncryptedReasoning>,
    /// Messages that made it stop in the middle, which it does once for each.
    stalled: BTreeSet<String>,
    last_number: u32,
    /// The requests that were answered.
    pub(crate) accepted_requests: Vec<Value>,
    /// What was refused, in the words of the refusal.
    pub(crate) refusals: Vec<String>,
    /// Ids that came in and are of nothing that was ever sent.
    pub(crate) unknown_ids: Vec<String>,
    /// Items that came back under their own id with something else in them.
    pub(crate) altered_items: Vec<Value>,
    /// How often reasoning came back with its blob.
    pub(crate) returned_reasoning: usize,
    /// The messages that were sent whole.
    pub(crate) sent_messages: Vec<String>,
}

/// An item as it was sent.
struct SentItem {
    item: Value,
    /// The reasoning that it followed from; of reasoning, what followed from it.
    paired_item: Option<String>,
    /// The service was allowed to keep it.
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

    /// From now on no blob that was given out can be read.
    pub(crate) fn rotate_keys(&self) {
        self.state.send_modify(|book| book.blobs.clear());
    }
}

impl ServiceState {
    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes down what a request that was accepted has brought back.
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
