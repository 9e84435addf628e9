//! The integration tests of `model`, in one binary.
//!
//! `fixtures` holds the reference examples against the types and the fold, `fold` has its single decisions, `fits` what
//! it refuses, `files` what is read before a model is asked, `thread` what outlives a run, `values` and `ports` what small
//! values must tell apart. The others take random logs from `model_testing`: `coverage` says what those have, `laws` and
//! `done_repeats` are the laws by name, `total` is the fold under garbage. `rules` makes up rules and arguments of its own.
//! A failure names its seed; `SEED=123 cargo test -p model` tries that one again.

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod done_repeats;
#[cfg(test)]
mod error_docs;
#[cfg(test)]
mod event_docs;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fits;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fold;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod thread;
#[cfg(test)]
mod total;
#[cfg(test)]
mod values;
