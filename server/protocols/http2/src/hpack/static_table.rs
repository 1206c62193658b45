//! Defines the static table (RFC 7541 appendix A).

use fieldcode::Name;

/// A field of the table: its name and value in one piece.
pub(super) struct Field {
    pub(super) text: &'static str,
    pub(super) name_len: usize,
}

macro_rules! fields {
    ($($name:literal $value:literal,)*) => {
        [$(Field { text: concat!($name, $value), name_len: $name.len() }),*]
    };
}

/// The number of fields; indices begin with 1.
pub(super) const COUNT: usize = 61;

pub(super) static FIELDS: [Field; COUNT] = fields![
    ":authority" "",
    ":method" "GET",
    ":method" "POST",
    ":path" "/",
    ":path" "/index.html",
    ":scheme" "http",
    ":scheme" "https",
    ":status" "200",
    ":status" "204",
    ":status" "206",
    ":status" "304",
    ":status" "400",
    ":status" "404",
    ":status" "500",
    "accept-charset" "",
    "accept-encoding" "gzip, deflate",
    "accept-language" "",
    "accept-ranges" "",
    "accept" "",
    "access-control-allow-origin" "",
    "age" "",
    "allow" "",
    "authorization" "",
    "cache-control" "",
    "content-disposition" "",
    "content-encoding" "",
    "content-language" "",
    "content-length" "",
    "content-location" "",
    "content-range" "",
    "content-type" "",
    "cookie" "",
    "date" "",
    "etag" "",
    "expect" "",
    "expires" "",
    "from" "",
    "host" "",
    "if-match" "",
    "if-modified-since" "",
    "if-none-match" "",
    "if-range" "",
    "if-unmodified-since" "",
    "last-modified" "",
    "link" "",
    "location" "",
    "max-forwards" "",
    "proxy-authenticate" "",
    "proxy-authorization" "",
    "range" "",
    "referer" "",
    "refresh" "",
    "retry-after" "",
    "server" "",
    "set-cookie" "",
    "strict-transport-security" "",
    "transfer-encoding" "",
    "user-agent" "",
    "vary" "",
    "via" "",
    "www-authenticate" "",
];

/// Returns the kind of the name at an index.
pub(super) fn kind(index: usize) -> Name {
    match index {
        1 => Name::Authority,
        2 | 3 => Name::Method,
        4 | 5 => Name::Path,
        6 | 7 => Name::Scheme,
        8..=14 => Name::UnknownPseudo,
        28 => Name::ContentLength,
        32 => Name::Cookie,
        35 => Name::Expect,
        38 => Name::Host,
        57 => Name::Connection,
        _ => Name::Plain,
    }
}

/// Returns the index of a response field's name, in any case; 0 if it has none.
pub(super) fn index_of(name: &[u8]) -> u8 {
    let candidates: &[u8] = match name.len() {
        3 => &[21, 60],
        4 => &[34, 59, 33, 45],
        5 => &[22],
        6 => &[54],
        7 => &[36, 52],
        8 => &[46],
        10 => &[55],
        11 => &[53],
        12 => &[31],
        13 => &[24, 44, 18, 30],
        14 => &[28],
        16 => &[26, 27, 29, 61],
        18 => &[48],
        19 => &[25],
        25 => &[56],
        27 => &[20],
        _ => return 0,
    };
    let is = |index: u8| {
        let field = &FIELDS[usize::from(index) - 1];
        name.eq_ignore_ascii_case(&field.text.as_bytes()[..field.name_len])
    };
    candidates.iter().copied().find(|&index| is(index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_the_names() {
        for (at, field) in FIELDS.iter().enumerate() {
            let name = &field.text.as_bytes()[..field.name_len];
            assert_eq!(kind(at + 1), Name::of(name), "{}", field.text);
            let index = usize::from(index_of(&name.to_ascii_uppercase()));
            assert!(index == 0 || index == at + 1, "{}", field.text);
        }
        assert_eq!((index_of(b"Content-Type"), index_of(b"via"), index_of(b"x")), (31, 60, 0));
    }
}
