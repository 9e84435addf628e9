//! `headwater replay`: streams a logged run again, in any protocol, with its timing or as fast as it can be read.
//!
//! What comes out is what a client of the protocol was sent, byte for byte, less what belongs to a connection (comments,
//! `retry`). It is read from the data folder itself, also while a server works there, and nothing is changed. `dialect` is
//! which protocols there are, `pace` when each frame is due, `pictures` what was drawn.

mod client_protocol;
mod images;
mod timing;

use super::DataDir;
use clap::Args;
use client_protocol::ClientProtocol;
use gateway::attachments::inline_images;
use model::TaskId;
use model::ports::{Frames, StoreError};
use protocol::responses::ResponsesProjection;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{LoggedRun, StoreOpenError};
use timing::ReplayTiming;

/// What `headwater replay` is told.
#[derive(Debug, Args)]
#[command(
    after_help = "The answers of a run that waited for people or for its client (responses, messages, chat) come one \
    after the other. Waiting of more than a minute takes two seconds here, and stderr says so.\n\n\
    Exit code 0: replayed, 1: replayed as far as it is, for the run has not ended, 2: it could not be replayed."
)]
pub(crate) struct ReplayArgs {
    /// The run (`task_…`), or one of its responses (`resp_…`, `resp_…_2`): then that answer alone, where there are several.
    run: String,
    /// The protocol: task, run-items, responses, blocks, agent-runs, messages or chat.
    #[arg(long = "as", value_name = "PROTOCOL", default_value = "task")]
    protocol: String,
    /// Without its pauses.
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    folder: DataDir,
}

/// The run has not ended, and nor has its stream.
const EXIT_UNFINISHED: u8 = 1;
/// Not replayed, or not to the end of what there is.
const EXIT_NOT_REPLAYED: u8 = 2;

/// Why a run could not be replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("{0:?} is no run: give its id (`task_…`), or that of a response (`resp_…`)")]
    NotAnId(String),
    #[error("there is no protocol {0:?}: use {known}", known = client_protocol::PROTOCOL_NAMES)]
    UnknownProtocol(String),
    #[error("there is no data folder {0}")]
    DataDirNotFound(PathBuf),
    #[error("there is no run {0} in {1}")]
    RunNotFound(TaskId, PathBuf),
    #[error("run {0} has no answer number {1}")]
    SegmentNotFound(TaskId, u32),
    #[error(transparent)]
    Folder(#[from] StoreOpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it cannot be written out: {0}")]
    Output(#[from] std::io::Error),
}

/// Replays a run. Exit code 0: replayed, 1: as far as it is, 2: it could not be replayed.
pub(crate) async fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    match replay(args).await {
        Ok(run) if run.has_ended => Ok(ExitCode::SUCCESS),
        Ok(run) => {
            let state = if run.seq_range.is_some() { "has not ended: this is it so far" } else { "has not begun" };
            eprintln!("headwater: run {} {state}", run.id);
            Ok(ExitCode::from(EXIT_UNFINISHED))
        }
        // Whoever read our output has had enough, as `head` does.
        Err(ReplayError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(refusal) => {
            eprintln!("headwater: {}", refusal.to_string().replace('\n', " "));
            Ok(ExitCode::from(EXIT_NOT_REPLAYED))
        }
    }
}

async fn replay(args: ReplayArgs) -> Result<LoggedRun, ReplayError> {
    let ReplayArgs { run, protocol, fast, folder } = args;
    let (id, segment) = parse_run_or_response_id(&run).ok_or(ReplayError::NotAnId(run))?;
    let dialect = ClientProtocol::from_name(&protocol).ok_or(ReplayError::UnknownProtocol(protocol))?;
    let dir = folder.data_dir;
    if !dir.exists() {
        return Err(ReplayError::DataDirNotFound(dir));
    }
    let run = store::find_logged_run(&dir, &id)?.ok_or_else(|| ReplayError::RunNotFound(id, dir.clone()))?;
    let pace = if fast { ReplayTiming::fast() } else { ReplayTiming::original() };
    let mut player = Replayer {
        run: &run,
        dir: &dir,
        protocol: dialect,
        timing: pace,
        out: BufWriter::new(std::io::stdout().lock()),
    };
    match segment.filter(|_| dialect.has_segments()) {
        None => player.replay_all().await?,
        Some(segment) => player.replay_only(segment).await?,
    }
    player.out.flush()?;
    drop(player);
    Ok(run)
}

/// The run that is meant, and which of its answers.
fn parse_run_or_response_id(text: &str) -> Option<(TaskId, Option<u32>)> {
    let run = TaskId::parse(text).ok().filter(|id| id.as_str().starts_with("task_"));
    match run {
        Some(run) => Some((run, None)),
        None => ResponsesProjection::parse_response_id(text).map(|(run, segment)| (run, Some(segment))),
    }
}

/// How far a stream went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayEnd {
    /// It gave nothing: it has not begun.
    NotStarted,
    /// As far as the log goes.
    Unfinished,
    /// To its end, and the log goes on.
    Ended,
    /// To its end, which is the log's.
    EndOfLog,
}

/// Somebody who streams a run.
struct Replayer<'a> {
    run: &'a LoggedRun,
    dir: &'a Path,
    protocol: ClientProtocol,
    timing: ReplayTiming,
    out: BufWriter<StdoutLock<'static>>,
}

impl Replayer<'_> {
    /// All that there is: one stream, or the answers one after the other.
    async fn replay_all(&mut self) -> Result<(), ReplayError> {
        let mut number = 1;
        while self.replay_segment(number).await? == ReplayEnd::Ended && self.protocol.has_segments() {
            number += 1;
        }
        Ok(())
    }

    /// One answer of several.
    async fn replay_only(&mut self, segment: u32) -> Result<(), ReplayError> {
        let played = self.replay_segment(segment).await?;
        // The first answer of a run that has not begun is to come.
        let to_come = self.run.seq_range.is_none() && segment == 1;
        let missing = played == ReplayEnd::NotStarted && !to_come;
        if missing { Err(ReplayError::SegmentNotFound(self.run.id.clone(), segment)) } else { Ok(()) }
    }

    /// Streams one answer. A projection reads its run from the beginning, wherever its own part begins.
    async fn replay_segment(&mut self, segment: u32) -> Result<ReplayEnd, ReplayError> {
        let mut played = ReplayEnd::NotStarted;
        let mut projection = None;
        for record in self.run.records() {
            let record = record?;
            let projection = projection.get_or_insert_with(|| self.protocol.projection(self.run, &record, segment));
            let mut frames = Frames::default();
            projection.project(&record, &mut frames);
            let (bytes, _, over) = frames.into_parts();
            self.timing.on_record(&record);
            if !bytes.is_empty() {
                let bytes = match self.protocol.has_inline_images() {
                    true => {
                        inline_images::inline_images_with(bytes, |hash| images::read_image(self.dir, self.run, hash))
                    }
                    false => bytes,
                };
                self.wait_until_due().await?;
                self.out.write_all(&bytes)?;
                played = ReplayEnd::Unfinished;
            }
            if over {
                self.out.write_all(self.protocol.terminator())?;
                let is_last = self.run.seq_range.is_some_and(|(_, last)| record.seq >= last);
                return Ok(if is_last { ReplayEnd::EndOfLog } else { ReplayEnd::Ended });
            }
        }
        Ok(played)
    }

    /// Waits until the next frame is due, with everything before it on its way.
    async fn wait_until_due(&mut self) -> Result<(), ReplayError> {
        let Some(due) = self.timing.due() else { return Ok(()) };
        self.out.flush()?;
        tokio::time::sleep_until(due).await;
        Ok(())
    }
}
