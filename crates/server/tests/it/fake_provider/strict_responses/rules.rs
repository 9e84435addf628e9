//! The checks of the service and their error messages.

use super::{EncryptedReasoning, ServiceState};
use serde_json::Value;

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct RejectedRequest {
    pub(super) status: &'static str,
    pub(super) code: Option<&'static str>,
    pub(super) message: String,
    pub(super) param: String,
}

fn bad_request(message: String) -> RejectedRequest {
    RejectedRequest { status: "400 Bad Request", code: None, message, param: "input".to_owned() }
}

/// Checks a request as the service does.
pub(super) fn validate_request(book: &ServiceState, account: &str, body: &Value) -> Result<(), RejectedRequest> {
    let model = body["model"].as_str().unwrap_or_default();
    let include = body["include"].as_array().map_or(&[][..], Vec::as_slice);
    if model.starts_with("gpt-4") && include.iter().any(|what| what == "reasoning.encrypted_content") {
        let message = "Encrypted content is not supported with this model.".to_owned();
        return Err(RejectedRequest { param: "include".to_owned(), ..bad_request(message) });
    }
    if let Some(previous) = body["previous_response_id"].as_str() {
        let message = format!("Previous response with id '{previous}' not found.");
        let code = Some("previous_response_not_found");
        return Err(RejectedRequest { code, param: "previous_response_id".to_owned(), ..bad_request(message) });
    }
    let Some(input) = body["input"].as_array() else { return Ok(()) };
    let store = body["store"].as_bool().unwrap_or(true);
    let reader = InputValidator { book, account, model, store, input };
    for (place, item) in input.iter().enumerate() {
        reader.check_id(place, item)?;
        match item_type(item) {
            "reasoning" => reader.check_reasoning(place, item)?,
            "message" | "function_call" => reader.check_pairing(place, item)?,
            "function_call_output" => reader.check_tool_output(place, item)?,
            "item_reference" => reader.check_stored(item["id"].as_str().unwrap_or_default(), true)?,
            other => return Err(bad_request(format!("Invalid value: '{other}'."))),
        }
    }
    Ok(())
}

fn item_type(item: &Value) -> &str {
    item["type"].as_str().unwrap_or(if item["role"].is_string() { "message" } else { "item_reference" })
}

struct InputValidator<'a> {
    book: &'a ServiceState,
    account: &'a str,
    model: &'a str,
    store: bool,
    input: &'a [Value],
}

impl InputValidator<'_> {
    /// An id has the prefix of its type.
    fn check_id(&self, place: usize, item: &Value) -> Result<(), RejectedRequest> {
        let prefix = match item_type(item) {
            "reasoning" => "rs",
            "message" => "msg",
            "function_call" => "fc",
            _ => return Ok(()),
        };
        let Some(id) = item["id"].as_str().filter(|id| !id.starts_with(&format!("{prefix}_"))) else { return Ok(()) };
        let param = format!("input[{place}].id");
        let message = format!("Invalid '{param}': '{id}'. Expected an ID that begins with '{prefix}'.");
        Err(RejectedRequest { code: Some("invalid_value"), param, ..bad_request(message) })
    }

    /// Reasoning comes with a blob that this service wrote for this account and model, or is still known by its id; and
    /// its following item follows.
    fn check_reasoning(&self, place: usize, item: &Value) -> Result<(), RejectedRequest> {
        let id = item["id"].as_str().unwrap_or_default();
        match item["encrypted_content"].as_str().filter(|blob| !blob.is_empty()) {
            Some(blob) => self.check_encrypted_content(id, blob)?,
            None => {
                // The service drops the reasoning of a turn when the next one starts.
                let is_past = self.input.iter().skip(place).any(|later| later["role"] == "user");
                self.check_stored(id, !is_past)?;
            }
        }
        let next = self.input.iter().skip(place).find(|later| item_type(later) != "reasoning");
        let partner = self.book.items.get(id).and_then(|known| known.paired_item.as_deref());
        let is_followed = next.is_some_and(|next| partner.is_some() && next["id"].as_str() == partner);
        if is_followed {
            return Ok(());
        }
        Err(bad_request(format!("Item '{id}' of type 'reasoning' was provided without its required following item.")))
    }

    fn check_encrypted_content(&self, id: &str, blob: &str) -> Result<(), RejectedRequest> {
        let (reasoning, account, model) = (id.to_owned(), self.account.to_owned(), self.model.to_owned());
        if self.book.blobs.get(blob) == Some(&EncryptedReasoning { reasoning, account, model }) {
            return Ok(());
        }
        let shown: String = blob.chars().take(4).collect();
        let message = format!(
            "The encrypted content {shown}... could not be verified. Reason: Encrypted content could not be decrypted \
             or parsed."
        );
        Err(RejectedRequest { code: Some("invalid_encrypted_content"), ..bad_request(message) })
    }

    fn check_stored(&self, id: &str, is_recent: bool) -> Result<(), RejectedRequest> {
        let is_kept = self.book.items.get(id).is_some_and(|known| known.is_stored);
        if is_kept && is_recent {
            return Ok(());
        }
        let hint = " Items are not persisted when `store` is set to false. Try again with `store` set to true, or \
                    remove this item from your input.";
        let message = format!("Item with id '{id}' not found.{}", if self.store { "" } else { hint });
        Err(RejectedRequest { status: "404 Not Found", ..bad_request(message) })
    }

    /// An item that followed reasoning comes with it if it has its own id. A call has a result.
    fn check_pairing(&self, place: usize, item: &Value) -> Result<(), RejectedRequest> {
        let id = item["id"].as_str().unwrap_or_default();
        if let Some(reasoning) = self.book.items.get(id).and_then(|known| known.paired_item.as_deref())
            && !self.input.iter().take(place).any(|before| before["id"] == reasoning)
        {
            let kind = item_type(item);
            let message = format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{reasoning}'."
            );
            return Err(bad_request(message));
        }
        let call = &item["call_id"];
        let is_output = |later: &Value| item_type(later) == "function_call_output" && later["call_id"] == *call;
        if item_type(item) == "function_call" && !self.input.iter().skip(place).any(is_output) {
            return Err(bad_request(format!(
                "No tool output found for function call {}.",
                call.as_str().unwrap_or_default()
            )));
        }
        Ok(())
    }

    fn check_tool_output(&self, place: usize, item: &Value) -> Result<(), RejectedRequest> {
        let call = &item["call_id"];
        let is_call = |before: &Value| item_type(before) == "function_call" && before["call_id"] == *call;
        if self.input.iter().take(place).any(is_call) {
            return Ok(());
        }
        let call = call.as_str().unwrap_or_default();
        Err(bad_request(format!("No tool call found for function call output with call_id {call}.")))
    }
}
