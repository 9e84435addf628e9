//! The integration tests of `protocol`, in one binary.

#[cfg(test)]
mod agent_runs;
#[cfg(test)]
mod agui;
#[cfg(test)]
mod allocations;
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../../../upstream/tests/it/dialect.rs"]
#[expect(dead_code, reason = "`upstream` tests use the rest")]
mod dialect;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod long_texts;
#[cfg(test)]
mod mcp_tools;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod resumes;
#[cfg(test)]
mod run_items;
#[cfg(test)]
mod task;
#[cfg(test)]
mod tool_searches;
#[cfg(test)]
mod ui_stream;
