//! Operations that must not stop halfway.

use crate::rejection::Rejection;

/// Runs a future to its end even if the caller is dropped: half of it is worse than all or nothing.
pub async fn run_to_completion<T, E>(
    operation: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Rejection>
where
    T: Send + 'static,
    E: Into<Rejection> + Send + 'static,
{
    match tokio::spawn(operation).await {
        Ok(result) => result.map_err(Into::into),
        Err(error) => {
            tracing::error!(%error, "a command panicked");
            Err(Rejection::internal())
        }
    }
}
