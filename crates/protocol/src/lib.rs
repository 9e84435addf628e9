//! The protocols that clients speak: records become frames, requests become inputs.
//!
//! One module per protocol, all of the same shape: `wire` has the frames as types, `project` turns records into frames,
//! `request` turns requests into inputs. [`task`] is the native protocol. They share [`run_reader`] (a run, event by
//! event, with short forms expanded), [`record_frames`] (the frames of one record and their cursors), `run_end` (how
//! runs end and what each protocol calls it), `hosted_calls` (tools that the provider ran), `computer_calls` (actions on a computer), `tool_searches` (searches of tools), `event_groups` (events that
//! most matches skip), `citations` (offsets of citations), `request_fields` (request bodies) and [`client_input`] (inputs with a history, in one form).
//!
//! Everything here is pure: no tokio, no sockets, no clock. The crate `sse` encodes event streams; the crate `upstream`
//! speaks to models.

pub mod agent_runs;
pub mod agui;
pub mod blocks;
pub mod chat;
mod citations;
pub mod client_input;
mod computer_calls;
mod event_groups;
mod hosted_calls;
pub mod messages;
pub mod record_frames;
mod request_fields;
pub mod responses;
mod run_end;
pub mod run_items;
pub mod run_reader;
pub mod stateless;
pub mod task;
mod tool_results;
mod tool_searches;
pub mod ui_stream;
pub mod vendor_objects;
