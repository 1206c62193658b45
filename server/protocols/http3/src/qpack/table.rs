//! Defines the static table (RFC 9204 appendix A).

use fieldcode::Name;

/// Names and values by index.
pub(super) const STATIC: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// Returns the kind of an entry's name, which determines how a field is checked.
pub(super) fn kind(index: usize) -> Name {
    match index {
        0 => Name::Authority,
        1 => Name::Path,
        4 => Name::ContentLength,
        5 => Name::Cookie,
        15..=21 => Name::Method,
        22 | 23 => Name::Scheme,
        24..=28 | 63..=71 => Name::UnknownPseudo,
        _ => Name::Plain,
    }
}

/// Returns the entry with the status, if the table has one.
pub(super) fn status(status: u16) -> Option<u64> {
    Some(match status {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        _ => return None,
    })
}

/// Returns the first entry with that name, which is in lower case.
pub(super) fn name(name: &[u8]) -> Option<usize> {
    // By length first: most names of the table differ in it.
    Some(match name {
        b"age" => 2,
        b"etag" => 7,
        b"date" => 6,
        b"link" => 11,
        b"vary" => 59,
        b"allow" => return None,
        b"server" => 92,
        b"alt-svc" => 83,
        b"location" => 12,
        b"expect-ct" => 87,
        b"set-cookie" => 14,
        b"content-type" => 44,
        b"accept-ranges" => 32,
        b"cache-control" => 36,
        b"last-modified" => 10,
        b"content-length" => 4,
        b"x-frame-options" => 97,
        b"content-encoding" => 42,
        b"x-xss-protection" => 62,
        b"content-disposition" => 3,
        b"timing-allow-origin" => 93,
        b"x-content-type-options" => 61,
        b"content-security-policy" => 85,
        b"strict-transport-security" => 56,
        b"access-control-allow-origin" => 35,
        b"access-control-allow-headers" => 33,
        b"access-control-allow-methods" => 76,
        b"access-control-expose-headers" => 79,
        b"access-control-allow-credentials" => 73,
        _ => return None,
    })
}

/// Returns the entry with that name and value. Entries of one name follow each other from `first` on, as far
/// as responses use them.
pub(super) fn entry(first: usize, value: &[u8]) -> Option<usize> {
    let name = STATIC[first].0;
    STATIC[first..]
        .iter()
        .take(11)
        .position(|(known, text)| *known == name && text.as_bytes() == value)
        .map(|at| first + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_the_names() {
        for (index, (name, _)) in STATIC.iter().enumerate() {
            assert_eq!(kind(index), Name::of(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_and_statuses_are_found() {
        for (index, (field, value)) in STATIC.iter().enumerate() {
            if *field == ":status" {
                assert_eq!(status(value.parse().unwrap()), Some(index as u64));
            } else if let Some(first) = name(field.as_bytes()) {
                assert_eq!(STATIC.iter().position(|(known, _)| known == field), Some(first), "{field}");
            }
        }
        assert_eq!(
            (status(201), name(b"x-none"), entry(44, b"text/css"), entry(44, b"text/none")),
            (None, None, Some(51), None)
        );
    }
}
