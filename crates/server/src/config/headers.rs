//! `headers` of a tool or a provider.

use super::secrets;
use super::table::{ConfigTable, quote_text};
use axum::http::{HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// Headers whose value is a credential.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];

/// Values may refer to secrets.
pub(super) fn read_headers(table: &ConfigTable<'_>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for (name, item) in table.free_table("headers").items() {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            item.report_error(format!("{} is not a header name; use letters, digits and `-`", quote_text(name)));
        }
        let Some(text) = item.text() else { continue };
        if HeaderValue::from_str(text).is_err() {
            item.report_error("a header value cannot contain line breaks or control characters");
        }
        let secret = SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
        if secret && !secrets::has_secret_ref(text) {
            item.report_warning(
                "do not write secrets into this file; use `env:NAME`, `file:PATH`, or `Bearer {env:NAME}`",
            );
        }
        headers.insert(name.to_owned(), secrets::check_secrets(&item, text));
    }
    headers
}
