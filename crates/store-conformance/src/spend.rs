//! The directory's law on what is neither run nor question: sums, wake-ups, definitions.

use super::fixtures::{LogWriter, nth_thread, other_user, test_user};
use model::limits::CostMicros;
use model::ports::{AppendOutcome, Day, Directory, DirectoryChange, Journal, ScheduledWakeup, Spend};
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

/// A sum for every user and day, which outlives the threads that it was spent in.
pub async fn what_is_spent_adds_up_by_user_and_day(journal: &dyn Journal, directory: &dyn Directory) {
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

    // What is refused costs nothing.
    author.changes.push(DirectoryChange::AddSpend { day: TODAY, spent: nth_spend(1_000) });
    author.changes.push(DirectoryChange::ConsumeInboxRow { row: 1_000_000 });
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.daily_spend(&owner, TODAY).await, Ok(nth_spend(103)), "nobody gets round a limit by deleting");
}

/// Nonsense of a provider does not begin the count anew.
pub async fn a_sum_stays_at_its_bound(journal: &dyn Journal, directory: &dyn Directory) {
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

/// The newest word on when a thread is to be woken counts, until it is taken back or the thread is gone.
pub async fn a_thread_is_woken_at_the_newest_moment_that_was_said(journal: &dyn Journal, directory: &dyn Directory) {
    let mut one = LogWriter::new(journal, directory, 1).await;
    let mut two = LogWriter::new(journal, directory, 2).await;
    let mut theirs = LogWriter::for_owner(journal, directory, other_user(), 3).await;
    let row =
        |author: &LogWriter<'_>, at| ScheduledWakeup { owner: author.owner.clone(), thread: author.thread.clone(), at };
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![]));
    one.changes.push(DirectoryChange::ScheduleWakeup { at: Some(900) });
    one.must_append().await;
    for (author, at) in [(&mut one, 600), (&mut two, 500), (&mut theirs, 700)] {
        author.changes.push(DirectoryChange::ScheduleWakeup { at: Some(at) });
        author.must_append().await;
    }
    // Of all users, the soonest first.
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&two, 500), row(&one, 600), row(&theirs, 700)]));

    one.changes =
        vec![DirectoryChange::ScheduleWakeup { at: None }, DirectoryChange::ConsumeInboxRow { row: 1_000_000 }];
    assert!(matches!(one.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.scheduled_wakeups().await.unwrap().len(), 3);
    one.changes = vec![DirectoryChange::ScheduleWakeup { at: Some(1) }, DirectoryChange::ScheduleWakeup { at: None }];
    one.must_append().await;
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&two, 500), row(&theirs, 700)]));
    assert_eq!(directory.delete_thread(&two.owner, &two.thread).await, Ok(true));
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&theirs, 700)]));
    // A new thread of that name sleeps for nobody.
    let again = LogWriter::new(journal, directory, 2).await;
    assert_eq!(again.thread, two.thread);
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&theirs, 700)]));
}

/// Kept once, however often they are brought, and however long they are.
pub async fn definitions_are_kept_under_their_digest(_: &dyn Journal, directory: &dyn Directory) {
    assert_eq!(directory.definitions("abc").await, Ok(None));
    let long = "définition\0\n".repeat(500_000);
    for (digest, body) in [("abc", "{}"), ("def", &long), ("abc", "{}")] {
        assert_eq!(directory.put_definitions(digest, body).await, Ok(()));
    }
    assert_eq!(directory.definitions("abc").await, Ok(Some("{}".to_owned())));
    assert!(directory.definitions("def").await.unwrap().is_some_and(|found| found == long), "another text");
    assert_eq!(directory.definitions("ab").await, Ok(None));
}
