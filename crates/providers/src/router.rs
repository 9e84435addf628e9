//! The first half of `provider/model` says who is asked.
//!
//! The provider is handed the whole name: what the second half means is its own business. A name that nobody goes by
//! is a failed turn, not an error of the caller's: an agent may list several models, and the next may be there.

use crate::failed_turn::failed_turn;
use model::error::ErrorCode;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// All providers that there are, by name.
#[derive(Clone, Default)]
pub struct ProviderRouter {
    providers: BTreeMap<String, Arc<dyn ModelClient>>,
}

impl ProviderRouter {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider; one of the same name is replaced.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<String>, provider: Arc<dyn ModelClient>) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Who there is.
    pub fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }
}

impl ModelClient for ProviderRouter {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let name = request.model.split_once('/').map(|(provider, _)| provider);
        match name.and_then(|name| self.providers.get(name)) {
            Some(provider) => provider.stream_turn(request),
            None => failed_turn(ErrorCode::UnknownProvider, format!("no provider for the model `{}`", request.model)),
        }
    }
}

impl fmt::Debug for ProviderRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.provider_names()).finish()
    }
}
