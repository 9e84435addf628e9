//! Executes runs: one actor per live thread, one hub for all viewers.
//!
//! - [`Engine`]: what `server` calls. Commands go into the inbox of a thread and wake its actor.
//! - `actor_registry`, `actor`, `session`: the live actors; one thread over its terms; one thread under one term.
//! - `read_records`: a log page by page; `load_thread`: the state of a thread from its log.
//! - `effect_streams`: models, tools and files as streams of inputs; `timers`: the timers of a run.
//! - `recovery`, `recovery_tracker`: resuming what an earlier process left.
//! - `wake_schedule`: threads that wait for people, and until when.
//! - `hub`, [`Viewer`]: the live end of the log, without a queue per viewer; `run_waiters`: requests that wait for a run.
//!
//! Invariants: the engine decides nothing about a run (that is `machine`), knows no wire protocol (that is `protocol`) and
//! no database (that is `store`). It holds no lock over an await.

mod actor;
mod actor_registry;
mod bursts;
mod clock;
mod cluster;
mod documents;
mod effect_streams;
mod engine;
mod hub;
mod idle_threads;
mod load_thread;
mod ports;
mod read_records;
mod recovery;
mod recovery_tracker;
mod run_waiters;
mod session;
mod shared;
mod sync;
mod timers;
mod viewer;
mod wake_schedule;
mod wakeup;

pub use actor_registry::StartReservation;
pub use clock::SystemClock;
pub use documents::NoDocuments;
pub use engine::{
    AnswerError, AnsweringRequest, Engine, NewRun, OnBusy, REQUEST_BYTES_MAX, RunPredecessor, StartError, StartedRun,
    WatchError,
};
pub use ports::{CurrentDefinitions, Ports};
pub use read_records::{for_each_condensed_record, for_each_record, log_head};
pub use shared::StopMode;
pub use viewer::{View, Viewer};
