//! Forks a shared thread into a thread of the viewer: selects the history and the files of the new run.

use crate::attachments::uploads::{self, Uploads};
use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{RECENT_RUNS_MAX, for_each_condensed_record, newest_runs};
use crate::shares::{Share, ShareViewer};
use engine::{NewRun, REQUEST_BYTES_MAX};
use model::blob::{BLOB_URL_PREFIX, blob_hash};
use model::content::ContentPart;
use model::error::ErrorCode;
use model::event::Event;
use model::history::HistoryEntry;
use model::seq::Seq;
use model::{Record, UserId};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use upstream::generated_image;

/// The beginning of a run that continues a shared thread: its visible history and images. Files of the owner stay the
/// owner's; the history names them.
pub async fn fork_share(gateway: &Gateway, token: &str) -> Result<(NewRun, Uploads), Rejection> {
    // Queries run as the viewer, so that nothing is copied that the share does not show.
    let mut found = gateway.shares.find_by_token(token);
    if found.is_none() && gateway.engine.ports().cluster.is_shared() {
        // Another node may have created it a moment ago.
        gateway.shares.refresh(&*gateway.engine.ports().directory).await?;
        found = gateway.shares.find_by_token(token);
    }
    let Some(ShareViewer { user, share }) = found else {
        let detail = "the share token is unknown, expired or revoked";
        return Err(Rejection::new(ErrorCode::UnknownShare, detail));
    };
    let runs = newest_runs(gateway, &user, &share.row().thread, RECENT_RUNS_MAX).await?;
    let ended = runs.into_iter().filter(|run| run.status.is_terminal() && run.first_seq.is_some());
    let mut history = match ended.max_by_key(|run| run.first_seq) {
        Some(run) => Some(gateway.engine.history_within(&user, &run, REQUEST_BYTES_MAX / 2).await?),
        None => None,
    };
    let mut uploads = Uploads::default();
    for part in history.iter_mut().flat_map(uploads::parts_of_history) {
        copy_shared_attachment(gateway, &user, part, &mut uploads).await?;
    }
    for entry in history.iter_mut().flat_map(|history| &mut history.entries) {
        if let HistoryEntry::Hosted { raw, .. } = entry {
            copy_generated_image(gateway, &user, &mut raw.item, &mut uploads).await?;
        }
    }
    let origin = Some(json!({ "share": share.row().id }));
    Ok((NewRun { prior_history: history, origin, ..NewRun::default() }, uploads))
}

/// Adds the file of a part to the uploads. If the viewer may not see it, a note replaces the part.
async fn copy_shared_attachment(
    gateway: &Gateway,
    viewer: &UserId,
    part: &mut ContentPart,
    uploads: &mut Uploads,
) -> Result<(), Rejection> {
    let is_blob = part.url().is_some_and(|url| url.starts_with(BLOB_URL_PREFIX));
    let note = match part {
        ContentPart::Text { .. } => return Ok(()),
        ContentPart::ImageUrl { .. } if is_blob => "[image]".to_owned(),
        ContentPart::File { file } if is_blob || file.bucket.is_some() => {
            format!("[file {}]", file.display_name().unwrap_or("without a name"))
        }
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => return Ok(()),
    };
    if let Some(hash) = part.url().and_then(blob_hash)
        && let Some(row) = gateway.engine.ports().directory.blob(viewer, None, hash).await?
    {
        uploads.add_shared(hash, row);
        return Ok(());
    }
    *part = ContentPart::text(note);
    Ok(())
}

/// The same for a generated image. One that the viewer may not see is omitted, like one that has been deleted.
async fn copy_generated_image(
    gateway: &Gateway,
    viewer: &UserId,
    item: &mut Value,
    uploads: &mut Uploads,
) -> Result<(), Rejection> {
    let Some(hash) = generated_image::generated_image(item).and_then(blob_hash) else { return Ok(()) };
    match gateway.engine.ports().directory.blob(viewer, None, hash).await? {
        Some(row) => uploads.add_shared(hash, row),
        None => generated_image::omit_generated_image(item),
    }
    Ok(())
}

/// A file as clients name it.
#[derive(Clone, Copy)]
pub struct AttachmentName<'a> {
    pub bucket: &'a str,
    pub path: &'a str,
}

/// Whether a visible message of the shared thread has this file of `owner`.
pub async fn is_file_shared(
    gateway: &Gateway,
    viewer: &UserId,
    share: &Share,
    owner: &UserId,
    name: AttachmentName<'_>,
) -> Result<bool, Rejection> {
    // A thread can refer to any user's file. Only its owner's are shared with it.
    if share.owner() != owner {
        return Ok(false);
    }
    let is_file = |part: &ContentPart| match part {
        ContentPart::File { file } => {
            file.bucket.as_deref() == Some(name.bucket) && file.path.as_deref() == Some(name.path)
        }
        ContentPart::Text { .. } | ContentPart::ImageUrl { .. } => false,
    };
    let has_file = |record: &Record| {
        let input = match record_contains(record, name.path).then(|| record.event()) {
            Some(Event::Created(created)) => &created.task.input,
            Some(Event::InputAdded(added)) => &added.input,
            _ => return false,
        };
        input.iter().flat_map(|message| &message.content).any(is_file)
    };
    let found = for_each_condensed_record(gateway, viewer, &share.row().thread, Seq::ZERO, |record| {
        if has_file(record) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(found.await?.is_some())
}

/// Whether a record's text contains `needle`, which must have no characters that JSON escapes. Cheaper than decoding.
fn record_contains(record: &Record, needle: &str) -> bool {
    std::str::from_utf8(&record.public).is_ok_and(|text| text.contains(needle))
}
