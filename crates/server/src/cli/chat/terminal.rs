//! Lines and Ctrl-C from the terminal.

use std::io::{self, BufRead as _, Write as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Lines that may be typed ahead.
const LINES_MAX: usize = 16;

pub(super) enum TerminalInput {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the end of a script.
    End,
}

pub(super) struct Terminal {
    lines: mpsc::Receiver<String>,
    interrupts: Signal,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        // A thread of its own: a read of the terminal cannot be cancelled, and must not hold up the end of the program.
        std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { lines, interrupts: signal(SignalKind::interrupt())? })
    }

    /// The prompt goes to stderr, so that stdout has the answers alone.
    pub(super) async fn ask(&mut self, prompt: &str) -> TerminalInput {
        let mut out = io::stderr();
        let _closed = write!(out, "{prompt}").and_then(|()| out.flush());
        tokio::select! {
            line = self.lines.recv() => line.map_or(TerminalInput::End, TerminalInput::Line),
            () = next_interrupt(&mut self.interrupts) => TerminalInput::Interrupt,
        }
    }

    pub(super) async fn wait_for_interrupt(&mut self) {
        next_interrupt(&mut self.interrupts).await;
    }
}

/// Ends the line that the terminal has begun with `^C`.
async fn next_interrupt(interrupts: &mut Signal) {
    if interrupts.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
    eprintln!();
}
