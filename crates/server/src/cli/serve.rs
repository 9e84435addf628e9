//! `headwater serve`: opens the settings, then the port, then the data folder, so that an error leaves as little behind as
//! possible.

mod reload;

use super::config_args::{ConfigArg, DatabaseArg, announce_config};
use super::{print_line, read_pdf, tool_guardian};
use crate::abandoned_tasks::AbandonedTasks;
use crate::api_keys::ApiKeys;
use crate::app::{App, AppInner};
use crate::auth::Authenticator;
use crate::config::{self, AuthMode, Config, Overrides};
use crate::control_socket::ControlSocket;
use crate::credential_sync::CredentialSync;
use crate::credentials_key;
use crate::listen;
use crate::origin_policy::OriginPolicy;
use crate::router::router;
use crate::storage::Storage;
use crate::storage_backend::StorageBackend;
use crate::tickets::{TicketTable, Tickets};
use anyhow::Context as _;
use clap::Args;
use engine::SystemClock;
use fetch::{OwnAddress, UrlRules};
use gateway::attachments::AttachmentSettings;
use gateway::descriptors::raise_descriptor_limit;
use gateway::documents::WebDocumentSettings;
use gateway::request_limits::RequestLimits;
use gateway::retention::run_retention;
use gateway::stream_limiter::StreamLimiter;
use gateway::{Gateway, GatewayParts};
use mcp::{AuthorizationParts, McpAuthorizations, McpLimits, McpTools, SealingKey};
use metrics_exporter_prometheus::PrometheusBuilder;
use model::definition::Definitions;
use model::ports::{Accounts, Directory, StorageSpace, StoreError};
use reload::{CurrentProviders, Reloader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tools::Toolbox;

/// The part of the grace that is left for connections and the store once the runs have stopped.
const CLOSING_SHARE: u32 = 5;
/// How long connections may take to close once their streams have ended.
const CONNECTIONS_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long connections and the store may take at least, however short the grace is.
const CLOSE_TIMEOUT_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Where to listen [default: 127.0.0.1:8787]. Port 0 takes a free one.
    #[arg(long, env = "HEADWATER_LISTEN")]
    listen: Option<String>,
    /// The data folder [default: headwater-data].
    #[arg(long, env = "HEADWATER_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArg,
    /// Keep every exchange with a provider as a cassette in this folder, without secrets.
    #[arg(long, env = "HEADWATER_RECORD")]
    record: Option<PathBuf>,
}

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let environment: Option<fn(&str) -> _> = Some(config::read_env);
    let overrides = Overrides {
        listen: args.listen,
        data_dir: args.data_dir,
        database_url: args.database.database_url,
        record_dir: args.record,
        env: environment,
    };
    let source = args.config.find()?;
    let mut config = config::load_config(&source, overrides.clone())?;
    config.http_limits.fit_connections(raise_descriptor_limit());
    let listener = listen::bind_listener(config.listen).with_context(|| listen_error_context(config.listen))?;
    let address = listener.local_addr().context("no local address")?;
    let mut signals = Signals::new().context("no signals")?;
    let storage = Storage::open(&config).await?;
    let store = Arc::clone(&storage.store);
    let mark = tool_guardian::new_mark(&config.data_dir);
    config.tools = Arc::new(Toolbox::clone(&config.tools).with_process_mark(mark.clone()));
    tool_guardian::take_over_programs(&mark).await;
    let (data_dir, grace) = (config.data_dir.clone(), config.shutdown_grace);
    let (limits, retention) = (config.http_limits.clone(), config.retention);
    let providers = Arc::new(CurrentProviders::new(std::mem::take(&mut config.models)));
    let app = build_app(config, Arc::clone(&providers), address, &storage).await?;
    let control_socket = spawn_control_socket(&app, &data_dir);
    let unfinished = app.gateway.engine.recover().await.context("cannot read the unfinished threads")?;
    if unfinished > 0 {
        tracing::info!(threads = unfinished, "resuming unfinished threads");
    }
    let retention = tokio::spawn(run_retention(app.gateway.clone(), retention));
    let (closing, closed) = watch::channel(false);
    let serving = tokio::spawn(listen::serve_connections(listener, router(&app), limits, closed));
    announce_config(&source);
    // Scripts and tests wait for exactly this line.
    print_line(format_args!("headwater listening on http://{address}"));
    let reloader = Reloader { config: args.config, overrides, started_with: source, providers };
    while signals.next().await == ServerSignal::Reload {
        reloader.reload(&app).await;
    }
    tracing::info!(grace_ms = grace.as_millis(), "stopping; a second signal stops at once");
    // Requests are still answered, with 503 if they would start something: a load balancer learns it from `/readyz`, and nobody
    // from a connection that breaks.
    app.start_shutdown();
    retention.abort();
    let deadline = Instant::now() + grace;
    let remaining = || deadline.saturating_duration_since(Instant::now()).max(CLOSE_TIMEOUT_MIN);
    tokio::select! {
        () = app.gateway.engine.stop(grace - grace / CLOSING_SHARE) => {}
        () = signals.next_stop() => app.gateway.engine.stop(Duration::ZERO).await,
    }
    closing.send_replace(true);
    // Every stream has ended. Connections that are still open have a client that does not read, or an unfinished request.
    if tokio::time::timeout(CONNECTIONS_CLOSE_TIMEOUT.min(remaining() / 2), serving).await.is_err() {
        tracing::debug!("some connections were cut");
    }
    if let Some(task) = control_socket {
        task.abort();
        let _aborted = task.await;
    }
    if tokio::time::timeout(remaining(), store.close()).await.is_err() {
        tracing::warn!("the store did not close in time; nothing is lost");
    }
    Ok(ExitCode::SUCCESS)
}

fn listen_error_context(address: SocketAddr) -> String {
    format!(
        "cannot listen on {address}; if another process uses the port, stop it or choose another port with --listen (port \
         0 takes a free one)"
    )
}

async fn build_app(
    config: Config,
    providers: Arc<CurrentProviders>,
    address: SocketAddr,
    storage: &Storage,
) -> anyhow::Result<App> {
    let metrics = PrometheusBuilder::new().install_recorder().context("no metrics")?;
    let store = Arc::clone(&storage.store);
    let directory: Arc<dyn Directory> = Arc::clone(&store) as Arc<dyn Directory>;
    let auth = match config.auth {
        AuthMode::None => Authenticator::Disabled,
        AuthMode::Keys => Authenticator::Keys(Arc::new(ApiKeys::load(&*store).await.context("cannot read the keys")?)),
    };
    // Before anything runs: a run that pauses today may resume under another config.
    put_definitions(&store, &config.definitions).await?;
    let rules = UrlRules {
        ports: config.fetch.ports.clone(),
        own_addresses: own_addresses(address, &config.hosts, config.public_url.as_deref()),
        private_addresses: config.fetch.private_networks.clone(),
    };
    // Deadlines of tools are times of the storage's clock.
    let toolbox = Toolbox::clone(&config.tools).with_clock(Arc::clone(&storage.clock));
    let mcp_authorizations = open_authorizations(&config, storage, &rules).await?;
    let tools = McpTools::new(toolbox.clone(), McpLimits::default())
        .with_tokens(Arc::new(mcp_authorizations.clone()))
        .with_pins(Arc::clone(&store) as _);
    let tools = Arc::new(tools);
    let gateway = Gateway::open(GatewayParts {
        journal: Arc::clone(&store) as _,
        directory,
        models: providers,
        tools: Arc::clone(&tools) as _,
        hooks: Arc::new(toolbox),
        resolver: tools,
        clock: Arc::clone(&storage.clock),
        cluster: Arc::clone(&storage.cluster),
        recovery_attempts: Arc::clone(&storage.recovery_attempts),
        definitions: config.definitions,
        node: storage.node.clone(),
        url_signer: storage.url_signer.clone(),
        data_dir: config.data_dir,
        attachments: AttachmentSettings { is_foreign_folder: storage.has_foreign_files, ..config.files },
        documents: WebDocumentSettings {
            rules,
            limits: config.fetch.limits,
            text_bytes_max: config.fetch.text_bytes_max,
            concurrent_max: config.fetch.concurrent_max,
        },
        pdf_process: read_pdf::pdf_process().context("this program cannot be found")?,
        limits: config.http_limits.input,
    })
    .await?;
    let (credential_sync, tickets) = share_credentials(storage, &auth, &gateway);
    Ok(App::new(AppInner {
        gateway,
        store,
        auth,
        credential_sync,
        tickets,
        abandoned_tasks: AbandonedTasks::default(),
        mcp_authorizations,
        origin_policy: OriginPolicy::new(config.listen, config.hosts, config.origins),
        stream_limiter: StreamLimiter::new(config.http_limits.streams_per_user_max),
        request_limits: RequestLimits::new(
            config.http_limits.requests_per_user_max,
            config.http_limits.requests_per_user_minute_max,
            config.auth == AuthMode::Keys,
            Arc::clone(&storage.cluster),
        ),
        limits: config.http_limits,
        public_url: config.public_url,
        metrics,
        metrics_token_digest: config.metrics_token_digest,
        shutting_down: AtomicBool::new(false),
    }))
}

async fn open_authorizations(
    config: &Config,
    storage: &Storage,
    rules: &UrlRules,
) -> anyhow::Result<McpAuthorizations> {
    Ok(McpAuthorizations::new(AuthorizationParts {
        store: Arc::clone(&storage.store) as _,
        key: load_sealing_key(config, storage).await?,
        rules: rules.clone(),
        clock: Arc::clone(&storage.clock),
        secrets: Arc::new(|reference| Box::pin(config::resolve_secret(reference))),
    }))
}

/// `None` if no user authorizes anything: a key that nobody needs is not made.
async fn load_sealing_key(config: &Config, storage: &Storage) -> anyhow::Result<Option<SealingKey>> {
    if !credentials_key::needs_key(&config.definitions) {
        return Ok(None);
    }
    let (data_dir, has_database) = (config.data_dir.clone(), storage.database.is_some());
    let loading = tokio::task::spawn_blocking(move || credentials_key::load_key(&data_dir, has_database));
    loading.await.context("no thread")?.map(Some)
}

/// Keys, shares and tickets: in memory, or as all nodes of a database have them.
fn share_credentials(
    storage: &Storage,
    auth: &Authenticator,
    gateway: &Gateway,
) -> (Option<Arc<CredentialSync>>, TicketTable) {
    let Some(database) = &storage.database else { return (None, TicketTable::Memory(Tickets::default())) };
    let keys = match auth {
        Authenticator::Disabled => None,
        Authenticator::Keys(keys) => Some(Arc::clone(keys)),
    };
    let sync = Arc::new(CredentialSync::new(Arc::clone(&storage.store), keys, Arc::clone(&gateway.shares)));
    tokio::spawn(Arc::clone(&sync).run(gateway.clone()));
    (Some(sync), TicketTable::Database(Arc::clone(database), Arc::clone(&storage.clock)))
}

async fn put_definitions(store: &Arc<dyn StorageBackend>, definitions: &Definitions) -> anyhow::Result<()> {
    let body = serde_json::to_string(definitions).context("the definitions cannot be serialized")?;
    match store.put_definitions(&definitions.digest, &body).await {
        // Until then no run can start either.
        Err(StoreError::NoSpace) => {
            let (store, digest) = (Arc::clone(store), definitions.digest.clone());
            tokio::spawn(async move { put_definitions_later(&*store, &digest, &body).await });
            Ok(())
        }
        stored => stored.context("cannot store the definitions"),
    }
}

/// Stores the definitions of a server that has started on a full disk.
async fn put_definitions_later(store: &dyn StorageBackend, digest: &str, definitions: &str) {
    loop {
        store.space_changed(StorageSpace::Full).await;
        match store.put_definitions(digest, definitions).await {
            Err(StoreError::NoSpace) => {}
            Err(error) => return tracing::error!(%error, "cannot store the definitions"),
            Ok(()) => return,
        }
    }
}

/// Opens the control socket. The server starts without one if the folder does not allow sockets.
fn spawn_control_socket(app: &App, data_dir: &std::path::Path) -> Option<tokio::task::JoinHandle<()>> {
    match ControlSocket::open(data_dir) {
        Ok(control) => {
            let accounts = Arc::clone(&app.store) as Arc<dyn Accounts>;
            Some(tokio::spawn(control.serve(accounts, Arc::new(SystemClock), app.auth.clone())))
        }
        Err(error) => {
            tracing::warn!(%error, "no control socket: `headwater keys` works only while the server is stopped");
            None
        }
    }
}

/// The addresses under which the server itself is reached: it must not fetch documents from them.
fn own_addresses(listen: SocketAddr, hosts: &[String], public_url: Option<&str>) -> Vec<OwnAddress> {
    let authority = |url: &str| {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default().to_owned()
    };
    let names = hosts.iter().cloned().chain(public_url.map(authority));
    std::iter::once(listen.to_string()).chain(names).map(|address| OwnAddress::parse(&address)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerSignal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> ServerSignal {
        tokio::select! {
            _ = self.terminate.recv() => ServerSignal::Stop,
            _ = self.interrupt.recv() => ServerSignal::Stop,
            _ = self.hangup.recv() => ServerSignal::Reload,
        }
    }

    async fn next_stop(&mut self) {
        while self.next().await == ServerSignal::Reload {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_knows_its_own_addresses() {
        let listen = "0.0.0.0:8787".parse().unwrap();
        let hosts = ["a.example".to_owned(), "b.example:8443".to_owned()];
        let addresses = ["0.0.0.0:8787", "a.example", "b.example:8443", "c.example:9"].map(OwnAddress::parse);
        assert_eq!(own_addresses(listen, &hosts, Some("https://c.example:9/agents")), addresses);
        assert_eq!(own_addresses(listen, &[], None), addresses[..1]);
    }
}
