//! Ids of threads, runs, items and calls.
//!
//! A run's suffix `R` is a UUIDv7 in 32 hex digits. Every id of the run contains it: `task_R` is the run and its root
//! task, `msg_R3` its third numbered object, and a call, its result and its approval share one number (`call_R2`,
//! `fc_R2`, `fco_R2`, `apr_R2`; the questions that its tool asks are `apr_R2_1`, `apr_R2_2`). So every id identifies its run,
//! and numbers can be counted from the log alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use uuid::Uuid;

/// The text is not an id. `server::problem` answers 404, because nothing can have that id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {0} id")]
pub struct IdError(&'static str);

pub use crate::limits::ID_BYTES_MAX;

const SUFFIX_BYTES: usize = 32;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        #[derive(Clone, Debug, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        $(#[$doc])*
        pub struct $name(Arc<str>);

        // Most ids that are compared are clones of one another: then neither text is read. `Arc<str>` itself compares texts.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

ids! {
    /// A conversation of one user: `thr_…`.
    #[schemars(extend("pattern" = "^thr_[A-Za-z0-9_-]{1,60}$"))]
    ThreadId;
    /// A run's root task (`task_R`), or a sub-agent (the `call_R…` of the call that started it).
    #[schemars(extend("pattern" = "^(task|call)_[A-Za-z0-9_-]{1,59}$"))]
    TaskId;
    /// An item of a task's output.
    ItemId;
    /// A tool call. Assigned by the server, never by the provider.
    CallId;
    /// An approval request: `apr_…`.
    ApprovalKey;
    /// The owner of a thread; `local` without authentication.
    UserId;
    /// One server process.
    NodeId;
}

/// Whether the text is short enough and has only characters that ids may have.
pub fn is_valid_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

const NO_RUN: &str = "task_none";

/// The longest name of a user.
pub const USER_NAME_BYTES_MAX: usize = 128;
/// The longest name of a user once [`USER_NAME_PUNCTUATION`] is percent-encoded, as it is in names of folders.
const USER_NAME_ENCODED_BYTES_MAX: usize = 200;
/// What identity providers put into the names of users, in addition to the characters of ids: `ann@example.com`,
/// `auth0|5f7c`, `urn:example:ann`. Nothing that paths, logs or metrics give a meaning, except `.`, which paths encode.
const USER_NAME_PUNCTUATION: &[u8] = b".@+|:";

/// Whether a user may have this name.
pub fn is_valid_user_name(text: &str) -> bool {
    let is_punctuation = |b: &u8| USER_NAME_PUNCTUATION.contains(b);
    let encoded_bytes = text.len() + 2 * text.bytes().filter(|b| is_punctuation(b)).count();
    (1..=USER_NAME_BYTES_MAX).contains(&text.len())
        && encoded_bytes <= USER_NAME_ENCODED_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || is_punctuation(&b))
}

/// How the ids of unlisted threads begin. It sorts after the hexadecimal digits of all others, so that a listing ends before it.
pub const UNLISTED_THREAD_PREFIX: &str = "thr_unlisted_";

impl ThreadId {
    pub fn from_uuid(random: Uuid) -> Self {
        Self(format!("thr_{}", random.simple()).into())
    }

    /// The id of a thread that no listing shows: the server needs it for a while, and its owner does not.
    pub fn unlisted(random: Uuid) -> Self {
        Self(format!("{UNLISTED_THREAD_PREFIX}{}", random.simple()).into())
    }

    pub fn is_unlisted(&self) -> bool {
        self.0.starts_with(UNLISTED_THREAD_PREFIX)
    }

    /// Parses an id from a client.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if is_valid_id(text) && text.starts_with("thr_") { Ok(Self::from(text)) } else { Err(IdError("thread")) }
    }
}

impl TaskId {
    pub fn from_uuid(random: Uuid) -> Self {
        Self(format!("task_{}", random.simple()).into())
    }

    /// The reserved id that stands for no run: the predecessor of a run which does not continue its thread.
    pub fn no_run() -> Self {
        Self::from(NO_RUN)
    }

    pub fn is_no_run(&self) -> bool {
        self.as_str() == NO_RUN
    }

    /// Parses an id from a client: of a run, or of a sub-agent's call.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if is_valid_id(text) && (text.starts_with("task_") || text.starts_with("call_")) {
            Ok(Self::from(text))
        } else {
            Err(IdError("task"))
        }
    }

    /// The run that the task belongs to, derived from the id alone.
    pub fn run_id(&self) -> Option<Self> {
        Some(Self(format!("task_{}", run_suffix(self.as_str())?).into()))
    }

    /// The run's suffix `R`. For an id in a foreign format, the whole id.
    pub fn run_suffix(&self) -> &str {
        run_suffix(self.as_str()).unwrap_or_else(|| strip_id_prefix(self.as_str()))
    }
}

impl ItemId {
    /// The run's object with this number: `rs_R1`, `msg_R3`.
    pub fn numbered(prefix: &str, suffix: &str, number: u32) -> Self {
        Self(format!("{prefix}_{suffix}{number}").into())
    }
}

impl CallId {
    pub fn numbered(suffix: &str, number: u32) -> Self {
        Self(format!("call_{suffix}{number}").into())
    }

    /// An id that shares this call's number, with the prefix `fc`, `fco` or `mcp`.
    pub fn item_id(&self, prefix: &str) -> ItemId {
        ItemId(format!("{prefix}_{}", strip_id_prefix(self.as_str())).into())
    }

    pub fn approval_key(&self) -> ApprovalKey {
        ApprovalKey(format!("apr_{}", strip_id_prefix(self.as_str())).into())
    }

    /// The key of a question that the call's tool asks, counted from 1.
    pub fn question_key(&self, number: usize) -> ApprovalKey {
        ApprovalKey(format!("apr_{}_{number}", strip_id_prefix(self.as_str())).into())
    }

    /// The sub-agent's task that this call starts.
    pub fn child_task_id(&self) -> TaskId {
        TaskId(Arc::clone(&self.0))
    }
}

fn strip_id_prefix(text: &str) -> &str {
    text.split_once('_').map_or(text, |(_, rest)| rest)
}

fn run_suffix(text: &str) -> Option<&str> {
    let rest = strip_id_prefix(text).get(..SUFFIX_BYTES)?;
    rest.bytes().all(|b| b.is_ascii_hexdigit()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_contains_its_run() {
        let run = TaskId::from_uuid(Uuid::from_u128(7));
        let call = CallId::numbered(run.run_suffix(), 12);
        assert_eq!(call.child_task_id().run_id(), Some(run.clone()));
        assert_eq!(call.item_id("fco").as_str(), format!("fco_{}12", run.run_suffix()));
        assert_eq!(call.approval_key().as_str(), format!("apr_{}12", run.run_suffix()));
        let question = call.question_key(3);
        assert_eq!(question.as_str(), format!("apr_{}12_3", run.run_suffix()));
        assert_eq!(run_suffix(question.as_str()), Some(run.run_suffix()));
        assert_eq!(run.run_id().as_ref(), Some(&run));
    }

    #[test]
    fn a_malformed_id_is_not_looked_up() {
        for bad in ["", "..", "thr_a/b", "thr_\0", "thr_é", &format!("thr_{}", "x".repeat(61)), "task_1"] {
            assert!(ThreadId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ThreadId::parse("thr_abc-DEF_9").is_ok());
        assert!(TaskId::parse("msg_1").is_err());
    }

    #[test]
    fn a_foreign_id_still_yields_a_suffix() {
        assert_eq!(TaskId::from("task_1234xyz").run_suffix(), "1234xyz");
        assert_eq!(TaskId::from("task_1234xyz").run_id(), None);
    }
}
