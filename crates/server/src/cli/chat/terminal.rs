//! Lines and Ctrl-C from the terminal.

use rustix::termios::{QueueSelector, tcflush};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
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

struct TypedLine {
    text: String,
    /// The questions that had been asked when it was read.
    question: u32,
}

pub(super) struct Terminal {
    lines: mpsc::Receiver<TypedLine>,
    /// The number of questions so far.
    questions: Arc<AtomicU32>,
    interrupts: Signal,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let questions = Arc::new(AtomicU32::new(0));
        let asked = Arc::clone(&questions);
        // A thread of its own: a read of the terminal cannot be cancelled, and must not hold up the end of the program.
        std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            for text in io::stdin().lock().lines().map_while(Result::ok) {
                let question = asked.load(Ordering::Acquire);
                if sender.blocking_send(TypedLine { text, question }).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { lines, questions, interrupts: signal(SignalKind::interrupt())? })
    }

    /// Takes the next line, also one that was typed before. The prompt goes to stderr, so that stdout has the answers
    /// alone.
    pub(super) async fn ask(&mut self, prompt: &str) -> TerminalInput {
        self.ask_since(prompt, 0).await
    }

    /// Takes a line that was typed after this question was shown: what a person has typed before was meant for something
    /// else. A script has to write its answers before they are asked for, so its lines all count.
    pub(super) async fn ask_question(&mut self, prompt: &str) -> TerminalInput {
        if !io::stdin().is_terminal() {
            return self.ask(prompt).await;
        }
        // What the reading thread has not taken yet, and a line that was begun.
        let _nothing = tcflush(io::stdin(), QueueSelector::IFlush);
        let question = self.questions.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        self.ask_since(prompt, question).await
    }

    async fn ask_since(&mut self, prompt: &str, question: u32) -> TerminalInput {
        let mut out = io::stderr();
        let _closed = write!(out, "{prompt}").and_then(|()| out.flush());
        loop {
            tokio::select! {
                line = self.lines.recv() => match line {
                    Some(line) if line.question < question => {}
                    Some(line) => return TerminalInput::Line(line.text),
                    None => return TerminalInput::End,
                },
                () = next_interrupt(&mut self.interrupts) => return TerminalInput::Interrupt,
            }
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
