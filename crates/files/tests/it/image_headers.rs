//! Image headers, and the limits on what they claim.

use files::{FileType, ImageHeaderScanner, ImageTooLarge};
use model_testing::{Rng, test_seeds};

const MANY: u64 = 100_000_000;

fn png(width: u32, height: u32) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", &width.to_be_bytes()[..], &height.to_be_bytes(), b"\x08\x02\0\0\0"].concat()
}

fn gif(width: u16, height: u16) -> Vec<u8> {
    [b"GIF89a", &width.to_le_bytes()[..], &height.to_le_bytes(), b"\x80\0\0abcdef"].concat()
}

/// A JPEG with this many bytes of other segments before its size.
fn jpeg(width: u16, height: u16, before: usize) -> Vec<u8> {
    let mut jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
    let mut left = before;
    while left > 0 {
        let body = left.min(60_000);
        jpeg.extend([b"\xff\xff\xe2", &u16::try_from(body + 2).unwrap().to_be_bytes()[..]].concat());
        // What looks like a frame inside a segment is none.
        jpeg.extend(b"\xff\xc0\0\x11\x08\xff\xff\xff\xff".iter().cycle().take(body));
        left -= body;
    }
    jpeg.extend(b"\xff\xc4\0\x05abc");
    jpeg.extend([b"\xff\xc2\0\x11\x08", &height.to_be_bytes()[..], &width.to_be_bytes(), b"\x03"].concat());
    jpeg.extend(b"\x01\x22\0\x02\x11\x01\x03\x11\x01\xff\xda");
    jpeg
}

fn webp(chunk: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [b"RIFF\x40\0\0\0WEBP", &chunk[..], b"\x0a\0\0\0", body, &[0; 8]].concat()
}

fn canvas(width: u32, height: u32) -> Vec<u8> {
    webp(b"VP8X", &[&[0; 4], &(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]].concat())
}

fn lossy(width: u16, height: u16) -> Vec<u8> {
    // The two highest bits are a scaling factor.
    let side = |side: u16| (side | 0x4000).to_le_bytes();
    webp(b"VP8 ", &[&b"\x30\x01\0\x9d\x01\x2a"[..], &side(width), &side(height)].concat())
}

fn lossless(width: u32, height: u32) -> Vec<u8> {
    let bits = (width - 1) | (height - 1) << 14;
    webp(b"VP8L", &[&[0x2f], &bits.to_le_bytes()[..], &[0; 5]].concat())
}

#[test]
fn an_image_header_has_its_size() {
    for (bytes, size) in [
        (png(3, 700), (3, 700)),
        (gif(640, 480), (640, 480)),
        (jpeg(640, 480, 0), (640, 480)),
        (jpeg(1, 2, 1), (1, 2)),
        (jpeg(640, 480, 3_000_000), (640, 480)),
        (canvas(640, 480), (640, 480)),
        (lossy(640, 480), (640, 480)),
        (lossless(640, 480), (640, 480)),
        (lossless(16_383, 1), (16_383, 1)),
        (png(32_768, 3_000), (32_768, 3_000)),
        (png(10_000, 10_000), (10_000, 10_000)),
    ] {
        assert_eq!(ImageHeaderScanner::scan(&bytes, MANY), Ok(Some(size)), "{:?}", &bytes[..20]);
    }
}

#[test]
fn an_image_with_too_large_a_size_is_refused() {
    for (bytes, width, height) in [
        (png(10_000, 10_001), 10_000, 10_001),
        (png(32_769, 1), 32_769, 1),
        (png(1, 32_769), 1, 32_769),
        (png(u32::MAX, u32::MAX), u32::MAX, u32::MAX),
        (gif(u16::MAX, 1), 65_535, 1),
        (gif(30_000, 30_000), 30_000, 30_000),
        (jpeg(30_000, 30_000, 0), 30_000, 30_000),
        (jpeg(1, u16::MAX, 3_000_000), 1, 65_535),
        (canvas(1 << 24, 1 << 24), 1 << 24, 1 << 24),
        (lossy(16_000, 16_000), 16_000, 16_000),
        (lossless(16_384, 16_384), 16_384, 16_384),
    ] {
        let refused = Err(ImageTooLarge { width, height, frames: 1, pixels_max: MANY });
        assert_eq!(ImageHeaderScanner::scan(&bytes, MANY), refused, "{:?}", &bytes[..20]);
    }
}

/// An animated GIF, with everything that may come between its frames.
fn moving_gif(frames: usize, side: u16) -> Vec<u8> {
    let frame =
        [b"\x2c\0\0\0\0", &side.to_le_bytes()[..], &side.to_le_bytes(), b"\x80abcdef\x02\x03\x2c\x2c\x3b\x01\x21\0"];
    let note = [b"\x21\xfe\x05hello", &b"\0\x21\xf9\x04\0\0\0\0\0"[..], &frame.concat()].concat();
    [gif(64, 64), note.repeat(frames), b"\x3b".to_vec()].concat()
}

fn moving_webp(frames: usize) -> Vec<u8> {
    let mut canvas = canvas(64, 64)[..30].to_vec();
    canvas[20] = 2;
    // One of odd length, which is padded by a byte.
    let frame = [b"ANMF\x13\0\0\0", &b"ANMFANMFANMFANMFANM\0"[..]].concat();
    [canvas, b"ANIM\x06\0\0\0abcdef".to_vec(), frame.repeat(frames)].concat()
}

fn moving_png(frames: u32) -> Vec<u8> {
    let told = [b"\0\0\0\x08acTL", &frames.to_be_bytes()[..], b"\0\0\0\0crc."].concat();
    [png(64, 64), b"crc.\0\0\0\x03tEXtabccrc.".to_vec(), told, b"\0\0\0\x01IDAT".to_vec()].concat()
}

#[test]
fn animations_have_limits_on_frames_and_frame_size() {
    for bytes in [moving_gif(10_000, 64), moving_webp(10_000), moving_png(10_000), moving_gif(0, 64), moving_webp(0)] {
        assert_eq!(ImageHeaderScanner::scan(&bytes, MANY), Ok(Some((64, 64))), "{:?}", &bytes[..20]);
    }
    for (bytes, frames) in [
        (moving_gif(100_000, 64), 10_001),
        (moving_webp(100_000), 10_001),
        (moving_png(100_000), 100_000),
        (moving_png(u32::MAX), u32::MAX),
    ] {
        let refused = Err(ImageTooLarge { width: 64, height: 64, frames, pixels_max: MANY });
        assert_eq!(ImageHeaderScanner::scan(&bytes, MANY), refused, "{:?}", &bytes[..20]);
    }
    // Larger than the canvas.
    let refused = Err(ImageTooLarge { width: 65_535, height: 65_535, frames: 1, pixels_max: MANY });
    assert_eq!(ImageHeaderScanner::scan(&moving_gif(1, u16::MAX), MANY), refused);
}

#[test]
fn non_images_have_no_size() {
    for bytes in [
        &b""[..],
        b"words",
        // This is text; read as an image it would be 12,605 by 24,891.
        b"GIF89a=1;alert(1)//",
        b"%PDF-1.7\n1 0 obj",
        b"PK\x03\x04\x14\0\0\0\x08\0",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a\x01",
        b"GIF89a\0\0\x01\0\0\0\0",
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\0\0\0\0\0\x08\x06\0\0\0",
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIDAT\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xd8\xff\xd9\xff\xc0\0\x11\x08\xff\xff\xff\xff",
        b"\xff\xd8\xff\xe0\xff\xff",
        b"RIFF\x40\0\0\0WEBPVP9 \x0a\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert_eq!(ImageHeaderScanner::scan(bytes, MANY), Ok(None), "{bytes:?}");
    }
}

#[test]
fn the_result_does_not_depend_on_chunking_or_content() {
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let mut bytes = match rng.below(7) {
            0 => png(20_000, 20_000),
            4 => moving_gif(10_001, 64),
            5 => moving_webp(10_001),
            6 => moving_png(10_001),
            1 => jpeg(20_000, 20_000, 1 + rng.below(200_000)),
            2 => lossless(300, 200),
            _ => gif(40_000, 2),
        };
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] = u8::try_from(rng.below(256)).unwrap();
        }
        let kind = FileType::sniff(&bytes, None);
        let mut whole = ImageHeaderScanner::new(kind, MANY);
        let wanted = whole.feed(&bytes);
        let (mut cut, mut got, mut rest) = (ImageHeaderScanner::new(kind, MANY), Ok(()), &bytes[..]);
        while got.is_ok() && !rest.is_empty() {
            let piece;
            (piece, rest) = rest.split_at(rest.len().min(1 + rng.below(5_000)));
            got = cut.feed(piece);
        }
        assert_eq!(got, wanted, "seed {seed}");
    }
}

fn animated_png(width: u32, height: u32, frames: u32) -> Vec<u8> {
    let frames = [frames.to_be_bytes(), [0; 4]].concat();
    [&png(width, height)[..], b"crc_\0\0\0\x08acTL", &frames, b"crc_\0\0\0\0IDATcrc_"].concat()
}

fn animated_webp(width: u32, height: u32, frames: usize) -> Vec<u8> {
    let mut chunks = b"WEBPVP8X\x0a\0\0\0\x02\0\0\0".to_vec();
    chunks.extend(&(width - 1).to_le_bytes()[..3]);
    chunks.extend(&(height - 1).to_le_bytes()[..3]);
    chunks.extend(b"ANMF\x03\0\0\0abc\0".repeat(frames));
    let length = u32::try_from(chunks.len()).unwrap().to_le_bytes();
    [&b"RIFF"[..], &length, &chunks].concat()
}

fn animated_gif(width: u16, height: u16, frames: usize) -> Vec<u8> {
    let frame = b"\x21\xf9\x04\0\0\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x4c\x01\0";
    [&gif(width, height)[..], &frame.repeat(frames), b"\x3b"].concat()
}

#[test]
fn the_pixels_of_all_frames_are_counted_by_the_header() {
    for (bytes, content_type, pixels) in [
        (png(100, 100), "image/png", Some(10_000)),
        (png(65_535, 65_535), "image/png", Some(65_535 * 65_535)),
        (png(u32::MAX, u32::MAX), "image/png", Some(u64::from(u32::MAX) * u64::from(u32::MAX))),
        (animated_png(100, 100, 10), "image/png", Some(100_000)),
        (animated_png(100, 100, 1_000_000), "image/png", Some(10_000_000_000)),
        (animated_webp(10, 10, 7), "image/webp", Some(700)),
        (animated_webp(100, 100, 100_000), "image/webp", Some(1_000_000_000)),
        (animated_webp(16_000, 16_000, 0), "image/webp", Some(256_000_000)),
        (animated_gif(10, 10, 7), "image/gif", Some(700)),
        (animated_gif(100, 100, 100_000), "image/gif", Some(1_000_000_000)),
        (animated_gif(0, 10, 1), "image/gif", Some(0)),
        (jpeg(640, 480, 0), "image/jpeg", Some(640 * 480)),
        (b"\x89PNG\r\n\x1a\n".to_vec(), "image/png", None),
        (b"\xff\xd8\xff".to_vec(), "image/jpeg", None),
    ] {
        assert_eq!(
            ImageHeaderScanner::total_pixels(&bytes, content_type),
            pixels,
            "{:?}",
            &bytes[..bytes.len().min(30)]
        );
    }
}
