//! One turn, from the request to its terminal event. Nothing is read ahead: the turn holds one chunk of the response and
//! decodes its events on demand. Dropping the turn closes the connection.

use super::client::HttpProviderInner;
use super::failure::FailureSource;
use super::request::{self, PreparedRequest};
use super::secrets::TurnSecrets;
use super::turn_timeouts::TurnTimeouts;
use crate::cassette::{CassetteWriter, RecordedRequest};
use crate::user_text::last_user_message;
use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use reqwest::Response;
use serde_json::json;
use sse::Decoder;
use std::collections::VecDeque;
use std::sync::Arc;
use upstream::Ingest;

/// The error that is worth a second request.
const HISTORY_REFUSED: &str = "history_refused";

pub(super) struct HttpTurn {
    shared: Arc<HttpProviderInner>,
    request: ModelRequest,
    secrets: TurnSecrets,
    /// Decoded and not yet returned.
    pending_events: VecDeque<ModelEvent>,
    cassette: Option<CassetteWriter>,
    stage: HttpTurnStage,
}

enum HttpTurnStage {
    Requesting,
    Reading(Box<ResponseReader>),
    Finished,
}

struct ResponseReader {
    response: Response,
    received_bytes: u64,
    /// Received and not yet decoded.
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

    /// `None` after the terminal event.
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
        let source = FailureSource::from_inner(shared);
        let mut timeouts = TurnTimeouts::new(shared.settings.timeouts);
        let mut prepared = timeouts.timeout(&source, request::prepare_request(shared, request, secrets)).await??;
        self.cassette = shared.settings.cassette_dir.as_deref().map(|folder| {
            let mut body = prepared.body.clone();
            secrets.redact_json(&mut body);
            let user_text = secrets.redact(&last_user_message(&request.history).text);
            let kind = shared.settings.dialect.config_name();
            CassetteWriter::create(
                folder,
                request,
                RecordedRequest::new(kind, request, prepared.origin.clone(), user_text, body),
            )
        });
        let response = match request::send_request(shared, &prepared, &timeouts, secrets).await {
            Err(failure) if failure.error.code == HISTORY_REFUSED => {
                shared.refused_history.record_refusal(&request.thread, &prepared.origin, &request.history);
                let note = json!({"type": "headwater.history_resent", "reason": failure.error.message});
                self.pending_events.push_back(ModelEvent::Delta(ModelDelta::Unknown(note)));
                prepared.body = shared.settings.dialect.without_reasoning(prepared.body);
                timeouts.restart_first_byte();
                request::send_request(shared, &prepared, &timeouts, secrets).await?
            }
            other => other?,
        };
        let PreparedRequest { origin, .. } = prepared;
        self.stage = HttpTurnStage::Reading(Box::new(ResponseReader {
            response,
            received_bytes: 0,
            chunk: Bytes::new(),
            decoder: Decoder::new(shared.settings.limits.sse),
            ingest: shared.settings.dialect.new_ingest(origin, request),
            timeouts,
        }));
        // Free the history, images included: the response may take long.
        request.history = Arc::default();
        Ok(())
    }

    /// Decodes one event, or receives one more chunk.
    async fn read_next(&mut self) -> Result<(), ModelFailure> {
        let HttpTurnStage::Reading(reader) = &mut self.stage else { return Ok(()) };
        let mut out = Vec::new();
        reader.decode_next(&self.shared, &self.secrets, self.cassette.as_mut(), &mut out).await?;
        let is_finished = out.iter().any(|event| !matches!(event, ModelEvent::Delta(_)));
        if is_finished {
            // Often the end of the body has already arrived; reading it lets the connection be reused.
            let _rest = reader.response.chunk().now_or_never();
        }
        for event in out {
            self.emit_event(event);
        }
        Ok(())
    }

    /// Queues an event, without secrets. After the terminal event, nothing is read any more.
    fn emit_event(&mut self, event: ModelEvent) {
        let event = match event {
            ModelEvent::Failed(failure) => {
                ModelEvent::Failed(FailureSource::from_inner(&self.shared).redact_and_annotate(failure, &self.secrets))
            }
            event => event,
        };
        match (&event, &mut self.cassette) {
            (ModelEvent::Failed(failure), Some(cassette)) => cassette.write_failure(failure),
            (ModelEvent::End(_), Some(cassette)) => cassette.write_end(),
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
        cassette: Option<&mut CassetteWriter>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFailure> {
        let source = FailureSource::from_inner(shared);
        if self.chunk.is_empty() {
            return self.receive_chunk(&source, shared.settings.limits.response_bytes_max, out).await;
        }
        let mut rest = self.chunk.as_ref();
        let event = self
            .decoder
            .decode(&mut rest)
            .map_err(|error| source.protocol_error(&format!("sent too much: {error}")))?;
        let decoded_bytes = self.chunk.len() - rest.len();
        self.chunk.advance(decoded_bytes);
        if let Some(mut event) = event {
            self.timeouts.on_first_event();
            secrets.redact_long_values(&mut event.data);
            if let Some(cassette) = cassette {
                cassette.write_event(&event);
            }
            self.ingest.on_event(&event, out);
        }
        Ok(())
    }

    async fn receive_chunk(
        &mut self,
        source: &FailureSource<'_>,
        bytes_max: u64,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFailure> {
        match self.timeouts.timeout(source, self.response.chunk()).await? {
            Ok(Some(chunk)) => {
                self.received_bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                if self.received_bytes > bytes_max {
                    let what = format!("sent too much: its response exceeds response_bytes_max ({bytes_max} bytes)");
                    return Err(source.protocol_error(&what));
                }
                self.chunk = chunk;
            }
            Ok(None) => self.ingest.on_end(out),
            Err(error) => {
                // Some services close the connection abruptly after a complete response.
                self.ingest.on_end(out);
                if !matches!(out.last(), Some(ModelEvent::End(_))) {
                    out.clear();
                    return Err(source.connection_lost(&error));
                }
            }
        }
        Ok(())
    }
}
