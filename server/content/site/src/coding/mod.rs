//! Implements content codings (RFC 9110 section 8.4): chooses one for a client, and applies it.

mod compress;
mod encoder;
mod negotiate;
mod permits;
mod stream;

pub use compress::compress;
pub use negotiate::Preferences;
pub use stream::{EncodedStream, MIN_LENGTH, encode_response, may_encode};

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

    /// Returns the default level for compression while a client waits: brotli 5, zstd 3, gzip 6.
    pub fn level(self) -> u32 {
        match self {
            Coding::Br => 5,
            Coding::Zstd => 3,
            Coding::Gzip => 6,
            Coding::Identity => 0,
        }
    }
}
