//! Routes of paths: what requests have in common whose paths differ only in numbers, ids and hashes.
//!
//! Contract: nothing is allocated; a route has at most [`MOST_BYTES`] bytes and is printable ASCII, whatever the client has sent.

/// The longest route of a path that is told apart, in bytes.
pub const MOST_BYTES: usize = 96;

/// The text in place of a segment that is an id.
const ID: &[u8] = b":id";

/// Room for the route of a path.
#[derive(Debug, Clone)]
pub struct Buffer {
    bytes: [u8; MOST_BYTES],
    len: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer { bytes: [0; MOST_BYTES], len: 0 }
    }
}

impl Buffer {
    /// Returns the route of a path: the path without its query, with `:id` for segments that look like ids ([`is_id`]). Bytes that are
    /// not printable ASCII become `?`. Segments that do not fit are left out.
    #[inline]
    pub fn of_path(&mut self, path: &[u8]) -> &str {
        self.len = 0;
        self.push_path(path);
        self.as_str()
    }

    /// The same, with the method and a blank before it: `GET /posts/:id`.
    #[inline]
    pub fn of_request(&mut self, method: &[u8], path: &[u8]) -> &str {
        self.len = 0;
        self.push(&method[..method.len().min(MOST_BYTES / 4)]);
        self.push(b" ");
        self.push_path(path);
        self.as_str()
    }

    #[inline]
    fn push_path(&mut self, path: &[u8]) {
        let path = &path[..path.iter().position(|&byte| byte == b'?').unwrap_or(path.len())];
        let Some(inside) = path.strip_prefix(b"/") else {
            // The `*` of OPTIONS, or the authority of CONNECT.
            return self.push(&path[..path.len().min(MOST_BYTES - self.len)]);
        };
        for segment in inside.split(|&byte| byte == b'/') {
            let segment = if is_id(segment) { ID } else { segment };
            if self.len + segment.len() + 1 > MOST_BYTES {
                break;
            }
            self.push(b"/");
            self.push(segment);
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        for (to, &byte) in self.bytes[self.len..].iter_mut().zip(bytes) {
            *to = if (0x20..0x7f).contains(&byte) { byte } else { b'?' };
        }
        self.len = (self.len + bytes.len()).min(MOST_BYTES);
    }

    #[inline]
    fn as_str(&self) -> &str {
        // All bytes are ASCII.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// Returns whether a segment of a path is a number, begins with one as Rails' parameters do (`12-a-title`), or is a UUID, a hexadecimal number of
/// eight digits or more, a long token, or one that was masked ([`crate::secret::path`]). Words are none of these, even words of the letters a to f.
pub fn is_id(segment: &[u8]) -> bool {
    let digits = segment.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && segment.get(digits).is_none_or(|byte| b"-.".contains(byte)) {
        return true;
    }
    // The shortest of the others has eight bytes.
    if segment.len() < 8 {
        return false;
    }
    match segment.iter().any(u8::is_ascii_digit) {
        true => is_hexadecimal(segment) || is_token(segment),
        false => segment.iter().all(|byte| *byte == b'*'),
    }
}

fn is_hexadecimal(segment: &[u8]) -> bool {
    segment.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

/// A token has letters of both cases and digits, or is long and without the signs between words. The segment has a digit.
fn is_token(segment: &[u8]) -> bool {
    let has = |test: fn(&u8) -> bool| segment.iter().any(test);
    segment.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
        && (segment.len() >= 16 && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
            || segment.len() >= 20 && segment.iter().all(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_differ_in_ids_are_one_route() {
        for (path, route) in [
            ("/", "/"),
            ("", ""),
            ("*", "*"),
            ("/posts/12", "/posts/:id"),
            ("/posts/12-a-title/comments?x=1", "/posts/:id/comments"),
            ("/x/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/x/:id"),
            ("/commits/3f2504e0", "/commits/:id"),
            ("/commits/3f2504e", "/commits/3f2504e"),
            ("/words/defaced/effaceable", "/words/defaced/effaceable"),
            ("/reset/eyJhbGciOiJIUzI1NiJ9", "/reset/:id"),
            ("/reset/k3j5h2g5k3j5h2g5k3j5", "/reset/:id"),
            ("/blog/how-to-bake-a-cake-in-2024", "/blog/how-to-bake-a-cake-in-2024"),
            ("/v2/users", "/v2/users"),
            ("/reset/********/form", "/reset/:id/form"),
            ("/a/***/*.html", "/a/***/*.html"),
            ("/12.json", "/:id"),
            ("/a/", "/a/"),
            ("/\u{e9}\n", "/???"),
        ] {
            assert_eq!(Buffer::default().of_path(path.as_bytes()), route, "{path}");
        }
        assert_eq!(Buffer::default().of_request(b"PUT", b"/posts/12"), "PUT /posts/:id");
    }

    #[test]
    fn a_route_has_whole_segments() {
        let path = format!("/{}/{}/x", "a".repeat(60), "b".repeat(60));
        assert_eq!(Buffer::default().of_path(path.as_bytes()), format!("/{}", "a".repeat(60)));
    }

    proptest! {
        #[test]
        fn a_route_is_short_and_printable(method: Vec<u8>, path: Vec<u8>) {
            let mut buffer = Buffer::default();
            for route in [buffer.clone().of_path(&path), buffer.of_request(&method, &path)] {
                prop_assert!(route.len() <= MOST_BYTES && route.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            }
        }

        #[test]
        fn numbers_fold(number: u64, word in "[a-z]{1,9}") {
            let path = format!("/{word}/{number}/{word}");
            let mut buffer = Buffer::default();
            prop_assert_eq!(buffer.of_path(path.as_bytes()), format!("/{word}/:id/{word}"));
        }
    }
}
