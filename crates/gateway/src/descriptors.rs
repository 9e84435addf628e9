//! File descriptors: how many the process may have, and how many of them connections may take.
//!
//! The rest is for the store, files, tool programs (three pipes each) and connections to models: a run that was started
//! over one connection may need several of those.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the store, files and tools need at least.
const RESERVED_MIN: usize = 256;
/// More connections than this by default would need more memory than most machines have.
const CONNECTIONS_DEFAULT_MAX: usize = 16_384;

/// Raises the soft limit to the hard limit, and returns how many descriptors the process may have.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit of open files");
    }
    let current = getrlimit(Resource::Nofile).current;
    current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// How many connections to accept: by default three quarters of the descriptors, so that the store, files and tools have
/// the rest. A setting that does not fit is lowered with a warning.
pub fn connections_that_fit(setting: Option<usize>, descriptors: usize) -> usize {
    let half = (descriptors / 2).max(1);
    let fitting = descriptors.saturating_sub(RESERVED_MIN).max(half);
    match setting {
        None => (descriptors - descriptors / 4).min(fitting).min(CONNECTIONS_DEFAULT_MAX),
        Some(wanted) if wanted > fitting => {
            tracing::warn!(
                connections_max = wanted,
                descriptors,
                accepted = fitting,
                "`[limits] connections_max` is lowered: each connection is an open file, and the store, files and tools need \\
                 {RESERVED_MIN}; raise the limit of open files (`LimitNOFILE`, `ulimit -n`)"
            );
            fitting
        }
        Some(wanted) => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        assert_eq!(connections_that_fit(None, 1024), 768);
        assert_eq!(connections_that_fit(None, 300), 150);
        assert_eq!(connections_that_fit(None, 20_000), 15_000);
        assert_eq!(connections_that_fit(None, 1_048_576), CONNECTIONS_DEFAULT_MAX);
        assert_eq!(connections_that_fit(None, usize::MAX), CONNECTIONS_DEFAULT_MAX);
        assert_eq!(connections_that_fit(Some(700), 1024), 700);
        assert_eq!(connections_that_fit(Some(16_384), 1024), 768);
        assert_eq!(connections_that_fit(Some(16_384), 300), 150);
        assert_eq!(connections_that_fit(Some(20_000), usize::MAX), 20_000);
    }
}
