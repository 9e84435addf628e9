//! The long list of a request, its messages or input items: as values, or as text without a value of each.
//!
//! A conversation of a thousand turns is sent a thousand times. As a tree, each message would be a dozen allocations.

use model::json::{JsonObject, write_json};
use serde::Serialize;
use serde_json::Value;

/// Takes the elements of the list in order. Members of what is pushed are in alphabetical order, as those of a value are.
pub(crate) trait RequestList {
    fn push(&mut self, element: &impl Serialize);
}

impl RequestList for Vec<Value> {
    fn push(&mut self, element: &impl Serialize) {
        Self::push(self, serde_json::to_value(element).unwrap_or_default());
    }
}

/// The text of the elements of a list, separated by commas.
#[derive(Default)]
pub(crate) struct ListText(Vec<u8>);

impl RequestList for ListText {
    fn push(&mut self, element: &impl Serialize) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        write_value(&mut self.0, element);
    }
}

impl ListText {
    pub(crate) fn elements(&self) -> &[u8] {
        &self.0
    }
}

/// The text of an object that has a list as a member besides these fields. The elements of the list are given in parts, each
/// of which separates its own by commas.
pub(crate) fn write_body(name: &str, parts: &[&[u8]], fields: &JsonObject) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + 1024);
    let mut write_member = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
        out.push(if out.is_empty() { b'{' } else { b',' });
        write_value(&mut out, name);
        out.push(b':');
        write(&mut out);
    };
    let is_before = |field: &&(&String, &Value)| field.0.as_str() < name;
    let before = fields.iter().take_while(|field| is_before(&field));
    before.for_each(|(name, value)| write_member(name, &|out| write_value(out, value)));
    write_member(name, &|out| write_list(out, parts));
    let after = fields.iter().skip_while(|field| is_before(&field));
    after.for_each(|(name, value)| write_member(name, &|out| write_value(out, value)));
    out.push(b'}');
    out
}

fn write_list(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.push(b'[');
    for (index, part) in parts.iter().filter(|part| !part.is_empty()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(part);
    }
    out.push(b']');
}

/// Nothing that is sent has a key that is no text, so this cannot fail.
fn write_value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _written = write_json(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_has_its_list_in_alphabetical_order() {
        let elements = [json!({"b": [1, "\n\""], "a": null}), json!("x")];
        for fields in [json!({}), json!({"a": 1}), json!({"z": 1.5}), json!({"a": {"c": 2}, "k": true, "n": "é"})] {
            for length in 0..=elements.len() {
                let (mut text, mut values) = (ListText::default(), Vec::new());
                for element in &elements[..length] {
                    text.push(element);
                    RequestList::push(&mut values, element);
                }
                let mut head = ListText::default();
                head.push(&elements[0]);
                values.insert(0, elements[0].clone());
                let mut body = fields.as_object().unwrap().clone();
                let written = write_body("messages", &[b"", head.elements(), text.elements()], &body);
                body.insert("messages".to_owned(), values.into());
                assert_eq!(String::from_utf8(written).unwrap(), Value::Object(body).to_string());
            }
        }
    }
}
