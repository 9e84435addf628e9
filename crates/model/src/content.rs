//! Content of items ([`TextBlock`], [`ImageBlock`]) and content that the model reads ([`ContentPart`]).
//!
//! In a `block_list` an image is `image`, in `content` it is `image_url`.

use crate::blob::BLOB_URL_PREFIX;
use crate::json::SHARED_TEXT_BYTES_MIN;
use crate::shared_text::SharedText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TextBlock {
    /// Left out of a `done` event above `DONE_REPEAT_BYTES_MAX`.
    pub text: Option<SharedText>,
    /// The number of the reference group that the block belongs to; in a message, the group that the text cites first.
    pub id: Option<u32>,
    pub annotations: Option<Vec<Annotation>>,
    /// True if the model declined the request and this is its explanation.
    pub refusal: Option<bool>,
}

impl TextBlock {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Some(text.into().into()), ..Self::default() }
    }

    /// The text, if it is long enough for a piece of its own in the objects and frames that repeat it.
    pub fn long_text(&self) -> Option<&SharedText> {
        self.text.as_ref().filter(|text| text.len() >= SHARED_TEXT_BYTES_MIN)
    }

    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageBlock {
    pub image_url: ImageUrl,
    /// The number of the reference group that the block belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
}

/// The address of an image: an `https:` or `http:` URL, or `/v1/blobs/…`. Models receive it as a `data:` URL. Empty
/// while the image is being generated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageUrl {
    pub url: String,
    #[serde(default, deserialize_with = "deserialize_known_detail", skip_serializing_if = "Option::is_none")]
    pub detail: Option<ImageDetail>,
}

/// The resolution at which a model looks at an image. `None` leaves it to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    Low,
    High,
    Original,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto`, `low`, `high` or `original`")]
pub struct ImageDetailError;

impl ImageDetail {
    /// Parses the wire name; `auto` is `None`.
    pub fn parse(word: &str) -> Result<Option<Self>, ImageDetailError> {
        match word {
            "auto" => Ok(None),
            "low" => Ok(Some(Self::Low)),
            "high" => Ok(Some(Self::High)),
            "original" => Ok(Some(Self::Original)),
            _ => Err(ImageDetailError),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Original => "original",
        }
    }
}

/// Tools may send unknown values: the detail is dropped, the image stays.
fn deserialize_known_detail<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ImageDetail>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|word| ImageDetail::parse(word).ok()).flatten())
}

/// Where the bytes behind a URL are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlKind {
    /// In the URL itself.
    Data,
    /// In the blob store, at `/v1/blobs/…`.
    Blob,
    Web,
}

impl UrlKind {
    pub fn of(url: &str) -> Self {
        match url {
            url if url.starts_with("data:") => Self::Data,
            url if url.starts_with(BLOB_URL_PREFIX) => Self::Blob,
            _ => Self::Web,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image's address begins with https://, http://, data:image/ or {BLOB_URL_PREFIX}")]
pub struct ImageUrlError;

impl ImageUrl {
    /// An image without a requested detail.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), detail: None }
    }

    /// Stands for the image where only text is possible. A `data:` URL is unreadable there and is left out.
    pub fn placeholder(&self) -> String {
        match UrlKind::of(&self.url) {
            UrlKind::Data => "[image]".to_owned(),
            UrlKind::Blob | UrlKind::Web => format!("[image {}]", self.url),
        }
    }

    /// The wire name of the detail; `auto` when the client chose none.
    pub fn detail_or_auto(&self) -> &'static str {
        self.detail.map_or("auto", ImageDetail::as_str)
    }

    /// Accepts the URL schemes that a client may use for an image.
    pub fn parse(url: String) -> Result<Self, ImageUrlError> {
        let starts = ["https://", "http://", "data:image/", BLOB_URL_PREFIX];
        if starts.iter().any(|start| url.starts_with(start)) { Ok(Self::new(url)) } else { Err(ImageUrlError) }
    }
}

impl Annotation {
    /// The reference group that it cites.
    #[must_use]
    pub const fn reference_id(&self) -> Option<u32> {
        match self {
            Self::ReferenceToBlock { reference_id, .. } => Some(*reference_id),
            _ => None,
        }
    }

    /// Ends the cited range at the end of a text of this many code points. `Err` with the annotation as it was if the range
    /// lies outside the text, or ends before it starts.
    pub fn clamp_to_text(mut self, chars: u32) -> Result<Self, Self> {
        let (start, end) = match &mut self {
            Self::ReferenceToBlock { start_index, end_index, .. }
            | Self::UrlCitation { start_index, end_index, .. }
            | Self::ContainerFileCitation { start_index, end_index, .. }
            | Self::FileCitation { start_index: Some(start_index), end_index: Some(end_index), .. } => {
                (*start_index, end_index)
            }
            Self::FileCitation { .. } | Self::FilePath { .. } => return Ok(self),
        };
        if start > *end || start > chars {
            return Err(self);
        }
        *end = chars.min(*end);
        Ok(self)
    }

    /// The file that it cites, or that the model wrote.
    #[must_use]
    pub fn file(&self) -> Option<FileSource<'_>> {
        match self {
            Self::FileCitation { file_id, filename, quote, .. } => {
                Some(FileSource { file_id, filename: filename.as_deref(), quote: quote.as_deref() })
            }
            Self::ContainerFileCitation { file_id, filename, .. } => {
                Some(FileSource { file_id, filename: filename.as_deref(), quote: None })
            }
            Self::FilePath { file_id, .. } => Some(FileSource { file_id, filename: None, quote: None }),
            Self::ReferenceToBlock { .. } | Self::UrlCitation { .. } => None,
        }
    }
}

/// A file that the provider stores, as a text cites it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSource<'a> {
    /// The provider's id.
    pub file_id: &'a str,
    pub filename: Option<&'a str>,
    /// The passage of the file.
    pub quote: Option<&'a str>,
}

/// A citation in a text. Offsets count Unicode code points; ends are exclusive.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Annotation {
    /// `[^7]`: the thread's reference group 7.
    ReferenceToBlock { reference_id: u32, start_index: u32, end_index: u32 },
    /// A web page.
    UrlCitation { url: String, title: Option<String>, start_index: u32, end_index: u32 },
    /// A file that the provider stores.
    FileCitation {
        /// The provider's id.
        file_id: String,
        filename: Option<String>,
        /// The offset of the citation in the text.
        index: u32,
        /// The passage of the file.
        quote: Option<String>,
        /// The range that cites, if the provider says more than `index`.
        start_index: Option<u32>,
        end_index: Option<u32>,
    },
    /// A file in the container of a code interpreter.
    ContainerFileCitation {
        container_id: String,
        file_id: String,
        filename: Option<String>,
        start_index: u32,
        end_index: u32,
    },
    /// A file that the model wrote.
    FilePath {
        file_id: String,
        /// The offset of the path in the text.
        index: u32,
    },
}

/// A part of a message's or a tool result's `content`, as the model reads it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    Text {
        text: String,
        /// The reference group of the part.
        id: Option<u32>,
        /// Who added the part, when it was not the author.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    ImageUrl {
        image_url: ImageUrl,
        /// The reference group of the part.
        id: Option<u32>,
    },
    File {
        file: FileRef,
    },
}

impl ContentPart {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), id: None, tags: Vec::new() }
    }

    pub fn image(url: impl Into<String>) -> Self {
        Self::ImageUrl { image_url: ImageUrl::new(url), id: None }
    }

    /// The URL of the image or file.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Text { .. } => None,
            Self::ImageUrl { image_url, .. } => Some(&image_url.url),
            Self::File { file } => file.url.as_deref(),
        }
    }
}

/// The file of a [`ContentPart::File`]: by bucket and path, or by URL.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRef {
    /// The bucket of the attachment store.
    pub bucket: Option<String>,
    pub path: Option<String>,
    /// An `https:` or `http:` URL, or `/v1/blobs/…`. Models receive it as a `data:` URL.
    pub url: Option<String>,
    /// The display name.
    pub name: Option<String>,
    /// In bytes, where known.
    pub size: Option<u64>,
}

impl FileRef {
    /// The web address that has to be fetched before a model can read the file.
    pub fn web_url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| UrlKind::of(url) == UrlKind::Web)
    }

    /// The display name, or else the last segment of the path.
    pub fn display_name(&self) -> Option<&str> {
        let in_bucket = || self.path.as_deref().and_then(|path| path.rsplit('/').next());
        let by_people = self.name.as_deref().filter(|name| !name.is_empty());
        by_people.or_else(in_bucket).filter(|name| !name.is_empty())
    }
}

/// Image formats that every supported model accepts.
pub const IMAGE_MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
