//! Converts a request's path to file names in a `public` directory. No I/O.

use crate::files::path::{WELL_KNOWN, first_name, has_hidden_name};
use text::percent::decode_strict;

/// A path below the root: decoded, checked, without the leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePath {
    /// Segments joined by `/`; empty for the root itself.
    text: String,
    /// The path ends with a slash: it names a directory.
    directory: bool,
}

impl FilePath {
    /// Decodes `%xx` once. Returns `None` unless the path is plainly that of a public file: for a broken
    /// `%xx`, NUL, invalid UTF-8, an empty segment, a segment that begins with a dot (including `..`), or an
    /// encoded slash, which a proxy in front may have read differently.
    pub(crate) fn decode(path: &[u8]) -> Option<FilePath> {
        let path = path.strip_prefix(b"/")?;
        if path.is_empty() {
            return Some(FilePath { text: String::new(), directory: true });
        }
        let (names, directory) = path.strip_suffix(b"/").map_or((path, false), |names| (names, true));
        let text = String::from_utf8(decoded(names)?).ok()?;
        let shown = !has_hidden_name(&text) && (directory || text != WELL_KNOWN);
        let shown = shown && text.split('/').all(|name| !name.is_empty());
        shown.then_some(FilePath { text, directory })
    }

    /// Returns the first segment, if it must be a directory for the path to exist.
    pub(crate) fn directory_name(&self) -> Option<&str> {
        let name = first_name(&self.text);
        let below = self.directory && !name.is_empty() || name.len() < self.text.len();
        below.then_some(name)
    }

    /// Returns the decoded path with its slashes.
    pub(crate) fn url(&self) -> String {
        let end = if self.directory && !self.text.is_empty() { "/" } else { "" };
        format!("/{}{end}", self.text)
    }

    /// Returns the decoded path without leading and trailing slash.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.directory
    }
}

/// Decodes the text. Returns `None` for a broken `%xx`, for NUL, and for an encoded slash.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let decoded = decode_strict(text)?.into_owned();
    let slashes = |text: &[u8]| text.iter().filter(|&&byte| byte == b'/').count();
    (!decoded.contains(&0) && slashes(&decoded) == slashes(text)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::super::rule::FileRule;
    use super::super::rule::Types;
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    fn names(path: &str) -> Option<Vec<String>> {
        let plain = FileRule::plain(Path::new("/"));
        FilePath::decode(path.as_bytes()).map(|path| plain.candidates(&path, &Types::new()))
    }

    fn some(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn paths_give_candidate_files() {
        assert_eq!(names("/"), some(&["index.html"]));
        assert_eq!(names("/about"), some(&["about", "about.html"]));
        assert_eq!(names("/about.html"), some(&["about.html"]));
        assert_eq!(names("/docs/"), some(&["docs/index.html"]));
        assert_eq!(names("/a%20b/%C3%A9.css"), some(&["a b/é.css", "a b/é.css.html"]));
        assert_eq!(names("/100%25"), some(&["100%", "100%.html"]));
        assert_eq!(names("/%2541"), some(&["%41", "%41.html"]));
        assert_eq!(names("/.well-known/security.txt").map(|names| names.len()), Some(2));
    }

    #[test]
    fn a_suffix_makes_no_hidden_file() {
        let rails = FileRule {
            chomp: true,
            tries: vec![".html".into(), "/index.html".into()],
            ..FileRule::default()
        };
        let names = |path: &str| rails.candidates(&FilePath::decode(path.as_bytes()).unwrap(), &Types::new());
        assert_eq!(names("/"), ["index.html"]);
        assert_eq!(names("/.well-known/"), [".well-known", ".well-known/index.html"]);
        assert_eq!(
            names("/.well-known/a"),
            [".well-known/a", ".well-known/a.html", ".well-known/a/index.html"]
        );
    }

    #[test]
    fn names_of_directories() {
        let paths =
            ["/", "/a", "/a/", "/a/b", "/a/b/"].map(|path| FilePath::decode(path.as_bytes()).unwrap());
        let found = paths.iter().map(FilePath::directory_name).collect::<Vec<_>>();
        assert_eq!(found, [None, None, Some("a"), Some("a"), Some("a")]);
    }

    #[test]
    fn unusual_paths_go_to_the_app() {
        let odd = [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/..",
            "/../a",
            "/a/../b",
            "/a/..",
            "/./a",
            "/.",
            "/.env",
            "/a/.git/config",
            "/%2e%2e/a",
            "/%2E./a",
            "/a%2fb",
            "/a%2F..%2Fb",
            "/a%00",
            "/a\0",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/%ff",
            "/a/.well-known/b",
            "/.well-known",
            "/.well-known2/a",
            "/.well-known//a",
        ];
        for path in odd {
            assert_eq!(names(path), None, "{path:?}");
        }
    }

    fn path_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                "/",
                ".",
                "..",
                "%2e",
                "%2E",
                "%2f",
                "%5c",
                "\\",
                "%00",
                "a",
                "%25",
                "%c0%ae",
                ".well-known"
            ])
            .prop_map(|piece| piece.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| [vec![b'/'], pieces.concat()].concat())
    }

    proptest! {
        #[test]
        fn no_bytes_lead_out_of_the_root(bytes in path_bytes()) {
            let Some(path) = FilePath::decode(&bytes) else { return Ok(()) };
            let rails = FileRule { chomp: true, tries: vec![".html".into(), "/index.html".into()], ..FileRule::default() };
            let of = |rule: &FileRule| rule.candidates(&path, &Types::new());
            for candidate in of(&FileRule::plain(Path::new("/"))).into_iter().chain(of(&rails)) {
                prop_assert!(!candidate.is_empty() && !candidate.contains('\0'));
                for part in Path::new(&candidate).components() {
                    let Component::Normal(name) = part else { panic!("{part:?} in {candidate:?}") };
                    let name = name.to_str().unwrap();
                    prop_assert!(!name.starts_with('.') || name == ".well-known");
                }
                prop_assert!(!candidate.split('/').any(|name| name.is_empty() || name == "." || name == ".."));
            }
        }
    }
}
