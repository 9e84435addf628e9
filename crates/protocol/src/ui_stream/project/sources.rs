//! What texts cite: a source once per message, and each citation with its place in the text.

use super::EventProjector;
use crate::citations::TextCitation;
use crate::ui_stream::UiVersion;
use crate::ui_stream::wire::{UiChunk, UiChunkId, UiCitation, UiCitedSource, UiProviderMetadata, UiTextMetadata};
use model::content::Annotation;
use std::borrow::Cow;

/// A reference group has the blocks of a result.
const REFERENCE_MEDIA_TYPE: &str = "text/plain";
const FILE_MEDIA_TYPE: &str = "application/octet-stream";

impl EventProjector<'_, '_> {
    pub(super) fn show_source(&mut self, annotation: &Annotation) {
        let source = annotation_source(annotation);
        if !self.message.sources.insert(source.id.to_string()) {
            return;
        }
        self.message.step_sources.push(source.id.to_string());
        let UiCitedSource { id, url, media_type, title, filename, .. } = source;
        let chunk_type = if url.is_some() { "source-url" } else { "source-document" };
        let source_id = Some(id);
        self.push(&UiChunk { source_id, url, media_type, title, filename, ..UiChunk::new(chunk_type) });
    }

    pub(super) fn push_text_end(&mut self, id: UiChunkId<'_>, citations: Vec<TextCitation<'_>>) {
        let mut chunk = UiChunk { id: Some(id), ..UiChunk::new("text-end") };
        if !citations.is_empty() {
            let known = citations.iter().map(ui_citation).collect();
            chunk.citations = (self.version == UiVersion::Seven).then_some(known);
            chunk.provider_metadata = Some(UiProviderMetadata { headwater: UiTextMetadata { citations } });
        }
        self.push(&chunk);
    }
}

fn ui_citation<'c>(citation: &TextCitation<'c>) -> UiCitation<'c> {
    let source = match (citation.reference, citation.url) {
        (Some(reference), _) => reference_source(reference),
        (None, Some(url)) => page_source(url, citation.title),
        (None, None) => file_source(citation.file_id.unwrap_or_default(), citation.filename),
    };
    UiCitation { source, start_index: citation.start, end_index: citation.end, cited_text: citation.quote }
}

fn annotation_source(annotation: &Annotation) -> UiCitedSource<'_> {
    match annotation {
        Annotation::ReferenceToBlock { reference_id, .. } => reference_source(*reference_id),
        Annotation::UrlCitation { url, title, .. } => page_source(url, title.as_deref()),
        Annotation::FileCitation { file_id, filename, .. }
        | Annotation::ContainerFileCitation { file_id, filename, .. } => file_source(file_id, filename.as_deref()),
        Annotation::FilePath { file_id, .. } => file_source(file_id, None),
    }
}

fn page_source<'c>(url: &'c str, title: Option<&'c str>) -> UiCitedSource<'c> {
    UiCitedSource { url: Some(url), title: title.map(Cow::Borrowed), ..new_source("url", Cow::Borrowed(url)) }
}

fn reference_source(reference: u32) -> UiCitedSource<'static> {
    UiCitedSource {
        media_type: Some(REFERENCE_MEDIA_TYPE),
        title: Some(format!("[{reference}]").into()),
        ..new_source("document", format!("ref-{reference}").into())
    }
}

fn file_source<'c>(file_id: &'c str, filename: Option<&'c str>) -> UiCitedSource<'c> {
    UiCitedSource {
        media_type: Some(FILE_MEDIA_TYPE),
        title: Some(filename.unwrap_or(file_id).into()),
        filename,
        ..new_source("document", Cow::Borrowed(file_id))
    }
}

fn new_source<'c>(source_type: &'static str, id: Cow<'c, str>) -> UiCitedSource<'c> {
    UiCitedSource { object_type: "source", source_type, id, ..UiCitedSource::default() }
}
