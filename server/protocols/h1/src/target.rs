//! Parses the request line: method, target in its four forms, version (RFC 9112 section 3).

use crate::syntax;
use handler::{Failure, Span, Version};

/// A request line. Spans count from the start of the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLine {
    pub version: Version,
    pub method: Span,
    /// The target as received.
    pub target: Span,
    /// The path; `*` for the asterisk form; `/` for an absolute form without a path.
    pub path: Span,
    /// The query without `?`.
    pub query: Span,
    /// The authority of an absolute form; empty otherwise.
    pub authority: Span,
}

/// The longest method. No registered method comes close (501 beyond, RFC 9112 section 3).
const MAX_METHOD: usize = 32;

/// Returns the length of the method at the start of a line; `None` if its end has not arrived.
pub(crate) fn method_len(line: &[u8]) -> Result<Option<usize>, Failure> {
    for (at, &byte) in line.iter().enumerate() {
        if byte == b' ' && at > 0 {
            return Ok(Some(at));
        }
        if !syntax::is_token_byte(byte) {
            return Err(bad("a request line begins with a method and one blank"));
        }
        if at == MAX_METHOD {
            return Err(Failure::client(501, "a method of more than 32 bytes"));
        }
    }
    Ok(None)
}

/// Parses a line without its CRLF. `offset`: its position in the head.
pub(crate) fn parse(line: &[u8], offset: u32) -> Result<RequestLine, Failure> {
    let Some(method_end) = method_len(line)? else { return Err(bad("a request line without a target")) };
    let rest = &line[method_end + 1..];
    let Some(target_len) = memchr::memchr(b' ', rest) else {
        return Err(bad("a request line without a version"));
    };
    let version = version(&rest[target_len + 1..])?;
    let (method, target) = (&line[..method_end], &rest[..target_len]);
    if method == b"CONNECT" {
        return Err(Failure::client(501, "CONNECT: this is not a proxy"));
    }
    if target.is_empty() || !syntax::is_target(target) {
        return Err(bad("a request target has visible bytes only, and no fragment"));
    }
    let span =
        |part: std::ops::Range<usize>| Span { start: offset + part.start as u32, len: part.len() as u32 };
    let start = method_end + 1;
    let end = start + target_len;
    let (authority, path) = match target[0] {
        b'/' => (0..0, start..end),
        b'*' if target_len == 1 && method == b"OPTIONS" => (0..0, start..end),
        _ => absolute(target).map(|(authority, path)| {
            (start + authority.start..start + authority.end, start + path.start..start + path.end)
        })?,
    };
    // An absolute form without a path uses the `/` of its scheme as path; its query follows the authority.
    let query_from = if path.end <= authority.start { authority.end } else { path.start };
    let (path, query) = match memchr::memchr(b'?', &line[query_from..end]) {
        Some(at) if query_from == path.start => (path.start..query_from + at, query_from + at + 1..end),
        Some(at) => (path, query_from + at + 1..end),
        None => (path, end..end),
    };
    let authority = if authority.is_empty() { Span::default() } else { span(authority) };
    Ok(RequestLine {
        version,
        method: span(0..method_end),
        target: span(start..end),
        path: span(path),
        query: span(query),
        authority,
    })
}

/// Returns the authority and the path (with query) of an absolute form.
fn absolute(target: &[u8]) -> Result<(std::ops::Range<usize>, std::ops::Range<usize>), Failure> {
    let start = [&b"http://"[..], b"https://"]
        .iter()
        .find(|scheme| target.len() > scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme))
        .map(|scheme| scheme.len());
    let Some(start) = start else {
        return Err(bad("a request target is a path, an http URI, or * for OPTIONS"));
    };
    let end = memchr::memchr2(b'/', b'?', &target[start..]).map_or(target.len(), |at| start + at);
    if !syntax::is_authority(&target[start..end]) {
        return Err(bad("a malformed authority in the request target"));
    }
    if target.get(end) == Some(&b'/') {
        Ok((start..end, end..target.len()))
    } else {
        Ok((start..end, start - 1..start))
    }
}

fn version(text: &[u8]) -> Result<Version, Failure> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Failure::client(505, "neither HTTP/1.0 nor HTTP/1.1"))
        }
        _ => Err(bad("a request line ends with a version, after one blank")),
    }
}

fn bad(reason: &'static str) -> Failure {
    Failure::client(400, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> Result<[String; 5], u16> {
        let parsed = parse(line.as_bytes(), 0).map_err(|failure| failure.status)?;
        Ok([parsed.method, parsed.target, parsed.path, parsed.query, parsed.authority]
            .map(|span| String::from_utf8_lossy(span.slice(line.as_bytes())).into_owned()))
    }

    #[test]
    fn accepted_lines() {
        for (line, expected) in [
            ("GET / HTTP/1.1", ["GET", "/", "/", "", ""]),
            ("GET /a?b?c HTTP/1.0", ["GET", "/a?b?c", "/a", "b?c", ""]),
            ("GET /a? HTTP/1.1", ["GET", "/a?", "/a", "", ""]),
            ("GET //x//y HTTP/1.1", ["GET", "//x//y", "//x//y", "", ""]),
            ("OPTIONS * HTTP/1.1", ["OPTIONS", "*", "*", "", ""]),
            ("GET http://h:1/p?q HTTP/1.1", ["GET", "http://h:1/p?q", "/p", "q", "h:1"]),
            ("GET HTTPS://h HTTP/1.1", ["GET", "HTTPS://h", "/", "", "h"]),
            ("GET http://h?q=/ HTTP/1.1", ["GET", "http://h?q=/", "/", "q=/", "h"]),
            ("GET http://[::1]:80/ HTTP/1.1", ["GET", "http://[::1]:80/", "/", "", "[::1]:80"]),
            ("M-SEARCH /a[]=1|2&b={c} HTTP/1.1", ["M-SEARCH", "/a[]=1|2&b={c}", "/a[]=1|2&b={c}", "", ""]),
        ] {
            assert_eq!(parts(line), Ok(expected.map(String::from)), "{line}");
        }
        assert!(parse(b"GET /\xff\xe9 HTTP/1.1", 0).is_ok());
    }

    #[test]
    fn refused_lines() {
        for (line, status) in [
            ("", 400),
            ("GET", 400),
            ("GET ", 400),
            ("GET /", 400),
            ("GET / ", 400),
            (" GET / HTTP/1.1", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET /  HTTP/1.1", 400),
            ("GET / HTTP/1.1 ", 400),
            ("GET / HTTP/1.1 x", 400),
            ("GET\t/ HTTP/1.1", 400),
            ("GET /\tHTTP/1.1", 400),
            ("GET /a b HTTP/1.1", 400),
            ("GET / http/1.1", 400),
            ("GET / HTTP/1", 400),
            ("GET / HTTP/1.10", 400),
            ("GET / HTTP/01.1", 400),
            ("GET / HTTP/1,1", 400),
            ("GET / ICY/1.1", 400),
            ("GET / HTTP/2.0", 505),
            ("GET / HTTP/0.9", 505),
            ("GET / HTTP/1.2", 505),
            ("PRI * HTTP/2.0", 505),
            ("G(T / HTTP/1.1", 400),
            ("GET: / HTTP/1.1", 400),
            ("GET /a#b HTTP/1.1", 400),
            ("GET a HTTP/1.1", 400),
            ("GET * HTTP/1.1", 400),
            ("OPTIONS ** HTTP/1.1", 400),
            ("GET ?q HTTP/1.1", 400),
            ("GET ftp://h/ HTTP/1.1", 400),
            ("GET http:// HTTP/1.1", 400),
            ("GET http:///p HTTP/1.1", 400),
            ("GET http://u@h/ HTTP/1.1", 400),
            ("GET http:/h HTTP/1.1", 400),
            ("GET h:80 HTTP/1.1", 400),
            ("CONNECT h:443 HTTP/1.1", 501),
            ("GET /\u{0} HTTP/1.1", 400),
            ("GET /\u{7f} HTTP/1.1", 400),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1", 501),
        ] {
            assert_eq!(parts(line), Err(status), "{line}");
        }
    }
}
