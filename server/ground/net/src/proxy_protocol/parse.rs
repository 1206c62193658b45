//! Tells the versions apart.

use std::fmt;

use super::header::ParsedHeader;
use super::{one, two};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The text of version 1.
    V1,
    /// The binary form of version 2.
    V2,
    /// Either version.
    Any,
}

/// The reason why the bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedHeader {
    /// The bytes do not begin like an accepted version.
    NoHeader(Accepted),
    /// The bytes begin like a header, but have this error.
    Header(&'static str),
}

impl fmt::Display for MalformedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MalformedHeader::NoHeader(accepted) => {
                let versions = match accepted {
                    Accepted::V1 => " of version 1",
                    Accepted::V2 => " of version 2",
                    Accepted::Any => "",
                };
                write!(f, "it does not begin with a PROXY header{versions}")
            }
            MalformedHeader::Header(why) => write!(f, "its PROXY header is malformed: {why}"),
        }
    }
}

/// Parses the header at the beginning of `bytes`.
///
/// # Errors
/// The bytes are not the beginning of an accepted header.
pub fn parse(bytes: &[u8], accepted: Accepted) -> Result<ParsedHeader, MalformedHeader> {
    let begins = |with: &[u8]| {
        let common = with.len().min(bytes.len());
        bytes[..common] == with[..common]
    };
    if accepted != Accepted::V2 && begins(one::SIGNATURE) {
        return one::parse(bytes).map_err(MalformedHeader::Header);
    }
    if accepted != Accepted::V1 && begins(two::SIGNATURE) {
        return two::parse(bytes).map_err(MalformedHeader::Header);
    }
    Err(MalformedHeader::NoHeader(accepted))
}
