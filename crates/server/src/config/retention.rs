//! `[retention]`: what is deleted when it is old.

use super::table::ConfigTable;
use gateway::retention::RetentionPolicy;

pub(super) const KEYS: [&str; 2] = ["thread_days", "unused_file_days"];
/// A century: more is for ever.
const DAYS_MAX: u64 = 36_500;

pub(super) fn read_retention(table: &ConfigTable<'_>) -> RetentionPolicy {
    // Zero days would delete a conversation between two messages.
    let days = |key| table.number(key, 1..=DAYS_MAX).and_then(|days| u32::try_from(days).ok());
    RetentionPolicy { thread_days: days("thread_days"), unused_file_days: days("unused_file_days") }
}
