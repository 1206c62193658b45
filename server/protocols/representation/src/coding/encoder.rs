//! Puts one interface in front of the three compressors.
//!
//! Why these crates: `brotli` is the only maintained encoder in pure Rust. `flate2` over `zlib-rs` is pure
//! Rust too and as fast as zlib-ng. No Rust encoder for `zstd` comes close to the original, whose source the
//! crate bundles. None of them downloads anything at build time.
//!
//! Contract: written bytes come out of [`Encoder::take`] at once, or after [`Encoder::flush`] or
//! [`Encoder::finish`]. An encoder for streams holds less than 4 MiB, whatever the length of the stream.

use super::Coding;
use super::padding::{self, Padding};
use std::io::{self, Write};

/// The window of streams: 256 KiB. A larger one costs memory for each response, and pages seldom repeat text
/// from further back.
const STREAM_WINDOW: u32 = 18;

/// Higher levels of zstd use windows over 8 MiB, which clients refuse (RFC 9659).
pub(super) const ZSTD_MAX_LEVEL: u32 = 19;

/// The size of brotli's output buffer, in bytes.
const BROTLI_BUFFER: usize = 4096;

pub(super) enum Encoder {
    Br(Box<brotli::CompressorWriter<Vec<u8>>>, Padding),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>, Padding),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Identity(Vec<u8>),
}

impl Encoder {
    /// Creates an encoder for data of `len` bytes, or for a stream (`None`).
    pub(super) fn new(
        coding: Coding,
        level: u32,
        len: Option<usize>,
        padding: Padding,
    ) -> io::Result<Encoder> {
        let room = Vec::with_capacity(len.unwrap_or(0) / 4);
        Ok(match coding {
            Coding::Br => {
                let window = len.map_or(STREAM_WINDOW, brotli_window);
                let writer = brotli::CompressorWriter::new(room, BROTLI_BUFFER, level.min(11), window);
                Encoder::Br(Box::new(writer), padding)
            }
            Coding::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(room, level.clamp(1, ZSTD_MAX_LEVEL) as i32)?;
                match len {
                    Some(len) => encoder.set_pledged_src_size(Some(len as u64))?,
                    None => encoder.window_log(STREAM_WINDOW)?,
                }
                Encoder::Zstd(encoder, padding)
            }
            Coding::Gzip => {
                let builder = match padding::gzip_extra(padding) {
                    Some(extra) => flate2::GzBuilder::new().extra(extra),
                    None => flate2::GzBuilder::new(),
                };
                Encoder::Gzip(builder.write(room, flate2::Compression::new(level.min(9))))
            }
            Coding::Identity => Encoder::Identity(room),
        })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Br(encoder, _) => encoder.write_all(data),
            Encoder::Zstd(encoder, _) => encoder.write_all(data),
            Encoder::Gzip(encoder) => encoder.write_all(data),
            Encoder::Identity(out) => out.write_all(data),
        }
    }

    /// Makes everything written so far decodable by the client.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Br(encoder, _) => encoder.flush(),
            Encoder::Zstd(encoder, _) => encoder.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Identity(_) => Ok(()),
        }
    }

    /// Returns the number of encoded bytes that [`Encoder::take`] would return.
    pub(super) fn ready(&self) -> usize {
        match self {
            Encoder::Br(encoder, _) => encoder.get_ref().len(),
            Encoder::Zstd(encoder, _) => encoder.get_ref().len(),
            Encoder::Gzip(encoder) => encoder.get_ref().len(),
            Encoder::Identity(out) => out.len(),
        }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Encoder::Br(encoder, _) => encoder.get_mut(),
            Encoder::Zstd(encoder, _) => encoder.get_mut(),
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Identity(out) => out,
        })
    }

    /// Ends the encoded data and returns the rest of it.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Br(mut encoder, padding) => {
                if !padding.is_none() {
                    // After a flush the output ends at a byte.
                    encoder.flush()?;
                    padding::brotli_metadata(padding, encoder.get_mut());
                }
                Ok(encoder.into_inner())
            }
            Encoder::Zstd(encoder, padding) => {
                let mut out = encoder.finish()?;
                padding::zstd_frame(padding, &mut out);
                Ok(out)
            }
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Identity(out) => Ok(out),
        }
    }
}

/// Returns the smallest window that holds all of the data, from 256 KiB to 4 MiB, which every decoder
/// supports. Never below 128 KiB: there the `brotli` crate picks a match finder that takes 32 MiB and thirty
/// times as long.
fn brotli_window(len: usize) -> u32 {
    len.next_power_of_two().ilog2().clamp(STREAM_WINDOW, 22)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_the_data_and_avoid_the_slow_match_finder() {
        let windows = [0, 4000, 1 << 18, (1 << 18) + 1, 1 << 22, usize::MAX / 2].map(brotli_window);
        assert_eq!(windows, [18, 18, 18, 19, 22, 22]);
        assert!(windows.iter().all(|&window| window > 16));
    }
}
