//! The archive of the nodes, which takes runs soon after their end, so that viewers are cut before it and resume after it.

use crate::context::ChaosContext;
use crate::database::Database;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// By which nodes tell that they have the same folder.
const FOLDER_ID: &str = ".folder-id";
/// The nodes delete from the table of records only what they have archived, so that both together are the log.
const KEEP_DELETED: &str = "
    CREATE SCHEMA chaos;
    CREATE TABLE chaos.archived_records (thread bigint, seq bigint, epoch bigint);
    CREATE FUNCTION chaos.keep_record() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO chaos.archived_records VALUES (OLD.thread, OLD.seq, OLD.epoch);
            RETURN NULL;
        END
    $$;
    CREATE TRIGGER keep_record AFTER DELETE ON headwater.records FOR EACH ROW EXECUTE FUNCTION chaos.keep_record()";

/// Keeps of every record that leaves the database what the checker needs.
pub(crate) async fn keep_archived_records(database: &Database) -> anyhow::Result<()> {
    database.query(KEEP_DELETED).await.map(drop).context("the trigger for archived records")
}

/// The number of segments, and the objects of the archive that are missing or that no node knows.
pub(crate) async fn check_archive(context: &ChaosContext) -> anyhow::Result<(usize, Vec<String>)> {
    const SEGMENTS: &str = "SELECT object FROM headwater.segments";
    let folder = context.cluster.archive_folder();
    let before = query_names(context, SEGMENTS).await?;
    let mut stored = BTreeMap::new();
    list_files(&folder, "", &mut stored)?;
    // The note of an upload is replaced by its segment, and that of a deletion is removed when the object is gone.
    let noted = query_names(context, "SELECT name FROM headwater.archive_objects").await?;
    let after = query_names(context, SEGMENTS).await?;
    let missing = before.iter().filter(|name| !stored.contains_key(*name));
    let mut problems: Vec<String> = missing.map(|name| format!("the archive lacks {name}")).collect();
    let is_known = |name: &String| noted.contains(name) || after.contains(name);
    let unknown = stored.iter().filter(|(name, path)| !is_known(name) && path.exists());
    problems.extend(unknown.map(|(_, path)| format!("nobody will delete {}", path.display())));
    Ok((after.len(), problems))
}

async fn query_names(context: &ChaosContext, sql: &str) -> anyhow::Result<BTreeSet<String>> {
    Ok(context.database_rows(sql).await?.into_iter().flatten().collect())
}

/// All files, by their name in the folder.
fn list_files(folder: &Path, prefix: &str, files: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().display());
        if entry.file_type()?.is_dir() {
            list_files(&entry.path(), &format!("{name}/"), files)?;
        } else if name != FOLDER_ID {
            // An upload is written under another name first, which is deleted together with the object.
            files.insert(name.trim_end_matches("#1").to_owned(), entry.path());
        }
    }
    Ok(())
}
