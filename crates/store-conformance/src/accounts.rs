//! The laws of [`model::ports::Accounts`] and [`model::ports::UsageLedger`].

use super::TestStore;
use super::fixtures::{LogWriter, nth_thread, other_user, test_user};
use model::limits::CostMicros;
use model::ports::{AccessKeyRow, AppendOutcome, Day, DirectoryChange, Journal, Spend};
use model::usage::Usage;

const TODAY: Day = Day(20_000);
const TOMORROW: Day = Day(20_001);

fn nth_spend(n: u64) -> Spend {
    let usage = Usage {
        input_tokens: n,
        cached_tokens: 2 * n,
        cache_write_tokens: 3 * n,
        output_tokens: 4 * n,
        reasoning_tokens: 5 * n,
    };
    Spend { usage, cost: CostMicros(6 * n) }
}

/// Spend is summed per user and day, and survives the deletion of its threads.
pub async fn spend_is_summed_by_user_and_day(journal: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other) = (test_user(), other_user());
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut second = LogWriter::new(journal, directory, 2).await;
    let mut theirs = LogWriter::for_owner(journal, directory, other.clone(), 3).await;
    assert_eq!(directory.daily_spend(&owner, TODAY).await, Ok(Spend::default()));

    author.start_run();
    for (day, n) in [(TODAY, 1), (TOMORROW, 10), (TODAY, 2)] {
        author.changes.push(DirectoryChange::AddSpend { day, spent: nth_spend(n) });
    }
    author.must_append().await;
    second.changes.push(DirectoryChange::AddSpend { day: TODAY, spent: nth_spend(100) });
    second.must_append().await;
    theirs.changes.push(DirectoryChange::AddSpend { day: TODAY, spent: nth_spend(7) });
    theirs.must_append().await;
    assert_eq!(directory.daily_spend(&owner, TODAY).await, Ok(nth_spend(103)));
    assert_eq!(directory.daily_spend(&owner, TOMORROW).await, Ok(nth_spend(10)));
    assert_eq!(directory.daily_spend(&other, TODAY).await, Ok(nth_spend(7)));
    assert_eq!(directory.daily_spend(&other, TOMORROW).await, Ok(Spend::default()));

    // A rejected batch adds no spend.
    author.changes.push(DirectoryChange::AddSpend { day: TODAY, spent: nth_spend(1_000) });
    author.changes.push(DirectoryChange::ConsumeInboxRow { row: 1_000_000 });
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.daily_spend(&owner, TODAY).await, Ok(nth_spend(103)), "nobody gets round a limit by deleting");
}

/// Sums saturate: absurd usage from a provider must not wrap the counter.
pub async fn a_sum_saturates(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let most = Spend {
        usage: Usage { input_tokens: u64::MAX, output_tokens: u64::MAX - 5, ..Usage::default() },
        cost: CostMicros(u64::MAX - 1),
    };
    for more in [most, nth_spend(1), nth_spend(1)] {
        author.changes.push(DirectoryChange::AddSpend { day: TODAY, spent: more });
        author.must_append().await;
    }
    let usage = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..nth_spend(2).usage };
    assert_eq!(directory.daily_spend(&test_user(), TODAY).await, Ok(Spend { usage, cost: CostMicros(u64::MAX) }));
}

/// 1, 2: ids are unique, and revocation is final.
pub async fn access_keys_can_be_added_and_revoked(_: &dyn Journal, directory: &dyn TestStore) {
    let key = |id: &str, created_at| AccessKeyRow {
        id: id.to_owned(),
        user: test_user(),
        digest: format!("digest of {id}"),
        created_at,
        revoked_at: None,
    };
    assert_eq!(directory.create_access_key(key("b", 1)).await, Ok(()));
    assert_eq!(directory.create_access_key(key("a", 2)).await, Ok(()));
    assert!(directory.create_access_key(key("a", 3)).await.is_err());
    assert_eq!(directory.revoke_access_key("b", 9).await, Ok(true));
    assert_eq!(directory.revoke_access_key("b", 10).await, Ok(true));
    assert_eq!(directory.revoke_access_key("c", 10).await, Ok(false));
    let revoked = AccessKeyRow { revoked_at: Some(9), ..key("b", 1) };
    assert_eq!(directory.access_keys().await, Ok(vec![revoked, key("a", 2)]));
}
