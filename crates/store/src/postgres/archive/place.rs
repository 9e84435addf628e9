//! Which archive a database has. The first node with an archive decides; another place can be chosen while nothing is
//! archived and no other node has an archive.

use super::ArchivePlace;
use crate::postgres::PostgresOpenError;
use crate::postgres::connection::{OpenTransaction, Params, column};
use crate::postgres::pool::DatabasePool;
use model::NodeId;
use model::ports::StoreResult;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const ARCHIVE_PLACE: &str = "archive_place";

/// The place that the database knows, whether it has objects there, and whether nodes other than this one may put some there.
const FIND_PLACE: &str = "
    SELECT (SELECT value FROM headwater.secrets WHERE name = $1),
        EXISTS (SELECT 1 FROM headwater.segments) OR EXISTS (SELECT 1 FROM headwater.archive_objects),
        EXISTS (SELECT 1 FROM headwater.nodes WHERE lease_until > clock_timestamp() AND has_archive AND id <> $2)";
/// Locks the row, also if it exists.
const PROPOSE_PLACE: &str =
    "INSERT INTO headwater.secrets VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET name = excluded.name";

/// Checks the place of a program that only reads.
pub(in super::super) async fn check_place(
    pool: &DatabasePool,
    place: Option<&ArchivePlace>,
) -> Result<(), PostgresOpenError> {
    let found = pool.query_opt(FIND_PLACE, &[(&ARCHIVE_PLACE, Type::TEXT), (&"", Type::TEXT)]).await?;
    found.map_or(Ok(()), |row| compare_place(&row, place))
}

/// Checks the place of a node that is registered, or makes it that of the database.
pub(in super::super) async fn register_place(
    pool: &DatabasePool,
    node: &NodeId,
    place: Option<&ArchivePlace>,
) -> Result<(), PostgresOpenError> {
    let Some(configured) = place else { return check_place(pool, None).await };
    let identity = configured.identity.as_bytes();
    let row: Params<'_> = &[(&ARCHIVE_PLACE, Type::TEXT), (&identity, Type::BYTEA)];
    let tx = OpenTransaction::begin(pool).await?;
    tx.execute(PROPOSE_PLACE, row).await?;
    let found = tx.query_one(FIND_PLACE, &[(&ARCHIVE_PLACE, Type::TEXT), (&node.as_str(), Type::TEXT)]).await?;
    compare_place(&found, place)?;
    tx.execute("UPDATE headwater.secrets SET value = $2 WHERE name = $1", row).await?;
    let committed: StoreResult<()> = tx.commit().await;
    Ok(committed?)
}

fn compare_place(found: &Row, place: Option<&ArchivePlace>) -> Result<(), PostgresOpenError> {
    let (has_objects, has_nodes): (bool, bool) = (column(found, 1)?, column(found, 2)?);
    let Some(known) = column::<Option<&[u8]>>(found, 0)?.map(String::from_utf8_lossy) else { return Ok(()) };
    match place {
        None if has_objects => Err(PostgresOpenError::NoArchive { known: known.into_owned() }),
        Some(place) if place.identity != known && (has_objects || has_nodes) => {
            let configured = place.identity.clone();
            Err(PostgresOpenError::OtherArchive { known: known.into_owned(), configured })
        }
        None | Some(_) => Ok(()),
    }
}
