//! A response that a socket sends: the frames of its event stream, as messages.

use super::connection::{WsConnection, WsError};
use super::event_messages::EventMessages;
use crate::app::App;
use bytes::Bytes;
use engine::Viewer;
use futures_core::future::BoxFuture;
use gateway::attachments::BlobUrlSigner;
use gateway::attachments::inline_images::{ImageInliner, InlineImageError};
use gateway::queue_cancel::QueueCancelFrames;
use gateway::stream_start::{QUEUE_GRACE, StreamStart, open_viewer};
use model::UserId;
use model::ports::{RunRow, StoreError};
use std::future::pending;

type QueueWatch = BoxFuture<'static, Result<Option<RunRow>, StoreError>>;

pub(super) struct ResponseTurn {
    pub(super) response_id: String,
    /// The response that the request named.
    pub(super) previous_id: Option<String>,
    viewer: Viewer,
    image_inliner: Option<ImageInliner>,
    /// Of a run that has not started.
    cancelled_in_queue: Option<QueueWatch>,
    queue_cancel_frames: Option<QueueCancelFrames>,
    messages: EventMessages,
    is_ended: bool,
}

pub(super) enum TurnOutput {
    Frames(Bytes),
    Ended,
    /// The thread was deleted, or the engine stops.
    Interrupted,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    #[error(transparent)]
    Connection(#[from] WsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Image(#[from] InlineImageError),
}

impl ResponseTurn {
    pub(super) fn new(
        app: &App,
        user: &UserId,
        mut start: StreamStart,
        response_id: String,
        previous_id: Option<String>,
    ) -> Self {
        let watch = start.queued_run.is_some().then(|| start.cancelled_in_queue(&app.gateway, user));
        let cancelled_in_queue = watch.map(|watch| -> QueueWatch {
            // Most runs start at once, and then nobody looks at the queue.
            Box::pin(async move {
                tokio::time::sleep(QUEUE_GRACE).await;
                watch.await
            })
        });
        Self {
            response_id,
            previous_id,
            image_inliner: start.inline_images_for(&app.gateway, user).map(ImageInliner::new),
            cancelled_in_queue,
            queue_cancel_frames: start.queue_cancel_frames.take(),
            viewer: open_viewer(&app.gateway, user, start),
            messages: EventMessages::default(),
            is_ended: false,
        }
    }

    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Result<TurnOutput, StoreError> {
        if self.is_ended {
            return Ok(TurnOutput::Ended);
        }
        tokio::select! {
            biased;
            bytes = self.viewer.next() => {
                let bytes = bytes?;
                self.cancelled_in_queue = None;
                Ok(match bytes {
                    Some(bytes) => TurnOutput::Frames(bytes),
                    None if self.viewer.is_interrupted() => TurnOutput::Interrupted,
                    None => TurnOutput::Ended,
                })
            }
            cancelled = queue_cancel(self.cancelled_in_queue.as_mut()) => {
                let row = cancelled?;
                self.cancelled_in_queue = None;
                self.is_ended = true;
                let frames = self.queue_cancel_frames.take().and_then(|frames| frames(row.as_ref()));
                Ok(frames.map_or(TurnOutput::Interrupted, TurnOutput::Frames))
            }
        }
    }

    /// Sends the messages of these frames.
    pub(super) async fn send_frames(
        &mut self,
        connection: &mut WsConnection,
        signer: Option<&BlobUrlSigner>,
        frames: Bytes,
    ) -> Result<(), TurnError> {
        let mut chunk = match &mut self.image_inliner {
            Some(inliner) => Some(inliner.push_frames(frames).await?),
            None => Some(frames),
        };
        while let Some(bytes) = chunk.take() {
            let bytes = match signer {
                Some(signer) => signer.sign_urls(bytes).await?,
                None => bytes,
            };
            connection.send_fragments(self.messages.split_chunk(bytes)).await?;
            if let Some(inliner) = &mut self.image_inliner {
                chunk = inliner.next().await?;
            }
        }
        Ok(())
    }

    /// Whether the last event says that the response failed.
    pub(super) fn has_failed(&self) -> bool {
        self.messages.event_type() == "response.failed"
    }
}

async fn queue_cancel(watch: Option<&mut QueueWatch>) -> Result<Option<RunRow>, StoreError> {
    match watch {
        Some(watch) => watch.await,
        None => pending().await,
    }
}
