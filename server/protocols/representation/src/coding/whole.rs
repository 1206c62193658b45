//! Compresses whole buffers: pages of an app, files and kept responses for a cache.
//!
//! Why not the encoders of streams: each of those allocates and clears up to several MiB, and cannot know how
//! much will follow. `libdeflate` knows only whole buffers, and takes half of zlib's time for the same size
//! (30 KB page, level 3: 55 % of zlib-rs at level 6, 1.7 % larger). It and zstd keep their working memory
//! from one response to the next, which is a fifth of zstd's time.

use super::Coding;
use super::encoder::Encoder;
use super::padding::{self, Padding};
use libdeflater::{CompressionLvl, Compressor};
use std::cell::RefCell;
use std::io;

/// Encodes all of `data`. `level` uses the coding's own scale (brotli 0-11, zstd 1-19, gzip 0-12) and is clamped.
///
/// # Errors
/// The library is out of memory: send the data uncompressed.
pub fn compress(coding: Coding, data: &[u8], level: u32) -> io::Result<Vec<u8>> {
    compress_padded(coding, data, level, Padding::NONE)
}

/// As [`compress`], with padding.
///
/// # Errors
/// As [`compress`].
pub fn compress_padded(coding: Coding, data: &[u8], level: u32, padding: Padding) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => gzip(data, level, padding),
        Coding::Zstd => zstd(data, level, padding),
        Coding::Br | Coding::Identity => {
            let mut encoder = Encoder::new(coding, level, Some(data.len()), padding)?;
            encoder.write(data)?;
            encoder.finish()
        }
    }
}

/// The compressors of a thread, with their working memory (about 1 MiB), by level.
#[derive(Default)]
struct Compressors {
    gzip: Option<(u32, Compressor)>,
    zstd: Option<(i32, zstd::bulk::Compressor<'static>)>,
}

thread_local! {
    static COMPRESSORS: RefCell<Compressors> = RefCell::default();
}

fn gzip(data: &[u8], level: u32, padding: Padding) -> io::Result<Vec<u8>> {
    // Level 0 of libdeflate stores.
    let level = level.min(12);
    COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = match &mut compressors.gzip {
            Some((known, compressor)) if *known == level => compressor,
            slot => {
                let made = CompressionLvl::new(level as i32).map_err(|_| io::ErrorKind::InvalidInput)?;
                &mut slot.insert((level, Compressor::new(made))).1
            }
        };
        let mut out = padding::gzip_header(padding);
        let head = out.len();
        out.resize(head + compressor.deflate_compress_bound(data.len()) + 8, 0);
        // Cannot fail, because the buffer has the size that the library asks for.
        let len = compressor
            .deflate_compress(data, &mut out[head..])
            .map_err(|_| io::Error::other("libdeflate needs a larger buffer"))?;
        out.truncate(head + len);
        out.extend_from_slice(&libdeflater::crc32(data).to_le_bytes());
        // RFC 1952 section 2.3.1: the length modulo 2^32.
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        out.shrink_to_fit();
        Ok(out)
    })
}

fn zstd(data: &[u8], level: u32, padding: Padding) -> io::Result<Vec<u8>> {
    let level = level.clamp(1, super::encoder::ZSTD_MAX_LEVEL) as i32;
    COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = match &mut compressors.zstd {
            Some((known, compressor)) if *known == level => compressor,
            slot => &mut slot.insert((level, zstd::bulk::Compressor::new(level)?)).1,
        };
        let mut out = compressor.compress(data)?;
        padding::zstd_frame(padding, &mut out);
        out.shrink_to_fit();
        Ok(out)
    })
}

/// Decodes; for tests.
#[cfg(test)]
pub(super) fn decompress(coding: Coding, data: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut out = Vec::new();
    match coding {
        Coding::Br => drop(brotli::Decompressor::new(data, 4096).read_to_end(&mut out).unwrap()),
        Coding::Zstd => out = zstd::stream::decode_all(data).unwrap(),
        Coding::Gzip => drop(flate2::read::GzDecoder::new(data).read_to_end(&mut out).unwrap()),
        Coding::Identity => out = data.to_vec(),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Levels;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_shrinks_and_round_trips() {
        let text = "<li><a href=\"/one\">one</a></li>\n".repeat(500);
        for coding in [Coding::Br, Coding::Zstd, Coding::Gzip] {
            let encoded = compress(coding, text.as_bytes(), Levels::KEPT.of(coding)).unwrap();
            assert!(encoded.len() * 10 < text.len(), "{coding:?}: {}", encoded.len());
            assert_eq!(decompress(coding, &encoded), text.as_bytes(), "{coding:?}");
        }
    }

    #[test]
    fn equal_files_give_equal_bytes() {
        // ETags derived from the file, and ranges of the encoded bytes, rely on this.
        for coding in Coding::ALL {
            let once = compress(coding, b"hello hello hello", Levels::KEPT.of(coding)).unwrap();
            assert_eq!(
                once,
                compress(coding, b"hello hello hello", Levels::KEPT.of(coding)).unwrap(),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn levels_out_of_range_are_clamped() {
        for coding in Coding::ALL {
            for level in [0, 99, u32::MAX] {
                let encoded = compress(coding, b"some text", level).unwrap();
                assert_eq!(decompress(coding, &encoded), b"some text", "{coding:?} {level}");
            }
        }
    }

    #[test]
    fn padding_changes_the_length_and_not_the_text() {
        let text = "<p>token=1234567890</p>\n".repeat(100);
        for coding in [Coding::Br, Coding::Zstd, Coding::Gzip] {
            let level = Levels::LIVE.of(coding);
            let plain = compress(coding, text.as_bytes(), level).unwrap();
            for bytes in [1, 2, 100, 255] {
                let padded = compress_padded(coding, text.as_bytes(), level, Padding::of(bytes)).unwrap();
                assert!(padded.len() >= plain.len() + usize::from(bytes), "{coding:?} {bytes}");
                assert!(padded.len() <= plain.len() + usize::from(bytes) + 16, "{coding:?} {bytes}");
                assert_eq!(decompress(coding, &padded), text.as_bytes(), "{coding:?} {bytes}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_round_trip(data: Vec<u8>, repeat in 1_usize..200, level in 0_u32..6) {
            let data = data.repeat(repeat);
            for coding in Coding::ALL {
                let encoded = compress(coding, &data, level).unwrap();
                prop_assert_eq!(&decompress(coding, &encoded), &data);
            }
        }
    }
}
