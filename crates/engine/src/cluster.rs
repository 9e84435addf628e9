//! What a node does because there are others: it follows the threads that they execute, handles what they tell it, and takes
//! over the threads that nobody executes any more.
//!
//! One loop serves all threads. A thread that is watched here and executed elsewhere has one tail, whatever the number of its
//! viewers: its new records are published into the hub as if it were executed here. Signals of other nodes make that quick;
//! polling finds what they miss.

use crate::actor_registry::ActorRegistry;
use crate::recovery;
use crate::shared::StopMode;
use futures_util::FutureExt as _;
use model::defects::Defect;
use model::event::Event;
use model::ports::{ClusterSignal, StorageSpace, TailPage, TailRequest, ThreadTag};
use model::{Record, Seq, ThreadId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often tails are polled: a signal that is lost delays a record by this much.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often threads are looked for that no node executes.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);
/// Threads that one query reads.
const TAILS_PER_QUERY: usize = 500;
/// The least time between two attempts to take the same thread over.
const SAME_ORPHAN_INTERVAL: Duration = Duration::from_secs(30);
/// Orphaned threads that are taken over at once.
const ORPHANS_MAX: usize = 500;

/// The last record of each tail that was published.
#[derive(Default)]
struct Tails(HashMap<ThreadId, Seq>);

/// Runs until the process stops.
pub(crate) async fn run_cluster_loop(registry: Arc<ActorRegistry>) {
    let cluster = Arc::clone(&registry.shared.ports.cluster);
    let (mut tails, mut taken_over) = (Tails::default(), HashMap::new());
    let (mut poll_at, mut sweep_at) = (Instant::now(), Instant::now() + SWEEP_INTERVAL);
    while registry.shared.stop_mode() != StopMode::Halted {
        tokio::select! {
            mut signals = cluster.next_signals() => {
                // All that have arrived by now: one query serves them.
                while let Some(more) = cluster.next_signals().now_or_never() {
                    signals.extend(more);
                }
                handle_signals(&registry, &mut tails, &signals).await;
            }
            () = tokio::time::sleep_until(poll_at) => {
                let watched = registry.watched_threads();
                tails.0.retain(|thread, _| watched.contains(thread));
                if !Defect::TailsNotPolled.is_planted() {
                    follow(&registry, &mut tails, watched.into_iter().collect()).await;
                }
                poll_at = Instant::now() + POLL_INTERVAL;
            }
            () = tokio::time::sleep_until(sweep_at) => {
                take_over_orphans(&registry, &mut taken_over).await;
                sweep_at = Instant::now() + SWEEP_INTERVAL;
            }
        }
    }
}

async fn handle_signals(registry: &Arc<ActorRegistry>, tails: &mut Tails, signals: &[ClusterSignal]) {
    let (mut records, mut inboxes) = (HashSet::new(), HashSet::new());
    for signal in signals {
        match signal {
            ClusterSignal::Records(tag) => drop(records.insert(*tag)),
            ClusterSignal::Inbox(tag) => drop(inboxes.insert(*tag)),
            ClusterSignal::Credentials => registry.shared.credentials_changed.notify_waiters(),
        }
    }
    if !inboxes.is_empty() {
        registry.wake_live_threads(&inboxes);
    }
    if !records.is_empty() {
        let watched = registry.watched_threads();
        let changed = watched.into_iter().filter(|thread| records.contains(&ThreadTag::new(thread)));
        follow(registry, tails, changed.collect()).await;
    }
}

/// Publishes the new records of watched threads that are executed elsewhere.
async fn follow(registry: &Arc<ActorRegistry>, tails: &mut Tails, threads: Vec<ThreadId>) {
    let mut foreign = Vec::new();
    for thread in threads {
        if registry.is_live(&thread) {
            // Its actor publishes; when it has ended, the tail begins anew at the head.
            tails.0.remove(&thread);
        } else {
            foreign.push(thread);
        }
    }
    for group in foreign.chunks(TAILS_PER_QUERY) {
        let mut requests: Vec<TailRequest> = group.iter().map(|thread| tails.request(thread)).collect();
        while !requests.is_empty() {
            let pages = match registry.shared.ports.cluster.read_tails(&requests).await {
                Ok(pages) => pages,
                Err(error) => return tracing::debug!(%error, "the tails of other nodes' threads cannot be read now"),
            };
            close_deleted(registry, tails, &requests, &pages);
            requests = pages.into_iter().filter_map(|page| tails.publish(registry, page)).collect();
        }
    }
}

/// Ends the streams of threads that were deleted elsewhere.
fn close_deleted(registry: &ActorRegistry, tails: &mut Tails, requests: &[TailRequest], pages: &[TailPage]) {
    let found: HashSet<&ThreadId> = pages.iter().map(|page| &page.thread).collect();
    for TailRequest { thread, .. } in requests.iter().filter(|request| !found.contains(&request.thread)) {
        // A thread that was never known may still be created: its name was given out before.
        if tails.0.remove(thread).is_some() {
            registry.shared.hub.close(thread);
            registry.shared.run_waiters.wake_thread(thread);
        }
    }
}

impl Tails {
    /// A tail that begins needs the head alone: its viewers read the log up to there themselves.
    fn request(&self, thread: &ThreadId) -> TailRequest {
        TailRequest { thread: thread.clone(), after: self.0.get(thread).copied().unwrap_or(Seq::MAX) }
    }

    /// Publishes a page. Returns the request for the next one, if there is more.
    fn publish(&mut self, registry: &ActorRegistry, page: TailPage) -> Option<TailRequest> {
        let TailPage { thread, head, mut records } = page;
        if Defect::TailSkipsARecord.is_planted() {
            records.retain(|record| !record.seq.0.is_multiple_of(16));
        }
        let shared = &registry.shared;
        let Some(published) = self.0.get_mut(&thread) else {
            shared.hub.advance_head(&thread, head);
            shared.run_waiters.wake_thread(&thread);
            self.0.insert(thread, head);
            return None;
        };
        let Some(last) = records.last().map(|record| record.seq) else {
            // Nothing new, or what a tail does not have: records that were archived since, or a damaged one. Viewers read the
            // log themselves, and find the end of a run or the damage there.
            if head > *published {
                *published = head;
                shared.hub.advance_head(&thread, head);
                shared.run_waiters.wake_thread(&thread);
            }
            return None;
        };
        *published = last;
        if records.iter().any(settles_run) {
            shared.run_waiters.wake_thread(&thread);
        }
        let records: Arc<[Record]> = records.into();
        if !shared.hub.try_publish_inline(&thread, &records) {
            heavy_work::run_in_place(|| shared.hub.publish(&thread, &records));
        }
        (last < head).then_some(TailRequest { thread, after: last })
    }
}

/// Whether a run may have ended or paused with this record. Only the root's events matter, but those of others are few.
fn settles_run(record: &Record) -> bool {
    matches!(
        record.event(),
        Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_) | Event::Paused(_)
    )
}

/// Executes the threads whose node is gone, and those whose time has come. A thread whose commands cannot be handled now, such as
/// starts behind a run that waits for people, looks like one of them: it is tried again only after a while.
async fn take_over_orphans(registry: &Arc<ActorRegistry>, taken_over: &mut HashMap<ThreadId, Instant>) {
    let ports = &registry.shared.ports;
    if registry.shared.stop_mode() != StopMode::Running || ports.journal.space() == StorageSpace::Full {
        return;
    }
    let found = match recovery::learn_parked(&registry.shared).await {
        Ok(()) => ports.cluster.orphaned_threads(ports.clock.now(), ORPHANS_MAX).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(orphans) => {
            taken_over.retain(|_, at| at.elapsed() < SAME_ORPHAN_INTERVAL);
            let is_new = |thread: &ThreadId| {
                !registry.is_live(thread)
                    && !taken_over.contains_key(thread)
                    && !registry.shared.recovery.is_parked(thread)
            };
            let orphans: Vec<_> = orphans.into_iter().filter(|(_, thread)| is_new(thread)).collect();
            taken_over.extend(orphans.iter().map(|(_, thread)| (thread.clone(), Instant::now())));
            if !orphans.is_empty() {
                tracing::info!(threads = orphans.len(), "taking over threads that no node executes");
                recovery::recover_threads(registry, orphans).await;
            }
        }
        Err(error) => tracing::debug!(%error, "orphaned threads cannot be looked for now"),
    }
}
