//! Content codings (RFC 9110 section 8.4): which one a client gets, and applying it.

mod compress;
mod encoder;
mod negotiate;
mod stream;

pub use compress::compress;
pub use negotiate::Preferences;
pub use stream::{Coded, MIN_LENGTH, code_response, may_code};

/// A content coding, the preferred one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
    /// The bytes as they are.
    Identity,
}

impl Coding {
    /// All of them, the preferred one first.
    pub const ALL: [Coding; 4] = [Coding::Br, Coding::Zstd, Coding::Gzip, Coding::Identity];

    /// Its name in Content-Encoding; `None` for identity, which is never written there.
    pub fn token(self) -> Option<&'static str> {
        match self {
            Coding::Br => Some("br"),
            Coding::Zstd => Some("zstd"),
            Coding::Gzip => Some("gzip"),
            Coding::Identity => None,
        }
    }

    /// What a precompressed side-car's name has after the file's own; empty for identity.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
            Coding::Identity => "",
        }
    }

    /// The level that is worth its time when a response waits for it: brotli 5, zstd 3, gzip 6.
    pub fn level(self) -> u32 {
        match self {
            Coding::Br => 5,
            Coding::Zstd => 3,
            Coding::Gzip => 6,
            Coding::Identity => 0,
        }
    }
}
