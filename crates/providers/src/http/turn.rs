//! One turn, from the question to its one end. Nothing is read ahead: one piece of the answer is held, and events are
//! made of it one by one as they are asked for. Dropping the turn closes the connection.

use super::HttpProviderInner;
use super::failure::FailureSource;
use super::request::{self, PreparedRequest};
use super::secrets::TurnSecrets;
use super::turn_timeouts::TurnTimeouts;
use crate::cassette::{self, CassetteWriter, RecordedRequest};
use ::upstream::Ingest;
use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use model::error::ErrorCode;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use reqwest::Response;
use serde_json::json;
use sse::Decoder;
use std::collections::VecDeque;
use std::sync::Arc;

/// What makes a second question worth it.

/// One turn.
pub(super) struct HttpTurn {
    shared: Arc<HttpProviderInner>,
    request: ModelRequest,
    secrets: TurnSecrets,
    /// What came of the last event.
    pending_events: VecDeque<ModelEvent>,
    /// Where all of it is kept, if it is.
    cassette: Option<CassetteWriter>,
    stage: HttpTurnStage,
}

enum HttpTurnStage {
    Requesting,
    Reading(Box<ResponseReader>),
    Finished,
}

/// An answer that is being read.
struct ResponseReader {
    response: Response,
    received_bytes: u64,
    /// What was received and not yet decoded.
    chunk: Bytes,
    decoder: Decoder,
    ingest: Box<dyn Ingest>,
    timeouts: TurnTimeouts,
}

impl HttpTurn {
    pub(super) fn new(shared: Arc<HttpProviderInner>, request: ModelRequest) -> Self {
        Self {
            shared,
            request,
            secrets: TurnSecrets::default(),
            pending_events: VecDeque::new(),
            cassette: None,
            stage: HttpTurnStage::Requesting,
        }
    }

    /// The next event; the last one is the end.
    pub(super) async fn next(&mut self) -> Option<ModelEvent> {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return Some(event);
            }
            let step = match &self.stage {
                HttpTurnStage::Requesting => self.send_request().await,
                HttpTurnStage::Reading(_) => self.read_next().await,
                HttpTurnStage::Finished => return None,
            };
            if let Err(failure) = step {
                self.emit_event(ModelEvent::Failed(failure));
            }
        }
    }

    async fn send_request(&mut self) -> Result<(), ModelFailure> {
        let Self { shared, request, secrets, .. } = self;
        let place = FailureSource::from_inner(shared);
        let mut pace = TurnTimeouts::new(shared.settings.timeouts);
        let mut question = pace.timeout(&place, request::prepare_request(shared, request, secrets)).await??;
        self.cassette = shared.settings.cassette_dir.as_deref().map(|folder| {
            let mut body = question.body.clone();
            secrets.redact_json(&mut body);
            let said = secrets.redact(&cassette::last_user_text(&request.history));
            let kind = shared.settings.dialect.config_name();
            CassetteWriter::create(
                folder,
                request,
                RecordedRequest::new(kind, request, question.origin.clone(), said, body),
            )
        });
        let response = match request::send_request(shared, &question, &pace, secrets).await {
            Err(failure) if failure.error.has_code(ErrorCode::HistoryRefused) => {
                shared.refused_history.record_refusal(&request.thread, &question.origin, &request.history);
                let note = json!({"type": "headwater.history_resent", "reason": failure.error.message});
                self.pending_events.push_back(ModelEvent::Delta(ModelDelta::Unknown(note)));
                question.body = shared.settings.dialect.without_reasoning(question.body);
                pace.restart_first_byte();
                request::send_request(shared, &question, &pace, secrets).await?
            }
            other => other?,
        };
        let PreparedRequest { origin, .. } = question;
        self.stage = HttpTurnStage::Reading(Box::new(ResponseReader {
            response,
            received_bytes: 0,
            chunk: Bytes::new(),
            decoder: Decoder::new(shared.settings.limits.sse),
            ingest: shared.settings.dialect.new_ingest(origin, request),
            timeouts: pace,
        }));
        // It was said, with all its pictures, and an answer may take long.
        request.history = Arc::default();
        Ok(())
    }

    /// One event, or one more piece of the answer.
    async fn read_next(&mut self) -> Result<(), ModelFailure> {
        let HttpTurnStage::Reading(reading) = &mut self.stage else { return Ok(()) };
        let mut out = Vec::new();
        reading.decode_next(&self.shared, &self.secrets, self.cassette.as_mut(), &mut out).await?;
        let ended = out.iter().any(|event| !matches!(event, ModelEvent::Delta(_)));
        if ended {
            // The end of the body is often here already; then the connection can be used again.
            let _rest = reading.response.chunk().now_or_never();
        }
        for event in out {
            self.emit_event(event);
        }
        Ok(())
    }

    /// Hands an event over, without secrets. After the last one nothing is read any more.
    fn emit_event(&mut self, event: ModelEvent) {
        let event = match event {
            ModelEvent::Failed(failure) => {
                ModelEvent::Failed(FailureSource::from_inner(&self.shared).redact_and_annotate(failure, &self.secrets))
            }
            event => event,
        };
        match (&event, &mut self.cassette) {
            (ModelEvent::Failed(failure), Some(tape)) => tape.write_failure(failure),
            (ModelEvent::End(_), Some(tape)) => tape.write_end(),
            _ => {}
        }
        if !matches!(event, ModelEvent::Delta(_)) {
            self.stage = HttpTurnStage::Finished;
        }
        self.pending_events.push_back(event);
    }
}

impl ResponseReader {
    async fn decode_next(
        &mut self,
        shared: &HttpProviderInner,
        secrets: &TurnSecrets,
        tape: Option<&mut CassetteWriter>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFailure> {
        let place = FailureSource::from_inner(shared);
        if self.chunk.is_empty() {
            return self.receive_chunk(&place, shared.settings.limits.response_bytes_max, out).await;
        }
        let mut rest = self.chunk.as_ref();
        let event =
            self.decoder.decode(&mut rest).map_err(|error| place.protocol_error(&format!("sent too much: {error}")))?;
        let taken = self.chunk.len() - rest.len();
        self.chunk.advance(taken);
        if let Some(mut event) = event {
            self.timeouts.on_first_event();
            secrets.redact_long_values(&mut event.data);
            if let Some(tape) = tape {
                tape.write_event(&event);
            }
            self.ingest.on_event(&event, out);
        }
        Ok(())
    }

    async fn receive_chunk(
        &mut self,
        place: &FailureSource<'_>,
        most: u64,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFailure> {
        match self.timeouts.timeout(place, self.response.chunk()).await? {
            Ok(Some(piece)) => {
                self.received_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
                if self.received_bytes > most {
                    let what = format!("sent too much: its answer is longer than response_bytes_max ({most} bytes)");
                    return Err(place.protocol_error(&what));
                }
                self.chunk = piece;
            }
            Ok(None) => self.ingest.on_end(out),
            Err(error) => {
                // Some services just hang up when they have said everything; then their last words count.
                self.ingest.on_end(out);
                if !matches!(out.last(), Some(ModelEvent::End(_))) {
                    out.clear();
                    return Err(place.connection_lost(&error));
                }
            }
        }
        Ok(())
    }
}
