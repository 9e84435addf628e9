use model::testing::*;
use model::thread::Replay;
use std::collections::BTreeMap;
#[test]
fn smoke() {
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    let mut lens = vec![];
    for seed in seeds() {
        let (_t, log) = thread_log(seed, Options::default());
        lens.push(log.len());
        let mut replay = Replay::default();
        for r in &log {
            let before = replay.run.as_ref().map_or(0, |r| r.misfits) + replay.thread.misfits;
            *kinds.entry(r.kind().to_owned()).or_default() += 1;
            replay.push(r);
            let after = replay.run.as_ref().map_or(0, |r| r.misfits) + replay.thread.misfits;
            assert!(after == before, "seed {seed} record {} {}", r.seq, String::from_utf8_lossy(&r.public));
        }
        assert!(replay.run.is_none());
    }
    println!("{kinds:#?} {lens:?}");
}
