//! Why the server closes a socket.

use super::connection::WsError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

pub(super) struct CloseReason {
    pub(super) code: CloseCode,
    pub(super) reason: &'static str,
}

impl CloseReason {
    pub(super) const NORMAL: Self = Self { code: CloseCode::Normal, reason: "" };
    pub(super) const GOING_AWAY: Self = Self { code: CloseCode::Away, reason: "the server is stopping" };
    pub(super) const EXPIRED: Self = Self { code: CloseCode::Away, reason: "the socket is too old: reconnect" };
    pub(super) const RESTARTING: Self =
        Self { code: CloseCode::Restart, reason: "the server is stopping: reconnect and resume" };
    pub(super) const INTERRUPTED: Self = Self { code: CloseCode::Error, reason: "the response was interrupted" };
    pub(super) const REVOKED: Self =
        Self { code: CloseCode::Library(4401), reason: "the key or the share was revoked" };
    pub(super) const PING_TIMEOUT: Self = Self { code: CloseCode::Library(4408), reason: "pings were not answered" };
    const SLOW_READER: Self = Self { code: CloseCode::Library(4408), reason: "too slow: reconnect and resume" };
    const SLOW_SENDER: Self = Self { code: CloseCode::Library(4408), reason: "a message did not arrive in time" };

    /// The reason for an error of the connection; `None` if nobody is left to be told.
    pub(super) fn of_error(error: &WsError) -> Option<Self> {
        match error {
            WsError::Disconnected => None,
            WsError::WriteTimeout => Some(Self::SLOW_READER),
            WsError::ReadTimeout => Some(Self::SLOW_SENDER),
            WsError::ProtocolViolation(code) => Some(Self { code: *code, reason: "" }),
        }
    }
}
