//! Images on the web, for models whose service is not given web addresses.
//!
//! A public service fetches an image from the public internet. A service on the operator's own network would fetch it from
//! there, for any user who writes an address. So the server fetches the image itself, under its URL rules, and the service
//! gets the bytes.

use crate::attachments::format_data_url;
use crate::documents::WebDocumentReader;
use futures_util::FutureExt as _;
use futures_util::stream::StreamExt as _;
use model::content::{ContentPart, ImageUrl};
use model::history::HistoryEntry;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, FileReadRequest, ModelClient};
use std::sync::Arc;

/// Images per turn, the newest first.
const IMAGES_MAX: usize = 16;
const TOO_MANY: &str = "there are too many";
/// Tags text that the author of the message did not write.
const FILE_TAG: &str = "added_by_file";

/// Fetches images for the models that do not take addresses.
pub(crate) struct WebImageFetchingModels {
    pub(crate) models: Arc<dyn ModelClient>,
    pub(crate) documents: Arc<WebDocumentReader>,
}

impl ModelClient for WebImageFetchingModels {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        if self.models.takes_image_urls(&request.model) || !request.history.iter().any(has_web_images) {
            return self.models.stream_turn(request);
        }
        let (models, documents) = (Arc::clone(&self.models), Arc::clone(&self.documents));
        let turn = async move { models.stream_turn(fetch_web_images(&documents, request).await) };
        turn.flatten_stream().boxed()
    }
}

fn has_web_images(entry: &HistoryEntry) -> bool {
    entry.parts().iter().any(|part| web_address(part).is_some())
}

/// Replaces the addresses of images by their bytes. An image that cannot be fetched becomes a note for the model.
async fn fetch_web_images(documents: &WebDocumentReader, mut request: ModelRequest) -> ModelRequest {
    let mut history = request.history.entries().to_vec();
    let mut images_left = IMAGES_MAX;
    let with_images = history.iter_mut().filter(|entry| has_web_images(entry)).map(Arc::make_mut);
    for part in with_images.rev().flat_map(|entry| entry.parts_mut().iter_mut().rev()) {
        let Some(url) = web_address(part).map(str::to_owned) else { continue };
        let file = FileReadRequest { user: request.user.clone(), thread: request.thread.clone(), url };
        *part = match images_left.checked_sub(1) {
            None => omitted_image_note(part, &file.url, TOO_MANY),
            Some(left) => {
                images_left = left;
                match documents.fetch_image(&file).await {
                    Ok((content_type, bytes)) => with_url(part, format_data_url(content_type, &bytes)),
                    Err(why) => omitted_image_note(part, &file.url, &why),
                }
            }
        };
    }
    request.history = history.into();
    request
}

fn web_address(part: &ContentPart) -> Option<&str> {
    let ContentPart::ImageUrl { image_url, .. } = part else { return None };
    let (scheme, _) = image_url.url.split_once("://")?;
    let is_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_web.then_some(image_url.url.as_str())
}

fn with_url(part: &ContentPart, url: String) -> ContentPart {
    let detail = if let ContentPart::ImageUrl { image_url, .. } = part { image_url.detail } else { None };
    ContentPart::ImageUrl { image_url: ImageUrl { url, detail }, id: reference_id(part) }
}

fn omitted_image_note(part: &ContentPart, url: &str, why: &str) -> ContentPart {
    let text = format!("[image {url} left out: {why}]");
    ContentPart::Text { text, id: reference_id(part), tags: vec![FILE_TAG.to_owned()] }
}

fn reference_id(part: &ContentPart) -> Option<u32> {
    match part {
        ContentPart::Text { id, .. } | ContentPart::ImageUrl { id, .. } => *id,
        ContentPart::File { .. } => None,
    }
}
