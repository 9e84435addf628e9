//! The `Accept` header, as far as event streams are concerned.

use axum::http::{HeaderMap, header};

/// What a client says about `text/event-stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStreamAccept {
    /// The client names the type itself.
    Named,
    /// The client sends no `Accept` header, or a wildcard that includes the type.
    Implied,
    /// The client accepts other types only.
    Excluded,
}

impl EventStreamAccept {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(header::ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return Self::Implied;
        }
        let mut accept = Self::Excluded;
        for range in values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            if parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000")) {
                continue;
            }
            match media_type.as_str() {
                "text/event-stream" => return Self::Named,
                "text/*" | "*/*" | "" => accept = Self::Implied,
                _ => {}
            }
        }
        accept
    }
}
