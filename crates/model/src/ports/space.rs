//! Whether a store has room for new data.

use super::BoxFuture;

/// Whether a store accepts new data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageSpace {
    #[default]
    Available,
    /// The disk is full, or so nearly that the rest is kept for deletions.
    Full,
}

/// The room that a store has.
///
/// 1. While the state is [`StorageSpace::Full`], whatever adds data is answered with
///    [`AppendOutcome::NoSpace`](super::AppendOutcome::NoSpace) or [`StoreError::NoSpace`](super::StoreError::NoSpace).
///    Reads, claims, deletions, revocations, changes of access keys and cancels still work, as far as the disk allows.
/// 2. Both answers say that nothing has changed, so the same operation may be repeated.
/// 3. The state becomes `Full` before the first of these answers: who waits for the state to change and then repeats
///    the operation does not wait for ever.
#[warn(missing_docs)]
pub trait SpaceWatch: Send + Sync {
    /// The state now.
    fn space(&self) -> StorageSpace;

    /// Returns when the state is not, or no longer, `known`.
    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()>;
}
