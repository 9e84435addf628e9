//! The signal that the server is shutting down.

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// The shutdown starts when the channel's value becomes `true`.
    pub(crate) const fn new(channel: watch::Receiver<bool>) -> Self {
        Self(channel)
    }

    /// Returns once the shutdown has started.
    pub(crate) async fn started(&mut self) {
        // An error means that the sender is gone, and with it the server.
        drop(self.0.wait_for(|started| *started).await);
    }
}
