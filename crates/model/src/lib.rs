//! The ground floor: words and laws.
//!
//! - [`id`], [`seq`]: names of things and their order.
//! - [`event`]: everything that can happen; [`item`], [`block`], [`blob`]: what it happens to.
//! - [`record`]: an event as it is logged; [`cursor`]: a place in the log that a client can hold.
//! - [`fold`]: records → state, pure and total. The only way from the one to the other.
//! - [`delta`], [`tool`], [`history`], [`reference`], [`wish`]: what the run loop exchanges with models and tools.
//! - [`definition`]: agents and tools as an operator declared them, [`rule`]: when a person is asked; [`limits`]: every bound.
//! - [`ports`]: what the upper floors offer each other, each trait with its law.
//!
//! Invariant: no tokio, no I/O, no clock, no randomness. Time and ids come in as arguments.

pub mod approval_rule;
pub mod blob;
pub mod command;
pub mod content;
pub mod cursor;
pub mod defects;
pub mod definition;
pub mod error;
pub mod event;
pub mod fold;
pub mod history;
pub mod id;
pub mod item;
pub mod json;
pub mod limits;
pub mod model_settings;
pub mod model_turn;
pub mod ports;
pub mod record;
pub mod reference;
pub mod seq;
pub mod task;
pub mod thread;
pub mod tool;
pub mod usage;

pub use event::Event;
pub use id::{ApprovalKey, CallId, ItemId, NodeId, TaskId, ThreadId, UserId};
pub use record::{PrivatePayload, Record, RecordDraft};
pub use seq::{Epoch, Millis, Seq};
