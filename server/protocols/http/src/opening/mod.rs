//! The opening handshake of a WebSocket over HTTP/2 and HTTP/3 (RFC 8441, RFC 9220): turns an Extended
//! CONNECT into the upgrade of HTTP/1.1 that handlers know, and the handler's answer into the answer of the
//! stream.
//!
//! Why: apps, libraries and origins implement the handshake of RFC 6455. With this, all of them serve
//! WebSockets over all versions, unchanged.
//!
//! Contract:
//! 1. The handler sees `GET` with `Connection: Upgrade`, `Upgrade: websocket` and a `Sec-WebSocket-Key` that
//!    is made here. A key of the client is dropped: it has no meaning in these versions.
//! 2. A `101` becomes a `200` with a tunnel, if it switches to WebSocket and answers the key; otherwise the
//!    response is 502. That holds for a head that the app writes itself, too (full hijack).
//! 3. Any other 2xx would tell the client that its WebSocket is open, so it becomes a 501. All other statuses
//!    are sent as they are.

mod raw;

use fieldcode::RequestHead;
use handler::{After, Body, Client, Failure, Fields, Request, Response};
use sha1::{Digest, Sha1};

/// The constant of RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &str = "sec-websocket-accept";

/// The handshake of one request.
pub(crate) struct OpeningHandshake {
    /// The value that answers the key.
    accept: String,
}

impl OpeningHandshake {
    /// Adds to the fields of an Extended CONNECT what an upgrade of HTTP/1.1 has.
    #[cold]
    pub(crate) fn offer(head: &mut RequestHead) {
        let fields = &mut head.fields;
        fields.retain(|name, _| !name.eq_ignore_ascii_case(KEY));
        fields.push(b"connection", b"Upgrade");
        fields.push(b"upgrade", b"websocket");
        // The key proves to a client that the server has read its request. Here the server itself is the
        // client, so the key need not be secret.
        let key: [u8; 16] = std::array::from_fn(|_| fastrand::u8(..));
        fields.push(KEY, base64(&key).as_bytes());
    }

    /// Returns the handshake that a request with the fields of [`OpeningHandshake::offer`] begins; `None` for
    /// all other requests of HTTP/2 and HTTP/3.
    #[inline]
    pub(crate) fn of(request: &Request) -> Option<OpeningHandshake> {
        if request.switchable { Some(OpeningHandshake::begun(request)) } else { None }
    }

    #[cold]
    fn begun(request: &Request) -> OpeningHandshake {
        let key = request.fields.get("sec-websocket-key").unwrap_or_default();
        OpeningHandshake { accept: websocket_accept(key) }
    }

    /// Returns the response of the stream to the handler's response. Waits for the head if the app writes it itself.
    pub(crate) async fn finish(self, response: Response, client: &dyn Client) -> Response {
        let failure = response.failure;
        let response = match (response.status, response.body) {
            (_, Body::Tunnel { io, raw: true }) => match raw::response(io, client).await {
                Ok(response) => response,
                Err(failure) => return failure.into_response(),
            },
            (status, body) => Response {
                body,
                after: response.after,
                ..Response::new(status, response.fields, Body::Empty)
            },
        };
        let status = response.status;
        let result = match response.body {
            Body::Tunnel { io, raw } => self.check(status, &response.fields).map(|()| Response {
                after: After::EndStream,
                ..Response::new(200, opened(response.fields), Body::Tunnel { io, raw })
            }),
            _ if (200..300).contains(&status) => Err(Failure::client(
                501,
                format!("status {status} in answer to a CONNECT for a WebSocket: no WebSocket is here"),
            )),
            body => Ok(Response {
                body,
                failure,
                after: response.after,
                ..Response::new(status, response.fields, Body::Empty)
            }),
        };
        result.unwrap_or_else(Failure::into_response)
    }

    /// Checks that the app or the origin has switched to WebSocket (RFC 6455 section 4.2.2).
    fn check(&self, status: u16, fields: &Fields) -> Result<(), Failure> {
        let mistake = |why: String| Err(Failure::app(502, format!("the handshake of a WebSocket: {why}")));
        if status != 101 {
            return mistake(format!("status {status} with an upgraded connection, expected 101"));
        }
        let upgrade = fields.get("upgrade").unwrap_or_default();
        if !upgrade.eq_ignore_ascii_case(b"websocket") {
            return mistake(format!("Upgrade is {:?}, expected websocket", String::from_utf8_lossy(upgrade)));
        }
        match fields.get(ACCEPT) {
            None => mistake("no Sec-WebSocket-Accept".to_owned()),
            Some(value) if value.trim_ascii() != self.accept.as_bytes() => {
                mistake("Sec-WebSocket-Accept does not belong to Sec-WebSocket-Key".to_owned())
            }
            Some(_) => Ok(()),
        }
    }
}

/// Returns the fields for the client: those of the handshake belong to HTTP/1.1 (RFC 8441 section 5). The
/// codecs leave out `Connection`, `Upgrade` and the lengths.
fn opened(mut fields: Fields) -> Fields {
    fields.retain(|name, _| {
        !name.eq_ignore_ascii_case(ACCEPT.as_bytes()) && !name.eq_ignore_ascii_case(b"trailer")
    });
    fields
}

/// Returns the value of `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
pub fn websocket_accept(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    base64(&hash.finalize())
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(websocket_accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
