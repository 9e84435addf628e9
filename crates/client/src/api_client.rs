//! Requests to a server, as any other client sends them.
//!
//! An [`ApiClientError`] is worded for the user of the command line.

use crate::backoff::{Backoff, root_cause};
use model::TaskId;
use protocol::task::TaskFrameError;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sse::DecodeError;
use std::time::Duration;
use tokio::time::timeout;

/// Two heartbeats of 15 s.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(40);
const CONNECT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ApiClientError {
    #[error("`{0}` is not the URL of a server such as http://127.0.0.1:8787")]
    InvalidUrl(String),
    #[error("the key has invalid characters")]
    InvalidKey,
    #[error("no such task: `{0}`")]
    TaskNotFound(String),
    #[error("no such thread: `{0}`")]
    ThreadNotFound(String),
    #[error("there are several agents: choose one with --agent: {0}")]
    AgentNotChosen(String),
    #[error("the server rejects the request: pass a valid key with --key or HEADWATER_KEY")]
    Unauthorized,
    #[error("{0} does not answer: {1}")]
    Unreachable(Url, String),
    #[error("the server answered {0}: {1}")]
    Rejected(StatusCode, String),
    #[error("the server answered something else than expected: {0}")]
    UnexpectedBody(String),
    #[error(transparent)]
    Stream(#[from] DecodeError),
    #[error(transparent)]
    Frame(#[from] TaskFrameError),
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    #[error("cannot read the terminal: {0}")]
    Input(std::io::Error),
}

impl ApiClientError {
    /// Whether the same request may succeed when the server is back.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(..) => true,
            Self::Rejected(status, _) => is_transient_status(*status),
            _ => false,
        }
    }
}

pub(crate) fn is_transient_status(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

impl ApiClient {
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ApiClientError> {
        let invalid = || ApiClientError::InvalidUrl(url.to_owned());
        let base = Url::parse(url).map_err(|_| invalid())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(invalid());
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| ApiClientError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let builder = || Client::builder().connect_timeout(CONNECT_MAX).redirect(redirect::Policy::none()).no_proxy();
        // Plain HTTP also works on a system without root certificates.
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        let client = client.map_err(|error| ApiClientError::Unreachable(base.clone(), error.to_string()))?;
        Ok(Self { client, base, headers })
    }

    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    pub fn task_url(&self, task: &TaskId) -> Url {
        self.url(&format!("/v1/tasks/{task}"))
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url).headers(self.headers.clone())
    }

    pub async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, ApiClientError> {
        self.send(self.request(Method::GET, url.clone()), &url).await
    }

    pub async fn post<T: DeserializeOwned>(&self, url: Url, body: &impl Serialize) -> Result<T, ApiClientError> {
        self.send(self.request(Method::POST, url.clone()).json(body), &url).await
    }

    /// Repeats the request until the server answers. The key makes it one request for the server.
    pub async fn post_until_answered<T: DeserializeOwned>(
        &self,
        url: Url,
        body: &Value,
        idempotency_key: &str,
        note: impl Fn(&str),
    ) -> Result<T, ApiClientError> {
        let mut backoff = Backoff::default();
        loop {
            let request = self.request(Method::POST, url.clone()).header("Idempotency-Key", idempotency_key).json(body);
            match self.send(request, &url).await {
                Err(error) if error.is_transient() => backoff.wait(&error.to_string(), &note).await,
                answer => return answer,
            }
        }
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder, url: &Url) -> Result<T, ApiClientError> {
        let unreachable = |why| ApiClientError::Unreachable(url.clone(), why);
        let response = match timeout(SILENCE_MAX, request.send()).await {
            Ok(response) => response.map_err(|error| unreachable(root_cause(&error)))?,
            Err(_) => return Err(unreachable(format!("no response within {} s", SILENCE_MAX.as_secs()))),
        };
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(ApiClientError::Unauthorized),
            status => return Err(ApiClientError::Rejected(status, problem_detail(response).await)),
        }
        match timeout(SILENCE_MAX, response.bytes()).await {
            Ok(Ok(body)) => {
                serde_json::from_slice(&body).map_err(|error| ApiClientError::UnexpectedBody(error.to_string()))
            }
            Ok(Err(error)) => Err(unreachable(root_cause(&error))),
            Err(_) => Err(unreachable(format!("no response within {} s", SILENCE_MAX.as_secs()))),
        }
    }
}

pub(crate) async fn problem_detail(response: Response) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    let problem = timeout(CONNECT_MAX, response.json::<Problem>()).await.ok().and_then(Result::ok);
    let said = problem.and_then(|problem| problem.detail.or(problem.title));
    said.unwrap_or_else(|| "no reason given".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_url_is_refused_with_its_reason() {
        let refusal = |base: &str| ApiClient::new(base, None).err().map(|refusal| refusal.to_string());
        let of = |base: &str| refusal(base).unwrap_or_default();
        assert!(of("localhost:8787").contains("is not the URL of a server"));
        assert!(of("ftp://a.example/").contains("is not the URL of a server"));
        assert_eq!((refusal("http://127.0.0.1:8787"), refusal("https://a.example")), (None, None));
        assert!(matches!(ApiClient::new("http://a.example", Some("a\nb")), Err(ApiClientError::InvalidKey)));
    }

    #[test]
    fn the_server_url_may_have_a_path() {
        let task = |base: &str| ApiClient::new(base, None).unwrap().task_url(&TaskId::from("task_1")).to_string();
        assert_eq!(task("http://a.example:1/x/"), "http://a.example:1/x/v1/tasks/task_1");
        assert_eq!(task("http://a.example"), "http://a.example/v1/tasks/task_1");
    }
}
