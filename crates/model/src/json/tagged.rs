//! Reads enums that are tagged by a member, in two steps: the tag, then the variant from the same text. Serde's own reader
//! buffers the members, which loses the texts of numbers and takes up to twice as long.

use serde::Deserialize;
use serde::de::Error as _;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Tagged<'a> {
    #[serde(borrow, rename = "type")]
    tag: Cow<'a, str>,
}

/// The member `type` of the object.
///
/// # Errors
/// When the text is not an object with such a member.
pub(crate) fn read_tag(text: &[u8]) -> Result<Cow<'_, str>, serde_json::Error> {
    leading_tag(text)
        .map_or_else(|| serde_json::from_slice::<Tagged<'_>>(text).map(|tagged| tagged.tag), |tag| Ok(tag.into()))
}

/// We write the tag first: then nothing has to be parsed.
fn leading_tag(text: &[u8]) -> Option<&str> {
    let text = text.strip_prefix(br#"{"type":""#)?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let is_plain = text.get(end) == Some(&b'"');
    text.get(..end).filter(|_| is_plain).and_then(|tag| std::str::from_utf8(tag).ok())
}

pub(crate) fn unknown_tag(tag: &str) -> serde_json::Error {
    serde_json::Error::custom(format_args!("unknown variant `{tag}`"))
}
