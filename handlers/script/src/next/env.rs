//! Builds a request from a Rack env with the handler's changes. Values that only Ruby understands are left out.

use crate::fetch::request::RequestParts;
use handler::Peer;
use std::rc::Rc;

/// A Rack env as names and values.
pub(super) struct Env<'a>(pub(super) &'a [(Vec<u8>, Vec<u8>)]);

/// Keys that are neither header fields nor variables.
const REQUEST_KEYS: [&[u8]; 14] = [
    b"REQUEST_METHOD",
    b"SCRIPT_NAME",
    b"PATH_INFO",
    b"QUERY_STRING",
    b"REQUEST_URI",
    b"SERVER_NAME",
    b"SERVER_PORT",
    b"SERVER_PROTOCOL",
    b"SERVER_ADDR",
    b"SERVER_SOFTWARE",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"HTTP_VERSION",
    b"CONTENT_LENGTH",
];

impl<'a> Env<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(name, _)| name == key.as_bytes()).map(|(_, value)| value.as_slice())
    }

    fn required(&self, key: &str) -> Result<&'a [u8], String> {
        self.get(key).ok_or_else(|| format!("the env has no {key}"))
    }

    /// Returns the host: `HTTP_HOST`, else name and port of the server.
    fn authority(&self) -> Result<Vec<u8>, String> {
        if let Some(host) = self.get("HTTP_HOST") {
            return Ok(host.to_vec());
        }
        let name = self.get("SERVER_NAME").ok_or("the env has neither HTTP_HOST nor SERVER_NAME")?;
        Ok([name, b":", self.required("SERVER_PORT")?].concat())
    }

    pub(super) fn parts(&self, peer: Rc<Peer>, length: Option<usize>) -> Result<OwnedParts<'a>, String> {
        let rest = self.required("PATH_INFO")?;
        if !matches!(rest.first(), None | Some(b'/' | b'%')) {
            return Err(format!(
                "PATH_INFO is \"{}\": expected a / at its start, or nothing",
                rest.escape_ascii()
            ));
        }
        let path = [self.required("SCRIPT_NAME")?, rest].concat();
        let scheme = self.required("rack.url_scheme")?;
        if !matches!(scheme, b"http" | b"https") {
            return Err(format!("rack.url_scheme is \"{}\": expected http or https", scheme.escape_ascii()));
        }
        let mut fields = Vec::new();
        let mut variables = Vec::new();
        for (key, value) in self.0 {
            match key.strip_prefix(b"HTTP_") {
                _ if REQUEST_KEYS.contains(&key.as_slice()) || key == b"HTTP_HOST" => {}
                Some(name) => fields.push((field_name(name), value.as_slice())),
                None if key == b"CONTENT_TYPE" => fields.push((b"content-type".to_vec(), value.as_slice())),
                // Keys with a dot, such as `rack.input`, are for Ruby only.
                None if !h1::is_token(key) || key.contains(&b'.') => {}
                None => variables.push((key.as_slice().into(), value.as_slice().into())),
            }
        }
        Ok(OwnedParts {
            method: self.required("REQUEST_METHOD")?,
            path: if path.is_empty() { b"/".to_vec() } else { path },
            query: self.required("QUERY_STRING")?,
            authority: self.authority()?,
            https: scheme == b"https",
            length: length.filter(|length| *length > 0).map(|length| length.to_string()),
            fields,
            variables,
            peer,
        })
    }
}

/// [`RequestParts`] that own some of their values.
pub(super) struct OwnedParts<'a> {
    method: &'a [u8],
    path: Vec<u8>,
    query: &'a [u8],
    authority: Vec<u8>,
    https: bool,
    length: Option<String>,
    fields: Vec<(Vec<u8>, &'a [u8])>,
    variables: Vec<handler::Variable>,
    peer: Rc<Peer>,
}

impl OwnedParts<'_> {
    pub(super) fn request(self) -> Result<handler::Request, String> {
        let mut fields: Vec<(Vec<u8>, &[u8])> = vec![(b"host".to_vec(), &self.authority)];
        fields.extend(self.fields);
        if let Some(length) = &self.length {
            fields.push((b"content-length".to_vec(), length.as_bytes()));
        }
        let parts = RequestParts {
            method: self.method,
            path: &self.path,
            query: self.query,
            authority: &self.authority,
            https: self.https,
            fields,
            variables: self.variables,
            peer: self.peer,
        };
        parts.request()
    }
}

/// Turns `ACCEPT_LANGUAGE` into `accept-language`.
fn field_name(name: &[u8]) -> Vec<u8> {
    name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fetch::request::own_peer;

    const ENV: [(&str, &str); 12] = [
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", "/api"),
        ("PATH_INFO", "/a%20b"),
        ("QUERY_STRING", "q=1"),
        ("SERVER_NAME", "name"),
        ("SERVER_PORT", "81"),
        ("HTTP_HOST", "host:82"),
        ("rack.url_scheme", "https"),
        ("HTTP_ACCEPT_LANGUAGE", "de, en"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "99"),
        ("REMOTE_USER", "anna"),
    ];

    pub(crate) fn request(without: &str) -> Result<handler::Request, String> {
        let pairs: Vec<_> = ENV
            .iter()
            .filter(|(key, _)| *key != without)
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        Env(&pairs).parts(own_peer(), Some(3))?.request()
    }

    #[test]
    fn an_env_becomes_a_request() {
        let request = request("").unwrap();
        assert_eq!((request.method(), request.target()), (&b"POST"[..], &b"/api/a%20b?q=1"[..]));
        assert_eq!((request.path(), request.query()), (&b"/api/a%20b"[..], &b"q=1"[..]));
        assert!(request.https);
        assert_eq!(request.server(), (&b"host"[..], &b"82"[..]));
        let fields: Vec<_> = request
            .fields
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        let expected =
            ["host: host:82", "accept-language: de, en", "content-type: text/plain", "content-length: 3"];
        assert_eq!(fields, expected);
        assert_eq!(request.variable("REMOTE_USER"), Some(&b"anna"[..]));
    }

    #[test]
    fn missing_keys_are_named() {
        for key in ["REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "rack.url_scheme"] {
            assert!(request(key).unwrap_err().contains(key));
        }
        assert_eq!(request("HTTP_HOST").unwrap().authority(), b"name:81");
    }
}
