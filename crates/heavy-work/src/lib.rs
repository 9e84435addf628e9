//! Work that takes longer than a task may hold an async worker: compiling schemas, validating arguments, folding and
//! serialising long histories, parsing large bodies, building long requests to models.
//!
//! It runs on blocking threads, and only as much of it at once as there are processors: what waits for its turn costs
//! nothing, and the workers are never all behind it. One user may use all processors, but one more permit is left to
//! others, and a user's other pieces wait outside of the common queue: so nobody waits for more than one piece of each other
//! user.

mod user_semaphore;

pub use user_semaphore::{UserPermit, UserSemaphore};

use model::UserId;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The least number of pieces of work of one user at once, however few processors there are.
const HEAVY_WORK_MIN: usize = 2;

static PERMITS: LazyLock<UserSemaphore> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(HEAVY_WORK_MIN, usize::from).max(HEAVY_WORK_MIN);
    UserSemaphore::new(processors + 1, processors)
});

/// The work panicked, or the process stops.
#[derive(Debug, thiserror::Error)]
#[error("the work was not finished")]
pub struct HeavyWorkError;

/// Runs `work` for a user on a blocking thread when it is its turn. Work that has begun ends, even if nobody waits for it any
/// more.
///
/// # Errors
/// When it panics, or the process stops.
pub async fn run_heavy<T: Send + 'static>(
    user: &UserId,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HeavyWorkError> {
    let permit = acquire_permit(user).await;
    let working = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    working.await.map_err(|error| {
        tracing::error!(%error, "heavy work panicked or was cancelled");
        HeavyWorkError
    })
}

/// Waits until it is the user's turn.
pub async fn acquire_permit(user: &UserId) -> Option<UserPermit> {
    PERMITS.acquire_in_turn(user).await
}

/// Runs `work` here, after another thread has taken over the other tasks of this worker.
pub fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    // A runtime with one thread has nobody to take over.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Longer than anything here takes, unless it waits for ever.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_user_leaves_a_permit_to_the_next() {
        let (greedy, modest) = (UserId::from("greedy"), UserId::from("modest"));
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        let mut held = Vec::new();
        for _ in 0..50 {
            let (user, released) = (greedy.clone(), std::sync::Arc::clone(&released));
            held.push(tokio::spawn(async move {
                run_heavy(&user, move || released.lock().unwrap().recv().is_err()).await.unwrap();
            }));
        }
        // All permits that the user can have are taken, and the rest of the work waits.
        let taken = async {
            while PERMITS.try_acquire(&greedy).is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.unwrap();
        for n in 0..10 {
            let answer = tokio::time::timeout(PATIENCE, run_heavy(&modest, move || n)).await;
            assert_eq!(answer.expect("it does not wait for the other user").unwrap(), n);
        }
        drop(release);
        for work in held {
            work.await.unwrap();
        }
    }
}
