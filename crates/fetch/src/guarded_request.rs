//! Single requests to URLs that another server named, such as the endpoints of OAuth.
//!
//! They may have a body and credentials. A redirect of a `GET` is followed within its origin, and checked like the first URL;
//! one of a `POST` is a response like any other, because its body must not go elsewhere.

use crate::error::FetchError;
use crate::fetcher::{FetchLimits, await_response, build_client, header_text, is_redirect, read_body};
use crate::url_guard::{CheckedUrl, UrlGuard};
use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, LOCATION};
use reqwest::{Method, Response, StatusCode};
use std::fmt;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;

/// A request. It is printed without its headers and its body, which may be secret.
#[derive(Clone)]
pub struct GuardedRequest {
    pub method: GuardedMethod,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedMethod {
    Get,
    Post,
}

impl fmt::Debug for GuardedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedRequest").field("method", &self.method).field("url", &self.url).finish_non_exhaustive()
    }
}

/// A response of any status.
pub struct GuardedResponse {
    /// After redirects.
    pub url: Url,
    pub status: u16,
    headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for GuardedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResponse").field("url", &self.url).field("status", &self.status).finish_non_exhaustive()
    }
}

impl GuardedResponse {
    /// All values of a header.
    pub fn header_values(&self, name: &str) -> Vec<String> {
        self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }
}

/// Sends requests to URLs that the guard allows, within limits.
#[derive(Clone, Debug)]
pub struct GuardedClient {
    guard: UrlGuard,
    limits: FetchLimits,
}

impl GuardedClient {
    pub fn new(guard: UrlGuard, limits: FetchLimits) -> Self {
        Self { guard, limits }
    }

    /// Sends a request on a thread of its own, for the reason that the fetcher has. Dropping the future cancels the request.
    pub async fn send(&self, request: GuardedRequest) -> Result<GuardedResponse, FetchError> {
        let (done, outcome) = oneshot::channel();
        let client = self.clone();
        let thread = std::thread::Builder::new().name("guarded-request".to_owned());
        let spawned = thread.spawn(move || client.send_blocking(&request, done));
        spawned.map_err(|_| FetchError::Unreachable)?;
        match timeout(self.limits.total_timeout, outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(FetchError::Unreachable)),
            Err(_) => Err(FetchError::TimedOut),
        }
    }

    fn send_blocking(&self, request: &GuardedRequest, mut done: oneshot::Sender<Result<GuardedResponse, FetchError>>) {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let outcome = tokio::select! {
                outcome = self.follow_redirects(request) => outcome,
                () = done.closed() => return,
            };
            // The receiver may be gone.
            let _ = done.send(outcome);
        });
        // Does not wait for a name that is still being resolved.
        runtime.shutdown_background();
    }

    async fn follow_redirects(&self, request: &GuardedRequest) -> Result<GuardedResponse, FetchError> {
        let mut target = self.guard.check(&request.url).await?;
        for _ in 0..=self.limits.redirects_max {
            let response = self.send_once(request, &target).await?;
            let Some(location) = self.redirect_within_origin(request, &target, &response)? else {
                return self.read_response(target.url, response).await;
            };
            target = self.guard.check_redirect(&target.url, &location).await?;
        }
        Err(FetchError::NotAllowed)
    }

    /// Where to go on, if at all.
    fn redirect_within_origin(
        &self,
        request: &GuardedRequest,
        target: &CheckedUrl,
        response: &Response,
    ) -> Result<Option<String>, FetchError> {
        if request.method == GuardedMethod::Post || !is_redirect(response.status()) {
            return Ok(None);
        }
        let Some(location) = header_text(response.headers(), &LOCATION) else { return Ok(None) };
        let next = target.url.join(&location).map_err(|_| FetchError::NotAllowed)?;
        if next.origin() == target.url.origin() { Ok(Some(location)) } else { Err(FetchError::NotAllowed) }
    }

    async fn send_once(&self, request: &GuardedRequest, target: &CheckedUrl) -> Result<Response, FetchError> {
        let client = build_client(target, &self.limits)?;
        let method = match request.method {
            GuardedMethod::Get => Method::GET,
            GuardedMethod::Post => Method::POST,
        };
        let mut builder = client.request(method, target.url.clone()).header(ACCEPT_ENCODING, "identity");
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if request.method == GuardedMethod::Post {
            builder = builder.body(request.body.clone());
        }
        await_response(builder, &self.limits).await
    }

    async fn read_response(&self, url: Url, response: Response) -> Result<GuardedResponse, FetchError> {
        let (status, headers) = (response.status(), response.headers().clone());
        // A body that streams without end belongs to a page that is none of ours: the status says enough.
        let body = match read_body(response, &self.limits, &mut |_| {}).await {
            Err(FetchError::TooLarge | FetchError::TimedOut) if status != StatusCode::OK => Bytes::new(),
            body => body?,
        };
        Ok(GuardedResponse { url, status: status.as_u16(), headers, body })
    }
}
