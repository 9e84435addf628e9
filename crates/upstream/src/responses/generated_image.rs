//! The picture in an item of a service that draws. In the log its address stands in its place; whoever has the bytes puts
//! them there before the item goes back to the service.

use super::item_builder::tombstone;
use crate::json::str_field;
use serde_json::Value;

/// What stands for the picture: its base64, or where it is.
#[must_use]
pub fn generated_image(item: &Value) -> Option<&str> {
    let is_drawn = str_field(item, "type") == Some("image_generation_call");
    str_field(item, "result").filter(|picture| is_drawn && !picture.is_empty())
}

/// Puts something else in its place.
pub fn replace_generated_image(item: &mut Value, picture: String) {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("result".to_owned(), picture.into());
    }
}

/// The picture is lost: the item cannot be given back.
pub fn omit_generated_image(item: &mut Value) {
    *item = tombstone(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_item_that_was_drawn_has_a_picture() {
        let mut item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"});
        assert_eq!(generated_image(&item), Some("AAAA"));
        replace_generated_image(&mut item, "/v1/blobs/ab".to_owned());
        assert_eq!(generated_image(&item), Some("/v1/blobs/ab"));
        assert_eq!((&item["id"], &item["status"]), (&json!("ig_1"), &json!("completed")));
        omit_generated_image(&mut item);
        assert_eq!(generated_image(&item), None);
        assert_eq!(item, json!({"type": "image_generation_call", "id": "ig_1", "too_long": true}));
        for other in [json!({"type": "mcp_call", "result": "AAAA"}), json!({"result": "AAAA"}), json!(null)] {
            assert_eq!(generated_image(&other), None);
        }
        for empty in [json!(null), json!(""), json!(7)] {
            assert_eq!(generated_image(&json!({"type": "image_generation_call", "result": empty})), None);
        }
    }
}
