//! What the owner of a thread has spent today, for the daily limits.

use super::ThreadSession;
use crate::shared::ThreadContext;
use model::Millis;
use model::ports::{Day, DirectoryChange, Spend, StoreError};

/// What the owner has spent today in all threads, as far as it is logged. Read only if there is a daily limit.
pub(super) async fn read_daily_spend(context: &ThreadContext) -> Result<Option<Spend>, StoreError> {
    let ports = &context.shared.ports;
    let limits = ports.definitions.get().limits;
    if limits.user_day_tokens_max.is_none() && limits.user_day_cost_max.is_none() {
        return Ok(None);
    }
    let today = Day::from_millis(ports.clock.now());
    ports.directory.daily_spend(&context.owner, today).await.map(Some)
}

impl ThreadSession<'_> {
    /// Before a step that may begin a turn: other threads, of other nodes too, have spent something meanwhile.
    pub(super) async fn refresh_daily_spend(&mut self) {
        if self.run.is_none() {
            return;
        }
        match (read_daily_spend(self.context).await, &mut self.run) {
            (Ok(Some(spent)), Some(run)) => {
                run.prior_spend = spent;
                machine::exclude_own_spend(run);
            }
            (Ok(_), _) => {}
            // The store may be unreachable for a while; the run goes on with what was known.
            (Err(error), _) => tracing::debug!(%error, "what the user has spent today cannot be read now"),
        }
    }

    /// Adds what model calls cost to the owner's day.
    pub(crate) fn push_spend(&mut self, spent: Spend, at: Millis) {
        if spent != Spend::default() {
            self.next_batch.changes.push(DirectoryChange::AddSpend { day: Day::from_millis(at), spent });
        }
    }
}
