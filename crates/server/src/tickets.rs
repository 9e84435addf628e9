//! Tickets: credentials for one stream or WebSocket, for pages that cannot send a key.
//!
//! A browser's `EventSource` and `WebSocket` cannot send headers, and a key does not belong into a URL, which ends up in
//! logs and histories. A ticket may be in a URL, because it is valid once and for a minute. An `EventSource` that
//! reconnects sends its first ticket again and is rejected; the page has to get another one. A single server keeps tickets in
//! memory only, so a restart invalidates them; with a database they are rows, which any node redeems.

use crate::auth::{Authenticator, Caller, Credential};
use gateway::secret_token::{generate_secret, secret_digest};
use gateway::shares::Shares;
use model::ports::{Clock, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::{PostgresStore, StoredTicket};

pub(crate) const TICKET_LIFETIME: Duration = Duration::from_secs(60);
/// Bounds on unused tickets.
const PER_USER_MAX: usize = 100;
/// For the viewers of all shares of one user, who can create any number of shares.
const PER_SHARE_OWNER_MAX: usize = 500;
const TOTAL_MAX: usize = 10_000;

const TICKET_PREFIX: &str = "hwt_";

#[derive(Debug, thiserror::Error)]
pub(crate) enum TicketError {
    #[error("too many unused tickets: use some, or wait a minute")]
    TooMany,
    #[error("the system has no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where tickets are kept.
pub(crate) enum TicketTable {
    Memory(Tickets),
    Database(Arc<PostgresStore>, Arc<dyn Clock>),
}

impl TicketTable {
    pub(crate) async fn issue(&self, caller: &Caller) -> Result<String, TicketError> {
        let (store, clock) = match self {
            Self::Memory(tickets) => return tickets.issue(caller, Instant::now()),
            Self::Database(store, clock) => (store, clock),
        };
        let text = generate_secret(TICKET_PREFIX).map_err(TicketError::Random)?;
        let credential = match &caller.credential {
            Credential::Key(_, id) => format!("key {id}"),
            Credential::Share(_) => "share".to_owned(),
            Credential::Local | Credential::SignedUrl => "local".to_owned(),
        };
        let (now, lifetime_ms) = (clock.now(), u64::try_from(TICKET_LIFETIME.as_millis()).unwrap_or(u64::MAX));
        let (digest, expires_at) = (secret_digest(&text), now.saturating_add(lifetime_ms));
        let ticket = StoredTicket { digest, user: caller.user.clone(), credential, expires_at };
        let is_stored = store.put_ticket(&ticket, now, PER_USER_MAX).await?;
        if is_stored { Ok(text) } else { Err(TicketError::TooMany) }
    }

    /// Consumes the ticket. The credential that it was issued for must still be valid.
    pub(crate) async fn redeem(&self, text: &str, auth: &Authenticator, shares: &Shares) -> Option<Caller> {
        let (store, clock) = match self {
            Self::Memory(tickets) => return tickets.redeem(text, Instant::now()),
            Self::Database(store, clock) => (store, clock),
        };
        let (user, credential) = store.take_ticket(&secret_digest(text), clock.now()).await.ok()??;
        let credential = match (credential.split_once(' '), auth) {
            (Some(("key", id)), Authenticator::Keys(keys)) => Credential::Key(Arc::clone(keys), id.into()),
            (None, _) if credential == "share" => Credential::Share(shares.find_by_viewer(&user)?),
            (None, Authenticator::Disabled) if credential == "local" => Credential::Local,
            _ => return None,
        };
        credential.is_valid().then_some(Caller { user, credential })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Keyed by digest, so that the timing of a lookup reveals nothing about a ticket.
    unredeemed: Mutex<HashMap<String, Ticket>>,
}

#[derive(Debug)]
struct Ticket {
    caller: Caller,
    expires_at: Instant,
}

impl Tickets {
    pub(crate) fn issue(&self, caller: &Caller, now: Instant) -> Result<String, TicketError> {
        let text = generate_secret(TICKET_PREFIX).map_err(TicketError::Random)?;
        let mut tickets = self.lock();
        tickets.retain(|_, ticket| now < ticket.expires_at);
        let of_user = tickets.values().filter(|ticket| ticket.caller.user == caller.user).count();
        let owner = caller.share().map(|share| share.owner());
        let has_owner = |ticket: &&Ticket| ticket.caller.share().map(|share| share.owner()) == owner;
        let of_owner = owner.map_or(0, |_| tickets.values().filter(has_owner).count());
        if of_user >= PER_USER_MAX || of_owner >= PER_SHARE_OWNER_MAX || tickets.len() >= TOTAL_MAX {
            return Err(TicketError::TooMany);
        }
        tickets.insert(secret_digest(&text), Ticket { caller: caller.clone(), expires_at: now + TICKET_LIFETIME });
        Ok(text)
    }

    /// Consumes the ticket.
    pub(crate) fn redeem(&self, text: &str, now: Instant) -> Option<Caller> {
        let ticket = self.lock().remove(&secret_digest(text))?;
        // The credential that it was issued for must still be valid.
        (now < ticket.expires_at && ticket.caller.credential.is_valid()).then_some(ticket.caller)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Ticket>> {
        self.unredeemed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::SystemClock;
    use gateway::shares::{NewShare, ShareViewer};
    use model::{ThreadId, UserId};

    fn caller(name: &str) -> Caller {
        Caller { user: UserId::from(name), credential: Credential::Local }
    }

    #[test]
    fn a_ticket_is_valid_once_and_for_a_minute() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let ticket = tickets.issue(&caller("ann"), now).unwrap();
        assert!(ticket.starts_with("hwt_") && ticket.len() == 68, "{ticket}");
        assert_eq!(tickets.redeem(&ticket.replace("hwt_", "hwt-"), now).map(|caller| caller.user), None);
        let in_time = now + TICKET_LIFETIME - Duration::from_millis(1);
        assert_eq!(tickets.redeem(&ticket, in_time).map(|caller| caller.user), Some(UserId::from("ann")));
        assert!(tickets.redeem(&ticket, in_time).is_none(), "a second time");
        let ticket = tickets.issue(&caller("ann"), now).unwrap();
        assert!(tickets.redeem(&ticket, now + TICKET_LIFETIME).is_none(), "too late");
    }

    #[test]
    fn one_user_cannot_exhaust_the_tickets_of_others() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        for _ in 0..PER_USER_MAX {
            tickets.issue(&caller("ann"), now).unwrap();
        }
        assert!(matches!(tickets.issue(&caller("ann"), now), Err(TicketError::TooMany)));
        tickets.issue(&caller("ben"), now).unwrap();
        tickets.issue(&caller("ann"), now + TICKET_LIFETIME).unwrap();
        assert_eq!(tickets.lock().len(), 1, "what nobody used is not kept");
    }

    #[test]
    fn a_user_cannot_exhaust_the_tickets_through_many_shares() {
        let (tickets, now, shares) = (Tickets::default(), Instant::now(), Shares::new(Arc::new(SystemClock)));
        let viewer = |owner: &str| {
            let (owner, thread) = (UserId::from(owner), ThreadId::from("thr_1"));
            let new = NewShare { owner, thread, until_seq: None, created_at: 0, expires_at: u64::MAX };
            let (row, token) = new.into_row().unwrap();
            shares.insert(row);
            let ShareViewer { user, share } = shares.find_by_token(&token).unwrap();
            Caller { user, credential: Credential::Share(share) }
        };
        let issued = (0..100)
            .map(|_| viewer("ann"))
            .map(|who| (0..PER_USER_MAX).filter(|_| tickets.issue(&who, now).is_ok()).count());
        assert_eq!(issued.sum::<usize>(), PER_SHARE_OWNER_MAX);
        tickets.issue(&viewer("ben"), now).unwrap();
        tickets.issue(&caller("ann"), now).unwrap();
    }
}
