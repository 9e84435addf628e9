//! Connects `object_store` to the HTTP client that the whole server uses.

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::{Body, Client, Request, Url};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct ReqwestConnector;

#[derive(Debug)]
struct ReqwestService(Client);

impl HttpConnector for ReqwestConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        // A signature is valid for one URL, so redirects cannot work.
        let redirects = reqwest::redirect::Policy::none();
        let client = Client::builder()
            .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(redirects)
            .build();
        match client {
            Ok(client) => Ok(HttpClient::new(ReqwestService(client))),
            Err(error) => Err(object_store::Error::Generic { store: "files", source: Box::new(error) }),
        }
    }
}

#[async_trait]
impl HttpService for ReqwestService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let url = Url::parse(&head.uri.to_string()).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = Request::new(head.method, url);
        *request.headers_mut() = head.headers;
        *request.body_mut() = Some(Body::wrap(body));
        let response = self.0.execute(request).await.map_err(http_error)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut answer = HttpResponse::new(HttpResponseBody::new(Body::from(response).map_err(http_error)));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

/// Classifies errors by whether `object_store` may retry.
fn http_error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else if error.is_request() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Interrupted
    };
    // The URL of a request may be signed: it must not appear in messages.
    HttpError::new(kind, error.without_url())
}
