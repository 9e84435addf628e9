//! The file reader of a server that reads no files.

use model::ports::{BoxFuture, FileReadOutcome, FileReadRequest, FileReader};
use std::future::ready;

/// Fails every read.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDocuments;

impl FileReader for NoDocuments {
    fn read_file(&self, _request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome> {
        Box::pin(ready(FileReadOutcome::Failed { message: "This server reads no files.".to_owned() }))
    }
}
