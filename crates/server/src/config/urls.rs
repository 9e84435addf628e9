//! Checks of hosts, origins and URLs.

use super::table::ConfigValue;

pub(super) fn is_host(text: &str) -> bool {
    !text.contains('@') && text.parse::<axum::http::uri::Authority>().is_ok()
}

pub(super) fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(is_host)
}

pub(super) fn is_http_base_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let (authority, path) = rest.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
    is_host(authority) && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte))
}

/// Reports a URL that is not an absolute HTTP URL without credentials.
pub(super) fn check_http_url(item: &ConfigValue<'_>, text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    if !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        item.report_error("not an HTTP URL; it must start with `http://` or `https://`");
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        item.report_error("do not put credentials into the URL; use `headers` and `env:NAME`");
        return None;
    }
    // The parser treats a backslash as a slash, so the host would end where this check does not see it.
    let is_valid = !text.contains('\\') && reqwest::Url::parse(text).is_ok_and(|url| url.has_host());
    if !is_valid {
        item.report_error("not a URL; write it like `https://example.com/items/{id}`");
    }
    is_valid.then(|| text.to_owned())
}
