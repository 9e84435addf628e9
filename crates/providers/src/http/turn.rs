//! One turn, from the request to its terminal event, as a stream. Dropping the turn closes the connection.
//!
//! Sending the request is one future; reading the response is a state machine, because a future per event would be an
//! allocation per event.

use super::client::HttpProviderInner;
use super::failure::FailureSource;
use super::request::{self, PreparedRequest};
use super::response_reader::{ResponseReader, TurnContext};
use super::turn_timeouts::TurnTimeouts;
use crate::cassette::{CassetteWriter, RecordedRequest};
use crate::user_text::last_user_message;
use futures_core::Stream;
use http_body_util::BodyExt as _;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use model::ports::BoxFuture;
use serde_json::json;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The error that is worth a second request.
const HISTORY_REFUSED: &str = "history_refused";

pub(super) struct HttpTurn {
    shared: Arc<HttpProviderInner>,
    context: TurnContext,
    /// Decoded and not yet returned.
    pending_events: VecDeque<ModelEvent>,
    stage: HttpTurnStage,
}

enum HttpTurnStage {
    Requesting(BoxFuture<'static, SentRequest>),
    Reading(Box<ResponseReader>),
    Finished,
}

/// A request with its outcome.
struct SentRequest {
    context: TurnContext,
    /// Reports that the history was sent a second time.
    note: Option<ModelEvent>,
    response: Result<Box<ResponseReader>, ModelFailure>,
}

impl HttpTurn {
    pub(super) fn new(shared: Arc<HttpProviderInner>, request: ModelRequest) -> Self {
        let sending = Box::pin(send_request(Arc::clone(&shared), request));
        Self {
            shared,
            context: TurnContext::default(),
            pending_events: VecDeque::new(),
            stage: HttpTurnStage::Requesting(sending),
        }
    }

    fn start_reading(&mut self, sent: SentRequest) {
        self.context = sent.context;
        self.pending_events.extend(sent.note);
        match sent.response {
            Ok(reader) => self.stage = HttpTurnStage::Reading(reader),
            Err(failure) => self.finish(ModelEvent::Failed(failure)),
        }
    }

    /// Queues the terminal event, without secrets. Nothing is read any more.
    fn finish(&mut self, event: ModelEvent) {
        self.stage = HttpTurnStage::Finished;
        let event = match event {
            ModelEvent::Failed(failure) => {
                let source = FailureSource::from_inner(&self.shared);
                ModelEvent::Failed(source.redact_and_annotate(failure, &self.context.secrets))
            }
            event => event,
        };
        match (&event, &mut self.context.cassette) {
            (ModelEvent::Failed(failure), Some(cassette)) => cassette.write_failure(failure),
            (ModelEvent::End(_), Some(cassette)) => cassette.write_end(),
            _ => {}
        }
        self.pending_events.push_back(event);
    }
}

/// `None` after the terminal event.
impl Stream for HttpTurn {
    type Item = ModelEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        let turn = self.get_mut();
        loop {
            if let Some(event) = turn.pending_events.pop_front() {
                return Poll::Ready(Some(event));
            }
            match &mut turn.stage {
                HttpTurnStage::Requesting(sending) => {
                    let sent = ready!(sending.as_mut().poll(cx));
                    turn.start_reading(sent);
                }
                HttpTurnStage::Reading(reader) => {
                    let read = ready!(reader.poll_read(&turn.shared, &mut turn.context, cx));
                    let read = read.map_err(ModelEvent::Failed);
                    turn.pending_events.extend(reader.take_deltas());
                    if let Some(last) = read.unwrap_or_else(Some) {
                        turn.finish(last);
                    }
                }
                HttpTurnStage::Finished => return Poll::Ready(None),
            }
        }
    }
}

async fn send_request(shared: Arc<HttpProviderInner>, mut request: ModelRequest) -> SentRequest {
    let (mut context, mut note) = (TurnContext::default(), None);
    let response = open_response(&shared, &mut request, &mut context, &mut note).await;
    // The history, images included, is freed here: the response may take long.
    SentRequest { context, note, response }
}

async fn open_response(
    shared: &HttpProviderInner,
    request: &mut ModelRequest,
    context: &mut TurnContext,
    note: &mut Option<ModelEvent>,
) -> Result<Box<ResponseReader>, ModelFailure> {
    let TurnContext { secrets, cassette } = context;
    let source = FailureSource::from_inner(shared);
    let mut timeouts = TurnTimeouts::new(shared.settings.timeouts);
    let mut prepared = timeouts.timeout(&source, request::prepare_request(shared, request, secrets)).await??;
    *cassette = shared.settings.cassette_dir.as_deref().map(|folder| {
        let target = request::request_target(request, &prepared.origin);
        let mut body = shared.settings.dialect.build_request(request, &target);
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
            let resent = json!({"type": "headwater.history_resent", "reason": failure.error.message});
            *note = Some(ModelEvent::Delta(ModelDelta::Unknown(resent)));
            let target = request::request_target(request, &prepared.origin);
            prepared.body = shared.settings.dialect.write_without_reasoning(request, &target).into();
            timeouts.restart_first_byte();
            request::send_request(shared, &prepared, &timeouts, secrets).await?
        }
        other => other?,
    };
    let PreparedRequest { origin, .. } = prepared;
    let ingest = shared.settings.dialect.new_ingest(origin, request);
    let body = response.into_body().boxed_unsync();
    Ok(Box::new(ResponseReader::new(body, shared.settings.limits, ingest, timeouts)))
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
