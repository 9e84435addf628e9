//! Where nobody reads files.

use model::ports::{BoxFuture, FileReadOutcome, FileReadRequest, FileReader};
use std::future::ready;

/// Reads nothing, and says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl FileReader for NoDocuments {
    fn read_file(&self, _request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome> {
        Box::pin(ready(FileReadOutcome::Failed { message: "This server reads no files.".to_owned() }))
    }
}
