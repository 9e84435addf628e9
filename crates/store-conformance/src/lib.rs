//! The laws of the store's ports ([`model::ports::Journal`], [`model::ports::Directory`], [`model::ports::Accounts`]) as tests
//! that every backend runs.
//!
//! One module per trait, one public function per rule of its law; numbers in comments are those of the rules.
//! [`conformance!`](crate::conformance!) makes a test of each, on a new backend every time. [`restart`] has the rules
//! that need a restart, and [`random_walk`] compares a backend with a reference model. Functions panic on a violation.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "how a suite says that it found something"
)]

pub mod accounts;
pub mod append_load;
pub mod attachments;
pub mod blobs;
pub mod definitions;
pub mod fixtures;
pub mod inbox;
pub mod journal;
pub mod questions;
pub mod random_log;
pub mod random_walk;
mod reference_store;
pub mod restart;
pub mod shares;
pub mod threads;

use model::ports::{Accounts, Directory, DirectoryWriter};

/// The traits that a backend implements in addition to [`model::ports::Journal`].
pub trait TestStore: Directory + DirectoryWriter + Accounts {}

impl<T: Directory + DirectoryWriter + Accounts> TestStore for T {}

/// Generates a test per rule. Takes an expression for a pair: a new backend, and a guard that must outlive it.
///
/// ```ignore
/// mod memory {
///     store_conformance::conformance!((store::Memory::new(), ()));
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    ($make:expr) => {
        $crate::conformance! { @each $make;
            journal:
                append_gives_the_seqs_that_were_asked_for,
                append_at_another_head_changes_nothing,
                append_of_records_that_do_not_fit_changes_nothing,
                append_without_records_changes_the_directory_alone,
                records_and_directory_change_together_or_not_at_all,
                one_bad_batch_spoils_no_other,
                whoever_is_to_hear_a_verdict_hears_it_once_unasked,
                what_is_confirmed_can_be_read_at_once_and_never_goes_away,
                an_epoch_that_is_not_the_newest_is_fenced,
                every_claim_gives_a_newer_epoch_and_the_head,
                nobody_appends_without_a_claim,
                a_claim_is_granted_or_names_the_holder,
                a_page_has_no_gap_and_is_empty_only_at_the_head,
                a_page_keeps_to_its_limits_but_has_one_record,
                records_come_back_with_their_bytes,
                every_prefix_of_a_log_is_a_log,
                a_thread_of_another_owner_does_not_exist,
                many_threads_interleaved_stay_apart;
            inbox:
                a_start_makes_its_thread_its_run_and_a_row,
                who_makes_a_thread_has_claimed_it,
                a_thread_whose_only_run_was_given_up_is_empty,
                a_command_for_a_thread_that_is_not_there_is_refused,
                a_full_inbox_says_so,
                a_key_is_bound_to_one_body_and_one_run,
                a_key_used_many_times_at_once_makes_one_run,
                rows_come_out_in_order_until_they_are_consumed,
                a_run_changes_only_with_its_records,
                a_queued_run_can_be_given_up,
                a_run_may_begin_without_having_been_queued,
                what_belongs_to_another_owner_does_not_exist,
                listings_are_newest_first_and_places_stay_good,
                runs_are_found_by_state_and_thread,
                what_an_executor_should_take_up_is_claimable,
                the_newest_checkpoint_counts,
                a_thread_is_made_once_and_its_owner_is_told,
                a_thread_is_woken_at_the_newest_moment_that_was_said;
            questions:
                a_question_is_open_from_the_records_that_ask_it_until_an_answer,
                the_first_decision_counts,
                a_key_is_looked_at_before_the_question,
                fifty_opposite_decisions_at_once_have_one_winner,
                a_decision_of_a_question_that_is_not_there_is_refused,
                a_question_whose_time_is_up_cannot_be_decided,
                a_question_that_is_asked_again_is_open_again,
                records_have_the_last_word,
                a_decision_and_its_time_out_have_one_winner,
                questions_that_do_not_fit_change_nothing,
                the_same_decision_is_the_same_whatever_numbers_are_in_it,
                a_full_inbox_leaves_a_question_open,
                a_decision_takes_a_paused_thread_up,
                what_a_clients_tools_gave_is_one_row_written_without_a_look,
                questions_are_listed_newest_first,
                another_users_questions_do_not_exist;
            attachments:
                a_file_is_there_once_it_is_put_and_not_before,
                a_file_that_is_there_stays_as_it_was,
                what_was_expected_and_did_not_come_is_named_until_it_is_forgotten,
                a_users_files_never_hold_more_than_they_may,
                a_file_of_another_owner_does_not_exist;
            blobs:
                a_blob_is_there_from_the_moment_that_a_thread_uses_it,
                the_same_bytes_many_times_at_once_are_one_blob,
                blobs_count_as_other_files_do,
                a_blob_of_another_owner_does_not_exist,
                what_is_not_there_cannot_be_used,
                a_blob_has_a_hash_and_a_thread,
                a_deleted_thread_takes_along_what_it_alone_used,
                a_thread_that_never_came_can_let_go,
                a_thread_may_come_after_what_it_uses,
                a_released_blob_can_come_again,
                a_file_that_is_forgotten_is_used_by_nobody,
                what_is_used_is_there_however_threads_come_and_go;
            threads:
                deleting_a_thread_leaves_nothing,
                a_backend_lets_every_user_write,
                a_conversation_changes_only_from_the_row_that_was_read,
                a_name_stands_for_what_it_was_first_given_to,
                a_name_given_many_times_at_once_stands_for_one_thread,
                a_name_is_its_owners_and_its_protocols,
                a_note_can_change_and_a_name_can_be_freed,
                a_name_may_be_older_than_its_thread_and_goes_with_it;
            shares:
                a_share_is_of_a_thread_that_is_there,
                a_share_is_its_owners,
                a_share_that_is_over_is_not_open,
                a_share_goes_with_its_thread;
            accounts:
                keys_come_and_go,
                what_is_spent_adds_up_by_user_and_day,
                a_sum_stays_at_its_bound;
            definitions:
                definitions_are_kept_under_their_digest;
        }
    };
    (@each $make:expr; $($module:ident: $($law:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $law() {
                let (store, _kept) = $make;
                $crate::$module::$law(&store, &store).await;
            }
        )+)+
    };
}
