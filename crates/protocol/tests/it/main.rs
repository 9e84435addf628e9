//! The integration tests of `protocol`, in one binary.

#[cfg(test)]
mod agent_runs;
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod dialect;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod resumes;
#[cfg(test)]
mod run_items;
#[cfg(test)]
mod seed;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod task;
