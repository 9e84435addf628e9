//! `[files]`: where the files of users are, and how much of them there may be.

use super::diagnostics::Diagnostics;
use super::table::{ConfigTable, quote_text};
use super::urls::is_http_base_url;
use ::files::StorageLocation;
use model::id::is_valid_id;
use std::time::Duration;

pub(super) const KEYS: [&str; 11] = [
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
];
const UPLOAD_BYTES_MAX: u64 = 20 * 1024 * 1024;
const IMAGE_BYTES_MAX: u64 = 20 * 1024 * 1024;
const MODEL_BYTES_MAX: u64 = 32 * 1024 * 1024;
const MODELS_BYTES_MAX: u64 = 256 * 1024 * 1024;
const TEXT_BYTES_MAX: usize = 1024 * 1024;
const PIXELS_MAX: u64 = 100_000_000;
/// A terabyte: more is no bound.
const MODELS_BYTES_LIMIT: u64 = 1 << 40;
const SIGNED_URL_SECONDS: u64 = 300;

/// Where the files of users are, and how much of them there may be.
#[derive(Clone, Debug)]
pub(crate) struct FilesConfig {
    /// Where they are; a folder of the data folder unless it is said.
    pub(crate) location: Option<StorageLocation>,
    /// The variables that tell how to get in there.
    pub(crate) env_vars: Vec<(String, String)>,
    /// What clients are told that it is called.
    pub(crate) bucket: Option<String>,
    /// Where clients reach this server.
    pub(crate) public_url: Option<String>,
    /// The largest file.
    pub(crate) upload_bytes_max: u64,
    /// The largest picture that may come inside of a message.
    pub(crate) image_bytes_max: u64,
    /// What the files of one user may hold together.
    pub(crate) user_bytes_max: Option<u64>,
    /// What the files that a model is given in one request may hold together.
    pub(crate) model_bytes_max: u64,
    /// What all models are being given at one moment.
    pub(crate) models_bytes_max: u64,
    /// What a model is given of the words of one file.
    pub(crate) text_bytes_max: usize,
    /// The largest picture, unpacked.
    pub(crate) pixels_max: u64,
    /// How long a signed address is good.
    pub(crate) signed_url_lifetime: Duration,
}

pub(super) fn read_files(
    table: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    environment: Option<fn(&str) -> Option<String>>,
) -> FilesConfig {
    let place = read_location(table, findings);
    let variables = match (&place, environment) {
        (Some(StorageLocation::Bucket { provider: cloud, .. }), Some(environment)) => {
            let told = |name: &&str| Some(((*name).to_owned(), environment(name).filter(|value| !value.is_empty())?));
            cloud.env_vars().iter().filter_map(told).collect()
        }
        _ => Vec::new(),
    };
    let seconds = table.number("signed_url_seconds", 1..=crate::attachments::SIGNED_URL_SECONDS_MAX);
    FilesConfig {
        location: place,
        env_vars: variables,
        bucket: read_checked_text(table, "bucket", is_valid_id, "1 to 64 letters, digits, `_` or `-`"),
        public_url: read_checked_text(table, "public_url", is_http_base_url, "a URL such as https://agents.example"),
        upload_bytes_max: table.number("upload_bytes_max", 1..=u64::MAX >> 1).unwrap_or(UPLOAD_BYTES_MAX),
        image_bytes_max: table.number("image_bytes_max", 1..=u64::MAX >> 1).unwrap_or(IMAGE_BYTES_MAX),
        user_bytes_max: table.number("user_bytes_max", 0..=u64::MAX >> 1),
        model_bytes_max: table.number("model_bytes_max", 0..=u64::MAX >> 1).unwrap_or(MODEL_BYTES_MAX),
        models_bytes_max: table.number("models_bytes_max", 1..=MODELS_BYTES_LIMIT).unwrap_or(MODELS_BYTES_MAX),
        text_bytes_max: table.size("text_bytes_max").unwrap_or(TEXT_BYTES_MAX),
        pixels_max: table.number("pixels_max", 1..=u64::MAX >> 1).unwrap_or(PIXELS_MAX),
        signed_url_lifetime: Duration::from_secs(seconds.unwrap_or(SIGNED_URL_SECONDS)),
    }
}

fn read_location(table: &ConfigTable<'_>, findings: &Diagnostics<'_>) -> Option<StorageLocation> {
    let item = table.get("url")?;
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
