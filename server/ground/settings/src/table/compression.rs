//! Compression of the responses of an app and of handlers.

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::numbers::{Count, Ratio, Size};
use crate::kind::texts::Switch;

section! { Category::Compression;
    /// Content codings of responses that the app or a handler generates. Files and sites have rules of their own.
    Compression:

    /// Compress responses of the app and of handlers
    responses: bool = Switch, {
        key: "compression.responses",
        flags: &[bare("compress", "true"), bare("no-compress", "false")],
        off: "Send responses as the app generates them",
        default: "true",
        more: "The server compresses text with zstd, gzip or Brotli, as the client prefers, outside of Ruby and its lock. It leaves alone a \
               response that is compressed already (Rack::Deflater), is partial, or has Cache-Control: no-transform. Each chunk that the app \
               flushes is sent at once. docs/compression.md has the details.",
        reloadable: true,
        reload_only: true,
        known_as: &["gzip", "compress", "encode"],
    }
    /// Minimum length of a body to compress
    min_length: u64 = Size { min: 0, max: 1 << 30 }, {
        key: "compression.min_length",
        flags: &[long("compress-min-length", "SIZE")],
        default: "1KiB",
        more: "A shorter body would save no packet. A body of unknown length is compressed.",
        reloadable: true,
        known_as: &["gzip_min_length", "minimum_length"],
    }
    /// Level of gzip, 1 to 12
    gzip_level: u32 = Count { min: 1, max: 12 }, {
        key: "compression.gzip_level",
        flags: &[long("gzip-level", "N")],
        default: "3",
        more: "The levels are those of libdeflate; 3 is about as small as zlib's 6 in half the time. Streams use at most 9, zlib's scale.",
        reloadable: true,
        known_as: &["gzip_comp_level"],
    }
    /// Level of zstd, 1 to 19
    zstd_level: u32 = Count { min: 1, max: 19 }, {
        key: "compression.zstd_level",
        flags: &[long("zstd-level", "N")],
        default: "3",
        reloadable: true,
    }
    /// Level of Brotli, 0 to 11
    brotli_level: u32 = Count { min: 0, max: 11 }, {
        key: "compression.brotli_level",
        flags: &[long("brotli-level", "N")],
        default: "4",
        more: "Brotli takes several times as long as zstd, so it is used only for clients that accept neither zstd nor gzip.",
        reloadable: true,
        known_as: &["brotli_comp_level"],
    }
    /// Largest random padding of a response to a request with cookies
    padding: u8 = Count { min: 0, max: 255 }, {
        key: "compression.padding",
        flags: &[long("compress-padding", "BYTES")],
        default: "64",
        more: "The length of a compressed page reveals whether an attacker's guess repeats a secret on the page (BREACH). A random padding of \
               1 to this many bytes, which clients skip, makes such attacks much slower. 0 adds no padding.",
        reloadable: true,
    }
    /// Share of a front thread's time for compression
    cpu: u32 = Ratio, {
        key: "compression.cpu",
        flags: &[long("compress-cpu", "SHARE")],
        default: "0.75",
        more: "A number from 0 to 1. Near the limit the levels fall to the fastest, and above it responses are sent uncompressed. 1 has no limit.",
        reloadable: true,
    }
}
