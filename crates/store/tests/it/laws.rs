//! The ports' law, on both backends.

use model_testing::seeds;
use store::{Memory, Options, Sqlite};
use store_conformance::random::Walk;

fn sqlite() -> (Sqlite, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Sqlite::open(dir.path(), &Options::default()).unwrap(), dir)
}

mod memory {
    store_conformance::conformance!((store::Memory::new(), ()));
}

mod sqlite {
    store_conformance::conformance!(super::sqlite());
}

const INBOX: usize = 5;
const STEPS: usize = 400;

#[tokio::test]
async fn memory_is_what_the_model_says() {
    for seed in seeds() {
        let store = Memory::new().with_inboxes_of(INBOX);
        let mut walk = Walk::new(seed, INBOX);
        walk.go(&store, &store, STEPS).await;
        assert!(walk.records() > 100 && walk.decisions() > 0, "seed {seed}: a walk that got nowhere");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_is_what_the_model_says_also_across_restarts() {
    for seed in seeds().step_by(4) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { inbox_rows_max: INBOX, ..Options::default() };
        let mut walk = Walk::new(seed, INBOX);
        for _ in 0..3 {
            let store = Sqlite::open(dir.path(), &options).unwrap();
            walk.restarted();
            walk.look_everywhere(&store, &store).await;
            walk.go(&store, &store, STEPS / 2).await;
            assert_eq!(store.stats().failures, 0);
        }
        assert!(walk.records() > 100 && walk.decisions() > 0, "seed {seed}: a walk that got nowhere");
    }
}
