//! Any bytes give a result, and soon.

use crate::pdf_maker::document;
use bytes::Bytes;
use fetch::{DocumentFormat, DocumentReader, FetchError, FetchedFile, PdfReader, ReadLimits};
use model_testing::{Rng, test_seeds};
use std::time::Duration;
use url::Url;

/// Changes, removes and duplicates some bytes.
fn damaged(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.between(1, 12) {
        let at = rng.below(bytes.len().max(1));
        let end = (at + rng.below(64)).min(bytes.len());
        match rng.below(3) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
            1 => drop(bytes.drain(at.min(end)..end)),
            _ => {
                let piece = bytes[at.min(end)..end].to_vec();
                bytes.splice(at.min(end)..at.min(end), piece);
            }
        }
    }
    bytes
}

#[tokio::test]
async fn a_damaged_document_never_hangs_and_never_ends_the_process() {
    let limits = ReadLimits { timeout: Duration::from_secs(60), ..ReadLimits::default() };
    let reader = DocumentReader::new(limits, PdfReader::InProcess);
    let whole = document(&[&["one", "two"], &["three"]]);
    let mut readable = 0;
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let bytes = damaged(&mut rng, whole.clone());
        let file = FetchedFile {
            url: Url::parse("http://h.example/").unwrap(),
            name: "a.pdf".to_owned(),
            format: DocumentFormat::Pdf,
            charset: None,
            bytes: Bytes::from(bytes),
        };
        match reader.read(&file).await {
            Ok(_) => readable += 1,
            Err(error) => assert_eq!(error, FetchError::Unreadable, "SEED={seed}"),
        }
    }
    println!("{readable} could still be read");
}
