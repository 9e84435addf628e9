//! An image is passed on as it came. Only its header is read: how much would unpacking it take?

use crate::{DocumentFormat, FetchError};

/// Refuses what nobody should unpack.
pub(super) fn check_image_size(bytes: &[u8], kind: DocumentFormat, pixels_max: u64) -> Result<(), FetchError> {
    let size = imagesize::blob_size(bytes).map_err(|_| FetchError::Unreadable)?;
    let side = |side: usize| u64::try_from(side).unwrap_or(u64::MAX);
    let frames = match kind {
        DocumentFormat::Webp => webp_frames(bytes),
        DocumentFormat::Gif => gif_frames(bytes),
        DocumentFormat::Png => png_frames(bytes),
        _ => 1,
    };
    let pixels = side(size.width).saturating_mul(side(size.height));
    if pixels == 0 {
        return Err(FetchError::Unreadable);
    }
    if pixels.saturating_mul(frames.max(1)) > pixels_max { Err(FetchError::TooLarge) } else { Ok(()) }
}

/// The frames of a moving WebP: its `ANMF` chunks.
fn webp_frames(bytes: &[u8]) -> u64 {
    let (mut frames, mut rest) = (0, bytes.get(12..).unwrap_or_default());
    while let Some((&[a, b, c, d, l0, l1, l2, l3], behind)) = rest.split_first_chunk() {
        frames += u64::from([a, b, c, d] == *b"ANMF");
        let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        // Chunks begin at even places.
        rest = behind.get(length.saturating_add(length % 2)..).unwrap_or_default();
    }
    frames
}

/// The frames that a moving PNG announces, which it has to do before its first pixel.
fn png_frames(bytes: &[u8]) -> u64 {
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let Some((&[l0, l1, l2, l3, a, b, c, d], behind)) = rest.split_first_chunk() {
        match (&[a, b, c, d], behind) {
            (b"acTL", [f0, f1, f2, f3, ..]) => return u64::from(u32::from_be_bytes([*f0, *f1, *f2, *f3])),
            (b"IDAT", _) => return 1,
            _ => {}
        }
        let length = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        rest = behind.get(length.saturating_add(4)..).unwrap_or_default();
    }
    1
}

/// The frames of a GIF: its image descriptors.
fn gif_frames(bytes: &[u8]) -> u64 {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let Some(flags) = bytes.get(10) else { return 0 };
    let (mut frames, mut at) = (0, 13 + table(*flags));
    loop {
        match bytes.get(at) {
            Some(0x2c) => {
                frames += 1;
                let Some(flags) = bytes.get(at + 9) else { return frames };
                at = skip_gif_blocks(bytes, at + 10 + table(*flags) + 1);
            }
            Some(0x21) => at = skip_gif_blocks(bytes, at + 2),
            _ => return frames,
        }
    }
}

/// Behind a row of blocks, each of which says how long it is, up to an empty one.
fn skip_gif_blocks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(length) = bytes.get(at) {
        at += 1 + usize::from(*length);
        if *length == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, frames: Option<u32>) -> Vec<u8> {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        png.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
        png.extend(b"\x08\x02\0\0\0crc_");
        if let Some(frames) = frames {
            png.extend(b"\0\0\0\x08acTL");
            png.extend([frames.to_be_bytes(), [0; 4]].concat());
            png.extend(b"crc_");
        }
        png.extend(b"\0\0\0\0IDATcrc_");
        png
    }

    fn webp(width: u32, height: u32, frames: usize) -> Vec<u8> {
        let mut chunks = b"WEBPVP8X\x0a\0\0\0\x02\0\0\0".to_vec();
        chunks.extend(&(width - 1).to_le_bytes()[..3]);
        chunks.extend(&(height - 1).to_le_bytes()[..3]);
        chunks.extend(b"ANMF\x03\0\0\0abc\0".repeat(frames));
        let length = u32::try_from(chunks.len()).unwrap().to_le_bytes();
        [&b"RIFF"[..], &length, &chunks].concat()
    }

    fn gif(width: u16, height: u16, frames: usize) -> Vec<u8> {
        let mut gif = b"GIF89a".to_vec();
        gif.extend([width.to_le_bytes(), height.to_le_bytes()].concat());
        gif.extend(b"\x80\0\0abcdef");
        let frame = b"\x21\xf9\x04\0\0\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x4c\x01\0";
        gif.extend(frame.repeat(frames));
        gif.push(0x3b);
        gif
    }

    #[test]
    fn an_image_that_unpacks_to_too_much_is_refused_by_its_header() {
        let cases = [
            (png(100, 100, None), DocumentFormat::Png, Ok(())),
            (png(65_535, 65_535, None), DocumentFormat::Png, Err(FetchError::TooLarge)),
            (png(u32::MAX, u32::MAX, None), DocumentFormat::Png, Err(FetchError::TooLarge)),
            (png(100, 100, Some(10)), DocumentFormat::Png, Ok(())),
            (png(100, 100, Some(1_000_000)), DocumentFormat::Png, Err(FetchError::TooLarge)),
            (webp(100, 100, 10), DocumentFormat::Webp, Ok(())),
            (webp(100, 100, 100_000), DocumentFormat::Webp, Err(FetchError::TooLarge)),
            (webp(16_000, 16_000, 0), DocumentFormat::Webp, Err(FetchError::TooLarge)),
            (gif(100, 100, 10), DocumentFormat::Gif, Ok(())),
            (gif(100, 100, 100_000), DocumentFormat::Gif, Err(FetchError::TooLarge)),
            (gif(0, 10, 1), DocumentFormat::Gif, Err(FetchError::Unreadable)),
            (b"\x89PNG\r\n\x1a\n".to_vec(), DocumentFormat::Png, Err(FetchError::Unreadable)),
            (b"\xff\xd8\xff".to_vec(), DocumentFormat::Jpeg, Err(FetchError::Unreadable)),
        ];
        for (bytes, kind, wanted) in cases {
            let shown = bytes.iter().take(30).collect::<Vec<_>>();
            assert_eq!(check_image_size(&bytes, kind, 50_000_000), wanted, "{kind:?} {shown:?}");
        }
    }

    #[test]
    fn frames_are_counted_one_by_one() {
        assert_eq!(gif_frames(&gif(10, 10, 7)), 7);
        assert_eq!(webp_frames(&webp(10, 10, 7)), 7);
        assert_eq!(png_frames(&png(10, 10, Some(7))), 7);
    }
}
