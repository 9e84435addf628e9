//! `headwater serve`: everything is put together here, in the order in which it can still be refused without a trace:
//! settings, then the port, then the data folder.

use super::{read_pdf, say};
use crate::app::{self, App, Parts};
use crate::auth::Auth;
use crate::config::{self, AuthMode, Config, Overrides};
use crate::control::Control;
use crate::documents::{self, WebDocuments};
use crate::files::{Files, Given, ShownHooks, ShownTools};
use crate::guard::Guard;
use crate::keys::Keys;
use crate::listen;
use crate::shares::{Scope, Shares};
use crate::streams::Streams;
use crate::tickets::Tickets;
use anyhow::Context as _;
use clap::Args;
use engine::{Engine, Ports, SystemClock};
use metrics_exporter_prometheus::PrometheusBuilder;
use model::NodeId;
use model::ports::Directory;
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
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// How long the store has to put everything away.
const STORE_WITHIN: Duration = Duration::from_secs(2);

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
    let environment: Option<fn(&str) -> _> = Some(config::environment);
    let overrides = Overrides { listen: args.listen, data_dir: args.data_dir, record: args.record, environment };
    let config = config::load(args.config.as_deref(), overrides)?;
    let listener = listen::bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr().context("no local address")?;
    let mut signals = Signals::new().context("no signals")?;
    let options = store::SqliteOptions { commit_spacing: config.commit_spacing, ..store::SqliteOptions::default() };
    let dir = config.data_dir.clone();
    let store = tokio::task::spawn_blocking(move || SqliteStore::open(&dir, &options)).await.context("no thread")??;
    let store = Arc::new(store);
    let (data_dir, grace) = (config.data_dir.clone(), config.stop_grace);
    let limits = config.http.clone();
    let app = build(config, address, Arc::clone(&store)).await?;
    let door = open_door(&app, &data_dir);
    let waiting = app.engine.recover().await.context("cannot read what was left undone")?;
    if waiting > 0 {
        tracing::info!(threads = waiting, "taking up what was left undone");
    }
    let (closing, closed) = watch::channel(false);
    let serving = tokio::spawn(listen::serve(listener, app::router(&app), limits, closed));
    // Others wait for exactly this line.
    say(format_args!("headwater listening on http://{address}"));
    signals.next().await;
    tracing::info!(grace_ms = grace.as_millis(), "stopping; a second signal stops at once");
    app.begin_stop();
    closing.send_replace(true);
    tokio::select! {
        () = app.engine.stop(grace) => {}
        () = signals.next() => app.engine.stop(Duration::ZERO).await,
    }
    // Every stream has been let go. What still hangs has a reader that does not read.
    if tokio::time::timeout(CLOSE_WITHIN, serving).await.is_err() {
        tracing::debug!("some connections were cut");
    }
    if let Some(door) = door {
        door.abort();
        let _aborted = door.await;
    }
    if tokio::time::timeout(STORE_WITHIN, store.close()).await.is_err() {
        tracing::warn!("the store did not close in time; nothing is lost");
    }
    Ok(ExitCode::SUCCESS)
}

async fn build(config: Config, address: SocketAddr, store: Arc<SqliteStore>) -> anyhow::Result<App> {
    let metrics = PrometheusBuilder::new().install_recorder().context("no metrics")?;
    let directory: Arc<dyn Directory> = Arc::clone(&store) as Arc<dyn Directory>;
    let auth = match config.auth {
        AuthMode::None => Auth::Open,
        AuthMode::Keys => Auth::Keys(Arc::new(Keys::load(&*directory).await.context("cannot read the keys")?)),
    };
    // Before anything runs: a run that pauses today may go on when the file says something else.
    let definitions = serde_json::to_string(&config.definitions).context("the definitions cannot be written down")?;
    let kept = directory.put_definitions(&config.definitions.digest, &definitions).await;
    kept.context("cannot keep the definitions")?;
    let (files, data_dir, rows) = (config.files, config.data_dir.clone(), Arc::clone(&directory));
    let files =
        tokio::task::spawn_blocking(move || Files::open(files, &data_dir, rows)).await.context("no thread")??;
    let files = Arc::new(files);
    files.sweep().await.context("cannot read which files were broken off")?;
    let own = documents::own(address, &config.hosts, files.config.public_url.as_deref());
    let apart = read_pdf::apart().context("this program cannot be found")?;
    let documents = WebDocuments::new(config.fetch, own, apart, Arc::clone(&files));
    let shares = Arc::new(Shares::load(&*directory).await.context("cannot read the shares")?);
    let scope = Arc::new(Scope { journal: Arc::clone(&store) as _, directory, shares: Arc::clone(&shares) });
    let ports = Ports {
        journal: Arc::clone(&scope) as _,
        directory: scope,
        models: Arc::new(Given { models: Arc::new(config.models), files: Arc::clone(&files) }),
        tools: Arc::new(ShownTools { tools: Arc::clone(&config.tools) as _, files: Arc::clone(&files) }),
        hooks: Arc::new(ShownHooks { hooks: config.tools, files: Arc::clone(&files) }),
        documents: Arc::new(documents),
        clock: Arc::new(SystemClock),
        definitions: Arc::new(config.definitions),
        node: NodeId::from(format!("node-{}", std::process::id())),
    };
    Ok(App::new(Parts {
        engine: Engine::new(ports),
        store,
        auth,
        files,
        shares,
        tickets: Tickets::default(),
        guard: Guard::new(config.listen, config.hosts, config.origins),
        streams: Streams::new(config.http.streams_per_user_max),
        limits: config.http,
        metrics,
        stopping: AtomicBool::new(false),
    }))
}

/// The back door. A folder where no socket can be is not worth staying closed for.
fn open_door(app: &App, data_dir: &std::path::Path) -> Option<tokio::task::JoinHandle<()>> {
    match Control::open(data_dir) {
        Ok(control) => {
            let directory = Arc::clone(&app.engine.ports().directory);
            Some(tokio::spawn(control.serve(directory, app.auth.clone())))
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
