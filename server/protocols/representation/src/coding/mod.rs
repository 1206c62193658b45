//! Implements content codings (RFC 9110 section 8.4): chooses one for a client, and applies it.

mod budget;
mod encoder;
mod levels;
mod negotiate;
mod padding;
mod permits;
mod stream;
mod whole;

pub use budget::{Budget, Effort};
pub use levels::Levels;
pub use negotiate::{Preferences, live};
pub use padding::Padding;
pub use stream::{
    EncodedStream, Encoding, MIN_LENGTH, describe, encode_response, may_encode, vary, vary_at_last, weaken,
};
pub use whole::{compress, compress_padded};

/// A content coding, in order of the server's preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
    /// The unchanged bytes.
    Identity,
}

impl Coding {
    /// All codings, the preferred one first; identity is last.
    pub const ALL: [Coding; 4] = [Coding::Br, Coding::Zstd, Coding::Gzip, Coding::Identity];

    /// Returns the name in Content-Encoding; `None` for identity, which never appears there.
    pub fn token(self) -> Option<&'static str> {
        match self {
            Coding::Br => Some("br"),
            Coding::Zstd => Some("zstd"),
            Coding::Gzip => Some("gzip"),
            Coding::Identity => None,
        }
    }

    /// Returns the suffix of a precompressed file's name; empty for identity.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
            Coding::Identity => "",
        }
    }
}
