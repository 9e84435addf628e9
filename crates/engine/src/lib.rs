//! Drives the machine: one actor per live thread, one hub for everybody who watches.
//!
//! - [`Engine`]: what `server` calls. Commands go into the thread's inbox and wake its actor.
//! - `actor`, `session`: one thread's executor for one term: inputs in, appends out, one append in flight while the next
//!   gathers; the state runs ahead of the log, what is shown never does. `inbox` answers commands, `batch` appends,
//!   `before` asks hooks, `compaction` sums up what was said long ago.
//! - `open`: a thread's state from its log.
//! - `upstream`: models, tools and files as streams of inputs; `timers`: the moments that a run waits for.
//! - `wakes`: threads that wait for people, and until when.
//! - `hub`, [`Viewer`]: the live end of the log, without a queue per viewer.
//!
//! Invariants: the engine decides nothing about a run (that is `machine`), knows no wire protocol (that is `protocol`) and
//! no database (that is `store`). It holds no lock over an await.

mod actor;
mod batch;
mod clock;
mod commands;
mod documents;
mod effect_streams;
mod engine;
mod hub;
mod inbox;
mod input_hook;
mod on_busy;
mod queries;
mod session;
mod shared;
mod sync;
mod thread_state;
mod timers;
mod viewer;
mod wake_schedule;

pub use clock::SystemClock;
pub use commands::AnswerError;
pub use documents::NoDocuments;
pub use engine::{Engine, NewRun, OnBusy, REQUEST_BYTES_MAX, StartError, StartedRun, WatchError};
pub use shared::{Ports, StopMode};
pub use viewer::{View, Viewer};

#[cfg(all(test, feature = "shuttle"))]
mod hub_shuttle;
