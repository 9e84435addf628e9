//! Watches in the database which node executes which thread, under which epoch.

use crate::context::ChaosContext;
use crate::history::Term;
use std::sync::Arc;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(150);

/// Runs until it is dropped.
pub(crate) async fn watch_terms(context: Arc<ChaosContext>) {
    loop {
        tokio::time::sleep(POLL).await;
        // PostgreSQL may be down.
        let Ok(rows) =
            context.database_rows("SELECT id, epoch, node FROM headwater.threads WHERE node IS NOT NULL").await
        else {
            continue;
        };
        let mut facts = context.history.lock();
        for row in rows {
            let Ok([thread, epoch, node]) = <[String; 3]>::try_from(row) else { continue };
            let Ok(epoch) = epoch.parse() else { continue };
            facts.terms.entry((thread, epoch)).or_insert_with(|| Term { node, seen: Instant::now() });
        }
    }
}
