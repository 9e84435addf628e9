//! The callers' end of the writer's queue.

use super::STORE_CLOSED;
use super::urgent_tasks::UrgentTasks;
use super::write_task::{TaskCost, WriteTask, WriterMessage};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TrySendError};

/// The writer is gone.
pub(crate) struct WriterClosed;

#[derive(Debug)]
pub(crate) struct TaskSender {
    messages: mpsc::Sender<WriterMessage>,
    urgent: Arc<UrgentTasks>,
}

impl TaskSender {
    pub(crate) const fn new(messages: mpsc::Sender<WriterMessage>, urgent: Arc<UrgentTasks>) -> Self {
        Self { messages, urgent }
    }

    /// Sends something whose caller waits for it, as soon as the queue has room.
    pub(crate) async fn send(&self, message: WriterMessage) -> Result<(), WriterClosed> {
        self.urgent.notify();
        self.messages.send(message).await.map_err(|_| WriterClosed)
    }

    /// Sends a task that replies by itself, and does not wait: if the queue is full, a task of the runtime does.
    pub(crate) fn start(&self, task: Box<dyn WriteTask>, cost: TaskCost, is_urgent: bool) {
        if is_urgent {
            self.urgent.notify();
        }
        match self.messages.try_send(WriterMessage::Run { task, cost }) {
            Ok(()) => {}
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
