//! The engine over a real store, with a scripted model: what is shown, when, and to whom.

#![cfg(test)]

mod house;
mod laws;
mod random_logs;
mod runs;
