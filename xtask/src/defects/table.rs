//! The planted defects: one row each, with the test that must turn red.
//!
//! A defect is a few lines in the crate that it breaks, behind that crate's feature `defects`, and does nothing until
//! the environment variable `HEADWATER_DEFECT` holds its name. A row proves that its test can see what it guards
//! against; a test that stays green with its defect planted proves nothing.

/// One way to break the house, and who must notice.
pub(crate) struct Defect {
    /// What `HEADWATER_DEFECT` is set to.
    pub(crate) name: &'static str,
    /// The crate whose test notices. Its feature `defects` switches on that of the crate that is broken.
    pub(crate) package: &'static str,
    /// Which of its test binaries to build, as arguments of `cargo test`.
    pub(crate) args: &'static [&'static str],
    /// The test's full path, as `cargo test` prints it.
    pub(crate) test: &'static str,
}

pub(crate) const DEFECTS: &[Defect] = &[
    // Viewers are woken before the commit: a power cut would take back what they saw.
    Defect {
        name: "publish-before-commit",
        package: "engine",
        args: &["--test", "it"],
        test: "laws::law_7_nothing_is_shown_before_it_is_durable",
    },
    // A commit that the disk has not confirmed is called durable.
    Defect {
        name: "synchronous-normal",
        package: "server",
        args: &["--test", "it"],
        test: "power_cut::nothing_seen_is_lost_in_a_power_cut",
    },
    // A resume begins one record too late.
    Defect {
        name: "cursor-off-by-one",
        package: "engine",
        args: &["--test", "it"],
        test: "laws::law_5_resume_at_every_cursor_while_the_run_is_live",
    },
    // An executor that was replaced can still append.
    Defect {
        name: "epoch-unchecked",
        package: "engine",
        args: &["--test", "it"],
        test: "laws::law_8_an_executor_that_lost_its_thread_records_nothing_more",
    },
    // A run ends, and ends again.
    Defect {
        name: "terminal-twice",
        package: "machine",
        args: &["--test", "it"],
        test: "laws::law_9_every_run_of_the_machine_ends_once",
    },
    // One piece of text never reaches the log.
    Defect {
        name: "delta-dropped",
        package: "machine",
        args: &["--test", "it"],
        test: "laws::law_3_done_repeats_what_the_machine_streamed",
    },
];
