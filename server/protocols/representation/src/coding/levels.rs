//! The levels of compression.

use super::Coding;

/// The level of each coding, on its own scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// 0 to 11.
    pub br: u32,
    /// 1 to 19.
    pub zstd: u32,
    /// 1 to 12 for whole bodies (libdeflate), clamped to 9 for streams (zlib).
    pub gzip: u32,
}

impl Levels {
    /// For a response that is encoded each time it is sent.
    pub const LIVE: Levels = Levels { br: 4, zstd: 3, gzip: 3 };
    /// For content that is encoded once and sent often: files, kept responses.
    pub const KEPT: Levels = Levels { br: 5, zstd: 3, gzip: 6 };
    /// The least work that still makes text smaller.
    pub const LEAST: Levels = Levels { br: 1, zstd: 1, gzip: 1 };

    /// Returns the level of a coding; 0 for identity.
    pub fn of(&self, coding: Coding) -> u32 {
        match coding {
            Coding::Br => self.br,
            Coding::Zstd => self.zstd,
            Coding::Gzip => self.gzip,
            Coding::Identity => 0,
        }
    }
}
