//! Opens connections: TCP, through a proxy if the environment names one, and TLS.

use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use model::ports::BoxFuture;
use rustls_platform_verifier::Verifier;
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tower::{ServiceExt as _, service_fn};

trait ReadWrite: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> ReadWrite for T {}

/// A TCP connection, or TLS over one.
pub(super) struct NetworkStream(Box<dyn ReadWrite>);

impl Read for NetworkStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl Write for NetworkStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in super::super) struct ConnectError(#[source] Box<dyn Error + Send + Sync>);

impl ConnectError {
    fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

pub(super) struct Connector {
    direct: DirectConnector,
    proxies: Matcher,
}

impl Connector {
    /// Uses the proxies of the environment and the system's trust store.
    pub(super) fn new() -> Result<Self, rustls::Error> {
        Self::with_proxies(Matcher::from_env())
    }

    pub(super) fn with_proxies(proxies: Matcher) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let direct = DirectConnector { tcp, tls: TlsConnector::from(Arc::new(tls_config()?)) };
        Ok(Self { direct, proxies })
    }

    /// The proxy that is sent requests for this service as they are. TLS connections pass through a proxy instead.
    pub(super) fn forwarding_proxy(&self, uri: &Uri) -> Option<Intercept> {
        if is_https(uri) { None } else { self.proxies.intercept(uri) }
    }

    pub(super) fn connect(&self, uri: &Uri) -> BoxFuture<'static, Result<NetworkStream, ConnectError>> {
        let (direct, uri) = (self.direct.clone(), uri.clone());
        match self.proxies.intercept(&uri) {
            None => direct.connect(uri),
            Some(proxy) if is_https(&uri) => direct.connect_through(&proxy, uri),
            Some(proxy) => direct.connect(proxy.uri().clone()),
        }
    }
}

/// The addresses of proxies may contain passwords.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct DirectConnector {
    tcp: HttpConnector,
    tls: TlsConnector,
}

impl DirectConnector {
    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<NetworkStream, ConnectError>> {
        let connector = self.clone();
        Box::pin(async move {
            let tcp = connector.tcp.clone().oneshot(uri.clone()).await.map_err(ConnectError::new)?;
            let stream = NetworkStream(Box::new(tcp));
            if is_https(&uri) { connector.start_tls(stream, &uri).await } else { Ok(stream) }
        })
    }

    fn connect_through(self, proxy: &Intercept, uri: Uri) -> BoxFuture<'static, Result<NetworkStream, ConnectError>> {
        let direct = self.clone();
        let to_proxy = service_fn(move |proxy: Uri| direct.connect(proxy));
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let tunnelling: BoxFuture<'static, _> = Box::pin(tunnel.oneshot(uri.clone()));
        Box::pin(async move {
            let stream = tunnelling.await.map_err(ConnectError::new)?;
            self.start_tls(stream, &uri).await
        })
    }

    async fn start_tls(&self, stream: NetworkStream, uri: &Uri) -> Result<NetworkStream, ConnectError> {
        // An IPv6 address has brackets in an URI.
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(ConnectError::new)?;
        let stream = self.tls.connect(name, TokioIo::new(stream)).await.map_err(ConnectError::new)?;
        Ok(NetworkStream(Box::new(TokioIo::new(stream))))
    }
}

/// Without a system trust store no certificate is valid, but plain HTTP still works.
fn tls_config() -> Result<ClientConfig, rustls::Error> {
    let provider = CryptoProvider::get_default().map_or_else(|| Arc::new(aws_lc_rs::default_provider()), Arc::clone);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match Verifier::new(provider) {
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
        Err(error) => {
            tracing::warn!(%error, "the system's certificates cannot be read: no provider can be reached over HTTPS");
            builder.with_root_certificates(RootCertStore::empty())
        }
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

pub(super) fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}
