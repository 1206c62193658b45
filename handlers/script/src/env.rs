//! The Rack env of a request, as pairs that the VM turns into a Hash.
//!
//! An env starts as a copy of a template with the values of nearly all requests; only differences are added.
//! Frequent keys are interned in the VM and passed by number.

use handler::path::Path;
use handler::{PeerAddr, Request};
use mruby::{Interned, Text};
use std::borrow::Cow;
use std::cell::{Ref, RefCell};
use std::net::{IpAddr, Ipv4Addr};

/// Field names that most requests have, in lower case.
const USUAL: [&str; 39] = [
    "host",
    "user-agent",
    "accept",
    "accept-language",
    "accept-encoding",
    "connection",
    "cookie",
    "cache-control",
    "pragma",
    "referer",
    "origin",
    "upgrade-insecure-requests",
    "authorization",
    "if-none-match",
    "if-modified-since",
    "range",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "x-requested-with",
    "x-request-start",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "priority",
    "dnt",
    "keep-alive",
    "if-match",
    "via",
    "forwarded",
    "x-forwarded-port",
    "x-real-ip",
    "traceparent",
    "tracestate",
];

/// Values that nearly every request has. They are shared and frozen, so the template leaves out values that
/// handlers might change in place (paths and queries).
const TEMPLATE: [(&str, &str); 9] = [
    ("REQUEST_METHOD", "GET"),
    ("SCRIPT_NAME", ""),
    ("SERVER_NAME", "localhost"),
    ("SERVER_PORT", "80"),
    ("SERVER_PROTOCOL", "HTTP/1.1"),
    ("SERVER_ADDR", "127.0.0.1"),
    ("REMOTE_ADDR", "127.0.0.1"),
    ("rack.url_scheme", "http"),
    ("SERVER_SOFTWARE", "firebrick"),
];

/// The number of template values that may differ; they come first.
const VARYING: usize = TEMPLATE.len() - 1;

/// Returns the Ruby code that defines the template `Rt::REQUEST`; preludes add values that are not text.
pub(crate) fn template() -> String {
    let pairs = TEMPLATE.iter().map(|(key, value)| format!("'{key}' => '{value}'.freeze, "));
    format!("module Rt\nREQUEST = {{ {} }}\nend\n", pairs.collect::<String>())
}

/// Interned keys, and the last local address.
pub(crate) struct Names {
    template: [Interned; VARYING],
    path_info: Interned,
    query_string: Interned,
    remote_port: Interned,
    content_length: Interned,
    content_type: Interned,
    input: Interned,
    usual: [Interned; USUAL.len()],
    /// The local address of the last request, as text.
    local: RefCell<(Option<IpAddr>, String)>,
}

impl Names {
    /// Interns the keys with `intern`. `None` where it returns `None`.
    pub(crate) fn new(intern: impl Fn(&str) -> Option<Interned>) -> Option<Names> {
        let first = intern("REQUEST_METHOD")?;
        let mut template = [first; VARYING];
        for (kept, (key, _)) in template.iter_mut().zip(TEMPLATE) {
            *kept = intern(key)?;
        }
        let mut usual = [first; USUAL.len()];
        for (kept, name) in usual.iter_mut().zip(USUAL) {
            *kept = intern(&rack_name(name.as_bytes()))?;
        }
        Some(Names {
            template,
            path_info: intern("PATH_INFO")?,
            query_string: intern("QUERY_STRING")?,
            remote_port: intern("REMOTE_PORT")?,
            content_length: intern("CONTENT_LENGTH")?,
            content_type: intern("CONTENT_TYPE")?,
            input: intern("rack.input")?,
            usual,
            local: RefCell::default(),
        })
    }

    fn usual(&self, name: &[u8]) -> Option<Interned> {
        let at = USUAL.iter().position(|usual| name.eq_ignore_ascii_case(usual.as_bytes()))?;
        Some(self.usual[at])
    }
}

/// Turns `accept-language` into `HTTP_ACCEPT_LANGUAGE`.
fn rack_name(name: &[u8]) -> String {
    let letters = name.iter().map(|byte| match byte {
        b'-' => '_',
        byte => byte.to_ascii_uppercase() as char,
    });
    "HTTP_".chars().chain(letters).collect()
}

/// Fields of the connection, and fields with keys of their own.
const NOT_HTTP: [&[u8]; 3] = [b"transfer-encoding", b"content-type", b"content-length"];

/// Calls `then` with the env of a request below `mount` (without a trailing slash). Values equal to the
/// template's are left out.
pub(crate) fn build<T>(
    names: &Names,
    request: &Request,
    mount: &[u8],
    body: Option<&[u8]>,
    then: impl FnOnce(&[(Text<'_>, Text<'_>)]) -> T,
) -> T {
    let (server, port) = request.server();
    let length = body.map(|body| body.len().to_string());
    let mut digits = itoa::Buffer::new();
    let (remote, remote_port) = match &request.peer.remote {
        PeerAddr::Inet(address) => {
            (request.peer.remote_text.as_bytes(), digits.format(address.port()).as_bytes())
        }
        // The peer of a Unix socket is this machine, without a port.
        PeerAddr::Unix => (&b"127.0.0.1"[..], &b""[..]),
    };
    let local = local(names, &request.peer.local);
    let values: [&[u8]; VARYING] = [
        request.method(),
        mount,
        server,
        port,
        request.version.name().as_bytes(),
        local.as_bytes(),
        remote,
        if request.https { b"https" } else { b"http" },
    ];
    let joined = joined(names, request);
    let mut env = Vec::with_capacity(24 + request.fields.len());
    for ((key, (_, usual)), value) in names.template.iter().zip(TEMPLATE).zip(values) {
        if value != usual.as_bytes() {
            env.push((Text::Interned(*key), Text::Bytes(value)));
        }
    }
    let path = Path::new(request.path()).below(mount).unwrap_or(request.path());
    env.push((Text::Interned(names.path_info), Text::Bytes(path)));
    env.push((Text::Interned(names.query_string), Text::Bytes(request.query())));
    if !remote_port.is_empty() {
        env.push((Text::Interned(names.remote_port), Text::Bytes(remote_port)));
    }
    if let (Some(body), Some(length)) = (body, &length) {
        env.push((Text::Interned(names.content_length), Text::Bytes(length.as_bytes())));
        env.push((Text::Interned(names.input), Text::Bytes(body)));
        if let Some(content_type) = request.fields.get("content-type") {
            env.push((Text::Interned(names.content_type), Text::Bytes(content_type)));
        }
    }
    for (name, value) in &joined {
        let key = match name {
            Name::Usual(name) => Text::Interned(*name),
            Name::Other(name) => Text::Bytes(name.as_bytes()),
        };
        env.push((key, Text::Bytes(value)));
    }
    // Last, because the Hash keeps the last of equal keys: a client must not override a handler's variable.
    for (name, value) in &request.variables {
        env.push((Text::Bytes(name), Text::Bytes(value)));
    }
    then(&env)
}

#[derive(PartialEq, Eq)]
enum Name {
    Usual(Interned),
    Other(String),
}

/// Returns the request's fields under Rack's names. Repeated fields are joined by ", ", cookies by "; ".
fn joined<'a>(names: &Names, request: &'a Request) -> Vec<(Name, Cow<'a, [u8]>)> {
    let mut joined: Vec<(Name, Cow<'a, [u8]>)> = Vec::with_capacity(request.fields.len());
    for (name, value) in request.fields.iter() {
        if NOT_HTTP.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            continue;
        }
        let key = names.usual(name).map_or_else(|| Name::Other(rack_name(name)), Name::Usual);
        match joined.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => {
                let values = values.to_mut();
                values.extend_from_slice(if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " });
                values.extend_from_slice(value);
            }
            None => joined.push((key, Cow::Borrowed(value))),
        }
    }
    joined
}

/// Returns the local address as text; it is nearly always the same as in the previous request.
fn local<'a>(names: &'a Names, address: &PeerAddr) -> Ref<'a, str> {
    let ip = match address {
        PeerAddr::Inet(address) => address.ip().to_canonical(),
        PeerAddr::Unix => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    if names.local.borrow().0 != Some(ip) {
        *names.local.borrow_mut() = (Some(ip), ip.to_string());
    }
    Ref::map(names.local.borrow(), |(_, text)| text.as_str())
}

/// Returns the env key of a variable that a handler sets for later ones (`x-fallthru-set-NAME`).
pub(crate) fn variable_name(name: &[u8]) -> Vec<u8> {
    let letter = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    name.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_in_rack() {
        assert_eq!(rack_name(b"accept-Language"), "HTTP_ACCEPT_LANGUAGE");
        assert_eq!(variable_name(b"remote-user"), b"REMOTE_USER");
    }
}
