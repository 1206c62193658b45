//! Certificates for development: a private authority of this user, and leaves that it signs in memory.
//!
//! Contract:
//! 1. The authority can only sign for this machine: critical name constraints (RFC 5280 section 4.2.1.10)
//!    permit `localhost`, names below it, names below `test` (RFC 6761), 127.0.0.0/8 and ::1. A stolen key is
//!    good for nothing else.
//! 2. It is created once per user, at first use, in the user's data directory (directory 0700, key 0600). If
//!    two processes create it at the same moment, both use the one that reached the disk first
//!    ([`Authority::open`]).
//! 3. Leaves are never written to disk. They are valid for 90 days and replaced before they expire ([`Leaves`]).
//! 4. This module never changes a trust store. [`stores`] only names the commands that would.

mod authority;
mod leaves;
mod names;
mod private;
mod serve;
pub mod stores;

pub use authority::{Authority, COMMON_NAME, Error};
pub use leaves::Leaves;
pub use names::{COVERED, covers};
pub use serve::serve;

use std::path::PathBuf;

/// Returns the directory of the authority: in `$XDG_DATA_HOME`, or in `~/.local/share`. `var` reads an
/// environment variable.
///
/// # Errors
/// Neither exists, for example in a service without a home directory.
pub fn folder(var: impl Fn(&str) -> Option<String>) -> Result<PathBuf, Error> {
    data_home(var).map(|data| data.join("firebrick").join("local-authority")).ok_or(Error::Homeless)
}

/// Returns `$XDG_DATA_HOME` if it is absolute, else `~/.local/share`.
pub(crate) fn data_home(var: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_follows_the_xdg_specification() {
        let folder_with = |vars: &[(&str, &str)]| {
            folder(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        let home = ("HOME", "/home/ada");
        for (vars, expected) in [
            (vec![home], "/home/ada/.local/share/firebrick/local-authority"),
            (vec![home, ("XDG_DATA_HOME", "/data")], "/data/firebrick/local-authority"),
            (vec![home, ("XDG_DATA_HOME", "data")], "/home/ada/.local/share/firebrick/local-authority"),
        ] {
            assert_eq!(folder_with(&vars).unwrap(), PathBuf::from(expected));
        }
        assert!(folder_with(&[]).unwrap_err().to_string().contains("HOME"));
    }
}
