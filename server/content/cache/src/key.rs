//! The key of a response: scheme, host, path and query (RFC 9111 section 2). The method is GET for all.
//!
//! Contract: two requests have the same key only if an app could not distinguish their targets. The case of
//! scheme and host and an explicit default port make no difference; path and query are compared byte by byte.

use handler::Request;

/// Writes the key of a request into `out`. With `sort_query`, the order of the `name=value` pairs makes no
/// difference.
pub(crate) fn write(request: &Request, sort_query: bool, out: &mut Vec<u8>) {
    out.clear();
    origin(request, out);
    // `/a` and `/a?` differ, as they do for an app: the target shows it.
    let query = Some(request.query()).filter(|query| !query.is_empty() || request.target().ends_with(b"?"));
    path_and_query(request.path(), query, sort_query, out);
}

fn path_and_query(path: &[u8], query: Option<&[u8]>, sort_query: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(path);
    let Some(query) = query else { return };
    out.push(b'?');
    if sort_query && query.contains(&b'&') {
        let mut pairs: Vec<&[u8]> = query.split(|&byte| byte == b'&').collect();
        // Stable, so that repeated names keep their order.
        pairs.sort_by_key(|pair| pair.split(|&byte| byte == b'=').next());
        out.extend_from_slice(&pairs.join(&b'&'));
    } else {
        out.extend_from_slice(query);
    }
}

/// Writes `scheme://host`.
pub(crate) fn origin(request: &Request, out: &mut Vec<u8>) {
    let (scheme, default): (&[u8], &[u8]) =
        if request.https { (b"https://", b"443") } else { (b"http://", b"80") };
    out.extend_from_slice(scheme);
    let (host, port) = request.server();
    let start = out.len();
    out.extend_from_slice(host);
    out[start..].make_ascii_lowercase();
    if port != default {
        out.push(b':');
        out.extend_from_slice(port);
    }
}

/// Returns the part of a key after `scheme://host`.
pub(crate) fn path(key: &[u8]) -> &[u8] {
    let after = key.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3);
    let rest = &key[after..];
    &rest[rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len())..]
}

/// Returns the key of a URI reference (Location, Content-Location) in a response to `request`; `None` if it
/// names another server.
pub(crate) fn reference(request: &Request, value: &[u8], sort_query: bool) -> Option<Vec<u8>> {
    let mut own = Vec::new();
    origin(request, &mut own);
    let value = value.trim_ascii();
    let value = &value[..value.iter().position(|&byte| byte == b'#').unwrap_or(value.len())];
    let path = if value.starts_with(b"/") && !value.starts_with(b"//") {
        value
    } else {
        let lower = value.to_ascii_lowercase();
        let rest = lower.starts_with(&own).then(|| &value[own.len()..])?;
        if rest.is_empty() { b"/" } else { rest.starts_with(b"/").then_some(rest)? }
    };
    let (path, query) = match path.iter().position(|&byte| byte == b'?') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    };
    let mut key = own;
    path_and_query(path, query, sort_query, &mut key);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::request;

    fn key(target: &str, sort: bool) -> String {
        let mut out = Vec::new();
        write(&request("GET", target, &[]), sort, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn queries_belong_to_the_key() {
        assert_eq!(key("/a?b=1&a=2", false), "http://example.org/a?b=1&a=2");
        assert_eq!(key("/a?b=1&a=2&b=0", true), "http://example.org/a?a=2&b=1&b=0");
        assert_ne!(key("/a", false), key("/a?", false));
        assert_eq!(path(key("/a?b", false).as_bytes()), b"/a?b");
    }

    #[test]
    fn references_to_this_server_have_keys() {
        let request = request("POST", "/a", &[]);
        let of = |value: &str| {
            reference(&request, value.as_bytes(), false).map(|key| String::from_utf8(key).unwrap())
        };
        assert_eq!(of("/b?c#d").as_deref(), Some("http://example.org/b?c"));
        assert_eq!(of("HTTP://Example.org/B").as_deref(), Some("http://example.org/B"));
        assert_eq!(of("http://example.org").as_deref(), Some("http://example.org/"));
        for other in
            ["http://example.org.evil/", "//example.org/b", "https://example.org/b", "b", "http://other/"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
