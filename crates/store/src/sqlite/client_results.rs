//! Calls of client tools that have a result. A call without a row is open, as far as the store knows.

use model::CallId;
use rusqlite::{Connection, OptionalExtension};

/// The digest of the result that closed a call.
pub(super) fn find_digest(conn: &Connection, thread: i64, call: &CallId) -> rusqlite::Result<Option<String>> {
    let mut select = conn.prepare_cached("SELECT digest FROM client_results WHERE thread = ?1 AND call = ?2")?;
    select.query_row((thread, call.as_str()), |row| row.get(0)).optional()
}

/// Closes a call. The result that closed it first stays.
pub(super) fn close_call(conn: &Connection, thread: i64, call: &CallId, digest: &str) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO client_results VALUES (?1, ?2, ?3)")?;
    insert.execute((thread, call.as_str(), digest)).map(drop)
}
