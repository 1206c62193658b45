//! The Rack env of a request, as pairs that the VM makes a Hash of.
//!
//! Names and values that are often the same are in the VM already and are named by number; only what differs is copied.

use crate::runtime::Runtime;
use handler::{PeerAddr, Request, Version};
use mruby::{Interned, Text};
use std::borrow::Cow;
use std::collections::HashMap;

/// Field names that most requests have, lower case.
const USUAL: [&str; 22] = [
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
];

/// Texts that every VM keeps.
pub(crate) struct Names {
    keys: HashMap<&'static str, Interned>,
    usual: HashMap<&'static [u8], Interned>,
    words: HashMap<&'static [u8], Interned>,
}

const KEYS: [&str; 19] = [
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_ADDR",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "rack.url_scheme",
    "rack.multithread",
    "rack.multiprocess",
    "rack.run_once",
    "rack.hijack?",
    "rack.input",
];

/// Values that are often the same.
const WORDS: [&str; 13] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "HTTP/1.1",
    "HTTP/1.0",
    "http",
    "https",
    "127.0.0.1",
    "",
];

impl Names {
    pub(crate) fn new(runtime: &Runtime) -> Option<Names> {
        let keep = |text: &str| runtime.intern(text.as_bytes());
        let keys = KEYS.iter().map(|key| Some((*key, keep(key)?)));
        let usual = USUAL.iter().map(|name| Some((name.as_bytes(), keep(&rack_name(name.as_bytes()))?)));
        let words = WORDS.iter().map(|word| Some((word.as_bytes(), keep(word)?)));
        Some(Names {
            keys: keys.collect::<Option<_>>()?,
            usual: usual.collect::<Option<_>>()?,
            words: words.collect::<Option<_>>()?,
        })
    }

    fn word<'a>(&self, text: &'a [u8]) -> Text<'a> {
        self.words.get(text).map_or(Text::Bytes(text), |word| Text::Kept(*word))
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

/// Gives `then` the env of a request below `mount` (without a trailing slash).
pub(crate) fn build<T>(
    names: &Names,
    request: &Request,
    mount: &[u8],
    body: Option<&[u8]>,
    then: impl FnOnce(&[(Text<'_>, Text<'_>)]) -> T,
) -> T {
    let key = |name: &str| names.keys.get(name).map_or(Text::Bytes(b""), |key| Text::Kept(*key));
    let (server, port) = request.server();
    let path = request.path().strip_prefix(mount).unwrap_or(request.path());
    let length = body.map(|body| body.len().to_string());
    let (remote, remote_port) = peer(&request.peer.remote);
    let local = peer(&request.peer.local).0;
    let version = if request.version == Version::Http10 { &b"HTTP/1.0"[..] } else { b"HTTP/1.1" };
    let joined = joined(names, request);
    let mut env = Vec::with_capacity(KEYS.len() + request.fields.len());
    env.push((key("REQUEST_METHOD"), names.word(request.method())));
    env.push((key("SCRIPT_NAME"), names.word(mount)));
    env.push((key("PATH_INFO"), names.word(path)));
    env.push((key("QUERY_STRING"), names.word(request.query())));
    env.push((key("SERVER_NAME"), names.word(server)));
    env.push((key("SERVER_PORT"), names.word(port)));
    env.push((key("SERVER_PROTOCOL"), names.word(version)));
    env.push((key("SERVER_ADDR"), names.word(local.as_bytes())));
    env.push((key("SERVER_SOFTWARE"), names.word(b"firebrick")));
    env.push((key("rack.url_scheme"), names.word(if request.https { b"https" } else { b"http" })));
    env.push((key("REMOTE_ADDR"), names.word(remote.as_bytes())));
    if let Some(remote_port) = &remote_port {
        env.push((key("REMOTE_PORT"), Text::Bytes(remote_port.as_bytes())));
    }
    if let (Some(body), Some(length)) = (body, &length) {
        env.push((key("CONTENT_LENGTH"), Text::Bytes(length.as_bytes())));
        env.push((key("rack.input"), Text::Bytes(body)));
        if let Some(content_type) = request.fields.get("content-type") {
            env.push((key("CONTENT_TYPE"), Text::Bytes(content_type)));
        }
    }
    for (name, value) in &joined {
        let key = match name {
            Name::Usual(name) => Text::Kept(*name),
            Name::Other(name) => Text::Bytes(name.as_bytes()),
        };
        env.push((key, names.word(value)));
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
        let name = name.to_ascii_lowercase();
        if NOT_HTTP.contains(&name.as_slice()) {
            continue;
        }
        let cookie = name == b"cookie";
        let name = match names.usual.get(name.as_slice()) {
            Some(name) => Name::Usual(*name),
            None => Name::Other(rack_name(&name)),
        };
        match joined.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => {
                let values = values.to_mut();
                values.extend_from_slice(if cookie { b"; " } else { b", " });
                values.extend_from_slice(value);
            }
            None => joined.push((name, Cow::Borrowed(value))),
        }
    }
    joined
}

/// Address and port; neither of a Unix socket, whose address is that of this machine.
fn peer(address: &PeerAddr) -> (String, Option<String>) {
    match address {
        PeerAddr::Inet(address) => {
            (address.ip().to_canonical().to_string(), Some(address.port().to_string()))
        }
        PeerAddr::Unix => ("127.0.0.1".to_owned(), None),
    }
}

/// The env's key of a variable that a handler sets for those after it (`x-fallthru-set-NAME`).
pub(crate) fn variable_name(name: &[u8]) -> Vec<u8> {
    let letter = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    name.iter().map(letter).collect()
}
