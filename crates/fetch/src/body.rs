//! A body as it comes in: unpacked piece by piece, and never larger than allowed.
//!
//! A few kilobytes can unpack to gigabytes, so the limit stands where the unpacked bytes are written, not around it.

use crate::FetchError;
use brotli_decompressor::DecompressorWriter;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use std::io::{self, Write};

/// Brotli writes in pieces of this size.
const BROTLI_PIECE_BYTES: usize = 16 * 1024;

/// Unpacks what it is given.
pub(crate) enum Body {
    Plain(Capped),
    Gzip(MultiGzDecoder<Capped>),
    Deflate(ZlibDecoder<Capped>),
    Brotli(Box<DecompressorWriter<Capped>>),
}

impl Body {
    /// A body packed as `encoding` says. Packed twice is not something that servers do to files.
    pub(crate) fn new(encoding: Option<&str>, bytes_max: usize) -> Result<Self, FetchError> {
        let capped = Capped { bytes: Vec::new(), bytes_max, is_full: false };
        match encoding.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain(capped)),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(capped))),
            "deflate" => Ok(Self::Deflate(ZlibDecoder::new(capped))),
            "br" => Ok(Self::Brotli(Box::new(DecompressorWriter::new(capped, BROTLI_PIECE_BYTES)))),
            _ => Err(FetchError::Damaged),
        }
    }

    /// Takes one more piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        let written = match self {
            Self::Plain(body) => body.write_all(piece),
            Self::Gzip(body) => body.write_all(piece),
            Self::Deflate(body) => body.write_all(piece),
            Self::Brotli(body) => body.write_all(piece),
        };
        written.map_err(|_| self.failure())
    }

    /// All of it, if it is whole.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, FetchError> {
        let finished = match &mut self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(body) => body.try_finish(),
            Self::Deflate(body) => body.try_finish(),
            Self::Brotli(body) => body.close(),
        };
        finished.map_err(|_| self.failure())?;
        match self {
            Self::Plain(body) => Ok(body.bytes),
            Self::Gzip(body) => body.finish().map(|body| body.bytes).map_err(|_| FetchError::Damaged),
            Self::Deflate(body) => body.finish().map(|body| body.bytes).map_err(|_| FetchError::Damaged),
            Self::Brotli(body) => body.into_inner().map(|body| body.bytes).map_err(|_| FetchError::Damaged),
        }
    }

    fn failure(&self) -> FetchError {
        let capped = match self {
            Self::Plain(body) => body,
            Self::Gzip(body) => body.get_ref(),
            Self::Deflate(body) => body.get_ref(),
            Self::Brotli(body) => body.get_ref(),
        };
        if capped.is_full { FetchError::TooLarge } else { FetchError::Damaged }
    }
}

/// Bytes up to a limit.
pub(crate) struct Capped {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for Capped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
