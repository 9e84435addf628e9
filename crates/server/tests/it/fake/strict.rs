//! A Responses service that enforces what the real one enforces on items that come back.
//!
//! It knows every item that it ever sent: to whom, of which model, which reasoning it followed from. It answers what a
//! client gets wrong with the real service's status and words (`rules`), and everything else with an answer of the kind
//! that the last message asks for (`says`). Models whose name begins with `gpt-4` do not reason.

mod rules;
mod says;

use super::loopback::{Act, Asked, Loopback, whole};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The service and the address where it is.
pub(crate) struct Strict {
    pub(crate) at: Loopback,
    book: Arc<watch::Sender<Book>>,
}

/// What the service knows.
#[derive(Default)]
pub(crate) struct Book {
    /// Every item that was sent, by its id.
    items: BTreeMap<String, Emitted>,
    /// What each blob is the reasoning of. A blob that is not here cannot be read.
    blobs: BTreeMap<String, Blob>,
    /// Messages that made it stop in the middle, which it does once for each.
    stopped: BTreeSet<String>,
    last: u32,
    /// The requests that were answered.
    pub(crate) answered: Vec<Value>,
    /// What was refused, in the words of the refusal.
    pub(crate) refusals: Vec<String>,
    /// Ids that came in and are of nothing that was ever sent.
    pub(crate) strangers: Vec<String>,
    /// Items that came back under their own id with something else in them.
    pub(crate) altered: Vec<Value>,
    /// How often reasoning came back with its blob.
    pub(crate) thought_again: usize,
    /// The messages that were sent whole.
    pub(crate) said: Vec<String>,
}

/// An item as it was sent.
struct Emitted {
    item: Value,
    /// The reasoning that it followed from; of reasoning, what followed from it.
    partner: Option<String>,
    /// The service was allowed to keep it.
    is_kept: bool,
}

#[derive(PartialEq)]
struct Blob {
    reasoning: String,
    account: String,
    model: String,
}

impl Strict {
    pub(crate) async fn open() -> Self {
        let book = Arc::new(watch::Sender::<Book>::default());
        let at = {
            let book = book.clone();
            Loopback::open(move |asked| answer(&book, &asked)).await
        };
        Self { at, book }
    }

    pub(crate) fn book(&self) -> watch::Ref<'_, Book> {
        self.book.borrow()
    }

    /// From now on no blob that was given out can be read.
    pub(crate) fn change_keys(&self) {
        self.book.send_modify(|book| book.blobs.clear());
    }
}

impl Book {
    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Takes down what a request that was accepted has brought back.
    fn note(&mut self, input: &[Value]) {
        for item in input {
            let Some(id) = item["id"].as_str() else { continue };
            match self.items.get(id) {
                Some(known) if known.item == *item => self.thought_again += usize::from(item["type"] == "reasoning"),
                Some(_) => self.altered.push(item.clone()),
                None => self.strangers.push(id.to_owned()),
            }
        }
    }
}

fn answer(book: &watch::Sender<Book>, asked: &Asked) -> Vec<Act> {
    assert_eq!(asked.path, "/v1/responses");
    let account = asked.headers.get("authorization").cloned().unwrap_or_default();
    let mut acts = Vec::new();
    book.send_modify(|book| {
        acts = match rules::judge(book, &account, &asked.body) {
            Ok(()) => {
                book.note(asked.body["input"].as_array().map_or(&[], Vec::as_slice));
                book.answered.push(asked.body.clone());
                says::answer(book, &account, &asked.body)
            }
            Err(refusal) => {
                book.refusals.push(refusal.message.clone());
                let error = json!({"message": refusal.message, "type": "invalid_request_error",
                    "param": refusal.param, "code": refusal.code});
                let body = json!({"error": error}).to_string();
                vec![whole(refusal.status, "content-type: application/json\r\n", &body)]
            }
        };
    });
    acts
}
