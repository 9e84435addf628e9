//! The planted defects: one row each, with the test that must fail.
//!
//! A defect is a few lines in the crate that it breaks, behind the feature `defects` of `model`, and does nothing until
//! the environment variable `HEADWATER_DEFECT` holds its name. A row proves that its test notices what it guards
//! against.

pub(crate) struct DefectCase {
    /// What `HEADWATER_DEFECT` is set to.
    pub(crate) name: &'static str,
    /// The crate whose integration tests have the test.
    pub(crate) package: &'static str,
    /// The test's full path, as `cargo test` prints it.
    pub(crate) test: &'static str,
}

pub(crate) const DEFECT_CASES: &[DefectCase] = &[
    // Viewers are woken before the commit: a power failure would take back what they saw.
    DefectCase {
        name: "publish-before-commit",
        package: "engine",
        test: "laws::law_7_nothing_is_shown_before_it_is_durable",
    },
    // A commit is reported as durable before the disk has confirmed it.
    DefectCase {
        name: "synchronous-normal",
        package: "server",
        test: "power_cut::nothing_seen_is_lost_in_a_power_cut",
    },
    // A start forgets what only the append log has.
    DefectCase { name: "append-log-not-read", package: "store", test: "restarts::every_prefix_survives_a_crash" },
    // The append log is not synced: a power failure takes back deltas that were seen.
    DefectCase {
        name: "append-log-not-synced",
        package: "server",
        test: "power_cut::nothing_seen_is_lost_in_a_power_cut",
    },
    // A resume begins one record too late.
    DefectCase {
        name: "cursor-off-by-one",
        package: "engine",
        test: "laws::law_5_resume_at_every_cursor_while_the_run_is_live",
    },
    // An executor that was replaced can still append.
    DefectCase {
        name: "epoch-unchecked",
        package: "engine",
        test: "laws::law_8_an_executor_that_lost_its_thread_appends_nothing",
    },
    // A run ends twice.
    DefectCase { name: "terminal-twice", package: "machine", test: "laws::law_9_every_run_of_the_machine_ends_once" },
    // A text delta is missing from the log.
    DefectCase {
        name: "delta-dropped",
        package: "machine",
        test: "laws::law_3_done_repeats_what_the_machine_streamed",
    },
    // A client that resumes by count gets the wrong rest of a long response.
    DefectCase {
        name: "merged-delta-counts-once",
        package: "protocol",
        test: "responses::scenario_frames::laws_4_and_5_hold_for_every_segment",
    },
    // Every delta costs more than it has to.
    DefectCase {
        name: "record-parsed-again",
        package: "bench",
        test: "delta_cost::a_delta_costs_a_bounded_number_of_allocations",
    },
    // The write-ahead log only grows.
    DefectCase {
        name: "log-never-copied",
        package: "store",
        test: "write_ahead_log::a_long_log_starts_again_while_the_writer_goes_on",
    },
    // Two executors believe that they have the thread.
    DefectCase {
        name: "release-outlives-claim",
        package: "store",
        test: "laws::sqlite::a_start_claims_only_a_released_thread",
    },
    // What is polled only when it was woken sleeps for ever.
    DefectCase {
        name: "wake-up-lost",
        package: "server",
        test: "resource_limits::a_connection_too_many_takes_the_place_of_an_idle_one_and_is_refused_if_there_is_none",
    },
    // One task that takes long holds all others.
    DefectCase {
        name: "workers-stay-in-reserve",
        package: "store",
        test: "runtime_ticks::a_task_that_holds_the_worker_does_not_hold_the_others",
    },
    // A record is neither in the database nor in the archive.
    DefectCase {
        name: "archive-skips-a-record",
        package: "store",
        test: "postgres::archive::reading::every_cursor_reads_the_same_records_as_before",
    },
];
