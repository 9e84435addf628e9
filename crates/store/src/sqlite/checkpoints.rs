//! Checkpoints: a body per thread (`checkpoints`), and a row per run of it (`checkpoint_runs`).

use super::columns::{get_text, get_u64};
use super::page;
use model::ports::{Checkpoint, CheckpointRun};
use model::seq::Seq;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

/// Replaces the body and adds the runs.
pub(super) fn put_checkpoint(conn: &Connection, thread: i64, new: &Checkpoint) -> rusqlite::Result<()> {
    let sql = "INSERT INTO checkpoints VALUES (?1, ?2, ?3)
               ON CONFLICT (thread) DO UPDATE SET seq = excluded.seq, body = excluded.body";
    conn.prepare_cached(sql)?.execute((thread, new.seq.0.cast_signed(), &new.body))?;
    let mut insert = conn.prepare_cached("INSERT OR REPLACE INTO checkpoint_runs VALUES (?1, ?2, ?3)")?;
    for run in &new.runs {
        insert.execute((thread, run.index.cast_signed(), &run.body))?;
    }
    Ok(())
}

/// Reads the body and the runs from one snapshot.
pub(super) fn find_checkpoint(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
) -> rusqlite::Result<Option<Checkpoint>> {
    let snapshot = conn.unchecked_transaction()?;
    let Some(num) = page::find_owned_thread(&snapshot, owner, thread)? else { return Ok(None) };
    let mut select = snapshot.prepare_cached("SELECT seq, body FROM checkpoints WHERE thread = ?1")?;
    let row = |row: &Row<'_>| Ok((Seq(get_u64(row, 0)?), get_text(row, 1)?));
    let Some((seq, body)) = select.query_row([num], row).optional()? else { return Ok(None) };
    let mut select = snapshot.prepare_cached("SELECT idx, body FROM checkpoint_runs WHERE thread = ?1 ORDER BY idx")?;
    let row = |row: &Row<'_>| Ok(CheckpointRun { index: get_u64(row, 0)?, body: get_text(row, 1)? });
    let runs = select.query_map([num], row)?.collect::<rusqlite::Result<_>>()?;
    Ok(Some(Checkpoint { seq, body, runs }))
}
