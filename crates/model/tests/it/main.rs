//! The integration tests of `model`, in one binary.
//!
//! `fixtures` compares the reference examples with the types and the fold, `fold` has its single decisions, `fits` what
//! it refuses, `files` what is read before a model call, `thread` what outlives a run, `values` and `ports` the
//! distinctions of small values, `exact_numbers` how numbers are stored. The others use random logs from `model_testing`: `coverage` says what those contain,
//! `laws` and `done_repeats` are the laws by name, `total` is the fold over invalid logs. `rules` generates its own
//! rules and arguments.
//! A failure prints its seed; `SEED=123 cargo test -p model` repeats it.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod done_repeats;
#[cfg(test)]
mod error_docs;
#[cfg(test)]
mod event_docs;
#[cfg(test)]
mod exact_numbers;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fold;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod misfits;
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
