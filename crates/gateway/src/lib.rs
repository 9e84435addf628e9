//! The semantics of client requests: which run a request starts, resumes or follows, which files it carries, and what
//! the viewer of a share can see.
//!
//! Every client protocol and every transport goes through this crate. It knows no HTTP (no axum, no header, no status), no
//! config file and no command line: [`Gateway::open`] takes settings, and [`Rejection`] is an error without a transport.
//! Users are [`model::UserId`]s that the transport has authenticated; the viewer of a share is one of them, and
//! `shares::ScopedStore` limits what it sees.

pub mod agent_history;
pub mod agui_history;
pub mod agui_requests;
pub mod agui_streams;
pub mod answers;
pub mod approvals;
pub mod attachments;
pub mod blocks_session;
pub mod body_budget;
pub mod client_tools;
pub mod compaction;
mod compaction_item;
pub mod connection_slots;
mod context;
pub mod conversations;
pub mod dates;
pub mod descriptors;
pub mod documents;
pub mod fork_share;
pub mod json_schema;
mod known_items;
pub mod limits;
pub mod mcp_credentials;
pub mod metered_io;
pub mod native_json;
pub mod poll_if_woken;
pub mod queue_cancel;
pub mod rate_limiter;
pub mod recovery_file;
mod rejection;
pub mod request_limits;
pub mod resent_history;
mod resent_runs;
pub mod resolve_run;
pub mod response_stream;
pub mod responses;
pub mod retention;
pub mod run_lookup;
mod run_to_completion;
pub mod secret_token;
pub mod share_commands;
mod shared_allowance;
pub mod shares;
pub mod start_run;
pub mod storage_alarm;
pub mod stream_limiter;
pub mod stream_start;
mod stream_until;
pub mod task_commands;
pub mod thread_names;
mod ui_chats;
pub mod ui_requests;
pub mod ui_streams;
mod web_images;

pub use context::{Gateway, GatewayOpenError, GatewayParts};
pub use heavy_work::UserPermit;
pub use rejection::{Rejection, truncate_id};
pub use run_to_completion::run_to_completion;
