//! Finds the objects of an archive that nobody refers to, for `headwater verify`.

use super::SegmentReader;
use super::archiver::archive_error;
use crate::postgres::connection::{Params, column};
use crate::postgres::pool::DatabasePool;
use futures_util::stream::TryStreamExt as _;
use model::ports::StoreResult;
use std::collections::HashSet;
use tokio_postgres::types::Type;

/// Names that are compared at a time.
const NAMES_PER_QUERY: usize = 1_000;
/// Maximum number of objects that are reported.
const ORPHANS_MAX: usize = 1_000;

/// Of objects with these names, threads and first records, those without a segment and without a note.
const SELECT_ORPHANS: &str = "
    SELECT u.name FROM unnest($1, $2, $3) AS u(name, thread, first_seq)
    WHERE NOT EXISTS (SELECT 1 FROM headwater.archive_objects o WHERE o.name = u.name)
      AND NOT EXISTS (SELECT 1 FROM headwater.segments s
                      WHERE s.thread = u.thread AND s.first_seq = u.first_seq AND s.object = u.name)";

impl SegmentReader {
    /// The objects that nobody refers to. Nodes may work meanwhile: an object is deleted before its note is removed, so one
    /// that is still there after its note was looked for has none.
    pub(in super::super) async fn find_orphans(&self, pool: &DatabasePool) -> StoreResult<Vec<String>> {
        let suspects = self.find_suspects(pool).await?;
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        let mut orphans = Vec::new();
        let mut listed = self.archive().list();
        while let Some(name) = listed.try_next().await.map_err(|error| archive_error(&error))? {
            if suspects.contains(&name) {
                orphans.push(name);
            }
        }
        orphans.sort_unstable();
        Ok(orphans)
    }

    async fn find_suspects(&self, pool: &DatabasePool) -> StoreResult<HashSet<String>> {
        let mut suspects = HashSet::new();
        let mut listed = self.archive().list().try_chunks(NAMES_PER_QUERY);
        while let Some(names) = listed.try_next().await.map_err(|error| archive_error(&error.1))? {
            let places: Vec<(i64, i64)> = names.iter().map(|name| parse_name(name).unwrap_or((-1, -1))).collect();
            let (threads, firsts): (Vec<i64>, Vec<i64>) = places.into_iter().unzip();
            let params: Params<'_> =
                &[(&names, Type::TEXT_ARRAY), (&threads, Type::INT8_ARRAY), (&firsts, Type::INT8_ARRAY)];
            for row in pool.query(SELECT_ORPHANS, params).await? {
                if suspects.len() < ORPHANS_MAX {
                    suspects.insert(column(&row, 0)?);
                }
            }
        }
        Ok(suspects)
    }
}

/// The thread and the first record of an object of ours.
fn parse_name(name: &str) -> Option<(i64, i64)> {
    let (thread, rest) = name.split_once('/')?;
    let (first, _) = rest.split_once('-')?;
    Some((thread.parse().ok()?, first.parse().ok()?))
}
