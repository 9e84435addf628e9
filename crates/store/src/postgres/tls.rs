//! TLS to the database.

use super::open_error::PostgresOpenError;
use rustls_platform_verifier::Verifier;
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

pub(super) type TlsConnector = MakeRustlsConnect;

/// What is checked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateCheck {
    /// Nothing: the connection is encrypted, but the server is not authenticated.
    None,
    /// That a trusted authority signed it.
    Chain,
    /// Also that it is for the host of the URL.
    ChainAndName,
}

/// Trusts the certificates of a file, or those of the system.
pub(super) fn tls_connector(
    check: CertificateCheck,
    root_certificates: Option<&Path>,
) -> Result<TlsConnector, PostgresOpenError> {
    let failed = |error: &dyn std::fmt::Display| PostgresOpenError::Tls(format!("TLS cannot be set up: {error}"));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain: Option<Arc<dyn ServerCertVerifier>> = match (check, root_certificates) {
        (CertificateCheck::None, _) => None,
        (_, Some(path)) => {
            let roots = Arc::new(read_root_certificates(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            Some(verifier.map_err(|error| failed(&error))?)
        }
        (_, None) => Some(Arc::new(Verifier::new(Arc::clone(&provider)).map_err(|error| failed(&error))?)),
    };
    let verifier = Arc::new(DatabaseCertVerifier { chain, check, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn read_root_certificates(path: &Path) -> Result<RootCertStore, PostgresOpenError> {
    let failed = |why: &dyn std::fmt::Display| {
        PostgresOpenError::Tls(format!("sslrootcert {} cannot be used: {why}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
        roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() { Err(failed(&"it has no certificate")) } else { Ok(roots) }
}

/// Checks as much as the URL asks for; the signatures of the handshake always.
#[derive(Debug)]
struct DatabaseCertVerifier {
    chain: Option<Arc<dyn ServerCertVerifier>>,
    check: CertificateCheck,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for DatabaseCertVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Chain => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
