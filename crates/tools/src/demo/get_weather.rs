//! `get_weather`: always 15 degrees and sunny, as text and as an image.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::invalid_arguments_output;
use model::content::{ContentPart, ImageBlock, ImageUrl, TextBlock};
use model::definition::Tool;
use model::item::Block;
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;

pub(super) const NAME: &str = "get_weather";

const REPORT: &str = r#"{"temperature":"15C","condition":"Sunny"}"#;

/// 32 by 32 pixels.
const SUN_DATA_URL: &str = concat!(
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgAgMAAAAOFJJnAAAADFBMVEV+xPD/0ED/piv///+e2XbuAA",
    "AAZUlEQVR42mNgwAaYGnAwOEAMBSBDC8RYAWRwASWYFoBULNBawQVW1TQ1rAmsmis0dAGYoRkamgFmqIaGRoAZU0NDw5AZXCtADK",
    "0FCAamGiTtcAPhVsAshTsD7jC4U+GOx+NBdAAA17wlHS7X0RoAAAAASUVORK5CYII=",
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    location: String,
}

pub(super) fn definition() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "location": { "type": "string", "minLength": 1, "description": "City and country, such as `Paris, France`." }
        },
        "required": ["location"],
        "additionalProperties": false
    });
    new_builtin(NAME, "Weather", "Tells the current weather at a place, with a picture of the sky.", parameters)
}

pub(super) fn run(arguments: &str) -> ToolOutput {
    match parse_arguments(arguments) {
        Ok(Arguments { location }) if location.trim().is_empty() => invalid_arguments_output("`location` is empty"),
        Ok(Arguments { .. }) => sunny_output(),
        Err(error) => invalid_arguments_output(error),
    }
}

/// Content for the model and blocks for people.
fn sunny_output() -> ToolOutput {
    let image_url = ImageUrl::new(SUN_DATA_URL);
    ToolOutput {
        message_content: vec![
            ContentPart::text(REPORT),
            ContentPart::ImageUrl { image_url: image_url.clone(), id: None },
        ],
        block_list: vec![Block::Text(TextBlock::new(REPORT)), Block::Image(ImageBlock { image_url, id: None })],
        ..ToolOutput::default()
    }
}
