//! The URL of a database, as users of PostgreSQL write it.
//!
//! `sslmode` means what it means to the server's own programs: `disable`, `prefer` (the default), `require` (encrypted; the
//! certificate is checked only against an `sslrootcert`), `verify-ca` and `verify-full`. Neither `Debug` nor any error shows
//! the password.

use super::open_error::PostgresOpenError;
use super::tls::{CertificateCheck, TlsConnector, tls_connector};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long sent bytes may stay without an acknowledgement before the connection counts as broken.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(6);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;

#[derive(Clone, PartialEq)]
pub struct DatabaseUrl {
    config: Config,
    check: CertificateCheck,
    root_certificates: Option<PathBuf>,
}

impl DatabaseUrl {
    /// The settings of a connection: a partner that falls silent is noticed.
    pub(super) fn connect_config(&self) -> Config {
        let mut config = self.config.clone();
        config
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        if config.get_application_name().is_none() {
            config.application_name("headwater");
        }
        config
    }

    pub(super) fn tls_connector(&self) -> Result<TlsConnector, PostgresOpenError> {
        tls_connector(self.check, self.root_certificates.as_deref())
    }

    /// Host, port and database, for messages.
    pub fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}/{}", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({})", self.place())
    }
}

impl FromStr for DatabaseUrl {
    type Err = PostgresOpenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why: String| PostgresOpenError::Url(why);
        let text = text.trim();
        let Some((scheme, _)) =
            text.split_once("://").filter(|(scheme, _)| ["postgres", "postgresql"].contains(scheme))
        else {
            return Err(invalid("it does not begin with postgres://".to_owned()));
        };
        if !has_separate_password(text) {
            let rule =
                "in user, password and database, `@`, `/`, `?`, `#` and `:` are written as %40, %2F, %3F, %23 and %3A";
            return Err(invalid(rule.to_owned()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut kept, mut mode, mut root_certificates) = (Vec::new(), None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", path)) => root_certificates = Some(PathBuf::from(decode_percent(path))),
                Some(("sslcert" | "sslkey" | "sslpassword", _)) => {
                    return Err(invalid("client certificates (sslcert, sslkey) are not supported".to_owned()));
                }
                _ => kept.push(pair),
            }
        }
        let plain = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config = Config::from_str(&plain).map_err(|error| invalid(parse_error(&error, scheme)))?;
        let has_root = root_certificates.is_some();
        let (ssl_mode, check) = parse_ssl_mode(mode.as_deref(), has_root).ok_or_else(|| {
            let known = "disable, prefer, require, verify-ca, verify-full";
            invalid(format!("sslmode is none of {known}"))
        })?;
        config.ssl_mode(ssl_mode);
        if config.get_hosts().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        if config.get_dbname().is_none() {
            return Err(invalid("it names no database".to_owned()));
        }
        Ok(Self { config, check, root_certificates })
    }
}

/// Whether it is certain where the password ends: a part of it must not be taken for a host or a database, which messages
/// show.
fn has_separate_password(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |end| rest.split_at(end));
    !path.contains('@') && authority.matches('@').count() <= 1
}

fn parse_ssl_mode(mode: Option<&str>, has_root: bool) -> Option<(SslMode, CertificateCheck)> {
    let any = if has_root { CertificateCheck::Chain } else { CertificateCheck::None };
    Some(match mode {
        Some("disable") => (SslMode::Disable, CertificateCheck::None),
        None | Some("prefer" | "allow") => (SslMode::Prefer, any),
        Some("require") => (SslMode::Require, any),
        Some("verify-ca") => (SslMode::Require, CertificateCheck::Chain),
        Some("verify-full") => (SslMode::Require, CertificateCheck::ChainAndName),
        Some(_) => return None,
    })
}

/// The parser's message, which names options and never values.
fn parse_error(error: &tokio_postgres::Error, scheme: &str) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| format!("it cannot be read as a {scheme} URL"), ToString::to_string)
}

fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = after.get(..2).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match decoded.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DatabaseUrl, String> {
        text.parse::<DatabaseUrl>().map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_read_and_shown_without_its_password() {
        let url = parse("postgres://ann:se%40cret@db.example:6432/agents?sslmode=require&connect_timeout=3").unwrap();
        assert_eq!(url.place(), "db.example:6432/agents");
        assert_eq!(format!("{url:?}"), "DatabaseUrl(db.example:6432/agents)");
        assert_eq!(url.config.get_password(), Some(&b"se@cret"[..]));
        assert_eq!((url.config.get_ssl_mode(), url.check), (SslMode::Require, CertificateCheck::None));
    }

    #[test]
    fn certificates_are_checked_as_the_mode_says() {
        let check = |query: &str| parse(&format!("postgres://db.example/agents{query}")).unwrap().check;
        assert_eq!(check(""), CertificateCheck::None);
        assert_eq!(check("?sslmode=require&sslrootcert=/a%20b.pem"), CertificateCheck::Chain);
        assert_eq!(check("?sslmode=verify-ca"), CertificateCheck::Chain);
        assert_eq!(check("?sslmode=verify-full"), CertificateCheck::ChainAndName);
        let url = parse("postgres://db.example/agents?sslrootcert=/a%20b.pem").unwrap();
        assert_eq!(url.root_certificates, Some(PathBuf::from("/a b.pem")));
    }

    #[test]
    fn an_invalid_url_is_refused_without_its_password() {
        for (text, why) in [
            ("mysql://ann:secret@db/agents", "does not begin with postgres://"),
            ("host=db password=secret", "does not begin with postgres://"),
            ("postgres://ann:secret@db:port/agents", "port"),
            ("postgres://ann:secret@db", "no database"),
            ("postgres://ann:secret@/agents", "no host"),
            ("postgres://ann:secret@db/agents?sslmode=secret", "sslmode is none of"),
            ("postgres://ann:secret@db/agents?sslcert=secret.pem", "client certificates"),
            ("postgres://ann:se?secret=x@db/agents", "%3F"),
            ("postgres://ann:12/secret@db/agents", "%2F"),
            ("postgres://ann:p@secret@db/agents", "%40"),
            ("postgres://ann:p#secret@db/agents", "%23"),
            ("postgres://ann:secret@db/agents?colour=secret", "colour"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why) && !message.contains("secret"), "{text}: {message}");
        }
    }
}
