//! The URL of a tool, with placeholders for arguments.
//!
//! Arguments come from a model, and possibly from the author of a text that it read. So an argument stays within the one path
//! segment or query value that the operator gave it: it adds no path, query or host and climbs no directory, and in a path
//! it is not empty, because the URL would then name the whole collection.

use crate::arguments::{RawArguments, invalid_arguments};
use model::error::{ErrorCode, ErrorInfo};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

/// Everything but the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Debug)]
pub(crate) struct FilledUrl {
    pub(crate) url: Url,
    pub(crate) used_arguments: Vec<String>,
}

pub(crate) fn fill_url(template: &str, arguments: &RawArguments) -> Result<FilledUrl, ErrorInfo> {
    let mut filled = String::with_capacity(template.len());
    let mut used_arguments = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((name, remainder)) = after.split_once('}') else {
            filled.push('{');
            rest = after;
            continue;
        };
        let value = arguments.scalar(name)?;
        match UrlPart::at_end_of(&filled) {
            UrlPart::Host => return Err(invalid_url(template, "only its path and query may have placeholders")),
            UrlPart::Path if value.is_empty() => return Err(invalid_arguments(format!("`{name}` is empty"))),
            UrlPart::Path | UrlPart::Query => filled.extend(utf8_percent_encode(&value, ESCAPED)),
        }
        used_arguments.push(name.to_owned());
        rest = remainder;
    }
    filled.push_str(rest);
    if !used_arguments.is_empty() && has_dot_segment(&filled) {
        return Err(invalid_arguments("a path segment cannot be `.` or `..`"));
    }
    let url = Url::parse(&filled).map_err(|error| invalid_url(template, &error.to_string()))?;
    match url.scheme() {
        "http" | "https" => Ok(FilledUrl { url, used_arguments }),
        _ => Err(invalid_url(template, "only http and https are supported")),
    }
}

enum UrlPart {
    Host,
    Path,
    Query,
}

impl UrlPart {
    /// The part of the URL that follows `prefix`.
    fn at_end_of(prefix: &str) -> Self {
        match prefix.split_once("://") {
            Some((_, rest)) if rest.contains(['?', '#']) => Self::Query,
            Some((_, rest)) if rest.contains('/') => Self::Path,
            _ => Self::Host,
        }
    }
}

/// URL parsers resolve `.` and `..` segments, percent-encoded dots included.
fn has_dot_segment(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme.split(['?', '#']).next().unwrap_or_default();
    let is_dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    path.split(['/', '\\']).skip(1).any(is_dots)
}

fn invalid_url(template: &str, why: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InvalidTool, format!("the tool's URL `{template}` is invalid: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};
    use serde_json::json;

    fn filled(template: &str, arguments: &serde_json::Value) -> Result<String, String> {
        let arguments = RawArguments::parse(&arguments.to_string()).unwrap();
        fill_url(template, &arguments).map(|address| address.url.to_string()).map_err(|error| error.code)
    }

    #[test]
    fn an_argument_is_one_segment_or_one_value() {
        let cases = [
            ("http://h/items/{id}", json!({"id": "a b"}), "http://h/items/a%20b"),
            ("http://h/items/{id}", json!({"id": "../../etc?x=1#y"}), "http://h/items/..%2F..%2Fetc%3Fx%3D1%23y"),
            ("http://h/items/{id}/x", json!({"id": "a\\..\\b"}), "http://h/items/a%5C..%5Cb/x"),
            ("http://h/items/{id}", json!({"id": "%2e%2e"}), "http://h/items/%252e%252e"),
            ("http://h/items/{id}", json!({"id": "..."}), "http://h/items/..."),
            ("http://h/{a}-{b}?q={a}", json!({"a": 1.50, "b": true}), "http://h/1.5-true?q=1.5"),
            ("http://h/?q={q}&r=1", json!({"q": "a&b=c é\n"}), "http://h/?q=a%26b%3Dc%20%C3%A9%0A&r=1"),
            ("http://h?q={q}", json!({"q": ""}), "http://h/?q="),
            ("http://h/{", json!({}), "http://h/%7B"),
        ];
        for (template, arguments, wanted) in cases {
            assert_eq!(filled(template, &arguments).as_deref(), Ok(wanted), "{template} {arguments}");
        }
    }

    #[test]
    fn a_segment_cannot_traverse_upwards() {
        let cases = [
            ("http://h/a/{x}", json!({"x": ".."})),
            ("http://h/a/{x}/b", json!({"x": "."})),
            ("http://h/a/{x}{y}/b", json!({"x": ".", "y": "."})),
            ("http://h/a/%2E{x}/b", json!({"x": "."})),
            ("http://h/a/.{x}?q", json!({"x": "."})),
            ("http://h/a/{x}/b", json!({"x": ""})),
            ("http://h/a/{x}", json!({})),
            ("http://h/a/{x}", json!({"x": null})),
            ("http://h/a/{x}", json!({"x": {"y": 1}})),
            ("http://h/a?q={x}", json!({"x": ["y"]})),
        ];
        for (template, arguments) in cases {
            assert_eq!(filled(template, &arguments), Err("invalid_arguments".to_owned()), "{template} {arguments}");
        }
    }

    #[test]
    fn no_argument_can_set_the_host() {
        for template in ["http://{x}/", "http://a{x}/", "{x}", "{x}://h/", "http://h:{x}/", "http:{x}", "http:\\\\{x}/"]
        {
            assert_eq!(filled(template, &json!({"x": "evil"})), Err("invalid_tool".to_owned()), "{template}");
        }
        for template in ["", "h/x", "file:///etc/passwd", "ftp://h/", "http://"] {
            assert_eq!(filled(template, &json!({})), Err("invalid_tool".to_owned()), "{template}");
        }
    }

    #[test]
    fn no_argument_changes_the_rest_of_the_url() {
        let letters =
            ["/", "\\", "?", "#", "%", "2", "e", ".", "@", ":", "&", "=", "\t", "\n", " ", "é", "\u{202e}", "{x}"];
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let value: String = (0..rng.between(1, 6)).map(|_| rng.choose("a", &letters)).collect();
            let Ok(url) = filled("http://h:1/a/{x}/b?q={x}&r=1", &json!({ "x": value })) else {
                assert!([".", ".."].contains(&value.as_str()), "SEED={seed} {value:?} was refused");
                continue;
            };
            let url = Url::parse(&url).unwrap();
            let path: Vec<&str> = url.path_segments().unwrap().collect();
            let back = percent_encoding::percent_decode_str(path[1]).decode_utf8().unwrap();
            assert_eq!((url.host_str(), url.port(), url.fragment()), (Some("h"), Some(1), None), "SEED={seed}");
            assert_eq!((path.len(), path[0], back.as_ref(), path[2]), (3, "a", value.as_str(), "b"), "SEED={seed}");
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            let wanted = [("q".to_owned(), value), ("r".to_owned(), "1".to_owned())];
            assert_eq!(pairs, wanted, "SEED={seed}");
        }
    }
}
