//! The Rack env of a request, as pairs that the VM makes a Hash of.
//!
//! An env begins as a copy of what nearly all have in common; what differs is added. Names that are often the same are in the VM
//! already and are named by number.

use crate::route::Path;
use crate::runtime::Runtime;
use handler::{PeerAddr, Request, Version};
use mruby::{Interned, Text};
use std::borrow::Cow;
use std::cell::{Ref, RefCell};
use std::net::{IpAddr, Ipv4Addr};

/// Field names that most requests have, lower case.
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

/// What the env of nearly every request says: only what differs is set. Its values are shared and frozen, so what
/// handlers might change in place (paths and queries) is not among them.
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

/// How many of the template's values are not always the same: the first ones.
const VARYING: usize = TEMPLATE.len() - 1;

/// Ruby that makes the template known: `Rt::REQUEST`, to which preludes add what is not text.
pub(crate) fn template() -> String {
    let pairs = TEMPLATE.iter().map(|(key, value)| format!("'{key}' => '{value}'.freeze, "));
    format!("module Rt\nREQUEST = {{ {} }}\nend\n", pairs.collect::<String>())
}

/// Keys that are in the VM already, and what is known about this end.
pub(crate) struct Names {
    template: [Interned; VARYING],
    path_info: Interned,
    query_string: Interned,
    remote_port: Interned,
    content_length: Interned,
    content_type: Interned,
    input: Interned,
    usual: [Interned; USUAL.len()],
    /// The text of the address that was connected to last.
    local: RefCell<(Option<IpAddr>, String)>,
}

impl Names {
    pub(crate) fn new(runtime: &Runtime) -> Option<Names> {
        let keep = |text: &str| runtime.intern(text.as_bytes());
        let first = keep("REQUEST_METHOD")?;
        let mut template = [first; VARYING];
        for (kept, (key, _)) in template.iter_mut().zip(TEMPLATE) {
            *kept = keep(key)?;
        }
        let mut usual = [first; USUAL.len()];
        for (kept, name) in usual.iter_mut().zip(USUAL) {
            *kept = keep(&rack_name(name.as_bytes()))?;
        }
        Some(Names {
            template,
            path_info: keep("PATH_INFO")?,
            query_string: keep("QUERY_STRING")?,
            remote_port: keep("REMOTE_PORT")?,
            content_length: keep("CONTENT_LENGTH")?,
            content_type: keep("CONTENT_TYPE")?,
            input: keep("rack.input")?,
            usual,
            local: RefCell::default(),
        })
    }

    fn usual(&self, name: &[u8]) -> Option<Interned> {
        let at = USUAL.iter().position(|usual| name.eq_ignore_ascii_case(usual.as_bytes()))?;
        Some(self.usual[at])
    }
}

/// `accept-language` to `HTTP_ACCEPT_LANGUAGE`.
fn rack_name(name: &[u8]) -> String {
    let letters = name.iter().map(|byte| match byte {
        b'-' => '_',
        byte => byte.to_ascii_uppercase() as char,
    });
    "HTTP_".chars().chain(letters).collect()
}

/// Fields that concern the connection, which ends here, and those with keys of their own.
const NOT_HTTP: [&[u8]; 3] = [b"transfer-encoding", b"content-type", b"content-length"];

/// Gives `then` the env of a request below `mount` (without a trailing slash), less what the template says.
pub(crate) fn build<T>(
    names: &Names,
    request: &Request,
    mount: &[u8],
    body: Option<&[u8]>,
    then: impl FnOnce(&[(Text<'_>, Text<'_>)]) -> T,
) -> T {
    let (server, port) = request.server();
    let length = body.map(|body| body.len().to_string());
    let mut digits = [0; 5];
    let (remote, remote_port) = match &request.peer.remote {
        PeerAddr::Inet(address) => {
            (request.peer.remote_text.as_bytes(), decimal(address.port(), &mut digits))
        }
        // Its address is that of this machine, and it has no port.
        PeerAddr::Unix => (&b"127.0.0.1"[..], &b""[..]),
    };
    let local = local(names, &request.peer.local);
    let said: [&[u8]; VARYING] = [
        request.method(),
        mount,
        server,
        port,
        if request.version == Version::Http10 { b"HTTP/1.0" } else { b"HTTP/1.1" },
        local.as_bytes(),
        remote,
        if request.https { b"https" } else { b"http" },
    ];
    let joined = joined(names, request);
    let mut env = Vec::with_capacity(24 + request.fields.len());
    for ((key, (_, usual)), value) in names.template.iter().zip(TEMPLATE).zip(said) {
        if value != usual.as_bytes() {
            env.push((Text::Kept(*key), Text::Bytes(value)));
        }
    }
    let path = Path::new(request.path()).below(mount).unwrap_or(request.path());
    env.push((Text::Kept(names.path_info), Text::Bytes(path)));
    env.push((Text::Kept(names.query_string), Text::Bytes(request.query())));
    if !remote_port.is_empty() {
        env.push((Text::Kept(names.remote_port), Text::Bytes(remote_port)));
    }
    if let (Some(body), Some(length)) = (body, &length) {
        env.push((Text::Kept(names.content_length), Text::Bytes(length.as_bytes())));
        env.push((Text::Kept(names.input), Text::Bytes(body)));
        if let Some(content_type) = request.fields.get("content-type") {
            env.push((Text::Kept(names.content_type), Text::Bytes(content_type)));
        }
    }
    for (name, value) in &joined {
        let key = match name {
            Name::Usual(name) => Text::Kept(*name),
            Name::Other(name) => Text::Bytes(name.as_bytes()),
        };
        env.push((key, Text::Bytes(value)));
    }
    // Last, because the Hash keeps the last of equal keys: what a handler has set is not the client's to say.
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

/// Fields of the request by Rack's names: repeated ones are joined by ", ", cookies by "; ".
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

/// The text of this end's address, which is nearly always that of the request before.
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

/// A port's digits.
fn decimal(mut number: u16, digits: &mut [u8; 5]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// The env's key of a variable that a handler sets for those after it (`x-fallthru-set-NAME`).
pub(crate) fn variable_name(name: &[u8]) -> Vec<u8> {
    let letter = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    name.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_digits() {
        for port in [0, 7, 80, 443, 9999, 10_000, u16::MAX] {
            assert_eq!(decimal(port, &mut [0; 5]), port.to_string().as_bytes());
        }
    }

    #[test]
    fn names_are_racks() {
        assert_eq!(rack_name(b"accept-Language"), "HTTP_ACCEPT_LANGUAGE");
        assert_eq!(variable_name(b"remote-user"), b"REMOTE_USER");
    }
}
