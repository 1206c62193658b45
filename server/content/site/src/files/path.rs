//! Converts a request's path to a path below the root. No I/O.
//!
//! Contract: `%xx` is decoded once. The result is valid UTF-8 without NUL, empty names, `.` or `..`, and
//! never leads above the root.

use text::percent::{PATH, decode, encode, is_well_formed};

/// The one directory whose name may begin with a dot (RFC 8615).
pub(crate) const WELL_KNOWN: &str = ".well-known";

/// Why a request's path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// Not a valid path: a broken `%xx`, NUL, not UTF-8, or above the root (400).
    Malformed,
    /// A dot segment next to an encoded slash: an origin that decodes the slash would resolve the dots (404).
    Ambiguous,
}

/// A decoded path: begins with `/`, has single slashes and no `.` or `..`; keeps a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitePath {
    text: String,
    encoded_slash: bool,
}

impl SitePath {
    /// Decodes `%xx` once and resolves `.`, `..` and repeated slashes (RFC 3986 section 5.2.4).
    ///
    /// # Errors
    /// See [`PathError`].
    pub(crate) fn decode(path: &[u8]) -> Result<SitePath, PathError> {
        let path = path.strip_prefix(b"/").ok_or(PathError::Malformed)?;
        let (decoded, encoded_slash) = decoded(path)?;
        let decoded = String::from_utf8(decoded).map_err(|_| PathError::Malformed)?;
        if encoded_slash && decoded.replace("%2F", "/").split('/').any(|name| matches!(name, "." | "..")) {
            return Err(PathError::Ambiguous);
        }
        if !decoded.starts_with('/')
            && !decoded.contains("//")
            && !decoded.contains("/.")
            && !decoded.starts_with('.')
        {
            return Ok(SitePath { text: format!("/{decoded}"), encoded_slash });
        }
        let mut names: Vec<&str> = Vec::new();
        for name in decoded.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop().ok_or(PathError::Malformed)?;
                }
                name => names.push(name),
            }
        }
        let directory = matches!(decoded.rsplit('/').next(), Some("" | "." | ".."));
        let mut text =
            names.iter().fold(String::with_capacity(decoded.len() + 1), |text, name| text + "/" + name);
        if directory || text.is_empty() {
            text.push('/');
        }
        Ok(SitePath { text, encoded_slash })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the path holds an encoded slash. It stays encoded: no file name can contain one, but
    /// an origin's path may.
    pub(crate) fn has_encoded_slash(&self) -> bool {
        self.encoded_slash
    }
}

/// Returns whether a path below the root contains a hidden name (one that begins with a dot).
pub(crate) fn has_hidden_name(path: &str) -> bool {
    let mut names = path.split('/').peekable();
    if names.peek() == Some(&WELL_KNOWN) {
        names.next();
    }
    names.any(|name| name.starts_with('.'))
}

/// Returns the first segment of a relative path.
pub(crate) fn first_name(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Returns the decoded bytes, and whether they contain an encoded slash.
fn decoded(text: &[u8]) -> Result<(Vec<u8>, bool), PathError> {
    if !is_well_formed(text) {
        return Err(PathError::Malformed);
    }
    let is_slash = |three: &[u8]| three.eq_ignore_ascii_case(b"%2F");
    let mut decoded = Vec::with_capacity(text.len());
    let (mut rest, mut slash) = (text, false);
    while let Some(at) = rest.windows(3).position(is_slash) {
        decoded.extend_from_slice(&decode(&rest[..at]));
        decoded.extend_from_slice(b"%2F");
        (rest, slash) = (&rest[at + 3..], true);
    }
    decoded.extend_from_slice(&decode(rest));
    if decoded.contains(&0) { Err(PathError::Malformed) } else { Ok((decoded, slash)) }
}

/// Encodes a decoded path for a Location field (RFC 3986 section 3.3).
pub(crate) fn percent_encode(path: &str) -> String {
    encode(path.as_bytes(), PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(path: &str) -> Result<String, PathError> {
        SitePath::decode(path.as_bytes()).map(|path| path.text)
    }

    #[test]
    fn paths_are_decoded_and_resolved() {
        let pairs = [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/../c", "/a/c"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/%2e%2e", "!"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%20b/%C3%A9.css", "/a b/é.css"),
            ("/100%25", "/100%"),
            ("/%2541", "/%41"),
            ("/..", "!"),
            ("/a/../../b", "!"),
            ("/.env", "/.env"),
            ("", "!"),
            ("*", "!"),
            ("/a%00", "!"),
            ("/%zz", "!"),
            ("/%4", "!"),
            ("/%ff", "!"),
        ];
        for (path, wanted) in pairs {
            let found = decoded(path).unwrap_or_else(|_| "!".to_owned());
            assert_eq!(found, wanted, "{path}");
        }
        let slash = SitePath::decode(b"/a%2fb").unwrap();
        assert!(slash.has_encoded_slash() && slash.as_str() == "/a%2Fb");
        for path in ["/..%2fa", "/a/..%2F..%2fb", "/a%2f..", "/%2e%2e%2fa", "/a%2F.%2Fb"] {
            assert_eq!(decoded(path), Err(PathError::Ambiguous), "{path}");
        }
        assert!(!SitePath::decode(b"/a%252Fb").unwrap().has_encoded_slash());
    }

    #[test]
    fn hidden_names() {
        for path in ["/.env", "/a/.git/config", "/a/.well-known/x", "/...", "/.well-known/.x"] {
            assert!(has_hidden_name(&decoded(path).unwrap()[1..]), "{path}");
        }
        for path in ["/", "/a.b", "/.well-known/acme", "/a/.", "/a./b"] {
            assert!(!has_hidden_name(&decoded(path).unwrap()[1..]), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_above_the_root(path in prop::collection::vec(prop::sample::select(vec!["a", "..", ".", "%2e", "/", "//", "%2f", "%", "\\", "é", "%5c"]), 0..12)) {
            if let Ok(path) = decoded(&format!("/{}", path.concat())) {
                prop_assert!(path.starts_with('/'));
                let inner = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
                prop_assert!(path == "/" || inner.split('/').all(|name| !matches!(name, "" | "." | "..")), "{}", path);
            }
        }

        #[test]
        fn encoding_round_trips(names in prop::collection::vec("[^/\0.][^/\0]*", 1..4)) {
            let path = format!("/{}", names.join("/"));
            prop_assert_eq!(decoded(&percent_encode(&path)), Ok(path));
        }
    }
}
