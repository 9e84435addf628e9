//! What the service does not take back, and how it says so.

use super::{Blob, Book};
use serde_json::Value;

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: &'static str,
    pub(super) code: Option<&'static str>,
    pub(super) message: String,
    pub(super) param: String,
}

fn refused(message: String) -> Refusal {
    Refusal { status: "400 Bad Request", code: None, message, param: "input".to_owned() }
}

/// Is everything in this request as the service wants it?
pub(super) fn judge(book: &Book, account: &str, body: &Value) -> Result<(), Refusal> {
    let model = body["model"].as_str().unwrap_or_default();
    let include = body["include"].as_array().map_or(&[][..], Vec::as_slice);
    if model.starts_with("gpt-4") && include.iter().any(|what| what == "reasoning.encrypted_content") {
        let message = "Encrypted content is not supported with this model.".to_owned();
        return Err(Refusal { param: "include".to_owned(), ..refused(message) });
    }
    if let Some(previous) = body["previous_response_id"].as_str() {
        let message = format!("Previous response with id '{previous}' not found.");
        let code = Some("previous_response_not_found");
        return Err(Refusal { code, param: "previous_response_id".to_owned(), ..refused(message) });
    }
    let Some(input) = body["input"].as_array() else { return Ok(()) };
    let store = body["store"].as_bool().unwrap_or(true);
    let reader = Reader { book, account, model, store, input };
    for (place, item) in input.iter().enumerate() {
        reader.id(place, item)?;
        match kind(item) {
            "reasoning" => reader.reasoning(place, item)?,
            "message" | "function_call" => reader.follower(place, item)?,
            "function_call_output" => reader.output(place, item)?,
            "item_reference" => reader.kept(item["id"].as_str().unwrap_or_default(), true)?,
            other => return Err(refused(format!("Invalid value: '{other}'."))),
        }
    }
    Ok(())
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or(if item["role"].is_string() { "message" } else { "item_reference" })
}

struct Reader<'a> {
    book: &'a Book,
    account: &'a str,
    model: &'a str,
    store: bool,
    input: &'a [Value],
}

impl Reader<'_> {
    /// An id has the shape of its kind.
    fn id(&self, place: usize, item: &Value) -> Result<(), Refusal> {
        let prefix = match kind(item) {
            "reasoning" => "rs",
            "message" => "msg",
            "function_call" => "fc",
            _ => return Ok(()),
        };
        let Some(id) = item["id"].as_str().filter(|id| !id.starts_with(&format!("{prefix}_"))) else { return Ok(()) };
        let param = format!("input[{place}].id");
        let message = format!("Invalid '{param}': '{id}'. Expected an ID that begins with '{prefix}'.");
        Err(Refusal { code: Some("invalid_value"), param, ..refused(message) })
    }

    /// Reasoning comes with a blob that this service wrote for this account and model, or is still known by its id; and
    /// what followed from it follows.
    fn reasoning(&self, place: usize, item: &Value) -> Result<(), Refusal> {
        let id = item["id"].as_str().unwrap_or_default();
        match item["encrypted_content"].as_str().filter(|blob| !blob.is_empty()) {
            Some(blob) => self.readable(id, blob)?,
            None => {
                // The service drops the reasoning of a turn when the next one begins.
                let is_past = self.input.iter().skip(place).any(|later| later["role"] == "user");
                self.kept(id, !is_past)?;
            }
        }
        let next = self.input.iter().skip(place).find(|later| kind(later) != "reasoning");
        let partner = self.book.items.get(id).and_then(|known| known.partner.as_deref());
        let is_followed = next.is_some_and(|next| partner.is_some() && next["id"].as_str() == partner);
        if is_followed {
            return Ok(());
        }
        Err(refused(format!("Item '{id}' of type 'reasoning' was provided without its required following item.")))
    }

    fn readable(&self, id: &str, blob: &str) -> Result<(), Refusal> {
        let (reasoning, account, model) = (id.to_owned(), self.account.to_owned(), self.model.to_owned());
        if self.book.blobs.get(blob) == Some(&Blob { reasoning, account, model }) {
            return Ok(());
        }
        let shown: String = blob.chars().take(4).collect();
        let message = format!(
            "The encrypted content {shown}... could not be verified. Reason: Encrypted content could not be decrypted \
             or parsed."
        );
        Err(Refusal { code: Some("invalid_encrypted_content"), ..refused(message) })
    }

    fn kept(&self, id: &str, is_recent: bool) -> Result<(), Refusal> {
        let is_kept = self.book.items.get(id).is_some_and(|known| known.is_kept);
        if is_kept && is_recent {
            return Ok(());
        }
        let hint = " Items are not persisted when `store` is set to false. Try again with `store` set to true, or \
                    remove this item from your input.";
        let message = format!("Item with id '{id}' not found.{}", if self.store { "" } else { hint });
        Err(Refusal { status: "404 Not Found", ..refused(message) })
    }

    /// What followed from reasoning comes with it, if it comes under its own id. A call is answered.
    fn follower(&self, place: usize, item: &Value) -> Result<(), Refusal> {
        let id = item["id"].as_str().unwrap_or_default();
        if let Some(reasoning) = self.book.items.get(id).and_then(|known| known.partner.as_deref())
            && !self.input.iter().take(place).any(|before| before["id"] == reasoning)
        {
            let kind = kind(item);
            let message = format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{reasoning}'."
            );
            return Err(refused(message));
        }
        let call = &item["call_id"];
        let is_output = |later: &Value| kind(later) == "function_call_output" && later["call_id"] == *call;
        if kind(item) == "function_call" && !self.input.iter().skip(place).any(is_output) {
            return Err(refused(format!(
                "No tool output found for function call {}.",
                call.as_str().unwrap_or_default()
            )));
        }
        Ok(())
    }

    fn output(&self, place: usize, item: &Value) -> Result<(), Refusal> {
        let call = &item["call_id"];
        let is_call = |before: &Value| kind(before) == "function_call" && before["call_id"] == *call;
        if self.input.iter().take(place).any(is_call) {
            return Ok(());
        }
        let call = call.as_str().unwrap_or_default();
        Err(refused(format!("No tool call found for function call output with call_id {call}.")))
    }
}
