//! The callers' end of the writer's queue.

use super::STORE_CLOSED;
use super::write_task::{TaskCost, WriteTask, WriterMessage};
use super::writer_signals::WriterSignals;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TrySendError};

/// The writer is gone.
pub(crate) struct WriterClosed;

#[derive(Debug)]
pub(crate) struct TaskSender {
    messages: mpsc::Sender<WriterMessage>,
    signals: Arc<WriterSignals>,
}

impl TaskSender {
    pub(crate) const fn new(messages: mpsc::Sender<WriterMessage>, signals: Arc<WriterSignals>) -> Self {
        Self { messages, signals }
    }

    /// Sends something whose caller waits for it, as soon as the queue has room.
    pub(crate) async fn send(&self, message: WriterMessage) -> Result<(), WriterClosed> {
        self.signals.notify_urgent();
        self.messages.send(message).await.map_err(|_| WriterClosed)
    }

    /// Sends a task that replies by itself, and does not wait: if the queue is full, a task of the runtime does.
    pub(crate) fn start(&self, task: Box<dyn WriteTask>, cost: TaskCost, is_urgent: bool) {
        if is_urgent {
            self.signals.notify_urgent();
        }
        match self.messages.try_send(WriterMessage::Run { task, cost }) {
            Ok(()) => self.signals.add_task(),
            Err(TrySendError::Closed(message)) => message.fail(STORE_CLOSED),
            Err(TrySendError::Full(message)) => {
                let messages = self.messages.clone();
                tokio::spawn(async move {
                    if let Err(SendError(message)) = messages.send(message).await {
                        message.fail(STORE_CLOSED);
                    }
                });
            }
        }
    }
}
