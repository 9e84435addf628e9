//! Work that takes longer than a task may hold an async worker: compiling schemas, validating arguments, folding and
//! serialising long histories, parsing large bodies.
//!
//! It runs on blocking threads, and only as much of it at once as there are processors: what waits for its turn costs
//! nothing, and the workers are never all behind it.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The least number of pieces of work at once, however few processors there are.
const HEAVY_WORK_MIN: usize = 2;

static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(HEAVY_WORK_MIN, usize::from);
    Arc::new(Semaphore::new(processors.max(HEAVY_WORK_MIN)))
});

/// The work panicked, or the process stops.
#[derive(Debug, thiserror::Error)]
#[error("the work was not finished")]
pub struct HeavyWorkError;

/// Runs `work` on a blocking thread when it is its turn. Work that has begun ends, even if nobody waits for it any more.
///
/// # Errors
/// When it panics, or the process stops.
pub async fn run_heavy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, HeavyWorkError> {
    let permit = acquire_permit().await;
    let working = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    working.await.map_err(|error| {
        tracing::error!(%error, "heavy work panicked or was cancelled");
        HeavyWorkError
    })
}

/// Waits until it is the caller's turn.
pub(crate) async fn acquire_permit() -> Option<OwnedSemaphorePermit> {
    Arc::clone(&PERMITS).acquire_owned().await.ok()
}

/// Runs `work` here, after another thread has taken over the other tasks of this worker.
pub fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    // A runtime with one thread has nobody to take over.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}
