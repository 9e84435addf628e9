//! File responses: a media type detected from the bytes, headers that prevent script execution, and byte ranges.

use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use files::{FileKey, FileStream, content_disposition};
use gateway::attachments::AttachmentStore;
use model::error::ErrorCode;
use model::ports::AttachmentRow;
use std::ops::Range;

/// Blocks scripts and subresources of the file.
const SANDBOX_CSP: &str = "sandbox; default-src 'none'";
const IMMUTABLE_CACHE_CONTROL: &str = "private, max-age=31536000, immutable";

/// How long a client may cache a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CachePolicy<'a> {
    MaxAgeSeconds(u64),
    /// Indefinitely, because the content never changes. The hash is its entity tag.
    Immutable(&'a str),
}

impl CachePolicy<'_> {
    fn cache_headers(self) -> Vec<(HeaderName, String)> {
        match self {
            Self::MaxAgeSeconds(left) => vec![(header::CACHE_CONTROL, format!("private, max-age={left}"))],
            Self::Immutable(name) => {
                vec![(header::CACHE_CONTROL, IMMUTABLE_CACHE_CONTROL.to_owned()), (header::ETAG, format!("\"{name}\""))]
            }
        }
    }

    fn is_not_modified(self, headers: &HeaderMap) -> bool {
        let Self::Immutable(name) = self else { return false };
        let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        tags.flat_map(|tags| tags.split(',')).any(|tag| {
            let tag = tag.trim();
            tag == "*" || is_etag(tag.strip_prefix("W/").unwrap_or(tag), name)
        })
    }
}

fn is_etag(tag: &str, name: &str) -> bool {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(name)
}

/// The parts of a request that select the response body.
pub(crate) struct FileRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
}

/// Responds with a file, or with the range of it that the request names.
pub(crate) async fn file_response(
    attachments: &AttachmentStore,
    key: &FileKey,
    row: &AttachmentRow,
    FileRequest { method, headers }: FileRequest<'_>,
    cache_policy: CachePolicy<'_>,
) -> Result<Response, Problem> {
    if cache_policy.is_not_modified(headers) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        insert_headers(&mut response, cache_policy.cache_headers());
        return Ok(response);
    }
    // A range applies to GET alone.
    let requested = match *method {
        Method::GET => parse_range(headers, row.size_bytes, cache_policy),
        _ => RequestedRange::Whole,
    };
    let range = match requested {
        RequestedRange::Whole => None,
        RequestedRange::Part(range) => Some(range),
        RequestedRange::Unsatisfiable => {
            let detail = format!("the file has {} bytes", row.size_bytes);
            let problem = Problem::new(ErrorCode::RangeNotSatisfiable, detail);
            return Err(problem.with_header(header::CONTENT_RANGE, format!("bytes */{}", row.size_bytes)));
        }
    };
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let file = attachments.file_store.read(key, range).await?;
    let mut response = build_file_response(status, row, file);
    insert_headers(&mut response, cache_policy.cache_headers());
    Ok(response)
}

fn build_file_response(status: StatusCode, row: &AttachmentRow, file: FileStream) -> Response {
    let Range { start, end } = file.range;
    let mut response = (status, Body::from_stream(file.stream)).into_response();
    let text = row.content_type.starts_with("text/");
    let kind = if text { format!("{}; charset=utf-8", row.content_type) } else { row.content_type.clone() };
    let mut headers = vec![
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_LENGTH, end.saturating_sub(start).to_string()),
        (header::CONTENT_DISPOSITION, content_disposition(&row.name, &row.content_type)),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CONTENT_SECURITY_POLICY, SANDBOX_CSP.to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    if status == StatusCode::PARTIAL_CONTENT {
        headers.push((header::CONTENT_RANGE, format!("bytes {start}-{}/{}", end.saturating_sub(1), file.total_bytes)));
    }
    insert_headers(&mut response, headers);
    response
}

fn insert_headers(response: &mut Response, headers: Vec<(HeaderName, String)>) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
}

#[derive(Debug, PartialEq)]
enum RequestedRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// Supports a single range: a request for several, or with an invalid header, gets the whole file.
fn parse_range(headers: &HeaderMap, bytes: u64, keep: CachePolicy<'_>) -> RequestedRange {
    // A file without an entity tag has no validator that `If-Range` could match.
    if let Some(known) = headers.get(header::IF_RANGE) {
        let is_it = matches!((known.to_str(), keep), (Ok(tag), CachePolicy::Immutable(name)) if is_etag(tag, name));
        if !is_it {
            return RequestedRange::Whole;
        }
    }
    let mut given = headers.get_all(header::RANGE).iter();
    let (Some(one), None) = (given.next().and_then(|range| range.to_str().ok()), given.next()) else {
        return RequestedRange::Whole;
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
    let parts = one.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((Some(from), Some(to))) = parts.map(|(from, to)| (number(from), number(to))) else {
        return RequestedRange::Whole;
    };
    let part = match (from, to) {
        (Some(from), Some(to)) if from > to => return RequestedRange::Whole,
        (Some(from), to) => from..to.map_or(bytes, |to| to.saturating_add(1).min(bytes)),
        // A suffix range: the last `last` bytes.
        (None, Some(last)) => bytes.saturating_sub(last)..bytes,
        (None, None) => return RequestedRange::Whole,
    };
    if part.start < part.end { RequestedRange::Part(part) } else { RequestedRange::Unsatisfiable }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: CachePolicy<'_> = CachePolicy::Immutable("abc");

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn asked(range: &str) -> RequestedRange {
        parse_range(&headers(header::RANGE, range), 10, NAME)
    }

    #[test]
    fn one_range_can_be_requested() {
        assert_eq!(parse_range(&HeaderMap::new(), 10, NAME), RequestedRange::Whole);
        for (range, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=2-99", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
        ] {
            assert_eq!(asked(range), RequestedRange::Part(part), "{range}");
        }
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(asked(range), RequestedRange::Unsatisfiable, "{range}");
        }
        let many = format!("bytes={}", vec!["0-"; 100_000].join(","));
        for range in ["bytes=5-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=+1-2", "items=0-1", "bytes=0-1,3-4", &many]
        {
            assert_eq!(asked(range), RequestedRange::Whole, "{range:.40}");
        }
        let huge = "bytes=99999999999999999999-";
        assert!(matches!(asked(huge), RequestedRange::Whole | RequestedRange::Unsatisfiable));
    }

    #[test]
    fn if_range_applies_only_to_the_same_entity() {
        for (known, keep, part) in [
            ("\"abc\"", NAME, RequestedRange::Part(0..1)),
            ("\"abd\"", NAME, RequestedRange::Whole),
            ("W/\"abc\"", NAME, RequestedRange::Whole),
            ("abc", NAME, RequestedRange::Whole),
            ("\"abc\"", CachePolicy::MaxAgeSeconds(9), RequestedRange::Whole),
        ] {
            let mut headers = headers(header::IF_RANGE, known);
            headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-0"));
            assert_eq!(parse_range(&headers, 10, keep), part, "{known}");
        }
    }

    #[test]
    fn if_none_match_returns_not_modified() {
        for (tags, keep, had) in [
            ("\"abc\"", NAME, true),
            ("W/\"abc\"", NAME, true),
            ("\"x\", \"abc\"", NAME, true),
            ("*", NAME, true),
            ("abc", NAME, false),
            ("\"abcd\"", NAME, false),
            ("\"", NAME, false),
            ("", NAME, false),
            ("*", CachePolicy::MaxAgeSeconds(9), false),
        ] {
            assert_eq!(keep.is_not_modified(&headers(header::IF_NONE_MATCH, tags)), had, "{tags}");
        }
    }
}
