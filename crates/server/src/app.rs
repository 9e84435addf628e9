//! The state that all requests share.

use crate::abandoned_tasks::AbandonedTasks;
use crate::auth::Authenticator;
use crate::config::HttpLimits;
use crate::credential_sync::CredentialSync;
use crate::origin_policy::OriginPolicy;
use crate::problem::Problem;
use crate::storage_backend::StorageBackend;
use crate::tickets::TicketTable;
use gateway::Gateway;
use gateway::request_limits::RequestLimits;
use gateway::stream_limiter::StreamLimiter;
use gateway::stream_start::StreamEnd;
use mcp::McpAuthorizations;
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) type App = Arc<AppInner>;

pub(crate) struct AppInner {
    pub(crate) gateway: Gateway,
    pub(crate) store: Arc<dyn StorageBackend>,
    pub(crate) auth: Authenticator,
    /// With a database, which other nodes change, too.
    pub(crate) credential_sync: Option<Arc<CredentialSync>>,
    pub(crate) tickets: TicketTable,
    pub(crate) abandoned_tasks: AbandonedTasks,
    pub(crate) mcp_authorizations: McpAuthorizations,
    pub(crate) origin_policy: OriginPolicy,
    pub(crate) limits: HttpLimits,
    /// The origin under which clients reach the server, unless it is that of their request.
    pub(crate) public_url: Option<String>,
    pub(crate) stream_limiter: Arc<StreamLimiter>,
    pub(crate) request_limits: RequestLimits,
    pub(crate) metrics: PrometheusHandle,
    /// The digest of the token with which another machine may read the metrics.
    pub(crate) metrics_token_digest: Option<String>,
    pub(crate) shutting_down: AtomicBool,
}

impl AppInner {
    pub(crate) fn start_shutdown(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }

    /// The error of a request that waited for a stream which was interrupted.
    pub(crate) fn check_stream_end(&self, end: StreamEnd) -> Result<(), Problem> {
        match end {
            StreamEnd::Complete => Ok(()),
            StreamEnd::Interrupted if self.is_shutting_down() => Err(Problem::shutting_down()),
            StreamEnd::Interrupted => Err(Problem::not_found()),
        }
    }
}
