//! What comes along with words: pictures and files, looked at and kept before anything begins.
//!
//! Two steps. [`Luggage::unpack`] reads: what came inside a `data:` URL is looked at and taken out, and its part says from
//! then on where it will be (`/v1/blobs/…`), so that what was said can be measured and compared while nothing is kept yet.
//! [`Luggage::keep`] writes: first it asks for everything that could be somebody else's, and keeps bytes only then. So what
//! is refused leaves nothing behind.

use super::blobs::hash;
use super::data::{self, DataError, is_data};
use super::{NewBlob, Origin};
use crate::app::App;
use crate::config::FilesConfig;
use crate::problem::Problem;
use axum::http::StatusCode;
use engine::NewRun;
use files::{FileType, ImageHeaderScanner, ImageTooLarge, sanitize_file_name};
use model::blob::{self, BLOB_URL_PREFIX, blob_hash};
use model::block::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::command::{AnswerBody, ClientToolResult};
use model::history::{HistoryEntry, PriorHistory};
use model::ports::AttachmentRow;
use model::{ThreadId, UserId};
use protocol::said::{Said, What};
use reqwest::Url;
use std::collections::HashMap;
use std::mem;
use upstream::responses::generated_image;

/// What is longer is read where nobody waits for the thread.
const QUICK_BYTES: usize = 64 * 1024;

/// The bytes that came along, by hash.
#[derive(Debug, Default)]
pub(crate) struct Luggage {
    things: HashMap<String, Thing>,
}

#[derive(Debug)]
enum Thing {
    /// It came with the request.
    Sent(NewBlob),
    /// It is somebody else's, who has shown it to the user.
    Shown(AttachmentRow),
}

/// Why something that came along is not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("a picture must be a PNG, JPEG, GIF or WebP, and this is {0}")]
    NoPicture(&'static str),
    #[error("a file that comes along may have {0} bytes at most")]
    TooLarge(u64),
    #[error(transparent)]
    Pixels(#[from] ImageTooLarge),
    #[error("the reading was broken off")]
    BrokenOff,
}

impl Refused {
    fn problem(&self, field: &str) -> Problem {
        let detail = format!("`{field}`: {self}");
        match self {
            Self::Data(_) | Self::NoPicture(_) => Problem::invalid_body(detail),
            Self::TooLarge(most) => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("bytes_max", *most)
            }
            Self::Pixels(ImageTooLarge { pixels_max, .. }) => {
                let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "image_too_large", detail);
                problem.with("pixels_max", *pixels_max)
            }
            Self::BrokenOff => Problem::internal(),
        }
    }
}

/// What is asked of something that came along.
#[derive(Clone, Copy)]
struct Wanted {
    is_picture: bool,
    bytes_max: u64,
    pixels_max: u64,
}

impl Wanted {
    const fn picture(config: &FilesConfig) -> Self {
        Self { is_picture: true, bytes_max: config.image_bytes_max, pixels_max: config.pixels_max }
    }

    const fn file(config: &FilesConfig) -> Self {
        Self { is_picture: false, bytes_max: config.upload_bytes_max, pixels_max: config.pixels_max }
    }
}

impl Luggage {
    /// Takes out what came inside of parts. `field` is what a refusal names.
    pub(crate) async fn unpack<'a>(
        app: &App,
        field: &str,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<Self, Problem> {
        let mut luggage = Self::default();
        for part in parts {
            let (url, name, wanted) = match part {
                ContentPart::Text { .. } => continue,
                ContentPart::ImageUrl { image_url, .. } => {
                    (&mut image_url.url, None, Wanted::picture(&app.files.config))
                }
                ContentPart::File { file: FileRef { url: Some(url), name, .. } } => {
                    if !is_data(url) {
                        check_address(field, url)?;
                    }
                    (url, name.clone(), Wanted::file(&app.files.config))
                }
                ContentPart::File { .. } => continue,
            };
            if is_data(url) {
                let opened = opened(mem::take(url), name, wanted).await;
                let (hash, blob) = opened.map_err(|refused| refused.problem(field))?;
                *url = blob::blob_url(&hash);
                measure(part, blob.bytes.len() as u64);
                luggage.things.insert(hash, Thing::Sent(blob));
            }
        }
        Ok(luggage)
    }

    /// Puts something in that its owner has shown to the user.
    pub(crate) fn add_shown(&mut self, hash: &str, row: AttachmentRow) {
        self.things.entry(hash.to_owned()).or_insert(Thing::Shown(row));
    }

    /// More of it.
    pub(crate) fn extend(&mut self, other: Self) {
        self.things.extend(other.things);
    }

    /// Is everything that these parts tell of the user's own, or was brought along?
    pub(crate) async fn check<'a>(
        &self,
        app: &App,
        user: &UserId,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        for part in parts.filter(|part| holds(part)) {
            // No protocol that only checks has files by bucket and path.
            let hash = part.url().and_then(blob_hash).ok_or_else(Problem::not_found)?;
            if !self.things.contains_key(hash) {
                app.files.directory.blob(user, None, hash).await?.ok_or_else(Problem::not_found)?;
            }
        }
        Ok(())
    }

    /// Keeps for a thread what these parts tell of: everything of it is the user's own, or was brought along.
    pub(crate) async fn keep<'a>(
        &self,
        app: &App,
        whose: (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        self.keep_as(Origin::Sent, app, whose, parts).await
    }

    /// The same for a thread that is there. When it has been deleted meanwhile, nothing of this stays.
    pub(crate) async fn add<'a>(
        &self,
        app: &App,
        (user, thread): (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        let parts: Vec<&mut ContentPart> = parts.filter(|part| holds(part)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let added = self.keep_as(Origin::Added, app, (user, thread), parts.into_iter()).await;
        app.files.let_go(user, thread).await?;
        added
    }

    async fn keep_as<'a>(
        &self,
        origin: Origin,
        app: &App,
        (user, thread): (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        let mut brought: Vec<(&str, &Thing)> = Vec::new();
        for part in parts.filter(|part| holds(part)) {
            match part {
                ContentPart::Text { .. } => {}
                ContentPart::File { file: FileRef { bucket: Some(bucket), path: Some(path), name, size, .. } } => {
                    let row = own_file(app, (user, thread), bucket, path).await?;
                    name.get_or_insert(row.name);
                    *size = Some(row.size_bytes);
                }
                ContentPart::ImageUrl { .. } | ContentPart::File { .. } => {
                    let hash = part.url().and_then(blob_hash).ok_or_else(Problem::not_found)?;
                    match self.things.get_key_value(hash) {
                        Some((hash, _)) if brought.iter().any(|(known, _)| known == hash) => {}
                        Some((hash, thing)) => brought.push((hash, thing)),
                        None => {
                            let own = app.files.directory.link_blob(user, thread, hash).await?;
                            measure(part, own.ok_or_else(Problem::not_found)?.size_bytes);
                        }
                    }
                }
            }
        }
        for (_, thing) in brought {
            let blob = NewBlob { origin, ..thing.blob(app).await? };
            app.files.keep_blob(user, thread, blob).await?;
        }
        Ok(())
    }
}

impl Thing {
    async fn blob(&self, app: &App) -> Result<NewBlob, Problem> {
        Ok(match self {
            Self::Sent(blob) => blob.clone(),
            Self::Shown(row) => NewBlob {
                name: row.name.clone(),
                declared: Some(row.content_type.clone()),
                bytes: app.files.bytes(row).await?,
                origin: Origin::Sent,
            },
        })
    }
}

/// Says of a file how large it is.
fn measure(part: &mut ContentPart, bytes: u64) {
    if let ContentPart::File { file } = part {
        file.size = Some(bytes);
    }
}

/// Is there anything in these parts that a thread has to hold?
pub(crate) fn any<'a>(mut parts: impl Iterator<Item = &'a mut ContentPart>) -> bool {
    parts.any(|part| holds(part))
}

fn holds(part: &ContentPart) -> bool {
    part.url().is_some_and(|address| address.starts_with(BLOB_URL_PREFIX))
        || matches!(part, ContentPart::File { file } if file.bucket.is_some())
}

/// Whether an address may be asked is found out when it is. That it is one is seen here.
fn check_address(field: &str, url: &str) -> Result<(), Problem> {
    if url.starts_with(BLOB_URL_PREFIX) {
        return Ok(());
    }
    let shown: String = url.chars().take(80).collect();
    match Url::parse(url) {
        // Written in a way that others would read, and we would not.
        Ok(parsed) if parsed.scheme() == "data" => Err(Refused::from(DataError::Shape).problem(field)),
        Ok(_) => Ok(()),
        Err(_) => Err(Problem::invalid_body(format!(
            "`{field}`: `{shown}` is not an address; write it like https://example.com/a.pdf"
        ))),
    }
}

/// A file that the user has sent before. One of somebody else's and one that never was are the same.
async fn own_file(
    app: &App,
    (user, thread): (&UserId, &ThreadId),
    bucket: &str,
    path: &str,
) -> Result<AttachmentRow, Problem> {
    let key = app.files.name(bucket, path).ok().filter(|key| key.owner() == user).ok_or_else(Problem::not_found)?;
    let row = app.files.directory.link_attachment(user, thread, key.as_str()).await?;
    row.ok_or_else(Problem::not_found)
}

async fn opened(url: String, name: Option<String>, wanted: Wanted) -> Result<(String, NewBlob), Refused> {
    if url.len() <= QUICK_BYTES {
        return open(&url, name, wanted);
    }
    let opened = tokio::task::spawn_blocking(move || open(&url, name, wanted)).await;
    opened.unwrap_or(Err(Refused::BrokenOff))
}

/// What is in a `data:` URL, by what the bytes are and not by what is said of them.
fn open(url: &str, name: Option<String>, wanted: Wanted) -> Result<(String, NewBlob), Refused> {
    let (declared, bytes) = data::read(url)?;
    if bytes.len() as u64 > wanted.bytes_max {
        return Err(Refused::TooLarge(wanted.bytes_max));
    }
    let kind = FileType::sniff(&bytes, Some(&declared));
    if wanted.is_picture && !IMAGE_MEDIA_TYPES.contains(&kind.content_type) {
        return Err(Refused::NoPicture(kind.content_type));
    }
    ImageHeaderScanner::scan(&bytes, wanted.pixels_max)?;
    let plain = || {
        let stem = if wanted.is_picture { "image" } else { "file" };
        kind.extension.map_or_else(|| stem.to_owned(), |extension| format!("{stem}.{extension}"))
    };
    let name = name.map_or_else(plain, |name| sanitize_file_name(&name));
    Ok((hash(&bytes), NewBlob { name, declared: Some(declared), bytes, origin: Origin::Sent }))
}

/// The parts of what a run begins with.
pub(crate) fn of_run(new: &mut NewRun) -> impl Iterator<Item = &mut ContentPart> + Send {
    new.input.iter_mut().chain(new.prior_history.iter_mut().flat_map(of_before))
}

/// The parts of what was said before a run.
pub(crate) fn of_before(before: &mut PriorHistory) -> impl Iterator<Item = &mut ContentPart> + Send {
    before.entries.iter_mut().flat_map(HistoryEntry::parts_mut)
}

/// The pictures in what was said before a run that a model drew. They stand in its own items, so they are no parts there.
pub(crate) fn drawn_before(new: &NewRun) -> Vec<ContentPart> {
    let entries = new.prior_history.iter().flat_map(|before| &before.entries);
    let drawn = entries.filter_map(|entry| match entry {
        HistoryEntry::Hosted { raw, .. } => {
            generated_image::generated_image(&raw.item).filter(|address| blob_hash(address).is_some())
        }
        _ => None,
    });
    drawn.map(ContentPart::image).collect()
}

/// The parts of what a client said.
pub(crate) fn of_said(said: &mut [Said]) -> impl Iterator<Item = &mut ContentPart> + Send {
    said.iter_mut().flat_map(|said| match &mut said.what {
        What::User(content) | What::Drawn(content) | What::Result { content, .. } => content.iter_mut(),
        What::System(_) | What::Assistant(_) | What::Call { .. } | What::Decision { .. } | What::Other => {
            Default::default()
        }
    })
}

/// The parts of what a client's tools gave.
pub(crate) fn of_results(results: &mut [ClientToolResult]) -> impl Iterator<Item = &mut ContentPart> + Send {
    results.iter_mut().flat_map(|result| result.content.iter_mut())
}

/// The parts of what a run waited for.
pub(crate) fn of_answers(answers: &mut [AnswerBody]) -> impl Iterator<Item = &mut ContentPart> + Send {
    let results = answers.iter_mut().flat_map(|answer| match answer {
        AnswerBody::ClientTools { results } => results.as_mut_slice(),
        AnswerBody::Approval { .. } => &mut [],
    });
    results.flat_map(|result| result.content.iter_mut())
}
