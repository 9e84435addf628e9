//! A turn that failed before it began.

use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::{ModelEvent, ModelFailure};
use model::ports::BoxStream;

/// A stream that says so and ends. Asking again would not help.
pub(crate) fn failed_turn(code: ErrorCode, message: impl Into<String>) -> BoxStream<'static, ModelEvent> {
    let error = ErrorInfo { retryable: Some(false), ..ErrorInfo::new(code, message) };
    let event = ModelEvent::Failed(ModelFailure { error, retry_after_ms: None });
    Box::pin(futures_util::stream::once(std::future::ready(event)))
}
