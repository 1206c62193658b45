//! Field names that are sent as one byte, and the Rack key of each.
//!
//! Why: for a small request, a worker spends most of its time on building the Rack env, and most names are
//! the same few. With a code, the worker can use a prepared, frozen key instead of hashing, upcasing and
//! interning the name again. The order of the table is part of the wire format: add names at the end, and
//! never reorder them.

/// The known names in lower case. The code of a name is its position plus one.
pub const KNOWN: &[&str] = &[
    "host",
    "user-agent",
    "accept",
    "accept-language",
    "accept-encoding",
    "accept-charset",
    "connection",
    "cookie",
    "content-type",
    "content-length",
    "cache-control",
    "pragma",
    "referer",
    "origin",
    "upgrade",
    "upgrade-insecure-requests",
    "authorization",
    "proxy-authorization",
    "if-none-match",
    "if-modified-since",
    "if-match",
    "if-unmodified-since",
    "if-range",
    "range",
    "date",
    "dnt",
    "te",
    "trailer",
    "transfer-encoding",
    "expect",
    "from",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-ssl",
    "x-real-ip",
    "x-request-id",
    "x-request-start",
    "x-queue-start",
    "x-requested-with",
    "x-csrf-token",
    "x-http-method-override",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-gpc",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "priority",
    "purpose",
    "sec-purpose",
    "save-data",
    "keep-alive",
    "turbo-frame",
    "traceparent",
    "tracestate",
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "last-event-id",
    "content-encoding",
];

const _: () = assert!(KNOWN.len() < 128, "a code has seven bits");

/// Longer than every name.
const LONGEST: usize = 32;

/// A known name, with the two letters that distinguish it from most others of its length.
struct KnownName {
    ends: [u8; 2],
    code: u8,
}

/// The known names by length. Almost every bucket holds fewer than six.
static BY_LEN: std::sync::LazyLock<[Vec<KnownName>; LONGEST]> = std::sync::LazyLock::new(|| {
    let mut buckets: [Vec<KnownName>; LONGEST] = std::array::from_fn(|_| Vec::new());
    for (at, name) in KNOWN.iter().map(|name| name.as_bytes()).enumerate() {
        buckets[name.len()].push(KnownName { ends: ends(name), code: at as u8 + 1 });
    }
    buckets
});

/// Returns the first and last letter of a name that is not empty.
#[inline]
fn ends(name: &[u8]) -> [u8; 2] {
    [name[0], name[name.len() - 1]]
}

/// Returns the code of a field name in any case, if it is known.
#[inline]
pub fn code(name: &[u8]) -> Option<u8> {
    let bucket = BY_LEN.get(name.len()).filter(|bucket| !bucket.is_empty())?;
    // Converts the whole array at once, because a loop over the letters would take most of the time of this
    // function.
    let mut letters = [0; LONGEST];
    letters[..name.len()].copy_from_slice(name);
    letters.make_ascii_lowercase();
    let lower = &letters[..name.len()];
    let is_same =
        |entry: &&KnownName| entry.ends == ends(lower) && KNOWN[entry.code as usize - 1].as_bytes() == lower;
    bucket.iter().find(is_same).map(|entry| entry.code)
}

/// Returns the name of a code, in lower case.
#[inline]
pub fn name(code: u8) -> Option<&'static str> {
    KNOWN.get((code as usize).checked_sub(1)?).copied()
}

/// Returns the Rack env key of a field name: upper case, with `_` for `-` and the prefix `HTTP_`, except for
/// Content-Type and Content-Length (Rack SPEC, "The Environment").
pub fn rack_key(name: &[u8]) -> Vec<u8> {
    let bare = name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-length");
    let prefix: &[u8] = if bare { b"" } else { b"HTTP_" };
    let upcased = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
    prefix.iter().copied().chain(upcased).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_agree() {
        for (at, known) in KNOWN.iter().enumerate() {
            assert_eq!(code(known.to_ascii_uppercase().as_bytes()), Some(at as u8 + 1));
            assert_eq!(name(at as u8 + 1), Some(*known));
            assert!((1..LONGEST).contains(&known.len()));
        }
        assert_eq!([&b""[..], b"x", b"hast", b"x-unheard-of"].map(code), [None; 4]);
        assert_eq!((name(0), name(127)), (None, None));
    }

    #[test]
    fn rack_keys_follow_the_spec() {
        assert_eq!(rack_key(b"X-Forwarded-For"), b"HTTP_X_FORWARDED_FOR");
        assert_eq!(rack_key(b"content-type"), b"CONTENT_TYPE");
        assert_eq!(rack_key(b"Content-Length"), b"CONTENT_LENGTH");
    }
}
