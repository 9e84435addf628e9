//! One turn, from the question to its one end. Nothing is read ahead: one piece of the answer is held, and events are
//! made of it one by one as they are asked for. Dropping the turn closes the connection.

use super::Shared;
use super::ask::{self, Question};
use super::failure::Place;
use super::pace::Pace;
use super::secrets::Secrets;
use crate::cassette::{self, Asked, Tape};
use ::upstream::Ingest;
use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use reqwest::Response;
use serde_json::json;
use sse::Decoder;
use std::collections::VecDeque;
use std::sync::Arc;

/// What makes a second question worth it.
const HISTORY_REFUSED: &str = "history_refused";

/// One turn.
pub(super) struct Turn {
    shared: Arc<Shared>,
    request: ModelRequest,
    secrets: Secrets,
    /// What came of the last event.
    ready: VecDeque<ModelEvent>,
    /// Where all of it is kept, if it is.
    tape: Option<Tape>,
    stage: Stage,
}

enum Stage {
    Asking,
    Reading(Box<Reading>),
    Over,
}

/// An answer that is being read.
struct Reading {
    response: Response,
    received_bytes: u64,
    /// What was received and not yet decoded.
    piece: Bytes,
    decoder: Decoder,
    ingest: Box<dyn Ingest>,
    pace: Pace,
}

impl Turn {
    pub(super) fn new(shared: Arc<Shared>, request: ModelRequest) -> Self {
        Self { shared, request, secrets: Secrets::default(), ready: VecDeque::new(), tape: None, stage: Stage::Asking }
    }

    /// The next event; the last one is the end.
    pub(super) async fn next(&mut self) -> Option<ModelEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let step = match &self.stage {
                Stage::Asking => self.ask().await,
                Stage::Reading(_) => self.read().await,
                Stage::Over => return None,
            };
            if let Err(failure) = step {
                self.give(ModelEvent::Failed(failure));
            }
        }
    }

    async fn ask(&mut self) -> Result<(), ModelFailure> {
        let Self { shared, request, secrets, .. } = self;
        let place = Place::of(shared);
        let mut pace = Pace::new(shared.settings.timeouts);
        let mut question = pace.within(&place, ask::question(shared, request, secrets)).await??;
        self.tape = shared.settings.record.as_deref().map(|folder| {
            let mut body = question.body.clone();
            secrets.redact_json(&mut body);
            let said = secrets.redact(&cassette::said(&request.history));
            let kind = shared.settings.kind.name();
            Tape::begin(folder, request, Asked::new(kind, request, question.origin.clone(), said, body))
        });
        let response = match ask::send(shared, &question, &pace, secrets).await {
            Err(failure) if failure.error.code == HISTORY_REFUSED => {
                shared.refused.remember(&request.thread, &question.origin, &request.history);
                let note = json!({"type": "headwater.history_resent", "reason": failure.error.message});
                self.ready.push_back(ModelEvent::Delta(ModelDelta::Unknown(note)));
                question.body = shared.settings.kind.without_reasoning(question.body);
                pace.again();
                ask::send(shared, &question, &pace, secrets).await?
            }
            other => other?,
        };
        let Question { origin, .. } = question;
        self.stage = Stage::Reading(Box::new(Reading {
            response,
            received_bytes: 0,
            piece: Bytes::new(),
            decoder: Decoder::new(shared.settings.limits.events),
            ingest: shared.settings.kind.ingest(origin, request),
            pace,
        }));
        // It was said, with all its pictures, and an answer may take long.
        request.history = Arc::default();
        Ok(())
    }

    /// One event, or one more piece of the answer.
    async fn read(&mut self) -> Result<(), ModelFailure> {
        let Stage::Reading(reading) = &mut self.stage else { return Ok(()) };
        let mut out = Vec::new();
        reading.read(&self.shared, &self.secrets, self.tape.as_mut(), &mut out).await?;
        let ended = out.iter().any(|event| !matches!(event, ModelEvent::Delta(_)));
        if ended {
            // The end of the body is often here already; then the connection can be used again.
            let _rest = reading.response.chunk().now_or_never();
        }
        for event in out {
            self.give(event);
        }
        Ok(())
    }

    /// Hands an event over, without secrets. After the last one nothing is read any more.
    fn give(&mut self, event: ModelEvent) {
        let event = match event {
            ModelEvent::Failed(failure) => ModelEvent::Failed(Place::of(&self.shared).tell(failure, &self.secrets)),
            event => event,
        };
        match (&event, &mut self.tape) {
            (ModelEvent::Failed(failure), Some(tape)) => tape.failed(failure),
            (ModelEvent::End(_), Some(tape)) => tape.end(),
            _ => {}
        }
        if !matches!(event, ModelEvent::Delta(_)) {
            self.stage = Stage::Over;
        }
        self.ready.push_back(event);
    }
}

impl Reading {
    async fn read(
        &mut self,
        shared: &Shared,
        secrets: &Secrets,
        tape: Option<&mut Tape>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFailure> {
        let place = Place::of(shared);
        if self.piece.is_empty() {
            return self.receive(&place, shared.settings.limits.response_bytes_max, out).await;
        }
        let mut rest = self.piece.as_ref();
        let event =
            self.decoder.decode(&mut rest).map_err(|error| place.unreadable(&format!("sent too much: {error}")))?;
        let taken = self.piece.len() - rest.len();
        self.piece.advance(taken);
        if let Some(mut event) = event {
            self.pace.begun();
            secrets.redact_answer(&mut event.data);
            if let Some(tape) = tape {
                tape.event(&event);
            }
            self.ingest.event(&event, out);
        }
        Ok(())
    }

    async fn receive(&mut self, place: &Place<'_>, most: u64, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        match self.pace.within(place, self.response.chunk()).await? {
            Ok(Some(piece)) => {
                self.received_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
                if self.received_bytes > most {
                    let what = format!("sent too much: its answer is longer than response_bytes_max ({most} bytes)");
                    return Err(place.unreadable(&what));
                }
                self.piece = piece;
            }
            Ok(None) => self.ingest.end(out),
            Err(error) => {
                // Some services just hang up when they have said everything; then their last words count.
                self.ingest.end(out);
                if !matches!(out.last(), Some(ModelEvent::End(_))) {
                    out.clear();
                    return Err(place.broken(&error));
                }
            }
        }
        Ok(())
    }
}
