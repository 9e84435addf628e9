//! The context that every operation of this crate takes, and its construction.

use crate::attachments::{
    AttachmentSettings, AttachmentStore, AttachmentStoreOpenError, FileResolvingModels, OutputStoringHooks,
    OutputStoringTools,
};
use crate::documents::{WebDocumentReader, WebDocumentSettings};
use crate::limits::InputLimits;
use crate::shares::{ScopedStore, Shares};
use crate::web_images::WebImageFetchingModels;
use engine::{CurrentDefinitions, Engine, Ports};
use fetch::pdf_process::PdfProcess;
use files::UrlSigner;
use model::NodeId;
use model::definition::Definitions;
use model::ports::{
    Clock, Cluster, DefinitionResolver, Directory, HookRunner, Journal, ModelClient, RecoveryAttempts, SpaceWatch,
    StoreError, ToolRunner,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    pub engine: Engine,
    pub attachments: Arc<AttachmentStore>,
    pub shares: Arc<Shares>,
    pub limits: InputLimits,
}

/// The backends and settings of a [`Gateway`].
pub struct GatewayParts {
    pub journal: Arc<dyn Journal>,
    pub directory: Arc<dyn Directory>,
    pub models: Arc<dyn ModelClient>,
    pub tools: Arc<dyn ToolRunner>,
    pub hooks: Arc<dyn HookRunner>,
    pub resolver: Arc<dyn DefinitionResolver>,
    pub clock: Arc<dyn Clock>,
    pub cluster: Arc<dyn Cluster>,
    pub recovery_attempts: Arc<dyn RecoveryAttempts>,
    pub definitions: Definitions,
    pub node: NodeId,
    /// The folder of files, unless the settings name another location.
    pub data_dir: PathBuf,
    pub attachments: AttachmentSettings,
    pub url_signer: UrlSigner,
    pub documents: WebDocumentSettings,
    pub pdf_process: PdfProcess,
    pub limits: InputLimits,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayOpenError {
    #[error(transparent)]
    Attachments(#[from] AttachmentStoreOpenError),
    #[error("no thread")]
    Thread(#[from] tokio::task::JoinError),
    #[error("cannot read which uploads are unfinished")]
    UnfinishedUploads(#[source] StoreError),
    #[error("cannot read the shares")]
    Shares(#[source] StoreError),
}

impl Gateway {
    /// Opens the file store, loads the shares, and wires the engine to the store as each user may see it and to models and
    /// tools whose files are stored.
    pub async fn open(parts: GatewayParts) -> Result<Self, GatewayOpenError> {
        let GatewayParts { journal, directory, clock, data_dir, attachments: settings, url_signer, .. } = parts;
        let (rows, file_clock) = (Arc::clone(&directory), Arc::clone(&clock));
        let space: Arc<dyn SpaceWatch> = Arc::clone(&journal) as _;
        let opening = tokio::task::spawn_blocking(move || {
            AttachmentStore::open(settings, &data_dir, url_signer, rows, file_clock, space)
        });
        let attachments = Arc::new(opening.await??);
        attachments.delete_unfinished().await.map_err(GatewayOpenError::UnfinishedUploads)?;
        let shares = Shares::load(&*directory, Arc::clone(&clock)).await.map_err(GatewayOpenError::Shares)?;
        let shares = Arc::new(shares);
        let store = Arc::new(ScopedStore { journal, directory, shares: Arc::clone(&shares) });
        let documents = Arc::new(WebDocumentReader::new(parts.documents, parts.pdf_process, Arc::clone(&attachments)));
        let models = WebImageFetchingModels { models: parts.models, documents: Arc::clone(&documents) };
        let engine = Engine::new(Ports {
            journal: Arc::clone(&store) as _,
            directory: store,
            models: Arc::new(FileResolvingModels { models: Arc::new(models), attachments: Arc::clone(&attachments) }),
            tools: Arc::new(OutputStoringTools { tools: parts.tools, attachments: Arc::clone(&attachments) }),
            hooks: Arc::new(OutputStoringHooks { hooks: parts.hooks, attachments: Arc::clone(&attachments) }),
            documents,
            resolver: parts.resolver,
            clock,
            cluster: parts.cluster,
            recovery_attempts: parts.recovery_attempts,
            definitions: CurrentDefinitions::new(parts.definitions),
            node: parts.node,
        });
        Ok(Self { engine, attachments, shares, limits: parts.limits })
    }
}
