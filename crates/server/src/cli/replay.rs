//! `headwater replay`: streams a logged run again, in any protocol, with its timing or as fast as it can be read.
//!
//! What comes out is what a client of the protocol was sent, byte for byte, less what belongs to a connection (comments,
//! `retry`). It is read from the data folder itself, also while a server works there, and nothing is changed. `dialect` is
//! which protocols there are, `pace` when each frame is due, `pictures` what was drawn.

mod dialect;
mod pace;
mod pictures;

use super::DataDir;
use crate::files::inline;
use clap::Args;
use dialect::Dialect;
use model::TaskId;
use model::ports::{Frames, StoreError};
use pace::Pace;
use protocol::responses::Segment;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{LoggedRun, StoreOpenError};

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
const UNENDED: u8 = 1;
/// Not replayed, or not to the end of what there is.
const NOT_REPLAYED: u8 = 2;

/// Why a run could not be replayed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0:?} is no run: give its id (`task_…`), or that of a response (`resp_…`)")]
    NotAnId(String),
    #[error("there is no protocol {0:?}: use {known}", known = dialect::KNOWN)]
    NoProtocol(String),
    #[error("there is no data folder {0}")]
    NoFolder(PathBuf),
    #[error("there is no run {0} in {1}")]
    NoRun(TaskId, PathBuf),
    #[error("run {0} has no answer number {1}")]
    NoSegment(TaskId, u32),
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
            Ok(ExitCode::from(UNENDED))
        }
        // Whoever read our output has had enough, as `head` does.
        Err(Refusal::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(refusal) => {
            eprintln!("headwater: {}", refusal.to_string().replace('\n', " "));
            Ok(ExitCode::from(NOT_REPLAYED))
        }
    }
}

async fn replay(args: ReplayArgs) -> Result<LoggedRun, Refusal> {
    let ReplayArgs { run, protocol, fast, folder } = args;
    let (id, segment) = named(&run).ok_or(Refusal::NotAnId(run))?;
    let dialect = Dialect::named(&protocol).ok_or(Refusal::NoProtocol(protocol))?;
    let dir = folder.data_dir;
    if !dir.exists() {
        return Err(Refusal::NoFolder(dir));
    }
    let run = store::find_logged_run(&dir, &id)?.ok_or_else(|| Refusal::NoRun(id, dir.clone()))?;
    let pace = if fast { Pace::fast() } else { Pace::as_it_was() };
    let mut player = Player { run: &run, dir: &dir, dialect, pace, out: BufWriter::new(std::io::stdout().lock()) };
    match segment.filter(|_| dialect.has_segments()) {
        None => player.all().await?,
        Some(segment) => player.only(segment).await?,
    }
    player.out.flush()?;
    drop(player);
    Ok(run)
}

/// The run that is meant, and which of its answers.
fn named(text: &str) -> Option<(TaskId, Option<u32>)> {
    let run = TaskId::parse(text).ok().filter(|id| id.as_str().starts_with("task_"));
    match run {
        Some(run) => Some((run, None)),
        None => Segment::parse_id(text).map(|(run, segment)| (run, Some(segment))),
    }
}

/// How far a stream went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    /// It gave nothing: it has not begun.
    Nothing,
    /// As far as the log goes.
    SoFar,
    /// To its end, and the log goes on.
    Ended,
    /// To its end, which is the log's.
    Last,
}

/// Somebody who streams a run.
struct Player<'a> {
    run: &'a LoggedRun,
    dir: &'a Path,
    dialect: Dialect,
    pace: Pace,
    out: BufWriter<StdoutLock<'static>>,
}

impl Player<'_> {
    /// All that there is: one stream, or the answers one after the other.
    async fn all(&mut self) -> Result<(), Refusal> {
        let mut number = 1;
        while self.play(number).await? == Played::Ended && self.dialect.has_segments() {
            number += 1;
        }
        Ok(())
    }

    /// One answer of several.
    async fn only(&mut self, segment: u32) -> Result<(), Refusal> {
        let played = self.play(segment).await?;
        // The first answer of a run that has not begun is to come.
        let to_come = self.run.seq_range.is_none() && segment == 1;
        let missing = played == Played::Nothing && !to_come;
        if missing { Err(Refusal::NoSegment(self.run.id.clone(), segment)) } else { Ok(()) }
    }

    /// Streams one answer. A projection reads its run from the beginning, wherever its own part begins.
    async fn play(&mut self, segment: u32) -> Result<Played, Refusal> {
        let mut played = Played::Nothing;
        let mut projection = None;
        for record in self.run.records() {
            let record = record?;
            let projection = projection.get_or_insert_with(|| self.dialect.projection(self.run, &record, segment));
            let mut frames = Frames::default();
            projection.project(&record, &mut frames);
            let (bytes, _, over) = frames.into_parts();
            self.pace.pass(&record);
            if !bytes.is_empty() {
                let bytes = match self.dialect.has_pictures() {
                    true => inline::filled(bytes, |hash| pictures::picture(self.dir, self.run, hash)),
                    false => bytes,
                };
                self.wait().await?;
                self.out.write_all(&bytes)?;
                played = Played::SoFar;
            }
            if over {
                self.out.write_all(self.dialect.farewell())?;
                let is_last = self.run.seq_range.is_some_and(|(_, last)| record.seq >= last);
                return Ok(if is_last { Played::Last } else { Played::Ended });
            }
        }
        Ok(played)
    }

    /// Waits until the next frame is due, with everything before it on its way.
    async fn wait(&mut self) -> Result<(), Refusal> {
        let Some(due) = self.pace.due() else { return Ok(()) };
        self.out.flush()?;
        tokio::time::sleep_until(due).await;
        Ok(())
    }
}
