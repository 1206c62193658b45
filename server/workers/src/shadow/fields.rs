//! The shape of a response's fields: which there are, and the values of those that change what clients do.

use super::parts::{Shape, folded};
use handler::Fields;

/// Fields that differ by nature, or that the server writes.
const IGNORED: [&str; 11] = [
    "age",
    "connection",
    "content-length",
    "date",
    "firebrick-shadow",
    "keep-alive",
    "server",
    "server-timing",
    "transfer-encoding",
    "x-request-id",
    "x-runtime",
];

/// Fields whose values are lists of words, in any order.
const LISTS: [&str; 6] = [
    "access-control-allow-headers",
    "access-control-allow-methods",
    "allow",
    "cache-control",
    "content-encoding",
    "vary",
];

/// Fields whose whole values count.
const VALUES: [&str; 12] = [
    "access-control-allow-credentials",
    "access-control-allow-origin",
    "content-language",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "permissions-policy",
    "referrer-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-robots-tag",
];

/// Returns the media type of a response, in small letters and without parameters.
pub(super) fn media_type(fields: &Fields) -> String {
    let value = fields.get("content-type").map(String::from_utf8_lossy).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Adds the parts of the fields.
pub(super) fn put(fields: &Fields, shape: &mut Shape) {
    for (name, value) in fields.iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if IGNORED.contains(&name.as_str()) {
            continue;
        }
        let value = String::from_utf8_lossy(value);
        match name.as_str() {
            "set-cookie" => put_cookie(&value, shape),
            "content-type" => {
                shape.put("header content-type", &value.trim().to_ascii_lowercase().replace("; ", ";"))
            }
            "location" => shape.put("header location", &location(&value)),
            "content-security-policy" => shape.put("header content-security-policy", &without_nonces(&value)),
            list if LISTS.contains(&list) => shape.put(&format!("header {list}"), &sorted(&value, ',')),
            whole if VALUES.contains(&whole) => {
                shape.put(&format!("header {whole}"), &value.trim().to_ascii_lowercase());
            }
            other => shape.put(&format!("header {}", folded(other)), "present"),
        }
    }
}

fn sorted(value: &str, separator: char) -> String {
    let mut words: Vec<String> =
        value.split(separator).map(|word| word.trim().to_ascii_lowercase()).collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

/// Adds a cookie: its name, and its attributes without values, apart from `SameSite`.
fn put_cookie(value: &str, shape: &mut Shape) {
    let mut parts = value.split(';');
    let name = parts.next().and_then(|pair| pair.split('=').next()).unwrap_or_default().trim();
    let attributes = parts.map(|part| {
        let part = part.trim().to_ascii_lowercase();
        if part.starts_with("samesite") {
            part
        } else {
            part.split('=').next().unwrap_or_default().to_owned()
        }
    });
    let mut attributes: Vec<String> = attributes.filter(|one| !one.is_empty()).collect();
    attributes.sort_unstable();
    let value = if attributes.is_empty() { "present".to_owned() } else { attributes.join(", ") };
    shape.put(&format!("cookie {}", folded(name)), &value);
}

/// Returns where a redirect leads: its host, the route of its path, and the names of its parameters.
fn location(value: &str) -> String {
    let (target, query) = value.split_once('?').unwrap_or((value, ""));
    let (origin, path) = match target.find("://") {
        Some(at) => {
            let end = target[at + 3..].find('/').map_or(target.len(), |slash| at + 3 + slash);
            target.split_at(end)
        }
        None => ("", target),
    };
    let route = text::route::Buffer::default().of_path(path.as_bytes()).to_owned();
    let mut names: Vec<&str> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    match names.is_empty() {
        true => format!("{origin}{route}"),
        false => format!("{origin}{route}?{}", names.join("&")),
    }
}

/// Returns a policy without its nonces, and without the hashes of scripts, which change with them.
fn without_nonces(value: &str) -> String {
    let folded = |word: &str| match word.trim_start_matches('\'').split('-').next() {
        Some(kind @ ("nonce" | "sha256" | "sha384" | "sha512")) if word.starts_with('\'') => {
            format!("'{kind}'")
        }
        _ => word.to_ascii_lowercase(),
    };
    let directive = |one: &str| {
        let mut words: Vec<String> = one.split_ascii_whitespace().map(folded).collect();
        words.dedup();
        words.join(" ")
    };
    let directives: Vec<String> = value.split(';').map(directive).filter(|one| !one.is_empty()).collect();
    directives.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_and_some_have_values() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("Content-Type", "text/HTML; charset=utf-8"),
            ("Cache-Control", "no-cache, private"),
            ("Location", "https://a.example/posts/12?page=3&a=x"),
            ("Set-Cookie", "_session=abc; Path=/; HttpOnly; SameSite=Lax"),
            ("ETag", "\"1\""),
            ("X-Request-Id", "1"),
            ("Content-Security-Policy", "script-src 'self' 'nonce-abc'; img-src *"),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let mut shape = Shape::default();
        put(&fields, &mut shape);
        let expected = [
            ("cookie _session", "httponly, path, samesite=lax"),
            ("header cache-control", "no-cache, private"),
            ("header content-security-policy", "script-src 'self' 'nonce'; img-src *"),
            ("header content-type", "text/html;charset=utf-8"),
            ("header etag", "present"),
            ("header location", "https://a.example/posts/:id?a&page"),
        ];
        assert_eq!(shape.parts().collect::<Vec<_>>(), expected);
    }
}
