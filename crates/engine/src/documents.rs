//! Where nobody reads files.

use model::ports::{BoxFuture, Documents, FileAnswer, FileRequest};
use std::future::ready;

/// Reads nothing, and says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl Documents for NoDocuments {
    fn read(&self, _request: FileRequest) -> BoxFuture<'static, FileAnswer> {
        Box::pin(ready(FileAnswer::Failed { message: "This server reads no files.".to_owned() }))
    }
}
