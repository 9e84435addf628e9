//! Work that takes longer than a task may hold an async worker: compiling schemas, validating arguments, folding and
//! serialising long histories, parsing large bodies, building long requests to models.
//!
//! It runs on threads of a lower priority than the workers', and only as much of it at once as there are processors: what
//! waits for its turn costs nothing, and the workers are never all behind it. One user may use all processors but one, and a
//! user's other pieces wait outside of the common queue: so nobody waits for more than one piece of each other user.

mod user_semaphore;

pub use user_semaphore::{UserPermit, UserSemaphore};

use model::UserId;
use rustix::process::{getpid, getpriority_process, setpriority_process};
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{JoinHandle, spawn_blocking};

/// By how much a thread with heavy work is nicer than the process: for the scheduler it counts a tenth of a worker.
const ADDED_NICENESS: i32 = 10;
const NICENESS_MAX: i32 = 19;

/// One user leaves a processor and a permit to the others, as far as there is more than one.
static PERMITS: LazyLock<UserSemaphore> = LazyLock::new(|| {
    let for_one_user = available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1);
    UserSemaphore::new(for_one_user + 1, for_one_user)
});

/// Only the blocking threads of this runtime are used. It is `None` if it cannot be built.
static LOW_PRIORITY: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let built = Builder::new_current_thread().thread_name("heavy-work").on_thread_start(lower_priority).build();
    built.inspect_err(|error| tracing::error!(%error, "heavy work runs at the priority of the workers")).ok()
});

fn lower_priority() {
    // On Linux this is the priority of the calling thread, not of the process.
    let lowered = getpriority_process(Some(getpid()))
        .and_then(|niceness| setpriority_process(None, niceness.saturating_add(ADDED_NICENESS).min(NICENESS_MAX)));
    if let Err(error) = lowered {
        tracing::warn!(%error, "cannot lower the priority of a thread for heavy work");
    }
}

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
    let working = spawn_low_priority(move || {
        let _permit = permit;
        work()
    });
    working.await.map_err(|error| {
        tracing::error!(%error, "heavy work panicked or was cancelled");
        HeavyWorkError
    })
}

fn spawn_low_priority<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match &*LOW_PRIORITY {
        Some(runtime) if is_multi_thread() => runtime.spawn_blocking(work),
        // The clock of a test's runtime stands still only while that runtime's own threads work.
        _ => spawn_blocking(work),
    }
}

/// Waits until it is the user's turn. A runtime with one thread takes no turns: it serves a command or a test, and the paused
/// clock of a test would run on while it waits for the work of another test.
pub async fn acquire_permit(user: &UserId) -> Option<UserPermit> {
    if is_multi_thread() { PERMITS.acquire_in_turn(user).await } else { None }
}

/// Runs `work` here, after another thread has taken over the other tasks of this worker.
pub fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    // A runtime with one thread has nobody to take over.
    if is_multi_thread() { tokio::task::block_in_place(work) } else { work() }
}

/// Runs `work` in place if it is long, and else at once: to give the other tasks to another thread costs more than short work.
pub fn run_in_place_if<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    if is_long { run_in_place(work) } else { work() }
}

fn is_multi_thread() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Longer than anything here takes, unless it waits for ever.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn heavy_work_has_a_lower_priority_than_the_workers() {
        let niceness = || getpriority_process(None).unwrap();
        let heavy = run_heavy(&UserId::from("user"), niceness).await.unwrap();
        assert_eq!(heavy, (niceness() + ADDED_NICENESS).min(NICENESS_MAX));
    }

    /// Tests with a paused clock share the permits with all other tests of their process.
    #[test]
    fn a_paused_clock_stands_still_while_other_runtimes_work() {
        let user = UserId::from("busy in all runtimes");
        let held: Vec<_> = std::iter::from_fn(|| PERMITS.try_acquire(&user)).collect();
        assert!(!held.is_empty());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let elapsed = runtime.block_on(async {
            let started = tokio::time::Instant::now();
            let work = run_heavy(&user, || ());
            tokio::time::timeout(PATIENCE, work).await.expect("it waits for no other runtime").unwrap();
            started.elapsed()
        });
        assert_eq!(elapsed, Duration::ZERO);
    }

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
