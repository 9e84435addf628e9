//! AG-UI: a run as typed events that front ends fold into messages, in two generations of the protocol.

mod request;

pub use request::{
    AgUiContext, AgUiLegacyAnswer, AgUiRequest, AgUiResume, AgUiResumeStatus, InvalidAgUiRequest, check_agui_id,
    parse_agui_request, parse_agui_stop, parse_tool_message_decision,
};

/// The generation of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgUiVersion {
    /// 1.0 and later minor versions.
    V1,
    /// 0.0.59, the last release before 1.0. Its clients do not name a version.
    V0_0_59,
}
