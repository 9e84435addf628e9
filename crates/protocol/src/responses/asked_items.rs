//! The items of a request. A client that keeps its own history sends back what it was given, each item with its id.

use crate::said::{Said, What, Wrong, as_address, looked_at};
use model::block::{ContentPart, FileRef, ImageUrl};
use serde_json::Value;

/// What a plain text says.
pub(super) fn of_text(text: &str) -> Option<Said> {
    (!text.is_empty()).then(|| Said { id: None, what: What::User(vec![ContentPart::text(text)]) })
}

/// The items of a list.
pub(super) fn items(field: &str, list: &[Value]) -> Result<Vec<Said>, Wrong> {
    let mut said = Vec::new();
    for (place, item) in list.iter().enumerate() {
        read(&format!("{field}[{place}]"), item, &mut said)?;
    }
    Ok(said)
}

fn read(field: &str, item: &Value, out: &mut Vec<Said>) -> Result<(), Wrong> {
    if !item.is_object() {
        return Err(Wrong::new(field, "expected an item"));
    }
    let id = text(item, "id").map(str::to_owned);
    let need = |name: &str| {
        let found = text(item, name).map(str::to_owned);
        found.ok_or_else(|| Wrong::new(format!("{field}.{name}"), "expected a text"))
    };
    let what = match text(item, "type") {
        // The type of a message may be left out, and so may that of a reference.
        Some("message") => return message(field, item, id, out),
        None if item.get("role").is_some() => return message(field, item, id, out),
        None if id.is_some() => What::Other,
        None => return Err(Wrong::new(format!("{field}.type"), "expected a type")),
        Some("function_call") => {
            What::Call { call_id: need("call_id")?, name: need("name")?, arguments: need("arguments")? }
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let content = output(field, item.get("output"))?;
            What::Result { call_id: need("call_id")?, content, failed: false }
        }
        Some("computer_call_output") => {
            let content = screenshot(field, item.get("output"))?;
            What::Result { call_id: need("call_id")?, content, failed: false }
        }
        Some("mcp_approval_response") => What::Decision {
            key: need("approval_request_id")?,
            approve: item
                .get("approve")
                .and_then(Value::as_bool)
                .ok_or_else(|| Wrong::new(format!("{field}.approve"), "expected true or false"))?,
            reason: text(item, "reason").filter(|reason| !reason.is_empty()).map(str::to_owned),
        },
        Some("mcp_call") => return mcp_call(field, item, out),
        Some("image_generation_call") => drawing(field, item)?,
        // Thoughts, references, questions, and what a provider did itself.
        Some(_) => What::Other,
    };
    out.push(Said { id, what });
    Ok(())
}

/// A call that some server answered: two things in one.
fn mcp_call(field: &str, item: &Value, out: &mut Vec<Said>) -> Result<(), Wrong> {
    let (Some(id), Some(name)) = (text(item, "id"), text(item, "name")) else {
        return Err(Wrong::new(field, "expected an `id` and a `name`"));
    };
    let arguments = text(item, "arguments").unwrap_or("{}").to_owned();
    out.push(Said {
        id: Some(id.to_owned()),
        what: What::Call { call_id: id.to_owned(), name: name.to_owned(), arguments },
    });
    let failed = item.get("error").is_some_and(|error| !error.is_null());
    let said = text(item, "output").map(str::to_owned);
    let content = said.or_else(|| failed.then(|| item.get("error").map(Value::to_string))?).unwrap_or_default();
    let what = What::Result { call_id: id.to_owned(), content: vec![ContentPart::text(content)], failed };
    out.push(Said { id: Some(id.to_owned()), what });
    Ok(())
}

/// A message. What its operator shows is shown by a person: no service takes pictures from anybody else.
fn message(field: &str, item: &Value, id: Option<String>, out: &mut Vec<Said>) -> Result<(), Wrong> {
    let content = match item.get("content") {
        Some(Value::String(text)) => vec![ContentPart::text(text.clone())],
        Some(Value::Array(list)) => parts(&format!("{field}.content"), list)?,
        _ => return Err(Wrong::new(format!("{field}.content"), "expected a text or a list of parts")),
    };
    let is_words = |part: &ContentPart| matches!(part, ContentPart::Text { .. });
    let (what, shown) = match text(item, "role") {
        Some("user") => (What::User(content), Vec::new()),
        Some("assistant") if !content.iter().all(is_words) => {
            return Err(Wrong::new(format!("{field}.content"), "an assistant's message has words alone"));
        }
        Some("assistant") => (What::Assistant(words(&content)), Vec::new()),
        Some("system" | "developer") => {
            let said = words(&content);
            (What::System(said), content.into_iter().filter(|part| !is_words(part)).collect())
        }
        _ => return Err(Wrong::new(format!("{field}.role"), "expected `user`, `assistant`, `system` or `developer`")),
    };
    out.push(Said { id, what });
    out.extend((!shown.is_empty()).then_some(Said { id: None, what: What::User(shown) }));
    Ok(())
}

/// What a model had drawn. One of ours is known by its id; of others the picture has come along.
fn drawing(field: &str, item: &Value) -> Result<What, Wrong> {
    match text(item, "result").filter(|result| !result.is_empty()) {
        None => Ok(What::Other),
        Some(base64) => Ok(What::Drawn(vec![picture(field, format!("data:image/png;base64,{base64}"))?])),
    }
}

fn words(parts: &[ContentPart]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        ContentPart::Text { text, .. } => Some(text.as_str()),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// What a tool gave: a text, or parts.
fn output(field: &str, output: Option<&Value>) -> Result<Vec<ContentPart>, Wrong> {
    match output {
        Some(Value::String(text)) => Ok(vec![ContentPart::text(text.clone())]),
        Some(Value::Array(list)) => parts(&format!("{field}.output"), list),
        _ => Err(Wrong::new(format!("{field}.output"), "expected a text or a list of parts")),
    }
}

fn screenshot(field: &str, output: Option<&Value>) -> Result<Vec<ContentPart>, Wrong> {
    let url = output.and_then(|output| text(output, "image_url")).unwrap_or_default();
    Ok(vec![picture(&format!("{field}.output"), url.to_owned())?])
}

fn parts(field: &str, list: &[Value]) -> Result<Vec<ContentPart>, Wrong> {
    list.iter().enumerate().map(|(place, value)| part(&format!("{field}[{place}]"), value)).collect()
}

fn part(field: &str, part: &Value) -> Result<ContentPart, Wrong> {
    let need = |name: &str| {
        let found = text(part, name).map(str::to_owned);
        found.ok_or_else(|| Wrong::new(format!("{field}.{name}"), "expected a text"))
    };
    match text(part, "type") {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
            Ok(ContentPart::text(need("text")?))
        }
        Some("refusal") => Ok(ContentPart::text(need("refusal")?)),
        Some("input_image" | "computer_screenshot") => match text(part, "image_url") {
            Some(url) => looked_at(picture(field, url.to_owned())?, text(part, "detail"), field),
            None => Err(Wrong::new(
                format!("{field}.image_url"),
                "expected an address: files of a file store are not known here",
            )),
        },
        Some("input_file") => file(field, part),
        _ => Err(Wrong::new(format!("{field}.type"), "expected `input_text`, `input_image` or `input_file`")),
    }
}

fn picture(field: &str, url: String) -> Result<ContentPart, Wrong> {
    let image_url =
        ImageUrl::parse(url).map_err(|error| Wrong::new(format!("{field}.image_url"), error.to_string()))?;
    Ok(ContentPart::ImageUrl { image_url, id: None })
}

/// Whether an address may be asked is found out when it is: what cannot be read fails, and not the request.
fn file(field: &str, part: &Value) -> Result<ContentPart, Wrong> {
    let url = match (text(part, "file_url"), text(part, "file_data")) {
        (Some(url), _) if !url.is_empty() => url.to_owned(),
        (None, Some("")) => return Err(Wrong::new(format!("{field}.file_data"), "there is nothing in it")),
        (None, Some(data)) => as_address(data),
        (Some(_), _) | (None, None) => {
            return Err(Wrong::new(
                field,
                "expected `file_url` or `file_data`: files of a file store are not known here",
            ));
        }
    };
    let name = text(part, "filename").filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(ContentPart::File { file: FileRef { url: Some(url), name, ..FileRef::default() } })
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}
