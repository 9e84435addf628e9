//! A viewer of one run in one protocol: cut at random, stalled by faults, and resumed from its cursor on another node.

use crate::context::{ChaosContext, is_retried};
use crate::history::{Frame, ViewEnd, ViewedStream};
use crate::http_client::{EventStream, StreamEvent, StreamReply, open_stream};
use crate::protocol::{AcknowledgedRun, Protocol};
use model_testing::Rng;
use std::sync::Arc;
use std::time::Duration;

const OPEN_TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) struct Viewer {
    context: Arc<ChaosContext>,
    run: AcknowledgedRun,
    rng: Rng,
    stream: ViewedStream,
    cursor: Option<String>,
}

/// Why a connection ended.
enum ConnectionEnd {
    Complete,
    Cut,
}

impl Viewer {
    pub(crate) fn new(context: &Arc<ChaosContext>, number: usize, protocol: Protocol, run: &AcknowledgedRun) -> Self {
        let stream = ViewedStream {
            viewer: number,
            protocol,
            task: run.task.clone(),
            frames: Vec::new(),
            end: ViewEnd::Left,
            connections: Vec::new(),
        };
        Self { context: Arc::clone(context), run: run.clone(), rng: context.rng(number), stream, cursor: None }
    }

    /// Goes on with a stream that the request which started the run has opened.
    pub(crate) async fn follow_started(mut self, node: usize, first: StreamEvent, stream: EventStream) {
        self.stream.connections.push(format!("{node}@0 (start)"));
        self.take_event(first);
        let end = self.read(stream).await;
        self.finish_or_resume(end).await;
    }

    /// Watches the run to its end; a few leave before.
    pub(crate) async fn follow(mut self) {
        let end = self.connect().await;
        self.finish_or_resume(end).await;
    }

    async fn finish_or_resume(mut self, mut end: Option<ConnectionEnd>) {
        loop {
            match end {
                Some(ConnectionEnd::Complete) => {
                    self.stream.end = ViewEnd::Complete;
                    break;
                }
                Some(ConnectionEnd::Cut) if self.rng.chance(3) => break,
                Some(ConnectionEnd::Cut) | None => {}
            }
            if self.context.is_past_deadline() {
                self.stream.end = ViewEnd::Unfinished("the run did not end in time for it".to_owned());
                break;
            }
            if !self.stream.protocol.has_cursors() && !self.stream.frames.is_empty() {
                // The stream begins anew: what was seen so far is a stream of its own.
                let again = ViewedStream { frames: Vec::new(), connections: Vec::new(), ..self.stream.clone() };
                self.context.history.lock().views.push(std::mem::replace(&mut self.stream, again));
            }
            let pause = self.rng.between(20, 400);
            tokio::time::sleep(Duration::from_millis(pause.into())).await;
            self.context.history.lock().reconnects += 1;
            end = self.connect().await;
        }
        let Self { context, stream, .. } = self;
        context.history.lock().views.push(stream);
    }

    /// Opens a stream on a random node and reads it. None if there was no stream.
    async fn connect(&mut self) -> Option<ConnectionEnd> {
        let context = Arc::clone(&self.context);
        let node = context.cluster.pick(&mut self.rng)?;
        let request = self.stream.protocol.request(&self.run, self.cursor.as_deref());
        match open_stream(&node.address, &request, OPEN_TIMEOUT).await {
            Ok(StreamReply::Open(stream)) => {
                self.stream.connections.push(format!("{}@{}", node.index, self.stream.frames.len()));
                self.read(stream).await
            }
            // There is nothing after the cursor.
            Ok(StreamReply::Refused(reply)) if reply.status == 204 => Some(ConnectionEnd::Complete),
            Ok(StreamReply::Refused(reply)) => {
                if !is_retried(reply.status) {
                    let (viewer, protocol) = (self.stream.viewer, self.stream.protocol.name());
                    context.history.add_problem(format!(
                        "viewer {viewer} ({protocol}) of {} was refused at cursor {:?} by node {}: {}",
                        self.run.task,
                        self.cursor,
                        node.index,
                        reply.describe()
                    ));
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                None
            }
            Err(_) => None,
        }
    }

    /// Reads until the end of the run, a random cut, or a silence.
    async fn read(&mut self, mut stream: EventStream) -> Option<ConnectionEnd> {
        let mut left = if self.rng.chance(60) { self.rng.between(1, 60) } else { u32::MAX };
        let silence_max = Duration::from_millis(self.rng.between(2_500, 6_000).into());
        while left > 0 {
            match tokio::time::timeout(silence_max, stream.next()).await {
                Ok(Ok(Some(event))) => {
                    if !self.stream.protocol.is_frame(&event) {
                        continue;
                    }
                    if self.take_event(event) {
                        return Some(ConnectionEnd::Complete);
                    }
                    left -= 1;
                }
                // The node stopped or lost its database, or the stream is silent, and the viewer tries elsewhere.
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        Some(ConnectionEnd::Cut)
    }

    /// True for the last event.
    fn take_event(&mut self, event: StreamEvent) -> bool {
        let is_last = self.stream.protocol.is_last(&self.run, &event);
        if let Some(cursor) = self.stream.protocol.cursor_after(&event) {
            self.cursor = Some(cursor);
        }
        let StreamEvent { id, name, data } = event;
        self.stream.frames.push(Frame { id, name, data });
        is_last
    }
}
