//! Overwrites the secrets of a request in place: for the requests that dead workers were serving, and for recorded ones, also those in their paths.
//!
//! Why in place: lengths stay as they are, so `Content-Length` is right, and a request whose length kills a worker still does.
//!
//! Contract: any bytes are accepted; nothing but values is changed, and each byte of a value becomes `*`, or `0` in a number of JSON. A name is
//! secret if it contains one of [`NAMES`], as in the filters of Rails, or is one of [`WHOLE_NAMES`]. Text of another form than the ones here is left alone.

/// Parts of the names of secrets: of fields, of parameters, of keys of JSON.
const NAMES: [&[u8]; 21] = [
    b"passw",
    b"pwd",
    b"passphrase",
    b"secret",
    b"token",
    b"_key",
    b"apikey",
    b"crypt",
    b"salt",
    b"certificate",
    b"otp",
    b"ssn",
    b"cvv",
    b"cvc",
    b"authorization",
    b"cookie",
    b"session",
    b"signature",
    b"credential",
    b"card_number",
    b"jwt",
];

/// Names that are secret only as a whole.
const WHOLE_NAMES: [&[u8]; 5] = [b"key", b"pin", b"sid", b"jid", b"x_jid"];

/// Returns whether a name is that of a secret; case and the kind of the dash do not matter.
pub fn is_secret(name: &[u8]) -> bool {
    let name: Vec<u8> =
        name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() }).collect();
    WHOLE_NAMES.contains(&name.as_slice())
        || NAMES.iter().any(|known| name.windows(known.len()).any(|part| part == *known))
}

/// Masks the value of a field, whose name is secret or not. Returns whether there was a secret.
pub fn field(name: &[u8], value: &mut [u8]) -> bool {
    if name.eq_ignore_ascii_case(b"cookie") {
        return value.split_mut(|byte| *byte == b';').fold(false, |any, pair| {
            let start = pair.iter().position(|byte| *byte == b'=').map_or(0, |at| at + 1);
            fill(&mut pair[start..]) | any
        });
    }
    if is_secret(name) {
        // The scheme of credentials (RFC 9110, 11.4) tells which way the app takes.
        let scheme = value.iter().position(|byte| *byte == b' ');
        return fill(&mut value[scheme.map_or(0, |at| at + 1)..]);
    }
    if name.eq_ignore_ascii_case(b"referer") {
        let end = value.iter().position(|byte| *byte == b'?').unwrap_or(value.len());
        return path(&mut value[..end]) | url(value);
    }
    false
}

/// Masks the query of a URL or of a request target.
pub fn url(target: &mut [u8]) -> bool {
    let Some(start) = target.iter().position(|byte| *byte == b'?') else { return false };
    form(&mut target[start + 1..])
}

/// Returns whether a request target has a secret: in a segment of its path, or in its query.
pub fn is_in_target(path: &[u8], query: &[u8]) -> bool {
    self::path(&mut path.to_vec()) || form(&mut query.to_vec())
}

/// Masks the segments of a path that look like keys: what follows a secret name and has letters and digits (`/password_resets/k3j5h2g5`), tokens of JSON
/// (RFC 7519), and segments of 20 bytes and more in which letters, digits and cases alternate as they do in no words. Numbers, UUIDs, titles and names of
/// files are kept.
pub fn path(path: &mut [u8]) -> bool {
    let (mut any, mut after_name) = (false, false);
    for segment in path.split_mut(|byte| *byte == b'/') {
        let is_value = after_name && segment.len() >= VALUE && is_mixed(segment);
        after_name = is_secret(segment);
        // The first part of a token of JSON is an object.
        let is_token = segment.len() >= KEY && segment.starts_with(b"eyJ");
        if is_value || is_token || is_key(segment) {
            any |= fill(segment);
        }
    }
    any
}

/// The shortest segment that is a key after a secret name, and wherever it stands.
const VALUE: usize = 8;
const KEY: usize = 20;
/// In a key, one byte in so many or more is of another kind than the one before it.
const CHANGES: usize = 6;

fn is_key(segment: &[u8]) -> bool {
    let changes = segment.windows(2).filter(|pair| changes_kind(pair[0], pair[1])).count();
    segment.len() >= KEY && changes * CHANGES >= segment.len() && is_mixed(segment)
}

/// Returns whether a letter and a digit are neighbours, or a capital follows a small letter.
fn changes_kind(first: u8, second: u8) -> bool {
    first.is_ascii_digit() && second.is_ascii_alphabetic()
        || first.is_ascii_alphabetic() && second.is_ascii_digit()
        || first.is_ascii_lowercase() && second.is_ascii_uppercase()
}

/// Returns whether a segment consists of letters and digits, apart from the signs of codings, and is neither a UUID nor a number with a title (`12-a-title`).
fn is_mixed(segment: &[u8]) -> bool {
    let has = |test: fn(&u8) -> bool| segment.iter().any(test);
    let digits = segment.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let has_title = digits > 0 && segment.get(digits) == Some(&b'-');
    segment.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_=~+%".contains(byte))
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !has_title
        && !is_uuid(segment)
}

/// Returns whether a segment is a UUID (RFC 9562, 4).
fn is_uuid(segment: &[u8]) -> bool {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    segment.len() == 36
        && segment.iter().enumerate().all(|(at, byte)| match is_dash(at) {
            true => *byte == b'-',
            false => byte.is_ascii_hexdigit(),
        })
}

/// Masks parameters of the form `application/x-www-form-urlencoded`.
pub fn form(bytes: &mut [u8]) -> bool {
    bytes.split_mut(|byte| matches!(byte, b'&' | b';')).fold(false, |any, pair| {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else { return any };
        (is_secret(&crate::percent::decode(&pair[..at])) && fill(&mut pair[at + 1..])) | any
    })
}

/// Masks a body by its `Content-Type`.
pub fn body(content_type: &[u8], bytes: &mut [u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let media_type = lower.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match media_type {
        b"multipart/form-data" => match boundary(content_type) {
            Some(boundary) => multipart(bytes, &boundary),
            None => false,
        },
        one if one == b"application/json" || one.ends_with(b"+json") || one == b"text/json" => json(bytes),
        // Also what has no type: many clients forget it.
        b"" | b"application/x-www-form-urlencoded" => form(bytes),
        _ => false,
    }
}

/// Masks the values of JSON whose keys are secret, with all that is in them. Text that is not JSON loses at most more.
fn json(bytes: &mut [u8]) -> bool {
    let (mut at, mut depth, mut any) = (0, 0usize, false);
    // Whether the next value is secret, and the depth of the secret one around.
    let (mut next, mut inside) = (false, None);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let start = at + 1;
                let end = closing(bytes, start);
                at = end + 1;
                let behind = bytes.get(at..).unwrap_or_default();
                if behind.trim_ascii_start().starts_with(b":") {
                    next = is_secret(&bytes[start..end]);
                } else if std::mem::take(&mut next) || inside.is_some() {
                    any |= fill(&mut bytes[start..end]);
                }
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                if std::mem::take(&mut next) && inside.is_none() {
                    inside = Some(depth);
                }
            }
            b'}' | b']' => {
                inside = inside.filter(|own| *own != depth);
                depth = depth.saturating_sub(1);
                next = false;
            }
            b',' => next = false,
            b'0'..=b'9' if next || inside.is_some() => {
                bytes[at] = b'0';
                any = true;
            }
            _ => {}
        }
        at += 1;
    }
    any
}

/// Returns the position of the quote that ends a string, or the end.
fn closing(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// Returns the delimiter of parts (RFC 2046, 5.1.1), with the dashes before it.
fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let parameters = content_type.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let is_it = |one: &&[u8]| one.get(..9).is_some_and(|name| name.eq_ignore_ascii_case(b"boundary="));
    let value = parameters.into_iter().find(is_it)?[9..].to_vec();
    let bare: Vec<u8> = value.into_iter().filter(|byte| *byte != b'"').collect();
    (!bare.is_empty()).then(|| [b"--", &bare[..]].concat())
}

/// Masks the values of secret parts.
fn multipart(bytes: &mut [u8], delimiter: &[u8]) -> bool {
    let find = |bytes: &[u8], what: &[u8], from: usize| {
        let rest = bytes.get(from..)?;
        rest.windows(what.len()).position(|part| part == what).map(|at| from + at)
    };
    let (mut from, mut any) = (find(bytes, delimiter, 0), false);
    while let Some(start) = from {
        let start = start + delimiter.len();
        let end = find(bytes, delimiter, start);
        from = end;
        let end = end.unwrap_or(bytes.len());
        let part = &mut bytes[start..end];
        let Some(head) = find(part, b"\r\n\r\n", 0) else { continue };
        let name = find(part, b" name=", 0).filter(|at| *at < head).map(|at| &part[at + 6..head]);
        let name = name.and_then(|rest| rest.split(|byte| matches!(byte, b';' | b'\r')).next());
        if name.is_some_and(is_secret) {
            let value = &mut part[head + 4..];
            let len = value.strip_suffix(b"\r\n").unwrap_or(value).len();
            any |= fill(&mut value[..len]);
        }
    }
    any
}

/// Returns whether there was anything to mask.
fn fill(bytes: &mut [u8]) -> bool {
    bytes.fill(b'*');
    !bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masked(mask: impl FnOnce(&mut [u8]) -> bool, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let any = mask(&mut bytes);
        assert_eq!(any, bytes != text.as_bytes(), "{text}");
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn only_secrets_are_masked() {
        let fields = [
            ("Authorization", "Bearer abc", "Bearer ***"),
            ("X-Api-Key", "abc", "***"),
            ("cookie", "_id=abc; theme=x", "_id=***; theme=*"),
            ("Referer", "http://a/b?reset_token=abc&page=2", "http://a/b?reset_token=***&page=2"),
            ("Referer", "http://a/reset_token/k3j5h2g5?x=1", "http://a/reset_token/********?x=1"),
            ("Accept", "text/html", "text/html"),
        ];
        for (name, value, wanted) in fields {
            assert_eq!(masked(|bytes| field(name.as_bytes(), bytes), value), wanted);
        }
        let bodies = [
            (
                "application/x-www-form-urlencoded",
                "user%5Bpass%77ord%5D=abc&q=a&key=b&monkey=c",
                "user%5Bpass%77ord%5D=***&q=a&key=*&monkey=c",
            ),
            (
                "application/json",
                r#"{"password": "a\"b", "n": 12, "page": 3}"#,
                r#"{"password": "****", "n": 12, "page": 3}"#,
            ),
            (
                "application/vnd.api+json; charset=utf-8",
                r#"{"pwd": [{"a": 12}, "b"], "q": ["b"]}"#,
                r#"{"pwd": [{"a": 00}, "*"], "q": ["b"]}"#,
            ),
            ("text/plain", "password=abc", "password=abc"),
            (
                "multipart/form-data; boundary=\"XY\"",
                "--XY\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nabc\r\n--XY\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nabc\r\n--XY--",
                "--XY\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n***\r\n--XY\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nabc\r\n--XY--",
            ),
        ];
        for (content_type, text, wanted) in bodies {
            assert_eq!(masked(|bytes| body(content_type.as_bytes(), bytes), text), wanted, "{content_type}");
        }
    }

    #[test]
    fn keys_in_paths_are_masked_and_ids_are_kept() {
        for (text, key) in [
            (
                "/rails/active_storage/blobs/KEY/a.png",
                "eyJfcmFpbHMiOnsiZGF0YSI6MX19--0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
            ),
            (
                "/users/KEY",
                "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            ),
            ("/unsubscribe/KEY/", "k8mVbqjG1wTzYs6xQ2pN4cRd"),
            ("/i/KEY", "9f86d081884c7d659a2feaa0c55ad015"),
            ("/s/KEY", "aB3-xYz9_Qw8rT6uI2oP"),
            ("/password_resets/KEY/edit", "k3j5h2g5k3j5h2g5k3j5"),
            ("/tokens/KEY", "3f2504e0"),
            ("KEY", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
        ] {
            let masked_path = text.replace("KEY", &"*".repeat(key.len()));
            assert_eq!(masked(path, &text.replace("KEY", key)), masked_path);
        }
        for kept in [
            "/",
            "",
            "/posts/12/comments",
            "/posts/12-a-very-long-title-of-2024-with-7-numbers",
            "/blog/how-to-bake-a-cake-in-2024-and-2025",
            "/Posts/AVeryLongNameOfAModuleOfAnApp/Show",
            "/reviews/iphone-15-pro-max-vs-pixel-8-pro",
            "/orders/3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "/tokens/3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "/tokens/12",
            "/tokens/new",
            "/session/edit-profile",
            "/tokens/12345678-a-title",
            "/assets/application-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.js",
            "/12345678901234567890123",
            "/tokens/********************",
        ] {
            assert_eq!(masked(path, kept), kept);
        }
    }

    proptest! {
        #[test]
        fn random_tokens_are_keys(token in "[A-Za-z0-9]{20}7[A-Za-z0-9]{20}", hex in "[a-f][0-9a-f]{63}") {
            for text in [token, hex] {
                prop_assert_eq!(masked(path, &format!("/a/{text}")), format!("/a/{}", "*".repeat(text.len())));
            }
        }

        #[test]
        fn any_bytes_keep_their_length(bytes: Vec<u8>, soup in r#"[\[\]{}",:\\a-c0-9 =&;*-]{0,80}"#, name: Vec<u8>) {
            for input in [bytes, format!("password{soup}").into_bytes(), soup.into_bytes()] {
                for kind in ["application/json", "", "multipart/form-data; boundary=a", "multipart/form-data; boundary=\"\""] {
                    let mut own = input.clone();
                    body(kind.as_bytes(), &mut own);
                    prop_assert_eq!(own.len(), input.len());
                }
                let mut own = input.clone();
                field(&name, &mut own);
                field(b"cookie", &mut own);
                url(&mut own);
                path(&mut own);
                prop_assert_eq!(own.len(), input.len());
            }
        }
    }
}
