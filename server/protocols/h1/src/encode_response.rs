//! Encodes responses to clients: chooses the framing (RFC 9112 section 6), and writes the head.

use crate::syntax;
use crate::write::{decimal, field};
use handler::{Body, Fields, Frozen, Response, Version, reason_phrase};

/// How the client finds the end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// No field: 204, 304 without a length, 101; or a version with its own framing.
    Nothing,
    /// Content-Length.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection.
    Close,
    /// The app's own fields; the app writes the body too.
    Own,
}

/// How a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingPlan {
    pub delimiter: Delimiter,
    /// Body bytes follow the head.
    pub has_body: bool,
    /// The handler's body is the complete body: not for HEAD, nor for statuses without one.
    pub is_whole: bool,
}

/// Chooses the framing of a response to a request of that version, `HEAD` or not.
pub fn plan(response: &Response, version: Version, is_head: bool) -> FramingPlan {
    let given = declared_length(&response.fields);
    let known = match &response.body {
        Body::Empty => Some(0),
        Body::Bytes(bytes) => Some(bytes.len() as u64),
        Body::Kept(kept) => Some(kept.body().len() as u64),
        Body::File(region) => Some(region.len),
        Body::Stream(_) => given,
        Body::Tunnel { .. } => {
            let delimiter = if response.status == 101 { Delimiter::Nothing } else { Delimiter::Own };
            return FramingPlan { delimiter, has_body: true, is_whole: false };
        }
    };
    let without = |length: Option<u64>| FramingPlan {
        delimiter: length.map_or(Delimiter::Nothing, Delimiter::Length),
        has_body: false,
        is_whole: false,
    };
    match response.status {
        204 => without(None),
        205 => without(Some(0)),
        304 => without(given),
        // The fields are those of the GET response, whose body may be missing here already.
        _ if is_head => without(known.filter(|&length| length > 0).or(given)),
        _ => {
            let unknown = match version {
                Version::Http11 => Delimiter::Chunked,
                Version::Http10 => Delimiter::Close,
                Version::Http2 | Version::Http3 => Delimiter::Nothing,
            };
            FramingPlan {
                delimiter: known.map_or(unknown, Delimiter::Length),
                has_body: known != Some(0),
                is_whole: true,
            }
        }
    }
}

/// Returns the length that the `Content-Length` fields declare, if they agree on one.
pub fn declared_length(fields: &Fields) -> Option<u64> {
    let named = fields.fresh().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
    let mut lengths = named.map(|(_, value)| syntax::decimal(value));
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Returns whether no field can end a field line or the head early.
pub fn fields_are_clean(fields: &Fields) -> bool {
    // Frozen fields were checked when they were frozen.
    fields.fresh().all(|(name, value)| syntax::is_token(name) && syntax::is_value(value))
}

/// The `Connection` field of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionField {
    /// No field: the version's default.
    Default,
    Close,
    KeepAlive,
    Upgrade,
}

/// The field lines of frozen fields, made once.
struct FrozenLines(Box<[u8]>);

impl FrozenLines {
    fn of(frozen: &Frozen) -> &[u8] {
        let lines = frozen.cache().get_or_init(|| {
            let mut text = Vec::new();
            frozen.iter().for_each(|(name, value)| field(&mut text, name, value));
            FrozenLines(text.into())
        });
        &lines.0
    }
}

/// Writes a final head. `date` appends the current date.
pub fn encode_head(
    to: &mut Vec<u8>,
    response: &Response,
    delimiter: Delimiter,
    connection: ConnectionField,
    date: impl FnOnce(&mut Vec<u8>),
) {
    status_line(to, response.status);
    let mut dated = false;
    let mut upgrade_offered = false;
    if let Some(frozen) = response.fields.frozen() {
        to.extend_from_slice(FrozenLines::of(frozen));
    }
    for (name, value) in response.fields.fresh() {
        let keep = match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => {
                dated = true;
                true
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                upgrade_offered = true;
                true
            }
            10 if name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"keep-alive") => {
                false
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => delimiter == Delimiter::Own,
            16 if name.eq_ignore_ascii_case(b"proxy-connection") => false,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => delimiter == Delimiter::Own,
            _ => true,
        };
        if keep {
            field(to, name, value);
        }
    }
    if !dated {
        to.extend_from_slice(b"Date: ");
        date(to);
        to.extend_from_slice(b"\r\n");
    }
    match delimiter {
        Delimiter::Length(length) => {
            to.extend_from_slice(b"Content-Length: ");
            decimal(to, length);
            to.extend_from_slice(b"\r\n");
        }
        Delimiter::Chunked => to.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Delimiter::Nothing | Delimiter::Close | Delimiter::Own => {}
    }
    // RFC 9110 section 7.8: Connection names Upgrade, so that it is not passed on.
    to.extend_from_slice(match (connection, upgrade_offered) {
        (ConnectionField::Default, false) => b"\r\n",
        (ConnectionField::Default, true) | (ConnectionField::Upgrade, _) => b"Connection: Upgrade\r\n\r\n",
        (ConnectionField::Close, false) => b"Connection: close\r\n\r\n",
        (ConnectionField::Close, true) => b"Connection: close, Upgrade\r\n\r\n",
        (ConnectionField::KeepAlive, false) => b"Connection: keep-alive\r\n\r\n",
        (ConnectionField::KeepAlive, true) => b"Connection: keep-alive, Upgrade\r\n\r\n",
    });
}

/// Encodes an informational response. Returns `None` if the status or a field is not allowed in one.
pub fn encode_interim(status: u16, fields: &Fields) -> Option<Vec<u8>> {
    if !(100..200).contains(&status) || status == 101 || !fields_are_clean(fields) {
        return None;
    }
    let mut text = Vec::with_capacity(64 + fields.text().len() + 4 * fields.len());
    status_line(&mut text, status);
    for (name, value) in fields.iter() {
        // RFC 9112 section 6: not allowed in a 1xx response.
        if ![&b"content-length"[..], b"transfer-encoding", b"connection"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n))
        {
            field(&mut text, name, value);
        }
    }
    text.extend_from_slice(b"\r\n");
    Some(text)
}

#[inline]
fn status_line(to: &mut Vec<u8>, status: u16) {
    if status == 200 {
        to.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    to.extend_from_slice(b"HTTP/1.1 ");
    decimal(to, u64::from(status));
    to.push(b' ');
    to.extend_from_slice(reason_phrase(status).as_bytes());
    to.extend_from_slice(b"\r\n");
}
