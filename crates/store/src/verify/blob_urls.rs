//! The blobs that a record refers to.

use model::blob::BLOB_URL_PREFIX;
use model::content::{ContentPart, ImageUrl};
use model::event::Event;
use model::history::HistoryEntry;
use model::item::Block;
use model::record::{PrivatePayload, Record};

/// The blob hashes, valid or not, in a record's images and files; text and arguments may contain anything. A byte
/// search comes first, because nearly all records have none.
pub(super) fn blob_hashes_in_record(record: &Record) -> Vec<String> {
    let mut urls = BlobUrls(Vec::new());
    if contains_blob_url(&record.public) {
        urls.add_event(record.event());
    }
    if contains_blob_url(&record.private) {
        record.private().iter().for_each(|private| urls.add_private(private));
    }
    urls.0
}

fn contains_blob_url(bytes: &[u8]) -> bool {
    bytes.windows(BLOB_URL_PREFIX.len()).any(|window| window == BLOB_URL_PREFIX.as_bytes())
}

struct BlobUrls(Vec<String>);

impl BlobUrls {
    fn add_event(&mut self, event: &Event) {
        match event {
            Event::Created(created) => created.task.input.iter().for_each(|said| self.add_parts(&said.content)),
            Event::InputAdded(added) => added.input.iter().for_each(|said| self.add_parts(&said.content)),
            Event::ItemAdded(e) | Event::ItemDone(e) => self.add_blocks(e.item.blocks()),
            Event::ImageAdded(e) | Event::ImageDone(e) => self.add_image(&e.item.block().image_url),
            Event::ImageDelta(e) => self.add_image(&e.item.block().image_url),
            // No other event has images or files.
            _ => {}
        }
    }

    fn add_private(&mut self, private: &PrivatePayload) {
        self.add_parts(private.content.as_deref().unwrap_or_default());
        let before = private.prior_history.as_ref().map(|before| &before.entries);
        private
            .rewritten_history
            .iter()
            .chain(before)
            .flatten()
            .map(HistoryEntry::parts)
            .for_each(|parts| self.add_parts(parts));
    }

    fn add_parts(&mut self, parts: &[ContentPart]) {
        parts.iter().filter_map(ContentPart::url).for_each(|url| self.add_url(url));
    }

    fn add_blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            if let Block::Image(image) = block {
                self.add_image(&image.image_url);
            }
        }
    }

    fn add_image(&mut self, image: &ImageUrl) {
        self.add_url(&image.url);
    }

    fn add_url(&mut self, url: &str) {
        self.0.extend(url.strip_prefix(BLOB_URL_PREFIX).map(str::to_owned));
    }
}
