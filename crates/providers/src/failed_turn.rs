//! A turn that fails before it starts.

use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::{ModelEvent, ModelFailure};
use model::ports::BoxStream;

/// A stream of one failure that is not retryable.
pub(crate) fn failed_turn(code: ErrorCode, message: impl Into<String>) -> BoxStream<'static, ModelEvent> {
    let error = ErrorInfo { retryable: Some(false), ..ErrorInfo::new(code, message) };
    let event = ModelEvent::Failed(ModelFailure { error, retry_after_ms: None });
    Box::pin(futures_util::stream::once(std::future::ready(event)))
}
