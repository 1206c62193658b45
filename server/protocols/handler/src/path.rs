//! Decides which paths are below a route. Pure.
//!
//! Why: a handler may protect everything below its route. Files and apps treat `/%61dmin`, `/x/../admin` and
//! `//admin` as `/admin`, so routes have to do the same; otherwise such paths would bypass their handlers.
//!
//! Contract: `%xx` is decoded once, an encoded slash is a slash, and empty names, `.` and `..` are resolved
//! (RFC 3986 section 5.2.4). Handlers get the path as the client sent it.

use text::percent::pair;

/// A path, parsed once for all routes.
pub struct Path<'a> {
    raw: &'a [u8],
    /// `None` if the path is in its plain form already.
    names: Option<Vec<Name>>,
}

/// A name in a path, and its end in the path as sent.
struct Name {
    text: Vec<u8>,
    end: usize,
}

impl<'a> Path<'a> {
    /// Parses the path of a request target.
    pub fn new(raw: &'a [u8]) -> Path<'a> {
        let odd = raw
            .iter()
            .enumerate()
            .any(|(at, byte)| *byte == b'%' || *byte == b'/' && matches!(raw.get(at + 1), Some(b'/' | b'.')));
        Path { raw, names: odd.then(|| names(raw)) }
    }

    /// Returns the part after `mount` (without a trailing slash), as sent; `None` if the path is not below
    /// it.
    pub fn below(&self, mount: &[u8]) -> Option<&'a [u8]> {
        if mount.is_empty() {
            return Some(self.raw);
        }
        let Some(names) = &self.names else {
            return self.raw.strip_prefix(mount).filter(|rest| rest.is_empty() || rest[0] == b'/');
        };
        let mut left = names.iter();
        let mut end = 0;
        for wanted in mount.split(|byte| *byte == b'/').skip(1) {
            end = left.next().filter(|name| name.text == wanted)?.end;
        }
        Some(&self.raw[end..])
    }

    /// Returns the path in its plain form: decoded and resolved.
    pub fn plain(&self) -> Vec<u8> {
        let Some(names) = &self.names else { return self.raw.to_vec() };
        let mut text: Vec<u8> = names.iter().flat_map(|name| [b"/", name.text.as_slice()].concat()).collect();
        if text.is_empty() || names.last().is_some_and(|last| last.end != self.raw.len()) {
            text.push(b'/');
        }
        text
    }
}

/// Returns the names of a path, with `.`, `..` and empty names resolved.
fn names(raw: &[u8]) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    let mut text = Vec::new();
    let mut at = 0;
    loop {
        let (byte, end) = match raw.get(at) {
            Some(b'%') => pair(&raw[at + 1..]).map_or((Some(b'%'), at + 1), |byte| (Some(byte), at + 3)),
            other => (other.copied(), at + 1),
        };
        match byte {
            Some(byte) if byte != b'/' => text.push(byte),
            _ => {
                match text.as_slice() {
                    b"" | b"." => {}
                    b".." => drop(names.pop()),
                    _ => names.push(Name { text: std::mem::take(&mut text), end: at }),
                }
                text.clear();
                if byte.is_none() {
                    return names;
                }
            }
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn below<'a>(path: &'a str, mount: &str) -> Option<&'a str> {
        Path::new(path.as_bytes()).below(mount.as_bytes()).map(|rest| std::str::from_utf8(rest).unwrap())
    }

    #[test]
    fn a_path_is_below_its_route_in_all_its_forms() {
        for (path, rest) in [
            ("/admin", Some("")),
            ("/admin/", Some("/")),
            ("/admin/a%20b", Some("/a%20b")),
            ("/admin/x/../y", Some("/x/../y")),
            ("/%61dmin/y", Some("/y")),
            ("//admin/y", Some("/y")),
            ("/./admin//y", Some("//y")),
            ("/x/../admin/y", Some("/y")),
            ("/x/%2e%2E/admin/y", Some("/y")),
            ("/../admin", Some("")),
            ("/admin%2fy", Some("%2fy")),
            ("/admins", None),
            ("/admin/..", None),
            ("/admin/../y", None),
            ("/%2561dmin", None),
            ("/%zzadmin", None),
            ("/", None),
            ("*", None),
        ] {
            assert_eq!(below(path, "/admin"), rest, "{path}");
        }
        assert_eq!(below("/a//b/c", "/a/b"), Some("/c"));
        assert_eq!(below("/%61", ""), Some("/%61"));
    }

    #[test]
    fn a_plain_path_has_one_form() {
        for (path, plain) in [
            ("/a/b", "/a/b"),
            ("/a/./b//c/", "/a/b/c/"),
            ("/%61/..", "/"),
            ("/a/b/..", "/a/"),
            ("/.htpasswd", "/.htpasswd"),
            ("/%2ehtpasswd", "/.htpasswd"),
            ("/100%", "/100%"),
        ] {
            assert_eq!(Path::new(path.as_bytes()).plain(), plain.as_bytes(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_way_of_writing_a_path_leads_past_its_route(
            mount in "(/[a-z]{1,4}){1,3}",
            rest in "(/[a-z.%]{0,4}){0,3}",
            forms in proptest::collection::vec(0u8..5, 24),
        ) {
            let mut forms = forms.into_iter().cycle();
            let written: String = mount.chars().map(|letter| match (letter, forms.next().unwrap()) {
                ('/', 1) => "//".to_owned(),
                ('/', 2) => "/./".to_owned(),
                ('/', 3) => "/q/../".to_owned(),
                (letter, 4) => format!("%{:02x}", letter as u32),
                (letter, _) => letter.to_string(),
            }).collect();
            prop_assert_eq!(below(&written, &mount), Some(""));
            // Any rest of the path, unless it leads up again.
            let path = format!("{written}{rest}");
            if !rest.contains("..") && !rest.contains('%') {
                prop_assert_eq!(below(&path, &mount), Some(rest.as_str()));
            }
            // The plain form is below the same routes, unless it contains a `%`, which would be decoded a
            // second time.
            let plain = Path::new(path.as_bytes()).plain();
            if !plain.contains(&b'%') {
                let below_plain = Path::new(&plain).below(mount.as_bytes()).is_some();
                prop_assert_eq!(below_plain, below(&path, &mount).is_some());
            }
        }

        #[test]
        fn any_bytes_have_a_plain_form_that_stays(path in "/[a-z/.%0-9]{0,24}") {
            let plain = Path::new(path.as_bytes()).plain();
            prop_assert!(plain.starts_with(b"/"));
            if !plain.contains(&b'%') {
                prop_assert_eq!(Path::new(&plain).plain(), plain.clone());
            }
        }
    }
}
