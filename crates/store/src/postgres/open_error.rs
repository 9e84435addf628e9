//! Why a database could not be opened. Messages name the host and the database, never the password.

use super::connection::describe;
use model::ports::StoreError;
use tokio_postgres::error::SqlState;

#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    #[error("the database URL is not valid: {0}; expected postgres://user:password@host:5432/database")]
    Url(String),
    #[error("{0}")]
    Tls(String),
    #[error(
        "cannot connect to the database at {place}: {why}; check host and port in the URL, and that PostgreSQL is running there"
    )]
    Unreachable { place: String, why: String },
    #[error("the database at {place} is starting or stopping: {why}; try again in a moment")]
    NotReady { place: String, why: String },
    #[error("no TLS connection to the database at {place}: {why}; check sslmode and sslrootcert in the URL")]
    Handshake { place: String, why: String },
    #[error(
        "the database at {place} refused the login: {why}; check the user, the password and the name of the database in the URL"
    )]
    Login { place: String, why: String },
    #[error(
        "the database at {place} has no free connections: raise its max_connections, or lower [database] connections_max"
    )]
    OutOfConnections { place: String },
    #[error("the database has a schema `headwater` of another program: use another database")]
    Foreign,
    #[error("the database has schema version {found}, this program knows {known}: upgrade this program")]
    Newer { found: usize, known: usize },
    #[error(
        "the database has schema version {found}, this program needs {known}: start a server of this version, which migrates it"
    )]
    Older { found: usize, known: usize },
    #[error("the database at {place} has no data of Headwater: check the URL, or start a server with it first")]
    NoSchema { place: String },
    #[error("the database is PostgreSQL {0}: 15 or later is needed; upgrade it, or use another one")]
    TooOld(String),
    #[error("the database is a standby, which refuses writes: connect to the primary server")]
    Standby,
    #[error("the database is read-only: set its default_transaction_read_only to off, or use another one")]
    ReadOnly,
    #[error("the database has the encoding {0}, which cannot hold every text: create it with ENCODING 'UTF8'")]
    Encoding(String),
    #[error(
        "the database user may not create the schema `headwater`: {0}; grant CREATE on the database, or create the schema for this user"
    )]
    Denied(String),
    #[error("the database has archived runs: set [database] archive to the place that has them ({known})")]
    NoArchive { known: String },
    #[error(
        "the archive of the database is {known}, and [database] archive is {configured}: name the same bucket or shared folder on \
         every node"
    )]
    OtherArchive { known: String, configured: String },
    #[error("the database's disk is full: make room on it, then start again")]
    Full,
    #[error("the database failed: {0}")]
    Failed(String),
}

impl PostgresOpenError {
    pub(super) fn no_answer(place: &str) -> Self {
        Self::Unreachable { place: place.to_owned(), why: "it does not answer in time".to_owned() }
    }

    /// Classifies an error of the first connection.
    pub(super) fn connecting(place: &str, error: &tokio_postgres::Error) -> Self {
        let (place, why) = (place.to_owned(), describe(error));
        match error.code() {
            Some(code) if is_login_error(code) => Self::Login { place, why },
            Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => Self::OutOfConnections { place },
            Some(code) if *code == SqlState::CANNOT_CONNECT_NOW => Self::NotReady { place, why },
            None if why.ends_with(NO_PASSWORD) => Self::Login { place, why },
            None if why.starts_with(NO_TLS) => Self::Handshake { place, why },
            _ => Self::Unreachable { place, why },
        }
    }
}

/// How the client begins or ends messages that have no code.
const NO_PASSWORD: &str = "password missing";
const NO_TLS: &str = "error performing TLS handshake";

fn is_login_error(code: &SqlState) -> bool {
    [
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        SqlState::INVALID_CATALOG_NAME,
        SqlState::INSUFFICIENT_PRIVILEGE,
    ]
    .contains(code)
}

impl From<tokio_postgres::Error> for PostgresOpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        let why = describe(&error);
        match error.code() {
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::ReadOnly,
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::Denied(why),
            Some(code) if *code == SqlState::DISK_FULL => Self::Full,
            _ => Self::Failed(why),
        }
    }
}

impl From<StoreError> for PostgresOpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSpace => Self::Full,
            StoreError::Unavailable(why) => Self::Failed(why),
            error @ (StoreError::ThreadNotFound | StoreError::Corrupt { .. }) => Self::Failed(error.to_string()),
        }
    }
}
