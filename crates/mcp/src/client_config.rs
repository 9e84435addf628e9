//! Who this client is, and what a server may ask of it.

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability, Implementation, ProtocolVersion,
};

/// A server may ask people to fill in forms, if at all, and for nothing else.
pub(crate) fn client_config(may_ask: bool) -> ClientConfig {
    let name = Implementation::new("headwater", env!("CARGO_PKG_VERSION"));
    let forms = ElicitationCapability::new().with_form(FormElicitationCapability::new());
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = may_ask.then_some(forms);
    ClientConfig::new(capabilities, name).with_protocol_version(ProtocolVersion::V_2025_11_25)
}
