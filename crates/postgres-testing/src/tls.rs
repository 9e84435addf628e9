//! A certificate authority and a certificate for a server.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// In PEM.
pub(crate) struct ServerCertificate {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// For `localhost` and 127.0.0.1, signed by an authority that signs nothing else.
pub(crate) fn create_server_certificate() -> ServerCertificate {
    create_certificate().unwrap_or_else(|error| panic!("cannot create a certificate: {error}"))
}

fn create_certificate() -> Result<ServerCertificate, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "test authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    let certificate = server.signed_by(&key, &authority)?;
    Ok(ServerCertificate { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}
