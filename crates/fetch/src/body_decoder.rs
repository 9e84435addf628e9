//! Decodes a response body chunk by chunk, up to a limit.
//!
//! A few kilobytes can decompress to gigabytes, so the limit applies to the decompressed bytes.

use crate::error::FetchError;
use brotli_decompressor::DecompressorWriter;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use std::io::{self, Write};

const BROTLI_PIECE_BYTES: usize = 16 * 1024;

pub(crate) enum BodyDecoder {
    Plain(BoundedBuffer),
    Gzip(MultiGzDecoder<BoundedBuffer>),
    Deflate(ZlibDecoder<BoundedBuffer>),
    Brotli(Box<DecompressorWriter<BoundedBuffer>>),
}

impl BodyDecoder {
    /// Accepts a single content coding; servers do not stack them for files.
    pub(crate) fn new(encoding: Option<&str>, bytes_max: usize) -> Result<Self, FetchError> {
        let capped = BoundedBuffer { bytes: Vec::new(), bytes_max, is_full: false };
        match encoding.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain(capped)),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(capped))),
            "deflate" => Ok(Self::Deflate(ZlibDecoder::new(capped))),
            "br" => Ok(Self::Brotli(Box::new(DecompressorWriter::new(capped, BROTLI_PIECE_BYTES)))),
            _ => Err(FetchError::InvalidResponse),
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), FetchError> {
        let written = match self {
            Self::Plain(body) => body.write_all(chunk),
            Self::Gzip(body) => body.write_all(chunk),
            Self::Deflate(body) => body.write_all(chunk),
            Self::Brotli(body) => body.write_all(chunk),
        };
        written.map_err(|_| self.decode_error())
    }

    /// The complete body; an error if it is truncated.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, FetchError> {
        let finished = match &mut self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(body) => body.try_finish(),
            Self::Deflate(body) => body.try_finish(),
            Self::Brotli(body) => body.close(),
        };
        finished.map_err(|_| self.decode_error())?;
        match self {
            Self::Plain(body) => Ok(body.bytes),
            Self::Gzip(body) => body.finish().map(|body| body.bytes).map_err(|_| FetchError::InvalidResponse),
            Self::Deflate(body) => body.finish().map(|body| body.bytes).map_err(|_| FetchError::InvalidResponse),
            Self::Brotli(body) => body.into_inner().map(|body| body.bytes).map_err(|_| FetchError::InvalidResponse),
        }
    }

    fn decode_error(&self) -> FetchError {
        let capped = match self {
            Self::Plain(body) => body,
            Self::Gzip(body) => body.get_ref(),
            Self::Deflate(body) => body.get_ref(),
            Self::Brotli(body) => body.get_ref(),
        };
        if capped.is_full { FetchError::TooLarge } else { FetchError::InvalidResponse }
    }
}

pub(crate) struct BoundedBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for BoundedBuffer {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.bytes_max - self.bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
