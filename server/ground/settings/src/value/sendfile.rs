//! Rules of the `[sendfile]` table: the folder for a path prefix in `X-Accel-Redirect`.

use std::path::PathBuf;

/// A path prefix that the app may use, and its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendfileRule {
    /// Percent-decoded, as in nginx's `location`; begins and ends with `/`.
    pub prefix: String,
    /// The folder that replaces the prefix.
    pub folder: PathBuf,
}

/// Returns what is wrong with a prefix, or `None` if it is valid.
pub(crate) fn fault(prefix: &str) -> Option<&'static str> {
    if !prefix.starts_with('/') || !prefix.ends_with('/') {
        return Some("expected a path that begins and ends with /, such as \"/protected/\"");
    }
    if prefix.contains(char::is_control) {
        return Some("expected a path without control characters");
    }
    if prefix.contains("//") || prefix.split('/').any(|part| [".", ".."].contains(&part)) {
        return Some("expected a path without empty parts, . and ..");
    }
    if prefix.contains('?') {
        return Some("expected a path without a query");
    }
    let escaped = |at: usize| {
        let code = prefix.as_bytes().get(at + 1..at + 3);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    prefix
        .match_indices('%')
        .any(|(at, _)| escaped(at))
        .then_some("expected the path as it is after decoding: \"/my files/\", not \"/my%20files/\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_is_a_folder_of_a_uri() {
        for prefix in ["/", "/a/", "/a/b c/", "/ä/", "/100%/", "/..a/", "/%zz/"] {
            assert_eq!(fault(prefix), None, "{prefix}");
        }
        for prefix in
            ["", "a/", "/a", "//", "/a//b/", "/../", "/a/./", "/a/../b/", "/a?/", "/a%20b/", "/a\0/", "/a\n/"]
        {
            assert!(fault(prefix).is_some(), "{prefix:?}");
        }
    }

    proptest! {
        #[test]
        fn no_prefix_that_passes_leads_upwards(prefix in "[/.%a?0-9\\PC]{0,12}") {
            if fault(&prefix).is_none() {
                prop_assert!(prefix.starts_with('/') && prefix.ends_with('/'));
                prop_assert!(prefix.split('/').all(|segment| segment != ".."));
            }
        }
    }
}
