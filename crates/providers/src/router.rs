//! Dispatches turns by the first half of `provider/model`.
//!
//! The provider gets the complete name and interprets the second half itself. An unknown provider is a failed turn, not an
//! error of the caller: an agent may list several models, and the next one may exist.

use crate::failed_turn::failed_turn;
use model::error::ErrorCode;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The configured providers, by name.
#[derive(Clone, Default)]
pub struct ProviderRouter {
    providers: BTreeMap<String, Arc<dyn ModelClient>>,
}

impl ProviderRouter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider, or replaces the one with this name.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<String>, provider: Arc<dyn ModelClient>) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Adds the providers of another router whose names are not taken.
    #[must_use]
    pub fn with_missing_from(mut self, other: &Self) -> Self {
        for (name, provider) in &other.providers {
            self.providers.entry(name.clone()).or_insert_with(|| Arc::clone(provider));
        }
        self
    }

    fn provider_of(&self, model: &str) -> Option<&Arc<dyn ModelClient>> {
        model.split_once('/').and_then(|(provider, _)| self.providers.get(provider))
    }

    /// The names of all providers, sorted.
    pub fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }
}

impl ModelClient for ProviderRouter {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        match self.provider_of(&request.model) {
            Some(provider) => provider.stream_turn(request),
            None => failed_turn(ErrorCode::UnknownProvider, format!("no provider for the model `{}`", request.model)),
        }
    }

    fn takes_image_urls(&self, model: &str) -> bool {
        self.provider_of(model).is_none_or(|provider| provider.takes_image_urls(model))
    }
}

impl fmt::Debug for ProviderRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.provider_names()).finish()
    }
}
