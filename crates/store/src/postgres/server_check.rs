//! Whether a server and its database can be used.

use super::open_error::PostgresOpenError;
use super::pool::{DatabasePool, QUERY_TIMEOUT};
use deadpool_postgres::Object;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take to start, or to recover from a crash.
const STARTING_MAX: Duration = Duration::from_secs(10);
const STARTING_POLL: Duration = Duration::from_millis(100);

/// `server_version_num` of the oldest server: 15.0.
const VERSION_MIN: i32 = 150_000;
/// Other encodings cannot hold every text.
const ENCODING: &str = "UTF8";

const SELECT: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                      current_setting('server_encoding'), pg_is_in_recovery(),
                      current_setting('transaction_read_only') = 'on'";

#[derive(Debug)]
struct ServerProperties {
    version_number: i32,
    version: String,
    encoding: String,
    is_standby: bool,
    is_read_only: bool,
}

/// Connects, and checks that the server can be used.
pub(super) async fn check_server(pool: &DatabasePool, place: &str) -> Result<(), PostgresOpenError> {
    let connection = connect_when_started(pool, place).await?;
    let Ok(row) = tokio::time::timeout(QUERY_TIMEOUT, connection.query_typed_one(SELECT, &[])).await else {
        return Err(PostgresOpenError::no_answer(place));
    };
    let row = row?;
    let properties = ServerProperties {
        version_number: row.try_get(0)?,
        version: row.try_get(1)?,
        encoding: row.try_get(2)?,
        is_standby: row.try_get(3)?,
        is_read_only: row.try_get(4)?,
    };
    properties.check()
}

/// Connects, and retries while the server is starting: a node and its database may be started at the same time.
async fn connect_when_started(pool: &DatabasePool, place: &str) -> Result<Object, PostgresOpenError> {
    let begun = Instant::now();
    let mut is_reported = false;
    loop {
        match pool.check(place).await {
            Err(PostgresOpenError::NotReady { why, .. }) if begun.elapsed() < STARTING_MAX => {
                if !is_reported {
                    tracing::info!(place, why, "the database is starting: waiting for it");
                    is_reported = true;
                }
                tokio::time::sleep(STARTING_POLL).await;
            }
            connected => return connected,
        }
    }
}

impl ServerProperties {
    fn check(self) -> Result<(), PostgresOpenError> {
        if self.version_number < VERSION_MIN {
            return Err(PostgresOpenError::TooOld(self.version));
        }
        if self.is_standby {
            return Err(PostgresOpenError::Standby);
        }
        if self.is_read_only {
            return Err(PostgresOpenError::ReadOnly);
        }
        if self.encoding != ENCODING {
            return Err(PostgresOpenError::Encoding(self.encoding));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_and_standbys_are_refused() {
        let check = |version_number: i32, is_standby: bool| {
            let (version, encoding) =
                (format!("{}.{}", version_number / 10_000, version_number % 10_000), ENCODING.into());
            let server = ServerProperties { version_number, version, encoding, is_standby, is_read_only: is_standby };
            server.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(150_000, false), Ok(()));
        assert_eq!(check(180_001, false), Ok(()));
        assert_eq!(
            check(140_011, false).unwrap_err(),
            "the database is PostgreSQL 14.11: 15 or later is needed; upgrade it, or use another one"
        );
        let standby = check(150_000, true).unwrap_err();
        assert!(standby.contains("standby") && standby.contains("primary"), "{standby}");
    }
}
