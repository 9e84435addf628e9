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

/// The text of a list.
#[derive(Default)]
pub(crate) struct ListText(Vec<u8>);

impl RequestList for ListText {
    fn push(&mut self, element: &impl Serialize) {
        self.0.push(if self.0.is_empty() { b'[' } else { b',' });
        write_value(&mut self.0, element);
    }
}

impl ListText {
    /// The text of an object that has the list as a member besides these.
    pub(crate) fn into_body(mut self, name: &str, fields: &JsonObject) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'[');
        }
        self.0.push(b']');
        let mut out = Vec::with_capacity(self.0.len() + 1024);
        let mut write_member = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
            out.push(if out.is_empty() { b'{' } else { b',' });
            write_value(&mut out, name);
            out.push(b':');
            write(&mut out);
        };
        let is_before = |field: &&(&String, &Value)| field.0.as_str() < name;
        let before = fields.iter().take_while(|field| is_before(&field));
        before.for_each(|(name, value)| write_member(name, &|out| write_value(out, value)));
        write_member(name, &|out| out.extend_from_slice(&self.0));
        let after = fields.iter().skip_while(|field| is_before(&field));
        after.for_each(|(name, value)| write_member(name, &|out| write_value(out, value)));
        out.push(b'}');
        out
    }
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
                let mut body = fields.as_object().unwrap().clone();
                let written = text.into_body("messages", &body);
                body.insert("messages".to_owned(), values.into());
                assert_eq!(String::from_utf8(written).unwrap(), Value::Object(body).to_string());
            }
        }
    }
}
