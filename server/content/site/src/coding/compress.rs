//! Compresses whole buffers: files for the cache.

use super::Coding;
use super::encoder::Encoder;
use std::io;

/// Encodes all of `data`. `level` uses the coding's own scale (brotli 0-11, zstd 1-19, gzip 0-9) and is clamped.
///
/// # Errors
/// The library is out of memory: send the data uncompressed.
pub fn compress(coding: Coding, data: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding, level, Some(data.len()))?;
    encoder.write(data)?;
    encoder.finish()
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_shrinks_and_round_trips() {
        let text = "<li><a href=\"/one\">one</a></li>\n".repeat(500);
        for coding in [Coding::Br, Coding::Zstd, Coding::Gzip] {
            let encoded = compress(coding, text.as_bytes(), coding.level()).unwrap();
            assert!(encoded.len() * 10 < text.len(), "{coding:?}: {}", encoded.len());
            assert_eq!(decompress(coding, &encoded), text.as_bytes(), "{coding:?}");
        }
    }

    #[test]
    fn equal_files_give_equal_bytes() {
        // ETags derived from the file, and ranges of the encoded bytes, rely on this.
        for coding in Coding::ALL {
            let once = compress(coding, b"hello hello hello", coding.level()).unwrap();
            assert_eq!(once, compress(coding, b"hello hello hello", coding.level()).unwrap(), "{coding:?}");
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
