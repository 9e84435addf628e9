//! A listener that must receive no connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) struct Canary {
    pub(crate) address: SocketAddr,
    seen: Arc<AtomicUsize>,
    woken: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Canary {
    pub(crate) async fn at(address: &str) -> Self {
        Self::on(TcpListener::bind(address).await.unwrap())
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let (seen, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, wakes) = (Arc::clone(&seen), Arc::clone(&woken));
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(socket);
                wakes.notify_one();
            }
        });
        Self { address, seen, woken, task }
    }

    /// The number of connections. They are accepted in order, so when ours has been seen, all before it have.
    pub(crate) async fn seen(&self) -> usize {
        let before = self.seen.load(Ordering::SeqCst);
        let ours = TcpStream::connect(self.address).await.unwrap();
        while self.seen.load(Ordering::SeqCst) == before {
            self.woken.notified().await;
        }
        // The listener closes what it has counted.
        let mut nothing = [0];
        let _ = ours.readable().await;
        let _ = ours.try_read(&mut nothing);
        self.seen.fetch_sub(1, Ordering::SeqCst) - 1
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.task.abort();
    }
}
