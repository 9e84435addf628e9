//! What people see ([`Block`]) and what the model reads ([`Part`]).
//!
//! In a `block_list` an image is `image`, in `content` it is `image_url`. A block of a sub-agent's result is one of the
//! child's items; blocks of that kind exist only in rendered objects, never in an event.

use crate::blob::BLOB_URL_PREFIX;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Words, with what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextBlock {
    /// The words. A `done` that would repeat too much leaves them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The number of the reference group that this block belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What places in the text refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Vec<Annotation>>,
    /// True when the model declined, and this is how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<bool>,
}

impl TextBlock {
    /// A block with these words and nothing else.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// The words.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageBlock {
    /// Where it is.
    pub image_url: ImageUrl,
    /// The number of the reference group that this block belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
}

/// Where a picture is: an `https:` or `http:` URL, or `/v1/blobs/…`. To a model it is given as a `data:` URL. Empty while
/// it is being made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// The URL.
    pub url: String,
    /// How closely it is to be looked at, where that was said.
    #[serde(default, deserialize_with = "deserialize_known_detail", skip_serializing_if = "Option::is_none")]
    pub detail: Option<ImageDetail>,
}

/// How closely a model is to look at a picture. A service that cannot be told decides itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// A glance is enough, and costs less.
    Low,
    /// Closely.
    High,
    /// At every point of it.
    Original,
}

/// Nobody can look at a picture like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto`, `low`, `high` or `original`")]
pub struct ImageDetailError;

impl ImageDetail {
    /// What somebody says; nothing when it is left to the service.
    ///
    /// # Errors
    /// When there is no such word.
    pub fn parse(word: &str) -> Result<Option<Self>, ImageDetailError> {
        match word {
            "auto" => Ok(None),
            "low" => Ok(Some(Self::Low)),
            "high" => Ok(Some(Self::High)),
            "original" => Ok(Some(Self::Original)),
            _ => Err(ImageDetailError),
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Original => "original",
        }
    }
}

/// Tools say what they like: a word that is none is left out, and the picture stays.
fn deserialize_known_detail<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ImageDetail>, D::Error> {
    let said = Value::deserialize(deserializer)?;
    Ok(said.as_str().and_then(|word| ImageDetail::parse(word).ok()).flatten())
}

/// This cannot be where a picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image's address begins with https://, http://, data:image/ or {BLOB_URL_PREFIX}")]
pub struct ImageUrlError;

impl ImageUrl {
    /// There, to be looked at as closely as the model's service thinks right.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), detail: None }
    }

    /// How the image is named where only text can be shown. A `data:` URL would be nothing but noise there.
    #[must_use]
    pub fn placeholder(&self) -> String {
        if self.url.starts_with("data:") { "[image]".to_owned() } else { format!("[image {}]", self.url) }
    }

    /// The detail level to ask for; `auto` when the client named none.
    #[must_use]
    pub fn detail_or_auto(&self) -> &'static str {
        self.detail.map_or("auto", ImageDetail::as_str)
    }

    /// Where somebody says that a picture is: on the web, among what we keep, or in the address itself.
    ///
    /// # Errors
    /// When it cannot be there.
    pub fn parse(url: String) -> Result<Self, ImageUrlError> {
        let starts = ["https://", "http://", "data:image/", BLOB_URL_PREFIX];
        if starts.iter().any(|start| url.starts_with(start)) { Ok(Self::new(url)) } else { Err(ImageUrlError) }
    }
}

/// What a place in a text refers to. Offsets count Unicode code points; the end is exclusive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Annotation {
    /// `[^7]`: the thread's reference group 7.
    ReferenceToBlock {
        /// The group's number.
        reference_id: u32,
        /// Where the marker begins.
        start_index: u32,
        /// Where it ends.
        end_index: u32,
    },
    /// A web page.
    UrlCitation {
        /// Its address.
        url: String,
        /// Its title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Where the cited place begins.
        start_index: u32,
        /// Where it ends.
        end_index: u32,
    },
    /// A file that the provider holds.
    FileCitation {
        /// The provider's name for it.
        file_id: String,
        /// Its file name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        /// Where in the text.
        index: u32,
    },
}

/// One element of what the model reads: a message's or a tool result's `content`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Words.
    Text {
        /// The words.
        text: String,
        /// The reference group that they belong to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u32>,
        /// Who put them there, when it was not the author.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// A picture.
    ImageUrl {
        /// Where it is.
        image_url: ImageUrl,
        /// The reference group that it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u32>,
    },
    /// A file, by bucket and path or by URL.
    File {
        /// Which file.
        file: FileRef,
    },
}

impl ContentPart {
    /// Plain words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), id: None, tags: Vec::new() }
    }

    /// A picture that is there.
    #[must_use]
    pub fn image(url: impl Into<String>) -> Self {
        Self::ImageUrl { image_url: ImageUrl::new(url), id: None }
    }

    /// The address of its picture or file, where it has one.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Text { .. } => None,
            Self::ImageUrl { image_url, .. } => Some(&image_url.url),
            Self::File { file } => file.url.as_deref(),
        }
    }
}

/// Which file a [`Part::File`] means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRef {
    /// The attachment store's bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// The path in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Or where it can be fetched: an `https:` or `http:` URL, or `/v1/blobs/…`. To a model it is given as a `data:` URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many bytes it has, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl FileRef {
    /// The address on the web that has to be read before a model can be asked about it.
    #[must_use]
    pub fn web_url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.starts_with("data:") && !url.starts_with(BLOB_URL_PREFIX))
    }

    /// What it is called: by people, else in its bucket.
    #[must_use]
    pub fn display_name(&self) -> Option<&str> {
        let in_bucket = || self.path.as_deref().and_then(|path| path.rsplit('/').next());
        let by_people = self.name.as_deref().filter(|name| !name.is_empty());
        by_people.or_else(in_bucket).filter(|name| !name.is_empty())
    }
}

/// The pictures that every model can look at.
pub const IMAGE_MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
