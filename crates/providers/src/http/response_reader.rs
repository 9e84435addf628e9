//! Reads the body of a response. Nothing is read ahead: the reader holds one chunk and decodes its events on demand. Its
//! buffers and its timer serve all events, so a delta costs no allocation here.

use super::client::HttpProviderInner;
use super::failure::FailureSource;
use super::secrets::TurnSecrets;
use super::settings::ResponseLimits;
use super::turn_timeouts::{ChunkTimer, PendingTimeout, TurnTimeouts};
use crate::cassette::CassetteWriter;
use bytes::{Buf as _, Bytes};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use model::model_turn::{ModelEvent, ModelFailure};
use sse::{DecodeError, Decoder, SseEvent};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use upstream::Ingest;

/// What a turn keeps from its request to its end.
#[derive(Default)]
pub(super) struct TurnContext {
    pub(super) secrets: TurnSecrets,
    pub(super) cassette: Option<CassetteWriter>,
}

pub(super) struct ResponseReader {
    body: UnsyncBoxBody<Bytes, hyper::Error>,
    bytes_max: u64,
    received_bytes: u64,
    /// Received and not yet decoded.
    chunk: Bytes,
    decoder: Decoder,
    event: SseEvent,
    ingest: Box<dyn Ingest>,
    /// The events of the last read.
    out: Vec<ModelEvent>,
    timer: ChunkTimer,
}

/// Why a response cannot be read any further.
enum ReadError {
    TimedOut(PendingTimeout),
    ConnectionLost(hyper::Error),
    TooManyBytes,
    TooLong(DecodeError),
}

impl ResponseReader {
    pub(super) fn new(
        body: UnsyncBoxBody<Bytes, hyper::Error>,
        limits: ResponseLimits,
        ingest: Box<dyn Ingest>,
        timeouts: TurnTimeouts,
    ) -> Self {
        Self {
            body,
            bytes_max: limits.response_bytes_max,
            received_bytes: 0,
            chunk: Bytes::new(),
            decoder: Decoder::new(limits.sse),
            event: SseEvent::default(),
            ingest,
            out: Vec::new(),
            timer: ChunkTimer::new(timeouts),
        }
    }

    /// Decodes one event, or receives one more chunk. Returns the terminal event once there is one; the deltas before it are
    /// in [`ResponseReader::take_deltas`].
    pub(super) fn poll_read(
        &mut self,
        shared: &HttpProviderInner,
        context: &mut TurnContext,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ModelEvent>, ModelFailure>> {
        let read = if self.chunk.is_empty() { ready!(self.poll_receive(cx)) } else { self.decode_next(context) };
        if let Err(error) = read {
            return Poll::Ready(Err(self.to_failure(&error, &FailureSource::from_inner(shared))));
        }
        let is_finished = self.out.last().is_some_and(|event| !matches!(event, ModelEvent::Delta(_)));
        if !is_finished {
            return Poll::Ready(Ok(None));
        }
        // Often the end of the body has already arrived; reading it lets the connection be reused.
        let _rest = Pin::new(&mut self.body).poll_frame(cx);
        Poll::Ready(Ok(self.out.pop()))
    }

    pub(super) fn take_deltas(&mut self) -> impl Iterator<Item = ModelEvent> {
        self.out.drain(..)
    }

    fn decode_next(&mut self, TurnContext { secrets, cassette }: &mut TurnContext) -> Result<(), ReadError> {
        let mut rest = self.chunk.as_ref();
        let is_decoded = self.decoder.decode_into(&mut rest, &mut self.event).map_err(ReadError::TooLong)?;
        let decoded_bytes = self.chunk.len() - rest.len();
        self.chunk.advance(decoded_bytes);
        if is_decoded {
            self.timer.on_event();
            secrets.redact_long_values(&mut self.event.data);
            if let Some(cassette) = cassette {
                cassette.write_event(&self.event);
            }
            self.ingest.on_event(&self.event, &mut self.out);
        }
        Ok(())
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        match ready!(self.poll_chunk(cx)) {
            Ok(Some(chunk)) => {
                self.received_bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                if self.received_bytes > self.bytes_max {
                    return Poll::Ready(Err(ReadError::TooManyBytes));
                }
                self.chunk = chunk;
            }
            Ok(None) => self.ingest.on_end(&mut self.out),
            Err(ReadError::ConnectionLost(error)) => {
                // Some services close the connection abruptly after a complete response.
                self.ingest.on_end(&mut self.out);
                if !matches!(self.out.last(), Some(ModelEvent::End(_))) {
                    self.out.clear();
                    return Poll::Ready(Err(ReadError::ConnectionLost(error)));
                }
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }

    /// The next chunk of the body; `None` at its end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        self.timer.check_total().map_err(ReadError::TimedOut)?;
        loop {
            let read = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => Ok(None),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => Ok(Some(chunk)),
                    Err(_trailers) => continue,
                },
                Poll::Ready(Some(Err(error))) => Err(ReadError::ConnectionLost(error)),
                Poll::Pending => Err(ReadError::TimedOut(ready!(self.timer.poll_timeout(cx)))),
            };
            self.timer.on_chunk();
            return Poll::Ready(read);
        }
    }

    fn to_failure(&self, error: &ReadError, source: &FailureSource<'_>) -> ModelFailure {
        match error {
            ReadError::TimedOut(timeout) => timeout.to_failure(source),
            ReadError::ConnectionLost(error) => source.connection_lost(error),
            ReadError::TooManyBytes => {
                let bytes_max = self.bytes_max;
                let what = format!("sent too much: its response exceeds response_bytes_max ({bytes_max} bytes)");
                source.protocol_error(&what)
            }
            ReadError::TooLong(error) => source.protocol_error(&format!("sent too much: {error}")),
        }
    }
}
