//! The image in an `image_generation_call` item. In the log, its address replaces the bytes; the file store
//! has the bytes, and they are put back before the item returns to the service.

use crate::json::str_field;
use serde_json::{Value, json};

/// Marks what is left of an item that cannot be sent back.
pub(crate) const TOMBSTONE_KEY: &str = "too_long";

/// The image of an item: base64, or the address of a stored file. An image on the web stays where it is.
pub fn generated_image(item: &Value) -> Option<&str> {
    let is_image_call = str_field(item, "type") == Some("image_generation_call");
    let image = str_field(item, "result").filter(|image| is_image_call && !image.is_empty())?;
    match image.strip_prefix("data:") {
        Some(data) => data.split_once(";base64,").map(|(_, base64)| base64),
        None => Some(image).filter(|image| !is_image_url(image)),
    }
}

/// Whether a result is the address of an image, as some services send it, and not base64.
pub(crate) fn is_image_url(result: &str) -> bool {
    ["https://", "http://", "data:"].iter().any(|start| result.starts_with(start))
}

/// Replaces the base64 by an address, or back.
pub fn replace_generated_image(item: &mut Value, image: String) {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("result".to_owned(), image.into());
    }
}

/// Replaces an item whose image is lost by a tombstone: it cannot be sent back.
pub fn omit_generated_image(item: &mut Value) {
    *item = tombstone(item);
}

/// What is left of an item that cannot be sent back.
pub(crate) fn tombstone(item: &Value) -> Value {
    json!({"type": item.get("type"), "id": item.get("id"), TOMBSTONE_KEY: true})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_generation_item_has_an_image() {
        let mut item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"});
        assert_eq!(generated_image(&item), Some("AAAA"));
        replace_generated_image(&mut item, "/v1/blobs/ab".to_owned());
        assert_eq!(generated_image(&item), Some("/v1/blobs/ab"));
        assert_eq!((&item["id"], &item["status"]), (&json!("ig_1"), &json!("completed")));
        omit_generated_image(&mut item);
        assert_eq!(generated_image(&item), None);
        assert_eq!(item, json!({"type": "image_generation_call", "id": "ig_1", "too_long": true}));
        let with_result = |result: &str| json!({"type": "image_generation_call", "result": result});
        assert_eq!(generated_image(&with_result("data:image/png;base64,AAAA")), Some("AAAA"));
        assert_eq!(generated_image(&with_result("https://files.example/x.png")), None);
        for other in [json!({"type": "mcp_call", "result": "AAAA"}), json!({"result": "AAAA"}), json!(null)] {
            assert_eq!(generated_image(&other), None);
        }
        for empty in [json!(null), json!(""), json!(7)] {
            assert_eq!(generated_image(&json!({"type": "image_generation_call", "result": empty})), None);
        }
    }
}
