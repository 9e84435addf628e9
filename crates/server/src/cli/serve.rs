//! `headwater serve`: everything is put together here, in the order in which it can still be refused without a trace:
//! settings, then the port, then the data folder.

use super::{print_line, read_pdf};
use crate::api_keys::ApiKeys;
use crate::app::{self, App, AppInner};
use crate::attachments::{AttachmentStore, FileResolvingModels, OutputStoringHooks, OutputStoringTools};
use crate::auth::Authenticator;
use crate::config::{self, AuthMode, Config, Overrides};
use crate::control_socket::ControlSocket;
use crate::documents::{self, WebDocumentReader};
use crate::listen;
use crate::origin_policy::OriginPolicy;
use crate::shares::{ScopedStore, Shares};
use crate::stream_limiter::StreamLimiter;
use crate::tickets::Tickets;
use anyhow::Context as _;
use clap::Args;
use engine::{Engine, Ports, SystemClock};
use metrics_exporter_prometheus::PrometheusBuilder;
use model::NodeId;
use model::ports::{Accounts, DefinitionWriter as _, Directory};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store::SqliteStore;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How long connections have to close, once nothing is left to be said on them.
const CONNECTIONS_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the store has to put everything away.
const STORE_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The config file. Without one it is the embedded demo.
    #[arg(long, env = "HEADWATER_CONFIG")]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8787]. Port 0 takes a free one.
    #[arg(long, env = "HEADWATER_LISTEN")]
    listen: Option<String>,
    /// The data folder [default: headwater-data].
    #[arg(long, env = "HEADWATER_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Keep every exchange with a provider as a cassette in this folder, without secrets.
    #[arg(long, env = "HEADWATER_RECORD")]
    record: Option<PathBuf>,
}

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let environment: Option<fn(&str) -> _> = Some(config::read_env);
    let overrides =
        Overrides { listen: args.listen, data_dir: args.data_dir, record_dir: args.record, env: environment };
    let config = config::load_config(args.config.as_deref(), overrides)?;
    let listener =
        listen::bind_listener(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr().context("no local address")?;
    let mut signals = Signals::new().context("no signals")?;
    let options = store::SqliteOptions { commit_spacing: config.commit_spacing, ..store::SqliteOptions::default() };
    let dir = config.data_dir.clone();
    let store = tokio::task::spawn_blocking(move || SqliteStore::open(&dir, &options)).await.context("no thread")??;
    let store = Arc::new(store);
    let (data_dir, grace) = (config.data_dir.clone(), config.shutdown_grace);
    let limits = config.http_limits.clone();
    let app = build_app(config, address, Arc::clone(&store)).await?;
    let door = spawn_control_socket(&app, &data_dir);
    let waiting = app.engine.recover().await.context("cannot read what was left undone")?;
    if waiting > 0 {
        tracing::info!(threads = waiting, "taking up what was left undone");
    }
    let (closing, closed) = watch::channel(false);
    let serving = tokio::spawn(listen::serve_connections(listener, app::router(&app), limits, closed));
    // Others wait for exactly this line.
    print_line(format_args!("headwater listening on http://{address}"));
    signals.next().await;
    tracing::info!(grace_ms = grace.as_millis(), "stopping; a second signal stops at once");
    app.start_shutdown();
    closing.send_replace(true);
    tokio::select! {
        () = app.engine.stop(grace) => {}
        () = signals.next() => app.engine.stop(Duration::ZERO).await,
    }
    // Every stream has been let go. What still hangs has a reader that does not read.
    if tokio::time::timeout(CONNECTIONS_CLOSE_TIMEOUT, serving).await.is_err() {
        tracing::debug!("some connections were cut");
    }
    if let Some(door) = door {
        door.abort();
        let _aborted = door.await;
    }
    if tokio::time::timeout(STORE_CLOSE_TIMEOUT, store.close()).await.is_err() {
        tracing::warn!("the store did not close in time; nothing is lost");
    }
    Ok(ExitCode::SUCCESS)
}

async fn build_app(config: Config, address: SocketAddr, store: Arc<SqliteStore>) -> anyhow::Result<App> {
    let metrics = PrometheusBuilder::new().install_recorder().context("no metrics")?;
    let directory: Arc<dyn Directory> = Arc::clone(&store) as Arc<dyn Directory>;
    let auth = match config.auth {
        AuthMode::None => Authenticator::Disabled,
        AuthMode::Keys => Authenticator::Keys(Arc::new(ApiKeys::load(&*store).await.context("cannot read the keys")?)),
    };
    // Before anything runs: a run that pauses today may go on when the file says something else.
    let definitions = serde_json::to_string(&config.definitions).context("the definitions cannot be written down")?;
    let kept = store.put_definitions(&config.definitions.digest, &definitions).await;
    kept.context("cannot keep the definitions")?;
    let (files, data_dir, rows) = (config.files, config.data_dir.clone(), Arc::clone(&directory));
    let files = tokio::task::spawn_blocking(move || AttachmentStore::open(files, &data_dir, rows))
        .await
        .context("no thread")??;
    let files = Arc::new(files);
    files.delete_unfinished().await.context("cannot read which files were broken off")?;
    let own = documents::own_addresses(address, &config.hosts, files.settings.public_url.as_deref());
    let apart = read_pdf::pdf_process().context("this program cannot be found")?;
    let documents = WebDocumentReader::new(config.fetch, own, apart, Arc::clone(&files));
    let shares = Arc::new(Shares::load(&*store).await.context("cannot read the shares")?);
    let scope = Arc::new(ScopedStore { journal: Arc::clone(&store) as _, directory, shares: Arc::clone(&shares) });
    let ports = Ports {
        journal: Arc::clone(&scope) as _,
        directory: scope,
        models: Arc::new(FileResolvingModels { models: Arc::new(config.models), files: Arc::clone(&files) }),
        tools: Arc::new(OutputStoringTools { tools: Arc::clone(&config.tools) as _, files: Arc::clone(&files) }),
        hooks: Arc::new(OutputStoringHooks { hooks: config.tools, files: Arc::clone(&files) }),
        documents: Arc::new(documents),
        clock: Arc::new(SystemClock),
        definitions: Arc::new(config.definitions),
        node: NodeId::from(format!("node-{}", std::process::id())),
    };
    Ok(App::new(AppInner {
        engine: Engine::new(ports),
        store,
        auth,
        files,
        shares,
        tickets: Tickets::default(),
        origin_policy: OriginPolicy::new(config.listen, config.hosts, config.origins),
        stream_limiter: StreamLimiter::new(config.http_limits.streams_per_user_max),
        limits: config.http_limits,
        metrics,
        shutting_down: AtomicBool::new(false),
    }))
}

/// The back door. A folder where no socket can be is not worth staying closed for.
fn spawn_control_socket(app: &App, data_dir: &std::path::Path) -> Option<tokio::task::JoinHandle<()>> {
    match ControlSocket::open(data_dir) {
        Ok(control) => {
            let accounts = Arc::clone(&app.store) as Arc<dyn Accounts>;
            Some(tokio::spawn(control.serve(accounts, app.auth.clone())))
        }
        Err(error) => {
            tracing::warn!(%error, "no control socket: `headwater keys` works only while the server is stopped");
            None
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
