//! The summary of a conversation as an item that clients keep.
//!
//! Clients send it back as history, so it is sealed: a text that this server has not written for this user is refused, and
//! never read as part of a conversation. It is not encrypted, because it holds nothing but the user's own conversation.

use crate::context::Gateway;
use crate::rejection::Rejection;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::UserId;
use protocol::client_input::{ClientInput, InputKind};
use serde::{Deserialize, Serialize};

/// The first part of every sealed text. Another form gets another number.
const VERSION: &str = "1";
const SEALED_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What a `compaction` item holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedSummary {
    #[serde(rename = "summary")]
    pub(crate) text: String,
    /// Reference groups that the summary may name.
    #[serde(rename = "references")]
    pub(crate) reference_count: u32,
}

pub(crate) fn seal_summary(gateway: &Gateway, user: &UserId, summary: &SealedSummary) -> String {
    let content = serde_json::to_string(summary).unwrap_or_default();
    let signature = gateway.attachments.url_signer.sign_text(user, &content);
    URL_SAFE_NO_PAD.encode(format!("{VERSION}.{signature}.{content}"))
}

fn open_summary(gateway: &Gateway, user: &UserId, sealed: &str) -> Option<SealedSummary> {
    if sealed.len() > SEALED_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(sealed).ok()?).ok()?;
    let (version, rest) = text.split_once('.')?;
    let (signature, content) = rest.split_once('.')?;
    let is_valid = version == VERSION && gateway.attachments.url_signer.verify_text(user, content, signature);
    serde_json::from_str(content).ok().filter(|_| is_valid)
}

/// Verifies the seals of all summaries in a request.
pub(crate) fn open_summaries(gateway: &Gateway, user: &UserId, items: &mut [ClientInput]) -> Result<(), Rejection> {
    for item in items {
        let InputKind::SealedSummary { field, sealed } = &item.kind else { continue };
        let Some(SealedSummary { text, reference_count }) = open_summary(gateway, user, sealed) else {
            let reason = "this server has not written it for you: send compaction items back unchanged";
            return Err(Rejection::invalid_field(field, reason));
        };
        item.kind = InputKind::Summary { text, reference_count };
    }
    Ok(())
}
