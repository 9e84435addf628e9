//! A bound on the time for which a client may take nothing of what is sent to it.
//!
//! The timer exists only while a write waits: thousands of connections have nothing to write for most of the time.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail when it has accepted nothing for some time.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// Since the first write that was not accepted.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) const fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, blocked: None }
    }

    fn check<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let timeout = self.timeout;
        ready!(self.blocked.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        self.blocked = None;
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(shut_down, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::timeout;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_nothing_is_accepted_for_the_whole_time() {
        let (stream, mut client) = duplex(4);
        let mut stream = WriteTimeout::new(stream, TIMEOUT);
        stream.write_all(b"full").await.unwrap();
        assert!(stream.blocked.is_none());
        // Just before the end something is accepted: the time begins anew.
        assert!(timeout(TIMEOUT - Duration::from_millis(1), stream.write_all(b"more")).await.is_err());
        assert_eq!(client.read_u8().await.unwrap(), b'f');
        stream.write_all(b"m").await.unwrap();
        assert!(timeout(TIMEOUT - Duration::from_millis(1), stream.write_all(b"ore")).await.is_err());
        let failed = timeout(Duration::from_millis(2), stream.write_all(b"ore")).await.unwrap();
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
