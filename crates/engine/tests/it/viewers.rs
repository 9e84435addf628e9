//! What a viewer holds while it waits, and what it does not wait for.

use crate::test_engine::{STORE_KINDS, TestEngine, line_view, record_line, record_lines, utf8_lossy};
use engine::{View, Viewer};
use model::cursor::Cursor;
use model::event::CancelMode;
use model::ports::{Frames, Projection};
use model::task::TaskStatus;
use model::{Record, Seq, TaskId};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const VIEWERS: usize = 50;

/// The lines of `line_view`, from a projector that folds the run as those of most protocols do. `folds` counts the
/// projectors that have folded something.
#[derive(Clone)]
struct FoldingLines {
    run: TaskId,
    folds: Weak<()>,
    fold: Option<Arc<()>>,
}

impl Projection for FoldingLines {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if record.run == self.run {
            self.fold = self.folds.upgrade();
            out.write(record.seq, |bytes| bytes.extend_from_slice(record_line(record).as_bytes()));
            if record.event().is_terminal() {
                out.finish();
            }
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// Reads until there is nothing more, as a connection does that waits for the next frames.
async fn read_until_idle(viewer: &mut Viewer) -> Vec<u8> {
    let mut seen = Vec::new();
    loop {
        let mut cx = Context::from_waker(Waker::noop());
        let bytes = match viewer.is_live() {
            true => match viewer.poll_live(&mut cx) {
                Poll::Pending => return seen,
                Poll::Ready(bytes) => bytes,
            },
            false => viewer.next().await.expect("readable").expect("the run goes on"),
        };
        seen.extend_from_slice(&bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_that_wait_share_one_projector() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run_of("silent", None, "hello").await;
        test_engine.wait_until(&run, |task| task.status == TaskStatus::Running).await;
        let folds = Arc::new(());
        let mut viewers = Vec::new();
        for _ in 0..VIEWERS {
            let projection = FoldingLines { run: run.task.clone(), folds: Arc::downgrade(&folds), fold: None };
            let view = View { projection: Box::new(projection), ..line_view(&run.task) };
            let viewer = test_engine.engine.watch(&test_engine.user, &run.thread, view, &Cursor::START).await;
            viewers.push((viewer.expect("the cursor fits"), Vec::new()));
        }
        for (viewer, seen) in &mut viewers {
            seen.extend(read_until_idle(viewer).await);
            assert!(!seen.is_empty(), "{kind:?}: it has read the beginning");
        }
        assert_eq!(Arc::strong_count(&folds) - 1, 1, "{kind:?}: only the lane has a fold");
        test_engine.cancel(&run.task, CancelMode::Immediate).await;
        test_engine.wait_settled(&run).await;
        let expected = record_lines(&test_engine.read_log(&run.thread).await);
        for (viewer, mut seen) in viewers {
            let mut viewer = viewer;
            while let Some(bytes) = viewer.next().await.expect("readable") {
                seen.extend_from_slice(&bytes);
            }
            assert_eq!(utf8_lossy(seen), expected, "{kind:?}");
        }
    }
}

/// A caller that folded the run in order to find the position of a client passes its projector to the viewer, which does not
/// fold the log again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_with_a_projector_reads_only_what_follows() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        let log = test_engine.read_log(&run.thread).await;
        let (before, rest) = log.split_at(log.len() / 2);
        let folds = Arc::new(());
        let lines = || FoldingLines { run: run.task.clone(), folds: Arc::downgrade(&folds), fold: None };
        let mut projector = lines();
        before.iter().for_each(|record| projector.project(record, &mut Frames::discarded()));
        let view = View { projection: Box::new(lines()), ..line_view(&run.task) };
        let start = before.last().expect("records").seq;
        let viewer = test_engine.engine.watch_from(&test_engine.user, &run.thread, view, start);
        let mut viewer = viewer.with_projector(Some(Box::new(projector)));
        test_engine.journal.take_records_read();
        let mut seen = Vec::new();
        while let Some(bytes) = viewer.next().await.expect("readable") {
            seen.extend_from_slice(&bytes);
        }
        assert_eq!(utf8_lossy(seen), record_lines(rest), "{kind:?}");
        assert_eq!(test_engine.journal.take_records_read(), rest.len(), "{kind:?}");
    }
}

/// A request reads the head of its thread and then starts a run there. If the thread is deleted and created again in between,
/// the head is that of another log, and what would follow it may never come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_beyond_the_end_of_the_log_is_interrupted() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run_of("silent", None, "hello").await;
        test_engine.wait_for_event(&run.thread, "task.step.started").await;
        let beyond = Seq(1_000);
        let mut viewer = test_engine.engine.watch_from(&test_engine.user, &run.thread, line_view(&run.task), beyond);
        let next = tokio::time::timeout(Duration::from_secs(30), viewer.next()).await;
        assert!(next.expect("it does not wait").expect("readable").is_none(), "{kind:?}");
        assert!(viewer.is_interrupted(), "{kind:?}: the client has to come back");
        test_engine.cancel(&run.task, CancelMode::Immediate).await;
        test_engine.wait_idle().await;
    }
}
