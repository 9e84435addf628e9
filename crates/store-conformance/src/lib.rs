//! The laws of the store's ports ([`model::ports::Journal`], [`model::ports::Directory`], [`model::ports::Accounts`],
//! [`model::ports::UserSecrets`], [`model::ports::McpPins`]) as tests
//! that every backend runs.
//!
//! One module per trait, one public function per rule of its law; numbers in comments are those of the rules.
//! [`conformance!`](crate::conformance!) makes a test of each, on a new backend every time. [`restart`] has the rules
//! that need a restart, [`space`] those of a full disk, and [`random_walk`] compares a backend with a reference model. Functions panic on a violation.

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
pub mod condensed;
pub mod definitions;
pub mod fixtures;
pub mod inbox;
pub mod journal;
pub mod log_quota;
pub mod mcp_pins;
pub mod questions;
pub mod random_log;
pub mod random_walk;
mod reference_store;
pub mod restart;
pub mod retention;
pub mod shares;
pub mod space;
pub mod threads;
pub mod user_secrets;

use model::ports::{Accounts, Directory, DirectoryWriter, McpPins, UserSecrets};

/// The traits that a backend implements in addition to [`model::ports::Journal`].
pub trait TestStore: Directory + DirectoryWriter + Accounts + UserSecrets + McpPins {}

impl<T: Directory + DirectoryWriter + Accounts + UserSecrets + McpPins> TestStore for T {}

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
                append_stores_the_given_sequence_numbers,
                append_at_another_head_changes_nothing,
                append_of_invalid_records_changes_nothing,
                append_without_records_changes_the_directory_alone,
                records_and_directory_change_together_or_not_at_all,
                a_refused_batch_affects_no_other,
                a_commit_callback_is_called_once,
                acknowledged_records_are_readable_at_once_and_stay,
                an_old_epoch_is_fenced,
                every_claim_gives_a_newer_epoch_and_the_head,
                an_append_without_a_claim_is_refused,
                a_claim_is_granted_or_names_the_holder,
                a_page_has_no_gap_and_is_empty_only_at_the_head,
                a_page_keeps_its_limits_but_has_at_least_one_record,
                records_are_returned_byte_for_byte,
                every_prefix_of_a_log_is_a_log,
                a_thread_of_another_owner_does_not_exist,
                interleaved_threads_stay_separate;
            condensed:
                a_condensed_page_stands_for_its_records,
                a_condensed_page_of_another_owner_does_not_exist;
            inbox:
                a_start_creates_its_thread_its_run_and_an_inbox_row,
                creating_a_thread_claims_it,
                a_start_claims_only_a_released_thread,
                a_thread_whose_only_run_was_cancelled_is_empty,
                a_command_for_a_missing_thread_is_refused,
                a_full_inbox_refuses_commands,
                a_key_is_bound_to_one_body_and_one_run,
                concurrent_starts_with_one_key_make_one_run,
                inbox_rows_are_ordered_until_consumed,
                a_run_changes_only_with_its_records,
                a_queued_run_can_be_cancelled,
                a_run_may_start_without_having_been_queued,
                what_belongs_to_another_owner_does_not_exist,
                listings_are_newest_first_and_cursors_stay_valid,
                unlisted_threads_are_in_no_listing,
                runs_are_found_by_state_and_thread,
                threads_with_work_are_claimable,
                the_newest_checkpoint_counts,
                a_checkpoint_gathers_runs,
                an_inbox_is_read_page_by_page,
                a_thread_is_created_once_and_its_owner_is_returned,
                the_latest_wake_up_time_of_a_thread_counts;
            questions:
                an_approval_is_pending_from_its_record_until_an_answer,
                the_first_decision_counts,
                the_idempotency_key_is_checked_before_the_approval,
                fifty_opposite_decisions_at_once_have_one_winner,
                a_decision_of_a_missing_approval_is_refused,
                an_expired_approval_cannot_be_decided,
                an_approval_requested_again_is_pending_again,
                records_override_stored_decisions,
                a_decision_and_its_time_out_have_one_winner,
                invalid_approvals_change_nothing,
                decisions_with_equal_numbers_are_equal,
                a_full_inbox_leaves_an_approval_pending,
                a_decision_makes_a_paused_thread_claimable,
                the_first_result_of_a_client_call_counts,
                twenty_results_of_one_call_have_one_winner,
                a_waiting_cancel_closes_the_questions_of_its_tasks,
                approvals_are_listed_newest_first,
                approvals_of_another_user_do_not_exist;
            attachments:
                a_file_exists_once_it_is_put_and_not_before,
                an_existing_file_is_not_overwritten,
                expected_files_are_listed_until_they_are_forgotten,
                a_users_files_stay_within_the_quota,
                a_file_of_another_owner_does_not_exist;
            blobs:
                a_blob_exists_from_its_first_use,
                concurrent_puts_of_the_same_bytes_make_one_blob,
                blobs_count_towards_the_quota,
                a_blob_of_another_owner_does_not_exist,
                a_missing_blob_cannot_be_used,
                a_blob_has_a_hash_and_a_thread,
                deleting_a_thread_releases_the_blobs_that_only_it_used,
                blobs_of_a_thread_that_was_never_created_can_be_released,
                a_blob_may_be_used_before_its_thread_exists,
                a_released_blob_can_be_stored_again,
                a_forgotten_file_has_no_users,
                used_blobs_exist_under_random_thread_changes;
            threads:
                deleting_a_thread_removes_all_of_its_rows,
                a_backend_accepts_writes_of_every_user,
                a_conversation_changes_only_from_the_row_that_was_read,
                an_alias_keeps_its_first_target,
                concurrent_creations_of_an_alias_have_one_winner,
                an_alias_is_scoped_to_owner_and_protocol,
                conversation_data_can_change_and_an_alias_can_be_deleted,
                an_alias_may_precede_its_thread_and_is_deleted_with_it;
            shares:
                a_share_needs_an_existing_thread,
                a_share_belongs_to_its_owner,
                an_expired_or_revoked_share_is_not_open,
                a_share_is_deleted_with_its_thread;
            accounts:
                access_keys_can_be_added_and_revoked,
                spend_is_summed_by_user_and_day,
                a_sum_saturates;
            definitions:
                definitions_are_kept_under_their_digest;
            retention:
                only_threads_without_work_are_idle,
                a_thread_that_is_used_again_is_not_deleted,
                only_files_that_no_thread_uses_are_unused,
                the_retention_time_is_kept;
            mcp_pins:
                the_first_pin_of_a_tool_stays,
                a_pin_is_replaced,
                pins_are_bounded;
            user_secrets:
                a_secret_belongs_to_its_owner_kind_and_name,
                a_secret_is_replaced_by_those_who_read_the_newest,
                a_claim_is_granted_to_one_caller,
                a_secret_is_taken_once,
                an_expired_secret_does_not_exist,
                the_oldest_secrets_make_room,
                the_secrets_of_an_owner_are_deleted_together;
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
