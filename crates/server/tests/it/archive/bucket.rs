//! A bucket of S3's kind, as far as an archive needs it.

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

#[derive(Clone)]
pub(super) struct Bucket {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    fails: Arc<AtomicBool>,
    endpoint: String,
}

impl Bucket {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bucket = Self { objects: Arc::default(), fails: Arc::default(), endpoint };
        let app = axum::Router::new().fallback(answer).with_state(bucket.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        bucket
    }

    pub(super) fn env_vars(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
        ]
    }

    /// The paths of all objects.
    pub(super) fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Every request is refused.
    pub(super) fn fail(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }

    pub(super) fn heal(&self) {
        self.fails.store(false, Ordering::Relaxed);
    }

    fn list(&self, prefix: &str) -> String {
        let objects = self.objects.lock().unwrap();
        let entry = |(path, bytes): (&String, &Vec<u8>)| {
            let key = path.strip_prefix("/bucket/").unwrap();
            let (size, time) = (bytes.len(), "2026-01-01T00:00:00.000Z");
            let listed = key.starts_with(prefix);
            listed.then(|| {
                format!("<Contents><Key>{key}</Key><LastModified>{time}</LastModified><Size>{size}</Size></Contents>")
            })
        };
        let contents: String = objects.iter().filter_map(entry).collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
    }
}

async fn answer(State(bucket): State<Bucket>, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default());
    if bucket.fails.load(Ordering::Relaxed) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    match method {
        Method::PUT => {
            bucket.objects.lock().unwrap().insert(path, body.to_vec());
            [(header::ETAG, "\"1\"")].into_response()
        }
        Method::DELETE => {
            bucket.objects.lock().unwrap().remove(&path);
            StatusCode::NO_CONTENT.into_response()
        }
        Method::GET if query.contains("list-type=2") => {
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
            bucket.list(&prefix.replace("%2F", "/")).into_response()
        }
        _ => match bucket.objects.lock().unwrap().get(&path).cloned() {
            Some(bytes) => {
                let time = "Thu, 01 Jan 2026 00:00:00 GMT";
                ([(header::ETAG, "\"1\""), (header::LAST_MODIFIED, time)], bytes).into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}
