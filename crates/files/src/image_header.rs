//! How much it would take to unpack a picture, by what its header says. Nothing is ever unpacked here.
//!
//! A few kilobytes can say that they are a hundred thousand pixels wide, and whoever believes them and makes room for that
//! falls over. So what says it is larger than pictures are is not taken, and neither is what moves through more frames. The
//! headers are read as the bytes come and nothing of them is kept: in a JPEG they may stand behind any number of segments.

use crate::FileType;

/// No side of a picture is longer.
const SIDE_MAX: u32 = 32_768;
/// No picture that moves has more frames.
const FRAMES_MAX: u32 = 10_000;
/// What tells one WebP from another stands in so many bytes.
const WEBP_BYTES: usize = 30;
const PNG_BYTES: usize = 24;
const GIF_BYTES: usize = 10;
/// A frame's segment: its length, the bits of a sample, height, width.
const FRAME_BYTES: usize = 7;
/// What a chunk of a PNG or WebP begins with: its kind and its length.
const CHUNK_BYTES: usize = 8;
/// The rest of a PNG's header, and a checksum.
const PNG_REST_BYTES: usize = 5 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 4;
/// A frame of a GIF: where it is, how wide and how high, and what it brings along.
const GIF_FRAME_BYTES: usize = 9;

/// A picture that comes in, piece by piece.
#[derive(Debug)]
pub struct ImageHeaderScanner {
    pixels_max: u64,
    /// Where in the file we are.
    state: ScanState,
    /// So many bytes are of no interest.
    skip: usize,
    /// What was gathered of the next `wanted` bytes.
    buffer: Vec<u8>,
    wanted_bytes: usize,
    size: Option<(u32, u32)>,
    frames: u32,
}

/// It says of itself that it is larger than pictures may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the picture is too large (width {width}, height {height}, frames {frames}): \
     {pixels_max} pixels, sides of {SIDE_MAX} and {FRAMES_MAX} frames are the most"
)]
pub struct ImageTooLarge {
    /// How wide it says it is.
    pub width: u32,
    /// How high.
    pub height: u32,
    /// How many frames were seen of it, or it says that it has.
    pub frames: u32,
    /// How many pixels it may have.
    pub pixels_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    Png,
    Gif,
    Webp,
    /// At the two bytes that every JPEG begins with.
    Jpeg,
    /// Before a marker. What else stands there is passed over, as readers of JPEG do.
    JpegMarkerStart,
    /// In a marker, behind its first byte.
    JpegMarker,
    /// At the length of a segment.
    JpegSegment,
    /// At the segment that says how large the picture is.
    JpegFrame,
    /// At a chunk of a PNG.
    PngChunk,
    /// Where a PNG says how many frames it has.
    PngFrames,
    /// At a chunk of a WebP that moves.
    WebpChunk,
    /// Behind the sides of a GIF.
    GifScreen,
    /// At the first byte of a block.
    GifBlock,
    GifFrame,
    /// At the length of a piece of data.
    GifData,
    /// Nothing more is to be found out.
    Done,
}

impl ImageHeaderScanner {
    /// Looks at a whole file: how wide and how high it is, where it is a PNG, JPEG, GIF or WebP that says so.
    ///
    /// # Errors
    /// When it says that it is too large.
    pub fn scan(bytes: &[u8], pixels_max: u64) -> Result<Option<(u32, u32)>, ImageTooLarge> {
        let mut picture = Self::new(FileType::sniff(bytes, None), pixels_max);
        picture.feed(bytes)?;
        Ok(picture.size)
    }

    /// A file of this kind comes, of which nothing is known yet.
    #[must_use]
    pub fn new(kind: FileType, pixels_max: u64) -> Self {
        let (at, wanted) = match kind.content_type {
            "image/png" => (ScanState::Png, PNG_BYTES),
            "image/gif" => (ScanState::Gif, GIF_BYTES),
            "image/webp" => (ScanState::Webp, WEBP_BYTES),
            "image/jpeg" => (ScanState::Jpeg, 2),
            _ => (ScanState::Done, 0),
        };
        Self { pixels_max, state: at, skip: 0, buffer: Vec::new(), wanted_bytes: wanted, size: None, frames: 1 }
    }

    /// Looks at the next bytes of it.
    ///
    /// # Errors
    /// When they say that it is too large.
    pub fn feed(&mut self, mut piece: &[u8]) -> Result<(), ImageTooLarge> {
        while self.state != ScanState::Done {
            let passed = self.skip.min(piece.len());
            self.skip -= passed;
            piece = piece.get(passed..).unwrap_or_default();
            let Some((byte, rest)) = piece.split_first() else { return Ok(()) };
            piece = rest;
            self.buffer.push(*byte);
            if self.buffer.len() == self.wanted_bytes {
                let found = std::mem::take(&mut self.buffer);
                self.step(&found)?;
            }
        }
        Ok(())
    }

    /// What was waited for is here.
    fn step(&mut self, found: &[u8]) -> Result<(), ImageTooLarge> {
        (self.state, self.wanted_bytes) = match (self.state, found) {
            (ScanState::Jpeg, _) | (ScanState::JpegMarker, [0 | 1 | 0xd0..=0xd8]) => (ScanState::JpegMarkerStart, 1),
            (ScanState::JpegMarkerStart, [0xff]) | (ScanState::JpegMarker, [0xff]) => (ScanState::JpegMarker, 1),
            (ScanState::JpegMarkerStart, _) => (ScanState::JpegMarkerStart, 1),
            // The picture itself begins, or ends, and nothing has said how large it is.
            (ScanState::JpegMarker, [0xd9 | 0xda]) => (ScanState::Done, 0),
            (ScanState::JpegMarker, [0xc4 | 0xc8 | 0xcc]) => (ScanState::JpegSegment, 2),
            (ScanState::JpegMarker, [0xc0..=0xcf]) => (ScanState::JpegFrame, FRAME_BYTES),
            (ScanState::JpegMarker, _) => (ScanState::JpegSegment, 2),
            (ScanState::JpegSegment, [high, low]) => {
                // The length counts itself.
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
            (_, found) => self.scan_frames(found)?,
        };
        Ok(())
    }

    /// Where frames are told of, where there may be more than one.
    fn after_header(&mut self, header: &[u8]) -> (ScanState, usize) {
        const MOVES: u8 = 2;
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
                if header.get(12..16) == Some(b"VP8X") && header.get(20).is_some_and(|flags| flags & MOVES != 0) =>
            {
                self.frames = 0;
                (ScanState::WebpChunk, CHUNK_BYTES)
            }
            _ => (ScanState::Done, 0),
        }
    }

    /// Goes through what moves, frame by frame.
    fn scan_frames(&mut self, found: &[u8]) -> Result<(ScanState, usize), ImageTooLarge> {
        Ok(match (self.state, found) {
            (ScanState::PngChunk, [_, _, _, _, b'a', b'c', b'T', b'L']) => (ScanState::PngFrames, 4),
            // Whatever comes now is in the one picture that everybody sees.
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
                    self.set_frames(self.frames + 1)?;
                }
                self.skip = (read_le(&[*l0, *l1, *l2, *l3]) as usize).next_multiple_of(2);
                (ScanState::WebpChunk, CHUNK_BYTES)
            }
            (ScanState::GifScreen, [packed, ..]) => {
                self.skip = color_table_bytes(*packed);
                (ScanState::GifBlock, 1)
            }
            // An extension, and what it is called.
            (ScanState::GifBlock, [0x21]) => {
                self.skip = 1;
                (ScanState::GifData, 1)
            }
            (ScanState::GifBlock, [0x2c]) => (ScanState::GifFrame, GIF_FRAME_BYTES),
            (ScanState::GifFrame, [_, _, _, _, w0, w1, h0, h1, packed]) => {
                self.set_frames(self.frames + 1)?;
                self.check_size(read_le(&[*w0, *w1]), read_le(&[*h0, *h1]))?;
                // The data begins with how it is packed.
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
        if width > SIDE_MAX || height > SIDE_MAX || pixels > self.pixels_max || self.frames > FRAMES_MAX {
            return Err(ImageTooLarge { width, height, frames: self.frames, pixels_max: self.pixels_max });
        }
        Ok(())
    }
}

/// What a header says: how wide, how high. `None` when it is no header after all.
fn parse_dimensions(at: ScanState, header: &[u8]) -> Option<(u32, u32)> {
    match at {
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

/// A WebP says it in one of three ways, by its first chunk: the canvas, a lossy frame, or a lossless one.
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

/// How long the table of colours of a GIF or of one of its frames is.
fn color_table_bytes(packed: u8) -> usize {
    const IS_THERE: u8 = 0x80;
    if packed & IS_THERE == 0 { 0 } else { 3 << ((packed & 7) + 1) }
}

/// A number whose first byte counts least.
fn read_le(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
