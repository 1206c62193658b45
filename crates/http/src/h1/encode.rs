//! Response heads: which framing a response gets, and its bytes (RFC 9112 section 6).

use super::syntax;
use crate::date::DateCache;
use handler::{Body, Fields, Response, Version, reason_phrase};
use std::time::SystemTime;

/// How the client finds the end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// Nothing says anything: 204, 304 without a length, 101.
    Nothing,
    /// Content-Length.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection.
    Close,
    /// Whatever the app's own fields say: it writes the bytes too.
    Own,
}

/// What is sent for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) delimiter: Delimiter,
    /// Whether body bytes follow the head.
    pub(crate) has_body: bool,
}

/// Chooses the framing of a response to a request of that version, `HEAD` or not.
pub(crate) fn plan(response: &Response, version: Version, is_head: bool) -> Plan {
    let given = given_length(&response.fields);
    let known = match &response.body {
        Body::Empty => Some(0),
        Body::Bytes(bytes) => Some(bytes.len() as u64),
        Body::Kept(kept) => Some(kept.body().len() as u64),
        Body::File(region) => Some(region.len),
        Body::Stream(_) => given,
        Body::Tunnel { .. } => {
            let delimiter = if response.status == 101 { Delimiter::Nothing } else { Delimiter::Own };
            return Plan { delimiter, has_body: true };
        }
    };
    let without = |length: Option<u64>| Plan {
        delimiter: length.map_or(Delimiter::Nothing, Delimiter::Length),
        has_body: false,
    };
    match response.status {
        204 => without(None),
        205 => without(Some(0)),
        304 => without(given),
        // Its fields are those of a GET, whose body may have been left out before.
        _ if is_head => without(known.filter(|&length| length > 0).or(given)),
        _ => {
            let unknown = if version == Version::Http11 { Delimiter::Chunked } else { Delimiter::Close };
            Plan { delimiter: known.map_or(unknown, Delimiter::Length), has_body: known != Some(0) }
        }
    }
}

/// The length that the fields claim, if they agree on one.
fn given_length(fields: &Fields) -> Option<u64> {
    let named = fields.fresh().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
    let mut lengths = named.map(|(_, value)| syntax::decimal(value));
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Whether nothing in the fields can end a field line or the head early.
pub(crate) fn are_clean(fields: &Fields) -> bool {
    // Frozen ones have been looked at when they were frozen.
    fields.fresh().all(|(name, value)| syntax::is_token(name) && syntax::is_value(value))
}

/// What the `Connection` field of a response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionField {
    /// Nothing: the version's default.
    Default,
    Close,
    KeepAlive,
    Upgrade,
}

/// Writes a final head.
pub(crate) fn head(
    to: &mut Vec<u8>,
    response: &Response,
    delimiter: Delimiter,
    connection: ConnectionField,
    date: (&DateCache, SystemTime),
) {
    status_line(to, response.status);
    let mut dated = false;
    let mut upgrade_offered = false;
    to.extend_from_slice(response.fields.frozen_lines());
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
        date.0.append(date.1, to);
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
    // RFC 9110 section 7.8: who sends Upgrade names it in Connection, so that it is not passed on.
    to.extend_from_slice(match (connection, upgrade_offered) {
        (ConnectionField::Default, false) => b"\r\n",
        (ConnectionField::Default, true) | (ConnectionField::Upgrade, _) => b"Connection: Upgrade\r\n\r\n",
        (ConnectionField::Close, false) => b"Connection: close\r\n\r\n",
        (ConnectionField::Close, true) => b"Connection: close, Upgrade\r\n\r\n",
        (ConnectionField::KeepAlive, false) => b"Connection: keep-alive\r\n\r\n",
        (ConnectionField::KeepAlive, true) => b"Connection: keep-alive, Upgrade\r\n\r\n",
    });
}

/// An informational response; `None` when it is none or not fit to be sent.
pub(crate) fn interim(status: u16, fields: &Fields) -> Option<Vec<u8>> {
    if !(100..200).contains(&status) || status == 101 || !are_clean(fields) {
        return None;
    }
    let mut text = Vec::with_capacity(64 + fields.text().len() + 4 * fields.len());
    status_line(&mut text, status);
    for (name, value) in fields.iter() {
        // RFC 9112 section 6: none of these may stand in a 1xx response.
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

#[inline]
fn field(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.reserve(name.len() + value.len() + 4);
    to.extend_from_slice(name);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// A number in decimal digits.
pub(crate) fn decimal(to: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

/// The line in front of a chunk of that many bytes.
pub(crate) fn chunk_size(to: &mut Vec<u8>, size: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let count = (64 - (size | 1).leading_zeros()).div_ceil(4);
    for place in (0..count).rev() {
        to.push(DIGITS[(size >> (4 * place)) as usize & 15]);
    }
    to.extend_from_slice(b"\r\n");
}
