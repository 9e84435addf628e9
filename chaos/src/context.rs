//! What every part of a program shares.

use crate::cluster::Cluster;
use crate::database::TextRow;
use crate::history::History;
use crate::http_client::{self, ApiReply, ApiRequest};
use model_testing::Rng;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long PostgreSQL may take to recover from a crash.
const DATABASE_DOWN_MAX: Duration = Duration::from_secs(60);

/// The size of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChaosForm {
    pub(crate) is_full: bool,
    pub(crate) runs: usize,
    pub(crate) viewers: usize,
    /// How often each fault happens.
    pub(crate) rounds: usize,
    /// How long a node is suspended or cut off: longer than its lease, so that it is replaced.
    pub(crate) absence: Duration,
    /// In which runs are started, beside those of the faults.
    pub(crate) start_window: Duration,
    /// A program that takes longer hangs.
    pub(crate) time_max: Duration,
}

impl ChaosForm {
    pub(crate) const SHORT: Self = Self {
        is_full: false,
        runs: 12,
        viewers: 40,
        rounds: 1,
        absence: Duration::from_secs(13),
        start_window: Duration::from_secs(25),
        time_max: Duration::from_mins(10),
    };
    pub(crate) const FULL: Self = Self {
        is_full: true,
        runs: 50,
        viewers: 200,
        rounds: 3,
        absence: Duration::from_secs(20),
        start_window: Duration::from_secs(150),
        time_max: Duration::from_mins(40),
    };
}

#[derive(Debug)]
pub(crate) struct ChaosContext {
    pub(crate) form: ChaosForm,
    pub(crate) seed: u64,
    pub(crate) cluster: Cluster,
    pub(crate) history: History,
    pub(crate) begun: Instant,
    /// Known once the last fault is healed: by then everything must have ended.
    deadline: Mutex<Option<Instant>>,
    users: Mutex<JoinSet<()>>,
}

impl ChaosContext {
    pub(crate) fn new(form: ChaosForm, seed: u64, cluster: Cluster) -> Self {
        Self {
            form,
            seed,
            cluster,
            history: History::default(),
            begun: Instant::now(),
            deadline: Mutex::new(None),
            users: Mutex::default(),
        }
    }

    /// The random choices of one actor, which do not depend on the order of others.
    pub(crate) const fn rng(&self, actor: usize) -> Rng {
        let mut rng = Rng::new(self.seed ^ (actor as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next_u64();
        rng
    }

    pub(crate) fn set_deadline(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }

    pub(crate) fn is_past_deadline(&self) -> bool {
        let deadline = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    /// Starts something that has to end before the check.
    pub(crate) fn spawn_user(&self, user: impl Future<Output = ()> + Send + 'static) {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).spawn(user);
    }

    /// Waits until all users are done.
    pub(crate) async fn join_users(&self) {
        let users = std::mem::take(&mut *self.users.lock().unwrap_or_else(PoisonError::into_inner));
        users.join_all().await;
    }

    pub(crate) async fn database_rows(&self, sql: &str) -> anyhow::Result<Vec<TextRow>> {
        self.cluster.database.query(sql).await
    }

    /// Waits until PostgreSQL answers.
    pub(crate) async fn database_rows_when_up(&self, sql: &str) -> anyhow::Result<Vec<TextRow>> {
        let begun = Instant::now();
        loop {
            match self.database_rows(sql).await {
                Err(_) if begun.elapsed() < DATABASE_DOWN_MAX => tokio::time::sleep(Duration::from_millis(100)).await,
                rows => return rows,
            }
        }
    }

    /// Sends a request to random nodes until one gives an answer other than "try again". None after the deadline.
    pub(crate) async fn send_until_answered(
        &self,
        rng: &mut Rng,
        request: &ApiRequest,
        most: Duration,
    ) -> Option<ApiReply> {
        loop {
            if let Some(node) = self.cluster.pick(rng)
                && let Ok(reply) = http_client::send(&node.address, request, most).await
                && !is_retried(reply.status)
            {
                return Some(reply);
            }
            if self.is_past_deadline() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(rng.between(50, 400).into())).await;
        }
    }
}

/// What Anthropic's protocol has instead of 503.
const OVERLOADED: u16 = 529;

/// Statuses after which a client tries again: the node is stopping, overloaded, or without its database.
pub(crate) const fn is_retried(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | OVERLOADED)
}
