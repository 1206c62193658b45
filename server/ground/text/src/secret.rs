//! Overwrites the secrets of a request in place: for the requests that dead workers were serving, and for recorded ones.
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
const WHOLE_NAMES: [&[u8]; 3] = [b"key", b"pin", b"sid"];

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
        return url(value);
    }
    false
}

/// Masks the query of a URL or of a request target.
pub fn url(target: &mut [u8]) -> bool {
    let Some(start) = target.iter().position(|byte| *byte == b'?') else { return false };
    form(&mut target[start + 1..])
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

    proptest! {
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
            }
        }
    }
}
