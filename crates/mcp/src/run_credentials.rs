//! The users' own credentials for servers with a URL, for the runs whose requests brought them. In memory alone.

use crate::limits::RUNS_WITH_CREDENTIALS_MAX;
use crate::link::lock;
use crate::servers::missing_credential;
use crate::token_source::BearerToken;
use model::TaskId;
use model::error::{ErrorCode, ErrorInfo};
use model::mcp_credentials::McpCredentials;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Clones share what is kept.
#[derive(Clone, Default)]
pub(crate) struct RunCredentials(Arc<Mutex<BTreeMap<TaskId, McpCredentials>>>);

impl RunCredentials {
    /// Those of a later request of the same run replace the earlier ones, server by server.
    pub(crate) fn keep(&self, run: &TaskId, credentials: &McpCredentials) {
        let mut runs = lock(&self.0);
        let kept = runs.entry(run.clone()).or_default();
        for server in credentials.servers() {
            kept.insert(server, credentials.get(server).unwrap_or_default());
        }
        // Ids begin with the time of the run, so the first is the oldest.
        while runs.len() > RUNS_WITH_CREDENTIALS_MAX {
            runs.pop_first();
        }
    }

    pub(crate) fn forget(&self, run: &TaskId) {
        lock(&self.0).remove(run);
    }

    /// The credential of a run for a server. One that the run had is an error when it is lost: without it, the request would
    /// be somebody else's.
    pub(crate) fn find(&self, run: &TaskId, server: &str, is_expected: bool) -> Result<Option<BearerToken>, ErrorInfo> {
        let text = lock(&self.0).get(run).and_then(|kept| kept.get(server).map(str::to_owned));
        match text {
            Some(text) => BearerToken::new(&text).map(Some).ok_or_else(|| {
                let message = format!("The credential for the MCP server `{server}` cannot be part of a header.");
                ErrorInfo::new(ErrorCode::McpUnauthorized, message)
            }),
            None if is_expected => Err(missing_credential(server)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(token: &str) -> McpCredentials {
        let mut credentials = McpCredentials::default();
        credentials.insert("wiki", token);
        credentials
    }

    #[test]
    fn credentials_are_those_of_their_run_until_it_ends() {
        let (kept, run) = (RunCredentials::default(), TaskId::from("task_1"));
        kept.keep(&run, &credentials("one"));
        kept.keep(&run, &credentials("two"));
        assert_eq!(kept.find(&run, "wiki", true).unwrap().unwrap().as_str(), "two");
        assert_eq!(kept.find(&run, "files", false), Ok(None));
        assert_eq!(kept.find(&TaskId::from("task_2"), "wiki", false), Ok(None));
        kept.forget(&run);
        assert_eq!(kept.find(&run, "wiki", true).unwrap_err().code, "mcp_unauthorized");
    }

    #[test]
    fn the_oldest_make_room() {
        let kept = RunCredentials::default();
        for number in 0..=RUNS_WITH_CREDENTIALS_MAX {
            kept.keep(&TaskId::from(format!("task_{number:09}").as_str()), &credentials("token"));
        }
        assert_eq!(lock(&kept.0).len(), RUNS_WITH_CREDENTIALS_MAX);
        assert!(kept.find(&TaskId::from("task_000000000"), "wiki", true).is_err());
    }
}
