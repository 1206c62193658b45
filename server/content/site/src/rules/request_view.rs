//! Holds the parts of a request that rules use, and the redirect that they may produce.

use handler::Fields;

/// A request as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    /// The path: decoded once, dot segments resolved, slashes merged; begins with `/`.
    pub path: &'a str,
    /// The path as sent, without the query.
    pub raw_path: &'a [u8],
    /// The query as sent, without `?`.
    pub query: &'a [u8],
    /// The request's authority, with its port if one was given; may be empty in HTTP/1.0.
    pub host: &'a [u8],
    /// The client used `https`: TLS to this server, or as reported by a trusted proxy.
    pub https: bool,
    /// The value of `X-Forwarded-Proto`, from any sender.
    pub forwarded_proto: Option<&'a [u8]>,
    /// The client's address as text; empty for a Unix socket.
    pub remote: &'a str,
    /// The header fields, for `$http_NAME`.
    pub fields: &'a Fields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The value of `Location`: visible ASCII, whatever the request contained.
    pub location: Vec<u8>,
}
