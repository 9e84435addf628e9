//! Fetches files over HTTP, within limits.
//!
//! Each hop uses a client of its own that can connect only to the addresses that the guard has checked: without
//! resolver, proxy, cookies, pool or redirects.
//!
//! Each fetch has a thread and a runtime to itself. A response can consist of nothing but work, such as a hundred
//! thousand informational responses or a million empty chunks. On a shared runtime that would delay everybody, timers
//! included.

use crate::body_decoder::BodyDecoder;
use crate::document_format::{DocumentFormat, charset_of_content_type};
use crate::error::FetchError;
use crate::url_guard::{CheckedUrl, UrlGuard, UrlRules};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use url::Url;

const HEADERS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 120;
const ACCEPTED: &str = "text/html, text/markdown, text/csv, text/plain, application/pdf, image/*;q=0.9, */*;q=0.1";

#[derive(Clone, Debug)]
pub struct FetchLimits {
    /// Size of the body, encoded and decoded.
    pub bytes_max: usize,
    pub redirects_max: u32,
    pub connect_timeout: Duration,
    /// From the request to the response head, connecting included.
    pub first_byte_timeout: Duration,
    /// Between two chunks of the body.
    pub idle_timeout: Duration,
    /// For everything: name resolution, redirects and the whole body.
    pub total_timeout: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            // Fits a file of twenty megabytes, in either definition of a megabyte.
            bytes_max: 24 * 1024 * 1024,
            redirects_max: 3,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(15),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FetchedFile {
    /// After redirects. Links in the file are relative to it.
    pub url: Url,
    /// For display: from the last segment of the requested URL.
    pub name: String,
    pub format: DocumentFormat,
    /// As declared by the server.
    pub charset: Option<String>,
    pub bytes: Bytes,
}

#[derive(Clone, Debug)]
pub struct Fetcher {
    guard: UrlGuard,
    limits: FetchLimits,
}

impl Fetcher {
    /// Uses the system resolver.
    pub fn new(rules: UrlRules, limits: FetchLimits) -> Self {
        Self::with_guard(UrlGuard::new(rules), limits)
    }

    pub fn with_guard(guard: UrlGuard, limits: FetchLimits) -> Self {
        Self { guard, limits }
    }

    /// Fetches a file and reports the bytes received so far to `progress`. Dropping the future cancels the fetch.
    pub async fn fetch(
        &self,
        address: &str,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<FetchedFile, FetchError> {
        let (done, mut outcome) = oneshot::channel();
        let (count, mut counted) = watch::channel(0);
        let (fetcher, address) = (self.clone(), address.to_owned());
        let thread = std::thread::Builder::new().name("fetch".to_owned());
        let spawned = thread.spawn(move || fetcher.fetch_blocking(&address, &count, done));
        spawned.map_err(|_| FetchError::Unreachable)?;
        let result = async {
            loop {
                tokio::select! {
                    biased;
                    Ok(()) = counted.changed() => progress(*counted.borrow_and_update()),
                    outcome = &mut outcome => return outcome.unwrap_or(Err(FetchError::Unreachable)),
                }
            }
        };
        timeout(self.limits.total_timeout, result).await.unwrap_or(Err(FetchError::TimedOut))
    }

    /// Fetches a file on this thread until the receiver is dropped.
    fn fetch_blocking(
        &self,
        address: &str,
        count: &watch::Sender<u64>,
        mut done: oneshot::Sender<Result<FetchedFile, FetchError>>,
    ) {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let mut progress = |so_far| {
                count.send_replace(so_far);
            };
            let outcome = tokio::select! {
                outcome = self.follow_redirects(address, &mut progress) => outcome,
                () = done.closed() => return,
            };
            // The receiver may be gone.
            let _ = done.send(outcome);
        });
        // Does not wait for a name that is still being resolved.
        runtime.shutdown_background();
    }

    async fn follow_redirects(
        &self,
        address: &str,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<FetchedFile, FetchError> {
        let mut target = self.guard.check(address).await?;
        let name = file_name_of_url(&target.url);
        for _ in 0..=self.limits.redirects_max {
            let response = self.send_request(&target).await?;
            match redirect_location(&response)? {
                Some(location) => target = self.guard.check_redirect(&target.url, &location).await?,
                None => return self.read_response(target.url, name, response, progress).await,
            }
        }
        Err(FetchError::NotAllowed)
    }

    async fn send_request(&self, target: &CheckedUrl) -> Result<Response, FetchError> {
        let client = build_client(target, &self.limits)?;
        let request = client.get(target.url.clone()).header(ACCEPT, ACCEPTED).header(ACCEPT_ENCODING, "gzip, br");
        await_response(request, &self.limits).await
    }

    async fn read_response(
        &self,
        url: Url,
        name: String,
        response: Response,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<FetchedFile, FetchError> {
        let declared = header_text(response.headers(), &CONTENT_TYPE);
        let bytes = read_body(response, &self.limits, progress).await?;
        let declared = declared.as_deref().unwrap_or_default();
        let format = DocumentFormat::sniff(&bytes, declared, &name)?;
        Ok(FetchedFile { url, name, format, charset: charset_of_content_type(declared), bytes })
    }
}

/// A client that connects to the addresses that the guard has checked, and to no other.
pub(crate) fn build_client(target: &CheckedUrl, limits: &FetchLimits) -> Result<Client, FetchError> {
    let builder = || {
        Client::builder()
            .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            .http1_max_headers(HEADERS_MAX)
            .pool_max_idle_per_host(0)
            .connect_timeout(limits.connect_timeout)
            .dns_resolver(Arc::new(PinnedResolver(target.addresses.clone())))
    };
    // Plain HTTP still works on a system without root certificates.
    let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
    client.map_err(|_| FetchError::Unreachable)
}

/// Sends a request and waits for the head of its response.
pub(crate) async fn await_response(request: RequestBuilder, limits: &FetchLimits) -> Result<Response, FetchError> {
    match timeout(limits.first_byte_timeout, request.send()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if error.is_timeout() => Err(FetchError::TimedOut),
        Ok(Err(error)) if error.is_connect() => Err(FetchError::Unreachable),
        Ok(Err(_)) => Err(FetchError::InvalidResponse),
        Err(_) => Err(FetchError::TimedOut),
    }
}

/// Reads and decodes a body, and reports the bytes received so far.
pub(crate) async fn read_body(
    mut response: Response,
    limits: &FetchLimits,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Bytes, FetchError> {
    let fits = |length: u64| usize::try_from(length).is_ok_and(|length| length <= limits.bytes_max);
    if response.content_length().is_some_and(|length| !fits(length)) {
        return Err(FetchError::TooLarge);
    }
    let encoding = header_text(response.headers(), &CONTENT_ENCODING);
    let mut body = BodyDecoder::new(encoding.as_deref(), limits.bytes_max)?;
    let mut so_far = 0_u64;
    loop {
        let chunk = timeout(limits.idle_timeout, response.chunk()).await.map_err(|_| FetchError::TimedOut)?;
        let Some(chunk) = chunk.map_err(|_| FetchError::InvalidResponse)? else { break };
        so_far = so_far.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if !fits(so_far) {
            return Err(FetchError::TooLarge);
        }
        body.push(&chunk)?;
        progress(so_far);
    }
    Ok(Bytes::from(body.finish()?))
}

/// The target of a redirect; an error for a response that is neither a file nor a redirect.
fn redirect_location(response: &Response) -> Result<Option<String>, FetchError> {
    let status = response.status();
    match header_text(response.headers(), &LOCATION) {
        Some(location) if is_redirect(status) => Ok(Some(location)),
        _ if status == StatusCode::OK || status == StatusCode::NON_AUTHORITATIVE_INFORMATION => Ok(None),
        _ => Err(FetchError::Status(status.as_u16())),
    }
}

pub(crate) fn is_redirect(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

/// Lossy, because many servers send unencoded UTF-8.
pub(crate) fn header_text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The last path segment, or the host. For display, never for a path in the file system.
fn file_name_of_url(url: &Url) -> String {
    let segment = url.path_segments().and_then(|mut segments| segments.rfind(|segment| !segment.is_empty()));
    let decoded = percent_decode_str(segment.unwrap_or_default()).decode_utf8_lossy();
    let name: String = decoded.chars().filter(|c| is_display_char(*c)).take(NAME_CHARS_MAX).collect();
    let name = name.trim().trim_matches('.');
    if name.is_empty() { url.host_str().unwrap_or("file").to_owned() } else { name.to_owned() }
}

/// Excludes separators, and characters that hide or reverse others.
fn is_display_char(c: char) -> bool {
    let is_invisible = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{61c}' | '\u{ad}' | '\u{e0000}'..='\u{e0fff}');
    !(c.is_control() || is_invisible || matches!(c, '/' | '\\' | '"'))
}

/// Resolves every name to the addresses that the guard has checked.
struct PinnedResolver(Vec<SocketAddr>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(async move { Ok(addresses) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_is_the_end_of_the_path_without_control_characters() {
        let cases = [
            ("http://h.example/a/report.pdf?x=1", "report.pdf"),
            ("http://h.example/a/", "a"),
            ("http://h.example/", "h.example"),
            ("http://h.example/b%C3%A1o%20c%C3%A1o.pdf", "báo cáo.pdf"),
            ("http://h.example/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "etcpasswd"),
            ("http://h.example/a%00%0d%0ab%e2%80%aefdp.exe", "abfdp.exe"),
            ("http://h.example/%f3%a0%81%81hidden", "hidden"),
            ("http://h.example/..%2f", "h.example"),
        ];
        for (url, wanted) in cases {
            assert_eq!(file_name_of_url(&Url::parse(url).unwrap()), wanted, "{url}");
        }
        let long = format!("http://h.example/{}", "é".repeat(500));
        assert_eq!(file_name_of_url(&Url::parse(&long).unwrap()).chars().count(), NAME_CHARS_MAX);
    }
}
