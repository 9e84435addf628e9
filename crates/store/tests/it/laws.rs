//! The conformance suite, on both backends.

use memory_store::MemoryStore;
use model_testing::test_seeds;
use store::{SqliteOptions, SqliteStore};
use store_conformance::random_walk::RandomWalk;

fn sqlite() -> (SqliteStore, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (SqliteStore::open(dir.path(), &SqliteOptions::default()).unwrap(), dir)
}

mod memory {
    store_conformance::conformance!((memory_store::MemoryStore::new(), ()));
}

mod sqlite {
    store_conformance::conformance!(super::sqlite());
}

const INBOX: usize = 5;
const STEPS: usize = 400;

#[tokio::test]
async fn memory_agrees_with_the_reference_store() {
    for seed in test_seeds() {
        let store = MemoryStore::new().with_inbox_rows_max(INBOX);
        let mut walk = RandomWalk::new(seed, INBOX);
        walk.run_steps(&store, &store, STEPS).await;
        assert!(
            walk.confirmed_records() > 100 && walk.effective_decisions() > 0,
            "seed {seed}: a walk that got nowhere"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_agrees_with_the_reference_store_across_restarts() {
    for seed in test_seeds().step_by(4) {
        let dir = tempfile::tempdir().unwrap();
        let options = SqliteOptions { inbox_rows_max: INBOX, ..SqliteOptions::default() };
        let mut walk = RandomWalk::new(seed, INBOX);
        for _ in 0..3 {
            let store = SqliteStore::open(dir.path(), &options).unwrap();
            walk.forget_leases();
            walk.check_all(&store, &store).await;
            walk.run_steps(&store, &store, STEPS / 2).await;
            assert_eq!(store.stats().failures, 0);
        }
        assert!(
            walk.confirmed_records() > 100 && walk.effective_decisions() > 0,
            "seed {seed}: a walk that got nowhere"
        );
    }
}
