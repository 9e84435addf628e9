//! The mutex of this crate. `tests/it/hub_interleavings.rs` compiles the hub with the one of a model checker.

pub(crate) use std::sync::{Mutex, MutexGuard};

/// Ignores poisoning: everything behind these locks is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
