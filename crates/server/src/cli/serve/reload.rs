//! SIGHUP: reads the config again. Agents, tools, rules, prices, limits of runs and providers change for the runs that start
//! from then on; the others keep what they started with.

use super::super::config_args::ConfigArg;
use crate::app::App;
use crate::config::{self, Config, ConfigError, ConfigSource, Overrides};
use model::definition::Definitions;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient, StoreError};
use providers::ProviderRouter;
use std::sync::{Arc, PoisonError, RwLock};

/// The providers of the current config.
pub(super) struct CurrentProviders(RwLock<Arc<ProviderRouter>>);

impl CurrentProviders {
    pub(super) fn new(router: ProviderRouter) -> Self {
        Self(RwLock::new(Arc::new(router)))
    }

    fn router(&self) -> Arc<ProviderRouter> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Providers that the new config does not have stay for the runs that started with them.
    fn replace(&self, router: ProviderRouter) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(router.with_missing_from(&current));
    }
}

impl ModelClient for CurrentProviders {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        self.router().stream_turn(request)
    }

    fn takes_image_urls(&self, model: &str) -> bool {
        self.router().takes_image_urls(model)
    }
}

#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the definitions cannot be serialized: {0}")]
    Serialize(#[from] serde_json::Error),
    #[error("cannot store the definitions: {0}")]
    Store(#[from] StoreError),
    #[error("the server is stopping")]
    Stopping(#[from] tokio::task::JoinError),
}

pub(super) struct Reloader {
    pub(super) config: ConfigArg,
    pub(super) overrides: Overrides,
    /// The config that the server was started with.
    pub(super) started_with: ConfigSource,
    pub(super) providers: Arc<CurrentProviders>,
}

impl Reloader {
    /// Logs one line: what has changed, or why nothing has.
    pub(super) async fn reload(&self, app: &App) {
        let current = app.gateway.engine.ports().definitions.get();
        match self.load(app).await {
            Ok((source, new)) => {
                let changes = match config::describe_changes(&current, &new) {
                    empty if empty.is_empty() => "nothing".to_owned(),
                    changes => changes,
                };
                let restart_needed = config::keys_that_need_restart(&self.started_with, &source).join(", ");
                tracing::info!(config = source.origin, changes, restart_needed, "config reloaded");
            }
            Err(error) => tracing::error!(%error, "config not reloaded: the server keeps the old one"),
        }
    }

    async fn load(&self, app: &App) -> Result<(ConfigSource, Arc<Definitions>), ReloadError> {
        let (config, overrides) = (self.config.clone(), self.overrides.clone());
        let loading = tokio::task::spawn_blocking(move || {
            let source = config.find()?;
            let config = config::load_config(&source, overrides)?;
            Ok::<(ConfigSource, Config), ConfigError>((source, config))
        });
        let (source, config) = loading.await??;
        // Before a run can start with them: it may pause, and continue after a restart.
        let body = serde_json::to_string(&config.definitions)?;
        app.store.put_definitions(&config.definitions.digest, &body).await?;
        // Providers first: a run that starts in between has those of its definitions.
        self.providers.replace(config.models);
        let definitions = Arc::new(config.definitions);
        app.gateway.engine.ports().definitions.replace(Arc::clone(&definitions));
        Ok((source, definitions))
    }
}
