//! The REQUEST payload: everything that a Rack env needs, in the order in which the worker needs it.

use crate::{Malformed, cursor::Cursor, frame, frame::FrameKind, names};

/// Where the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// There is none.
    None,
    /// In the frame itself.
    Inline(&'a [u8]),
    /// In the descriptor that is sent with the frame; contains the length in bytes.
    Descriptor(u64),
    /// In INPUT frames that follow; contains their total length in bytes.
    Frames(u64),
}

/// Where the encoder puts the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// There is none.
    None,
    /// The caller sends this many bytes right after the encoder's output, as the end of the frame.
    Behind(usize),
    /// Into the descriptor that is sent with the frame; contains the length in bytes.
    Descriptor(u64),
}

/// A field as sent in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// A code of [`names`], or 0.
    pub code: u8,
    /// The name as received; empty if `code` is not 0.
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// Whether an earlier field of the request has the same name.
    pub repeated: bool,
}

impl<'a> Field<'a> {
    /// Returns the key of a variable of the env; `None` for a field from the client.
    #[inline]
    pub fn variable(&self) -> Option<&'a [u8]> {
        self.name.strip_prefix(&[VARIABLE])
    }

    /// Returns the name in small letters, whether it has a code or not.
    pub fn lowercase_name(&self) -> Vec<u8> {
        names::name(self.code).map_or(self.name, str::as_bytes).to_ascii_lowercase()
    }
}

/// A request without its fields, as encoded before them. The decoder returns the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// 10, 11, 20 or 30.
    pub version: u8,
    /// Whether the scheme is `https`.
    pub https: bool,
    /// `REMOTE_PORT`; 0 for a Unix socket.
    pub remote_port: u16,
    /// Whether the worker should measure processor time and the wait for the GVL.
    pub measure: bool,
    /// Whether the client offers to switch to the protocols of its `Upgrade` field: an upgrade of HTTP/1.1, or an
    /// Extended CONNECT of HTTP/2 or HTTP/3. The connection, or the stream, can then be handed to the app.
    pub switch: bool,
    /// When the request asked for a worker, in microseconds of the monotonic clock.
    pub asked_us: u64,
    pub method: &'a [u8],
    /// The request target as received.
    pub target: &'a [u8],
    /// Start and length of the path in the target.
    pub path: (u32, u32),
    /// Start and length of the query in the target.
    pub query: (u32, u32),
    /// `REMOTE_ADDR`; empty for a Unix socket.
    pub remote_addr: &'a [u8],
    /// `SERVER_NAME`.
    pub server_name: &'a [u8],
    /// `SERVER_PORT`.
    pub server_port: &'a [u8],
}

impl<'a> Head<'a> {
    /// Returns the path part of the target.
    #[inline]
    pub fn path(&self) -> &'a [u8] {
        part(self.target, self.path)
    }
}

/// Writes one REQUEST frame at the end of a buffer.
pub struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
    fields: u16,
    seen: u128,
    literal: Vec<(usize, usize)>,
}

/// Flag for [`Head::measure`].
const MEASURE: u8 = 0x01;
/// Flag for [`Head::switch`].
const SWITCH: u8 = 0x02;
/// The code of the field `Upgrade`.
const UPGRADE: u8 = 15;

const _: () = assert!(matches!(names::KNOWN[UPGRADE as usize - 1].as_bytes(), b"upgrade"));

/// The first byte of the name of a variable. A field from a client cannot contain it, because it is not
/// allowed in names (RFC 9110 section 5.6.2).
const VARIABLE: u8 = b'=';

const BODY_AT: usize = 2;
const FLAGS_AT: usize = 3;
const FIELDS_AT: usize = 4;
const BODY_LEN_AT: usize = 16;

impl<'b> Encoder<'b> {
    /// Starts the frame. Its length, id and body are filled in later.
    pub fn new(out: &'b mut Vec<u8>, head: &Head<'_>) -> Encoder<'b> {
        let start = frame::begin(out, FrameKind::Request, 0, 0);
        let flags = if head.measure { MEASURE } else { 0 } | if head.switch { SWITCH } else { 0 };
        out.extend_from_slice(&[head.version, head.https as u8, 0, flags, 0, 0]);
        out.extend_from_slice(&head.remote_port.to_le_bytes());
        out.extend_from_slice(&head.asked_us.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.push(head.method.len() as u8);
        out.extend_from_slice(head.method);
        for number in [head.target.len() as u32, head.path.0, head.path.1, head.query.0, head.query.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(head.target);
        out.push(head.remote_addr.len() as u8);
        out.extend_from_slice(head.remote_addr);
        out.extend_from_slice(&(head.server_name.len() as u16).to_le_bytes());
        out.extend_from_slice(head.server_name);
        out.push(head.server_port.len() as u8);
        out.extend_from_slice(head.server_port);
        Encoder { out, start, fields: 0, seen: 0, literal: Vec::new() }
    }

    /// Adds a field, and detects repeated names.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.fields += 1;
        match names::code(name) {
            Some(code) => {
                let bit = 1u128 << code;
                let repeated = if self.seen & bit != 0 { 0x80 } else { 0 };
                self.seen |= bit;
                self.out.push(code | repeated);
            }
            None => {
                let repeated =
                    self.literal.iter().any(|&(from, to)| self.out[from..to].eq_ignore_ascii_case(name));
                self.out.push(if repeated { 0x80 } else { 0 });
                self.out.extend_from_slice(&(name.len() as u16).to_le_bytes());
                let from = self.out.len();
                self.out.extend_from_slice(name);
                self.literal.push((from, from + name.len()));
            }
        }
        self.out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.out.extend_from_slice(value);
    }

    /// Adds a variable of the env, whose name is the key. It replaces the regular value of the key.
    pub fn variable(&mut self, name: &[u8], value: &[u8]) {
        self.field(&[&[VARIABLE], name].concat(), value);
    }

    /// Returns whether the request has an `Upgrade` field.
    #[inline]
    pub fn has_upgrade(&self) -> bool {
        self.seen & 1 << UPGRADE != 0
    }

    /// Sets [`Head::switch`], which may be known only after the fields.
    pub fn switch(&mut self) {
        self.out[self.start + frame::HEADER + FLAGS_AT] |= SWITCH;
    }

    pub fn finish(self, body: Put) {
        let Encoder { out, start, fields, .. } = self;
        let payload = start + frame::HEADER;
        let (kind, len, behind) = match body {
            Put::None => (0, 0, 0),
            Put::Behind(len) => (1, len as u64, len),
            Put::Descriptor(len) => {
                out[start + 5] |= frame::flag::FD;
                (2, len, 0)
            }
        };
        out[payload + BODY_AT] = kind;
        out[payload + FIELDS_AT..payload + FIELDS_AT + 2].copy_from_slice(&fields.to_le_bytes());
        out[payload + BODY_LEN_AT..payload + BODY_LEN_AT + 8].copy_from_slice(&len.to_le_bytes());
        frame::finish(out, start, behind);
    }
}

/// Sets the id of a finished REQUEST frame on its link.
#[inline]
pub fn stamp(frame: &mut [u8], id: u32) {
    frame[8..12].copy_from_slice(&id.to_le_bytes());
}

/// Sets how the body of a finished REQUEST frame is sent if it is in a file: in frames that follow, or as a
/// descriptor with the frame.
pub fn put_in_frames(frame: &mut [u8], in_frames: bool) {
    let (kind, flags) = if in_frames { (3, 0) } else { (2, frame::flag::FD) };
    frame[frame::HEADER + BODY_AT] = kind;
    frame[5] = frame[5] & !frame::flag::FD | flags;
}

/// Returns a copy of a REQUEST payload without its body, with this body in it. It no longer offers to switch protocols, and does not ask for
/// measurement.
pub fn with_body(payload: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = [payload, body].concat();
    if out.len() >= BODY_LEN_AT + 8 {
        out[BODY_AT] = u8::from(!body.is_empty());
        out[FLAGS_AT] = 0;
        out[BODY_LEN_AT..BODY_LEN_AT + 8].copy_from_slice(&(body.len() as u64).to_le_bytes());
    }
    out
}

/// Returns whether a REQUEST payload asks for measurement, without reading the rest.
#[inline]
pub fn asks_to_measure(payload: &[u8]) -> bool {
    payload.get(FLAGS_AT).is_some_and(|flags| flags & MEASURE != 0)
}

/// The part before the fields.
struct Start<'a> {
    head: Head<'a>,
    body: u8,
    body_len: u64,
    count: u16,
}

/// Returns the head of a REQUEST payload whose body may be missing: for messages.
///
/// # Errors
/// Fails if the payload breaks a rule of `docs/internals/wire.md`.
pub fn head_of(payload: &[u8]) -> Result<Head<'_>, Malformed> {
    start(&mut Cursor::new(payload)).map(|start| start.head)
}

fn start<'a>(cursor: &mut Cursor<'a>) -> Result<Start<'a>, Malformed> {
    let (version, scheme, body, flags) = (cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?);
    if !matches!(version, 10 | 11 | 20 | 30) || scheme > 1 || flags & !(MEASURE | SWITCH) != 0 {
        return Err(Malformed("version, scheme or flags of REQUEST"));
    }
    let (count, remote_port) = (cursor.u16()?, cursor.u16()?);
    let (asked_us, body_len) = (cursor.u64()?, cursor.u64()?);
    let method_len = cursor.u8()?;
    let method = cursor.bytes(method_len as usize)?;
    let target_len = cursor.u32()?;
    let (path, query) = ((cursor.u32()?, cursor.u32()?), (cursor.u32()?, cursor.u32()?));
    let inside = |(start, len): (u32, u32)| start.checked_add(len).is_some_and(|end| end <= target_len);
    if !inside(path) || !inside(query) {
        return Err(Malformed("path or query reaches outside the target"));
    }
    let target = cursor.bytes(target_len as usize)?;
    let len = cursor.u8()?;
    let remote_addr = cursor.bytes(len as usize)?;
    let len = cursor.u16()?;
    let server_name = cursor.bytes(len as usize)?;
    let len = cursor.u8()?;
    let server_port = cursor.bytes(len as usize)?;
    #[rustfmt::skip]
    let head = Head {
        version, https: scheme == 1, remote_port, measure: flags & MEASURE != 0, switch: flags & SWITCH != 0, asked_us,
        method, target, path, query, remote_addr, server_name, server_port,
    };
    Ok(Start { head, body, body_len, count })
}

#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Everything except fields and body.
    pub head: Head<'a>,
    pub body: Body<'a>,
    fields: &'a [u8],
    count: u16,
}

impl<'a> Request<'a> {
    /// Decodes a payload. The fields and their number have been checked when this function returns.
    ///
    /// # Errors
    /// Fails if the payload breaks a rule of `docs/internals/wire.md`.
    pub fn decode(payload: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let Start { head, body, body_len, count } = start(&mut cursor)?;
        let fields = cursor.rest;
        let mut behind = Fields { cursor, left: count };
        for field in &mut behind {
            field?;
        }
        let rest = behind.cursor.rest;
        let body = match (body, rest.len() as u64) {
            (0, 0) if body_len == 0 => Body::None,
            (1, len) if len == body_len => Body::Inline(rest),
            (2, 0) => Body::Descriptor(body_len),
            (3, 0) => Body::Frames(body_len),
            _ => return Err(Malformed("body and its length do not agree")),
        };
        Ok(Request { head, body, fields, count })
    }

    /// Returns the path part of the target.
    #[inline]
    pub fn path(&self) -> &'a [u8] {
        self.head.path()
    }

    /// Returns the query part of the target, without `?`.
    #[inline]
    pub fn query(&self) -> &'a [u8] {
        part(self.head.target, self.head.query)
    }

    /// Returns the fields in the order received.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        Fields { cursor: Cursor::new(self.fields), left: self.count }.map_while(Result::ok)
    }
}

fn part(target: &[u8], (start, len): (u32, u32)) -> &[u8] {
    target.get(start as usize..(start + len) as usize).unwrap_or_default()
}

struct Fields<'a> {
    cursor: Cursor<'a>,
    left: u16,
}

impl<'a> Fields<'a> {
    #[inline]
    fn one(&mut self) -> Result<Field<'a>, Malformed> {
        let byte = self.cursor.u8()?;
        let (code, repeated) = (byte & 0x7f, byte & 0x80 != 0);
        let name = match code {
            0 => {
                let len = self.cursor.u16()?;
                self.cursor.bytes(len as usize)?
            }
            code if names::name(code).is_some() => &[],
            _ => return Err(Malformed("unknown name code")),
        };
        let len = self.cursor.u32()?;
        Ok(Field { code, name, value: self.cursor.bytes(len as usize)?, repeated })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.one())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use proptest::prelude::*;

    fn head() -> Head<'static> {
        #[rustfmt::skip]
        let head = Head {
            version: 11, https: false, remote_port: 4711, measure: false, switch: false,
            asked_us: 1234, method: b"GET", target: b"/a/b?c=d", path: (0, 4), query: (5, 3),
            remote_addr: b"127.0.0.1", server_name: b"example.org", server_port: b"80",
        };
        head
    }

    #[test]
    fn a_request_is_read_back() {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, &head());
        encoder.field(b"Host", b"example.org");
        encoder.field(b"X-Own", b"1");
        encoder.field(b"x-own", b"2");
        encoder.field(b"Cookie", b"a=1");
        encoder.field(b"cookie", b"b=2");
        encoder.variable(b"REMOTE_USER", b"ann");
        encoder.finish(Put::Behind(4));
        out.extend_from_slice(b"body");
        stamp(&mut out, 9);
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        let request = Request::decode(frame.payload).unwrap();
        assert_eq!((frame.header.id, request.head.asked_us), (9, 1234));
        assert_eq!((request.path(), request.query()), (&b"/a/b"[..], &b"c=d"[..]));
        assert_eq!(request.body, Body::Inline(b"body"));
        let fields: Vec<_> =
            request.fields().map(|f| (names::name(f.code), f.name, f.value, f.repeated)).collect();
        assert_eq!(fields[0], (Some("host"), &b""[..], &b"example.org"[..], false));
        assert_eq!(fields[2], (None, &b"x-own"[..], &b"2"[..], true));
        assert_eq!(fields[4], (Some("cookie"), &b""[..], &b"b=2"[..], true));
        let variables: Vec<_> = request.fields().filter_map(|f| Some((f.variable()?, f.value))).collect();
        assert_eq!(variables, [(&b"REMOTE_USER"[..], &b"ann"[..])]);
    }

    #[test]
    fn a_descriptor_body_sets_the_flag() {
        let mut out = Vec::new();
        Encoder::new(&mut out, &head()).finish(Put::Descriptor(1 << 30));
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        assert!(frame.header.has_fd());
        assert_eq!(Request::decode(frame.payload).unwrap().body, Body::Descriptor(1 << 30));
        let kept = with_body(&out[frame::HEADER..], b"short");
        assert_eq!(Request::decode(&kept).unwrap().body, Body::Inline(b"short"));
        assert_eq!(Request::decode(&with_body(&kept[..kept.len() - 5], b"")).unwrap().body, Body::None);
        put_in_frames(&mut out, true);
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        assert!(!frame.header.has_fd());
        assert_eq!(Request::decode(frame.payload).unwrap().body, Body::Frames(1 << 30));
        put_in_frames(&mut out, false);
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        assert!(frame.header.has_fd());
        assert_eq!(Request::decode(frame.payload).unwrap().body, Body::Descriptor(1 << 30));
    }

    #[test]
    fn flags_ask_to_measure_and_unknown_ones_are_refused() {
        for measure in [false, true] {
            let mut out = Vec::new();
            Encoder::new(&mut out, &Head { measure, ..head() }).finish(Put::None);
            let payload = &mut out[frame::HEADER..];
            assert_eq!(Request::decode(payload).unwrap().head.measure, measure);
            assert_eq!(asks_to_measure(payload), measure);
            payload[FLAGS_AT] |= 0x04;
            assert!(Request::decode(payload).is_err());
        }
        assert!(!asks_to_measure(b""));
    }

    #[test]
    fn an_offer_to_switch_is_set_behind_the_fields() {
        for (name, switch) in [("Upgrade", false), ("UPGRADE", true), ("X-Upgrade", false)] {
            let mut out = vec![0; 7];
            let mut encoder = Encoder::new(&mut out, &Head { measure: true, ..head() });
            encoder.field(name.as_bytes(), b"websocket");
            assert_eq!(encoder.has_upgrade(), name != "X-Upgrade");
            if switch {
                encoder.switch();
            }
            encoder.finish(Put::None);
            let head = Request::decode(&out[7 + frame::HEADER..]).unwrap().head;
            assert_eq!((head.switch, head.measure), (switch, true), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.fields().count(), request.count as usize);
            }
        }

        #[test]
        fn a_damaged_request_never_panics(at in 0usize..120, byte: u8, keep in 0usize..140) {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(&mut out, &head());
            encoder.field(b"Host", b"example.org");
            encoder.field(b"X-Own", b"1");
            encoder.finish(Put::Behind(4));
            out.extend_from_slice(b"body");
            out.drain(..frame::HEADER);
            if let Some(b) = out.get_mut(at) { *b = byte; }
            out.truncate(keep);
            if let Ok(request) = Request::decode(&out) {
                let _ = (request.path(), request.query(), request.fields().count());
            }
        }
    }
}
