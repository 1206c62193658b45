//! Restores the environment of a program that was started with `bundle exec`.
//!
//! Why: Bundler puts its own location and the Gemfile of the release in which it ran into variables that all
//! child processes inherit. New code has to find its own. Bundler keeps the original values in
//! `BUNDLER_ORIG_*`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PREFIX: &[u8] = b"BUNDLER_ORIG_";
/// The value that marks a variable that was not set.
const UNSET: &str = "BUNDLER_ENVIRONMENT_PRESERVER_INTENTIONALLY_NIL";

/// Returns the variables to set or to remove (`None`) to get the environment from before Bundler. Empty
/// without Bundler.
pub fn before_bundler(
    now: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, Option<OsString>)> {
    let mut changes = Vec::new();
    for (name, value) in now {
        let Some(original) = name.as_bytes().strip_prefix(PREFIX).filter(|name| !name.is_empty()) else {
            continue;
        };
        changes.push((OsStr::from_bytes(original).to_owned(), Some(value).filter(|value| value != UNSET)));
        changes.push((name, None));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bundler_changed_is_as_before() {
        let now = [
            ("BUNDLE_GEMFILE", "/app/releases/1/Gemfile"),
            ("BUNDLER_ORIG_BUNDLE_GEMFILE", UNSET),
            ("RUBYOPT", "-rbundler/setup -W0"),
            ("BUNDLER_ORIG_RUBYOPT", "-W0"),
            ("HOME", "/root"),
        ];
        let changes = before_bundler(now.map(|(name, value)| (name.into(), value.into())));
        let wanted = [
            ("BUNDLE_GEMFILE", None),
            ("BUNDLER_ORIG_BUNDLE_GEMFILE", None),
            ("RUBYOPT", Some("-W0")),
            ("BUNDLER_ORIG_RUBYOPT", None),
        ];
        assert_eq!(changes, wanted.map(|(name, value)| (name.into(), value.map(OsString::from))));
    }

    #[test]
    fn without_bundler_nothing_changes() {
        assert!(before_bundler([("PATH".into(), "/bin".into())]).is_empty());
    }
}
