//! `GET /api/v1/agent/attachments/raw`: a file, for whoever holds a signed address of it. No key is asked for.
//!
//! The address is looked at when it is used: whether it is ours and unaltered, whether its time is up, whether the file
//! is there and its owner still let in. What is sent cannot run anything in a browser.

use crate::app::App;
use crate::files::LIFETIME_SECONDS_MAX;
use crate::problem::Problem;
use crate::query;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::SystemClock;
use files::{Reading, disposition};
use model::ports::{AttachmentRow, Clock as _};
use std::ops::Range;

/// Nothing in it runs, and nothing is loaded by it.
const NOTHING_RUNS: &str = "sandbox; default-src 'none'";

pub(crate) async fn handle(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let [bucket, path, expires, signature] = query::read(&uri, ["bucket", "path", "expires", "signature"])?;
    let (Some(bucket), Some(path), Some(expires), Some(signature)) = (bucket, path, expires, signature) else {
        return Err(not_ours());
    };
    let left = check(&app, &bucket, &path, &expires, &signature)?;
    let (key, row) = app.files.find(&bucket, &path).await?;
    if !app.auth.lets_in(key.owner()) {
        return Err(Problem::not_found());
    }
    let asked = match range(&headers, row.bytes) {
        Asked::Whole => None,
        Asked::Part(range) => Some(range),
        Asked::Outside => {
            let detail = format!("the file has {} bytes", row.bytes);
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", detail);
            return Err(problem.header(header::CONTENT_RANGE, format!("bytes */{}", row.bytes)));
        }
    };
    let status = if asked.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let reading = app.files.depot.read(&key, asked).await?;
    Ok(answer(status, &row, reading, left))
}

/// How many seconds the address is still good for.
fn check(app: &App, bucket: &str, path: &str, expires: &str, signature: &str) -> Result<u64, Problem> {
    let key = app.files.name(bucket, path)?;
    // In one way of writing only: `+5` and `05` are the same number and another address.
    let until = expires.parse::<u64>().ok().filter(|until| until.to_string() == expires).ok_or_else(not_ours)?;
    if !app.files.seal.fits(bucket, &key, until, signature) {
        return Err(not_ours());
    }
    match until.saturating_sub(SystemClock.now() / 1000) {
        0 => {
            let detail = "the time of this address is up: ask for a new one";
            Err(Problem::new(StatusCode::GONE, "url_expired", detail))
        }
        left if left > LIFETIME_SECONDS_MAX => Err(not_ours()),
        left => Ok(left),
    }
}

fn not_ours() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "url_not_valid", "this address was not given out by the server, or was altered")
}

fn answer(status: StatusCode, row: &AttachmentRow, reading: Reading, left: u64) -> Response {
    let Range { start, end } = reading.range;
    let mut response = (status, Body::from_stream(reading.stream)).into_response();
    let text = row.content_type.starts_with("text/");
    let kind = if text { format!("{}; charset=utf-8", row.content_type) } else { row.content_type.clone() };
    let mut told = vec![
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_LENGTH, end.saturating_sub(start).to_string()),
        (header::CONTENT_DISPOSITION, disposition(&row.name, &row.content_type)),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CACHE_CONTROL, format!("private, max-age={left}")),
        (header::CONTENT_SECURITY_POLICY, NOTHING_RUNS.to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    if status == StatusCode::PARTIAL_CONTENT {
        told.push((header::CONTENT_RANGE, format!("bytes {start}-{}/{}", end.saturating_sub(1), reading.bytes)));
    }
    let headers = response.headers_mut();
    for (name, value) in told {
        insert(headers, name, &value);
    }
    response
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Which part is asked for.
#[derive(Debug, PartialEq)]
enum Asked {
    Whole,
    Part(Range<u64>),
    Outside,
}

/// One part at most: who asks for several, or in a way that cannot be read, gets everything.
fn range(headers: &HeaderMap, bytes: u64) -> Asked {
    // Files never change, but what a client knows of one it cannot prove here.
    if headers.contains_key(header::IF_RANGE) {
        return Asked::Whole;
    }
    let mut given = headers.get_all(header::RANGE).iter();
    let (Some(one), None) = (given.next().and_then(|range| range.to_str().ok()), given.next()) else {
        return Asked::Whole;
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
    let parts = one.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((Some(from), Some(to))) = parts.map(|(from, to)| (number(from), number(to))) else { return Asked::Whole };
    let part = match (from, to) {
        (Some(from), Some(to)) if from > to => return Asked::Whole,
        (Some(from), to) => from..to.map_or(bytes, |to| to.saturating_add(1).min(bytes)),
        // The last so many.
        (None, Some(last)) => bytes.saturating_sub(last)..bytes,
        (None, None) => return Asked::Whole,
    };
    if part.start < part.end { Asked::Part(part) } else { Asked::Outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str) -> Asked {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(range).unwrap());
        super::range(&headers, 10)
    }

    #[test]
    fn one_part_can_be_asked_for() {
        assert_eq!(range(&HeaderMap::new(), 10), Asked::Whole);
        for (range, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=2-99", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
        ] {
            assert_eq!(asked(range), Asked::Part(part), "{range}");
        }
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(asked(range), Asked::Outside, "{range}");
        }
        let many = format!("bytes={}", vec!["0-"; 100_000].join(","));
        for range in ["bytes=5-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=+1-2", "items=0-1", "bytes=0-1,3-4", &many]
        {
            assert_eq!(asked(range), Asked::Whole, "{range:.40}");
        }
        let huge = "bytes=99999999999999999999-";
        assert!(matches!(asked(huge), Asked::Whole | Asked::Outside));
    }
}
