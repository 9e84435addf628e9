//! Reads the dimensions and the frame count from the headers of images, without decoding them.
//!
//! A few kilobytes can declare an image of a hundred thousand pixels a side, and a decoder that trusts them runs out of
//! memory. Larger images than the limits, and animations with more frames, are refused. Headers are read as the bytes
//! arrive and nothing is buffered, because in a JPEG they may follow any number of segments.

use crate::file_type::FileType;

const SIDE_MAX: u32 = 32_768;
const FRAMES_MAX: u32 = 10_000;
/// The header of each variant of WebP fits into this.
const WEBP_BYTES: usize = 30;
const PNG_BYTES: usize = 24;
const GIF_BYTES: usize = 10;
/// The start of a frame segment: length, sample precision, height, width.
const FRAME_BYTES: usize = 7;
/// Type and length of a PNG or WebP chunk.
const CHUNK_BYTES: usize = 8;
/// The rest of a PNG's IHDR chunk.
const PNG_REST_BYTES: usize = 5 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 4;
/// The image descriptor of a GIF: position, width, height, flags.
const GIF_FRAME_BYTES: usize = 9;

/// Scans an image that arrives in chunks.
#[derive(Debug)]
pub struct ImageHeaderScanner {
    limits: ImageLimits,
    state: ScanState,
    /// Number of bytes to skip.
    skip: usize,
    /// The part that has arrived of the next `wanted_bytes`.
    buffer: Vec<u8>,
    wanted_bytes: usize,
    size: Option<(u32, u32)>,
    frames: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the image is too large (width {width}, height {height}, frames {frames}): \
     at most {pixels_max} pixels, {SIDE_MAX} pixels per side and {FRAMES_MAX} frames"
)]
pub struct ImageTooLarge {
    pub width: u32,
    pub height: u32,
    /// Declared, or counted so far.
    pub frames: u32,
    pub pixels_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct ImageLimits {
    side_max: u32,
    pixels_max: u64,
    frames_max: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    Png,
    Gif,
    Webp,
    /// At the start of the file.
    Jpeg,
    /// Before a marker. Other bytes are skipped, as JPEG decoders do.
    JpegMarkerStart,
    /// After the first byte of a marker.
    JpegMarker,
    /// At the length of a segment.
    JpegSegment,
    /// At the segment with the dimensions.
    JpegFrame,
    PngChunk,
    /// At the frame count of an animated PNG.
    PngFrames,
    /// At a chunk of an animated WebP.
    WebpChunk,
    /// After the dimensions of a GIF.
    GifScreen,
    /// At the first byte of a block.
    GifBlock,
    GifFrame,
    /// At the length of a data sub-block.
    GifData,
    /// Nothing of interest follows.
    Done,
}

impl ImageHeaderScanner {
    /// Scans a whole file; returns the dimensions of a PNG, JPEG, GIF or WebP. A file without a pixel has none.
    pub fn scan(bytes: &[u8], pixels_max: u64) -> Result<Option<(u32, u32)>, ImageTooLarge> {
        let mut scanner = Self::new(FileType::sniff(bytes, None), pixels_max);
        scanner.feed(bytes)?;
        Ok(scanner.size.filter(|(width, height)| *width > 0 && *height > 0))
    }

    /// The pixels of all frames of an image together; `None` if its header cannot be read.
    pub fn total_pixels(bytes: &[u8], content_type: &str) -> Option<u64> {
        let unlimited = ImageLimits { side_max: u32::MAX, pixels_max: u64::MAX, frames_max: u32::MAX };
        let mut scanner = Self::with_limits(content_type, unlimited);
        scanner.feed(bytes).ok()?;
        let (width, height) = scanner.size?;
        Some((u64::from(width) * u64::from(height)).saturating_mul(u64::from(scanner.frames.max(1))))
    }

    pub fn new(file_type: FileType, pixels_max: u64) -> Self {
        let limits = ImageLimits { side_max: SIDE_MAX, pixels_max, frames_max: FRAMES_MAX };
        Self::with_limits(file_type.content_type, limits)
    }

    fn with_limits(content_type: &str, limits: ImageLimits) -> Self {
        let (state, wanted_bytes) = match content_type {
            "image/png" => (ScanState::Png, PNG_BYTES),
            "image/gif" => (ScanState::Gif, GIF_BYTES),
            "image/webp" => (ScanState::Webp, WEBP_BYTES),
            "image/jpeg" => (ScanState::Jpeg, 2),
            _ => (ScanState::Done, 0),
        };
        Self { limits, state, skip: 0, buffer: Vec::new(), wanted_bytes, size: None, frames: 1 }
    }

    /// Scans the next bytes.
    pub fn feed(&mut self, mut chunk: &[u8]) -> Result<(), ImageTooLarge> {
        while self.state != ScanState::Done {
            let skipped = self.skip.min(chunk.len());
            self.skip -= skipped;
            chunk = chunk.get(skipped..).unwrap_or_default();
            let Some((byte, rest)) = chunk.split_first() else { return Ok(()) };
            chunk = rest;
            self.buffer.push(*byte);
            if self.buffer.len() == self.wanted_bytes {
                let bytes = std::mem::take(&mut self.buffer);
                self.step(&bytes)?;
            }
        }
        Ok(())
    }

    /// Processes the bytes that the current state waited for.
    fn step(&mut self, bytes: &[u8]) -> Result<(), ImageTooLarge> {
        (self.state, self.wanted_bytes) = match (self.state, bytes) {
            (ScanState::Jpeg, _) | (ScanState::JpegMarker, [0 | 1 | 0xd0..=0xd8]) => (ScanState::JpegMarkerStart, 1),
            (ScanState::JpegMarkerStart, [0xff]) | (ScanState::JpegMarker, [0xff]) => (ScanState::JpegMarker, 1),
            (ScanState::JpegMarkerStart, _) => (ScanState::JpegMarkerStart, 1),
            // Image data or the end of the file, without dimensions before it.
            (ScanState::JpegMarker, [0xd9 | 0xda]) => (ScanState::Done, 0),
            (ScanState::JpegMarker, [0xc4 | 0xc8 | 0xcc]) => (ScanState::JpegSegment, 2),
            (ScanState::JpegMarker, [0xc0..=0xcf]) => (ScanState::JpegFrame, FRAME_BYTES),
            (ScanState::JpegMarker, _) => (ScanState::JpegSegment, 2),
            (ScanState::JpegSegment, [high, low]) => {
                // The length includes itself.
                self.skip = usize::from(u16::from_be_bytes([*high, *low])).saturating_sub(2);
                (ScanState::JpegMarkerStart, 1)
            }
            (ScanState::Png | ScanState::Gif | ScanState::Webp | ScanState::JpegFrame, header) => {
                self.size = parse_dimensions(self.state, header);
                if let Some((width, height)) = self.size {
                    self.check_size(width, height)?;
                }
                self.after_header(header)
            }
            (_, bytes) => self.scan_frames(bytes)?,
        };
        Ok(())
    }

    /// Where the frame count is found, for formats that can be animated.
    fn after_header(&mut self, header: &[u8]) -> (ScanState, usize) {
        const ANIMATED: u8 = 2;
        match self.state {
            ScanState::Png if self.size.is_some() => {
                self.skip = PNG_REST_BYTES;
                (ScanState::PngChunk, CHUNK_BYTES)
            }
            ScanState::Gif => {
                self.frames = 0;
                (ScanState::GifScreen, 3)
            }
            ScanState::Webp
                if header.get(12..16) == Some(b"VP8X") && header.get(20).is_some_and(|flags| flags & ANIMATED != 0) =>
            {
                self.frames = 0;
                (ScanState::WebpChunk, CHUNK_BYTES)
            }
            _ => (ScanState::Done, 0),
        }
    }

    /// Processes the chunks and blocks that count frames.
    fn scan_frames(&mut self, bytes: &[u8]) -> Result<(ScanState, usize), ImageTooLarge> {
        Ok(match (self.state, bytes) {
            (ScanState::PngChunk, [_, _, _, _, b'a', b'c', b'T', b'L']) => (ScanState::PngFrames, 4),
            // The image data of a still PNG.
            (ScanState::PngChunk, [_, _, _, _, b'I', b'D' | b'E', ..]) => (ScanState::Done, 0),
            (ScanState::PngChunk, [l0, l1, l2, l3, ..]) => {
                self.skip = (u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize).saturating_add(CHECKSUM_BYTES);
                (ScanState::PngChunk, CHUNK_BYTES)
            }
            (ScanState::PngFrames, [f0, f1, f2, f3]) => {
                self.set_frames(u32::from_be_bytes([*f0, *f1, *f2, *f3]))?;
                (ScanState::Done, 0)
            }
            (ScanState::WebpChunk, [kind @ .., l0, l1, l2, l3]) => {
                if kind == b"ANMF" {
                    self.set_frames(self.frames.saturating_add(1))?;
                }
                self.skip = (read_le(&[*l0, *l1, *l2, *l3]) as usize).next_multiple_of(2);
                (ScanState::WebpChunk, CHUNK_BYTES)
            }
            (ScanState::GifScreen, [packed, ..]) => {
                self.skip = color_table_bytes(*packed);
                (ScanState::GifBlock, 1)
            }
            // An extension and its label.
            (ScanState::GifBlock, [0x21]) => {
                self.skip = 1;
                (ScanState::GifData, 1)
            }
            (ScanState::GifBlock, [0x2c]) => (ScanState::GifFrame, GIF_FRAME_BYTES),
            (ScanState::GifFrame, [_, _, _, _, w0, w1, h0, h1, packed]) => {
                self.set_frames(self.frames.saturating_add(1))?;
                self.check_size(read_le(&[*w0, *w1]), read_le(&[*h0, *h1]))?;
                // The data starts with the LZW code size.
                self.skip = color_table_bytes(*packed) + 1;
                (ScanState::GifData, 1)
            }
            (ScanState::GifData, [0]) => (ScanState::GifBlock, 1),
            (ScanState::GifData, [length]) => {
                self.skip = usize::from(*length);
                (ScanState::GifData, 1)
            }
            _ => (ScanState::Done, 0),
        })
    }

    fn set_frames(&mut self, frames: u32) -> Result<(), ImageTooLarge> {
        self.frames = frames;
        let (width, height) = self.size.unwrap_or_default();
        self.check_size(width, height)
    }

    fn check_size(&self, width: u32, height: u32) -> Result<(), ImageTooLarge> {
        let pixels = u64::from(width) * u64::from(height);
        let ImageLimits { side_max, pixels_max, frames_max } = self.limits;
        if width.max(height) > side_max || pixels > pixels_max || self.frames > frames_max {
            return Err(ImageTooLarge { width, height, frames: self.frames, pixels_max });
        }
        Ok(())
    }
}

/// The dimensions in a header; `None` if it is invalid.
fn parse_dimensions(state: ScanState, header: &[u8]) -> Option<(u32, u32)> {
    match state {
        ScanState::Png => match header {
            [.., b'I', b'H', b'D', b'R', w0, w1, w2, w3, h0, h1, h2, h3] => {
                Some((u32::from_be_bytes([*w0, *w1, *w2, *w3]), u32::from_be_bytes([*h0, *h1, *h2, *h3])))
            }
            _ => None,
        },
        ScanState::Gif => match header {
            [.., w0, w1, h0, h1] => Some((read_le(&[*w0, *w1]), read_le(&[*h0, *h1]))),
            _ => None,
        },
        ScanState::JpegFrame => match header {
            [_, _, _, h0, h1, w0, w1] => Some((read_le(&[*w1, *w0]), read_le(&[*h1, *h0]))),
            _ => None,
        },
        ScanState::Webp => webp_dimensions(header.get(12..16)?, header.get(20..)?),
        _ => None,
    }
}

/// The dimensions in the first chunk of a WebP: extended, lossy or lossless.
fn webp_dimensions(chunk: &[u8], body: &[u8]) -> Option<(u32, u32)> {
    const SIDE: u32 = 0x3fff;
    match (chunk, body) {
        (b"VP8X", [_, _, _, _, w0, w1, w2, h0, h1, h2]) => {
            Some((read_le(&[*w0, *w1, *w2]) + 1, read_le(&[*h0, *h1, *h2]) + 1))
        }
        (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1]) => {
            Some((read_le(&[*w0, *w1]) & SIDE, read_le(&[*h0, *h1]) & SIDE))
        }
        (b"VP8L", [0x2f, b0, b1, b2, b3, ..]) => {
            let bits = read_le(&[*b0, *b1, *b2, *b3]);
            Some(((bits & SIDE) + 1, (bits >> 14 & SIDE) + 1))
        }
        _ => None,
    }
}

/// The size of a GIF's global or local colour table.
fn color_table_bytes(packed: u8) -> usize {
    const PRESENT: u8 = 0x80;
    if packed & PRESENT == 0 { 0 } else { 3 << ((packed & 7) + 1) }
}

/// A little-endian integer.
fn read_le(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
