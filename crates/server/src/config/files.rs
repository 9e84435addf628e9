//! `[files]`: where the files of users are, and how much of them there may be.

use super::AuthMode;
use super::diagnostics::Diagnostics;
use super::table::{ConfigTable, quote_text};
use super::urls::is_http_base_url;
use ::files::StorageLocation;
use gateway::attachments::{AttachmentSettings, BlobUrls, SIGNED_URL_SECONDS_MAX};
use model::id::is_valid_id;
use std::time::Duration;

pub(super) const KEYS: [&str; 12] = [
    "url",
    "bucket",
    "public_url",
    "upload_bytes_max",
    "user_bytes_max",
    "image_bytes_max",
    "model_bytes_max",
    "models_bytes_max",
    "text_bytes_max",
    "pixels_max",
    "signed_url_seconds",
    "signed_blobs",
];
/// Files of one user, where users are told apart: ten gibibytes.
const USER_BYTES_MAX: u64 = 10 << 30;
/// A terabyte: more is no bound.
const MODELS_BYTES_LIMIT: u64 = 1 << 40;

pub(super) fn read_files(
    table: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    environment: Option<fn(&str) -> Option<String>>,
    auth: AuthMode,
) -> AttachmentSettings {
    let place = read_location(table, "url", findings);
    let variables = place.as_ref().map(|place| read_env_vars(place, environment)).unwrap_or_default();
    let seconds = table.number("signed_url_seconds", 1..=SIGNED_URL_SECONDS_MAX);
    let base = AttachmentSettings::default();
    AttachmentSettings {
        location: place,
        is_foreign_folder: false,
        env_vars: variables,
        bucket: read_checked_text(table, "bucket", is_valid_id, "1 to 64 letters, digits, `_` or `-`"),
        upload_bytes_max: table.number("upload_bytes_max", 1..=u64::MAX >> 1).unwrap_or(base.upload_bytes_max),
        image_bytes_max: table.number("image_bytes_max", 1..=u64::MAX >> 1).unwrap_or(base.image_bytes_max),
        // A quota protects the other users, of whom mode `none` has none.
        user_bytes_max: table
            .number("user_bytes_max", 0..=u64::MAX >> 1)
            .or_else(|| (auth == AuthMode::Keys).then_some(USER_BYTES_MAX)),
        model_bytes_max: table.number("model_bytes_max", 0..=u64::MAX >> 1).unwrap_or(base.model_bytes_max),
        models_bytes_max: table.number("models_bytes_max", 1..=MODELS_BYTES_LIMIT).unwrap_or(base.models_bytes_max),
        text_bytes_max: table.size("text_bytes_max").unwrap_or(base.text_bytes_max),
        pixels_max: table.number("pixels_max", 1..=u64::MAX >> 1).unwrap_or(base.pixels_max),
        signed_url_lifetime: seconds.map_or(base.signed_url_lifetime, Duration::from_secs),
        blob_urls: if table.flag("signed_blobs") == Some(true) { BlobUrls::Signed } else { base.blob_urls },
    }
}

/// The origin under which clients reach this server.
pub(super) fn read_public_url(table: &ConfigTable<'_>) -> Option<String> {
    read_checked_text(table, "public_url", is_http_base_url, "an address; write it like https://agents.example")
}

/// The variables with the credentials of a bucket.
pub(super) fn read_env_vars(
    location: &StorageLocation,
    environment: Option<fn(&str) -> Option<String>>,
) -> Vec<(String, String)> {
    let (StorageLocation::Bucket { provider, .. }, Some(environment)) = (location, environment) else {
        return Vec::new();
    };
    let variable = |name: &&str| Some(((*name).to_owned(), environment(name).filter(|value| !value.is_empty())?));
    provider.env_vars().iter().filter_map(variable).collect()
}

/// A folder, relative to the config file, or a bucket.
pub(super) fn read_location(table: &ConfigTable<'_>, key: &str, findings: &Diagnostics<'_>) -> Option<StorageLocation> {
    let item = table.get(key)?;
    match StorageLocation::parse(item.text()?) {
        Ok(StorageLocation::Folder(folder)) => {
            Some(StorageLocation::Folder(findings.source.resolve_path(&folder.to_string_lossy())))
        }
        Ok(place) => Some(place),
        Err(error) => {
            item.report_error(error.to_string());
            None
        }
    }
}

fn read_checked_text(table: &ConfigTable<'_>, key: &str, fits: fn(&str) -> bool, wanted: &str) -> Option<String> {
    let item = table.get(key)?;
    let text = item.text()?;
    if !fits(text) {
        item.report_error(format!("{} is not {wanted}", quote_text(text)));
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}
