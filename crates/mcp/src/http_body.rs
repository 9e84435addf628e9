//! Reads the body of a response within bounds: one JSON text, or a stream of events.

use crate::limits::{ERROR_BODY_BYTES_MAX, LINE_BYTES_MAX};
use crate::message_rate::MessageRate;
use bytes::{Buf as _, Bytes};
use model::error::{ErrorCode, ErrorInfo};
use sse::{DecodeLimits, Decoder};
use tokio::time::Instant;
use tools::EndpointResponse;

/// What is wrong with a body. The texts follow the name of the server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("sent a message of more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("sent too many messages")]
    Flood,
    #[error("broke off its answer")]
    CutOff,
}

impl BodyError {
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong => ErrorCode::McpProtocolError,
            Self::Flood => ErrorCode::McpFlood,
            Self::CutOff => ErrorCode::McpUnavailable,
        }
    }
}

/// A whole body.
pub(crate) async fn read_json(response: &mut EndpointResponse) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_: ErrorInfo| BodyError::CutOff)? {
        if body.len() + chunk.len() > LINE_BYTES_MAX {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The beginning of a body that explains an error.
pub(crate) async fn read_error_body(response: &mut EndpointResponse) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(ERROR_BODY_BYTES_MAX);
    body
}

/// The events of one response. Each has its own allowance, so that a server that floods one call ends that call alone.
pub(crate) struct EventReader {
    response: EndpointResponse,
    decoder: Decoder,
    rest: Bytes,
    rate: MessageRate,
}

impl EventReader {
    pub(crate) fn new(response: EndpointResponse) -> Self {
        let limits = DecodeLimits { line_bytes_max: LINE_BYTES_MAX, event_bytes_max: LINE_BYTES_MAX };
        let (decoder, rate) = (Decoder::new(limits), MessageRate::new(Instant::now()));
        Self { response, decoder, rest: Bytes::new(), rate }
    }

    /// The data of the next event; `None` at the end of the stream. A read that is cancelled loses nothing.
    pub(crate) async fn next_data(&mut self) -> Result<Option<String>, BodyError> {
        loop {
            let mut input = self.rest.chunk();
            let event = self.decoder.decode(&mut input).map_err(|_| BodyError::TooLong)?;
            let consumed = self.rest.len() - input.len();
            self.rest.advance(consumed);
            if let Some(event) = event {
                self.rate.count_line(0, Instant::now()).map_err(|_| BodyError::Flood)?;
                return Ok(Some(event.data));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.rate.count_bytes(chunk.len(), Instant::now()).map_err(|_| BodyError::Flood)?;
                    self.rest = chunk;
                }
                // Whether a stream ended or was cut off makes no difference: it is resumed where that is possible.
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }

    /// The id after which the stream can be resumed.
    pub(crate) fn last_event_id(&self) -> Option<&str> {
        self.decoder.last_event_id()
    }

    pub(crate) fn retry_ms(&self) -> Option<u64> {
        self.decoder.retry_ms()
    }
}
