//! `headwater replay`: streams a stored run again in any protocol, with its original timing or fast.
//!
//! The output is what a client of the protocol received, byte for byte, except what belongs to a connection (comments,
//! `retry`). It is read from the data folder or the database, also while servers use it, and nothing is changed.

mod client_protocol;
mod images;
mod timing;

use super::config_args::{DataDirArgs, DataPlace};
use crate::archive::{ArchiveOpenError, find_archive};
use crate::config::ConfigError;
use clap::Args;
use client_protocol::ClientProtocol;
use gateway::attachments::default_location;
use images::RunImages;
use model::TaskId;
use model::ports::{Frames, StoreError};
use protocol::responses::ResponsesProjection;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{LoggedRun, PostgresClient, PostgresOpenError, StoreOpenError};
use timing::ReplayTiming;

#[derive(Debug, Args)]
#[command(
    after_help = "A run that waited for approvals or client tools has several responses (responses, messages, chat), which follow \
    each other. A pause of more than a minute is shortened to two seconds, with a note on stderr.\n\n\
    Exit code 0: replayed, 1: the run has not ended and was replayed so far, 2: the run could not be replayed."
)]
pub(crate) struct ReplayArgs {
    /// The run (`task_…`), or one of its responses (`resp_…`, `resp_…_2`).
    run: String,
    /// The protocol: task, run-items, responses, blocks, agent-runs, messages, chat, ag-ui, ag-ui-0.0.59, ui-stream or
    /// ui-stream-7.
    #[arg(long = "as", value_name = "PROTOCOL", default_value = "task")]
    protocol: String,
    /// Replay without pauses.
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    folder: DataDirArgs,
}

const EXIT_UNFINISHED: u8 = 1;
const EXIT_NOT_REPLAYED: u8 = 2;

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("{0:?} is not the id of a run (`task_…`) or of a response (`resp_…`)")]
    NotAnId(String),
    #[error("unknown protocol {0:?}: use {known}", known = client_protocol::PROTOCOL_NAMES)]
    UnknownProtocol(String),
    #[error("the data folder {0} does not exist")]
    DataDirNotFound(PathBuf),
    #[error("no run {0} in {1}")]
    RunNotFound(TaskId, String),
    #[error("run {0} has no response number {1}")]
    SegmentNotFound(TaskId, u32),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Folder(#[from] StoreOpenError),
    #[error(transparent)]
    Database(#[from] PostgresOpenError),
    #[error(transparent)]
    Archive(#[from] ArchiveOpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

pub(crate) async fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    match replay(args).await {
        Ok(run) if run.has_ended => Ok(ExitCode::SUCCESS),
        Ok(run) => {
            let state =
                if run.seq_range.is_some() { "has not ended: this is the output so far" } else { "has not started" };
            eprintln!("headwater: run {} {state}", run.id);
            Ok(ExitCode::from(EXIT_UNFINISHED))
        }
        // The reader has seen enough, like `head`.
        Err(ReplayError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("headwater: {}", error.to_string().replace('\n', " "));
            Ok(ExitCode::from(EXIT_NOT_REPLAYED))
        }
    }
}

async fn replay(args: ReplayArgs) -> Result<LoggedRun, ReplayError> {
    let ReplayArgs { run, protocol, fast, folder } = args;
    let (id, segment) = parse_run_or_response_id(&run).ok_or(ReplayError::NotAnId(run))?;
    let protocol = ClientProtocol::from_name(&protocol).ok_or(ReplayError::UnknownProtocol(protocol))?;
    let (run, images) = find_run(folder.resolve()?, id).await?;
    let timing = if fast { ReplayTiming::fast() } else { ReplayTiming::original() };
    let mut replayer = Replayer { run: &run, images, protocol, timing, out: BufWriter::new(std::io::stdout().lock()) };
    match segment.filter(|_| protocol.has_segments()) {
        None => replayer.replay_all().await?,
        Some(segment) => replayer.replay_only(segment).await?,
    }
    replayer.out.flush()?;
    drop(replayer);
    Ok(run)
}

async fn find_run(place: DataPlace, id: TaskId) -> Result<(LoggedRun, RunImages), ReplayError> {
    match place {
        DataPlace::Folder { path, .. } if !path.exists() => Err(ReplayError::DataDirNotFound(path)),
        DataPlace::Folder { path, .. } => {
            let not_found = || ReplayError::RunNotFound(id.clone(), path.display().to_string());
            let run = store::find_logged_run(&path, &id)?.ok_or_else(not_found)?;
            Ok((run, RunImages::new(default_location(&path), Vec::new())))
        }
        DataPlace::Database(place) => {
            let archive = find_archive(place.archive.as_ref())?;
            let client = PostgresClient::open_for_reading(&place.url).await?.with_archive(archive.as_ref()).await?;
            let not_found = || ReplayError::RunNotFound(id.clone(), format!("the database at {}", place.url.place()));
            let run = client.find_logged_run(&id).await?.ok_or_else(not_found)?;
            let location = place.files.location.unwrap_or_else(|| default_location(&place.data_dir));
            Ok((run, RunImages::new(location, place.files.env_vars)))
        }
    }
}

/// The run, and the number of the response.
fn parse_run_or_response_id(text: &str) -> Option<(TaskId, Option<u32>)> {
    let run = TaskId::parse(text).ok().filter(|id| id.as_str().starts_with("task_"));
    match run {
        Some(run) => Some((run, None)),
        None => ResponsesProjection::parse_response_id(text).map(|(run, segment)| (run, Some(segment))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayEnd {
    NotStarted,
    /// The log ended first.
    Unfinished,
    /// The log continues.
    Ended,
    EndOfLog,
}

struct Replayer<'a> {
    run: &'a LoggedRun,
    images: RunImages,
    protocol: ClientProtocol,
    timing: ReplayTiming,
    out: BufWriter<StdoutLock<'static>>,
}

impl Replayer<'_> {
    /// Replays one stream, or all responses.
    async fn replay_all(&mut self) -> Result<(), ReplayError> {
        let mut number = 1;
        while self.replay_segment(number).await? == ReplayEnd::Ended && self.protocol.has_segments() {
            number += 1;
        }
        Ok(())
    }

    async fn replay_only(&mut self, segment: u32) -> Result<(), ReplayError> {
        let end = self.replay_segment(segment).await?;
        // The first response of a queued run is still to come.
        let is_pending = self.run.seq_range.is_none() && segment == 1;
        let is_missing = end == ReplayEnd::NotStarted && !is_pending;
        if is_missing { Err(ReplayError::SegmentNotFound(self.run.id.clone(), segment)) } else { Ok(()) }
    }

    /// A projection reads its run from the start, wherever its own segment starts.
    async fn replay_segment(&mut self, segment: u32) -> Result<ReplayEnd, ReplayError> {
        let mut end = ReplayEnd::NotStarted;
        let mut projection = None;
        let mut records = self.run.records();
        while let Some(record) = records.next().await {
            let record = record?;
            let projection = projection.get_or_insert_with(|| self.protocol.projection(self.run, &record, segment));
            let mut frames = Frames::default();
            projection.project(&record, &mut frames);
            let (bytes, _, over) = frames.into_parts();
            self.timing.on_record(&record);
            if !bytes.is_empty() {
                let bytes = match self.protocol.has_inline_images() {
                    true => self.images.inline(self.run, bytes).await,
                    false => bytes,
                };
                self.wait_until_due().await?;
                self.out.write_all(&bytes)?;
                end = ReplayEnd::Unfinished;
            }
            if over {
                self.out.write_all(self.protocol.terminator())?;
                let is_last = self.run.seq_range.is_some_and(|(_, last)| record.seq >= last);
                return Ok(if is_last { ReplayEnd::EndOfLog } else { ReplayEnd::Ended });
            }
        }
        Ok(end)
    }

    /// Flushes and waits until the next frame is due.
    async fn wait_until_due(&mut self) -> Result<(), ReplayError> {
        let Some(due) = self.timing.due() else { return Ok(()) };
        self.out.flush()?;
        tokio::time::sleep_until(due).await;
        Ok(())
    }
}
