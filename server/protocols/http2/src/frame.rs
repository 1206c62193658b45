//! Encodes and parses frames (RFC 9113 sections 4.1 and 6).

/// The length of a frame's header.
pub(crate) const HEADER: usize = 9;
/// The largest payload that is received and sent: the default of SETTINGS_MAX_FRAME_SIZE, which is also the
/// size of a TLS record.
pub(crate) const MAX_PAYLOAD: usize = 16 << 10;
/// The largest window.
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The first bytes of a client.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// RFC 9218 section 7.1.
pub(crate) const PRIORITY_UPDATE: u8 = 16;

/// END_STREAM of DATA and HEADERS; ACK of SETTINGS and PING.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const HAS_PRIORITY: u8 = 0x20;

pub(crate) const SETTING_HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const SETTING_ENABLE_PUSH: u16 = 2;
pub(crate) const SETTING_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const SETTING_INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const SETTING_MAX_FRAME_SIZE: u16 = 5;
pub(crate) const SETTING_MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 9218 section 2.1.
/// RFC 8441 section 3.
pub(crate) const SETTING_ENABLE_CONNECT_PROTOCOL: u16 = 8;
pub(crate) const SETTING_NO_RFC7540_PRIORITIES: u16 = 9;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Header {
    /// Parses the header at the front of `bytes`.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3, ..] = bytes else { return None };
        Some(Header {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_WINDOW,
        })
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's header.
#[inline]
pub(crate) fn header(to: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    to.extend_from_slice(&[(len >> 16) as u8, (len >> 8) as u8, len as u8, kind, flags, s0, s1, s2, s3]);
}

/// Writes the length of a frame whose header is at `start` and whose payload extends to the end.
#[inline]
pub(crate) fn set_len(text: &mut [u8], start: usize) {
    let len = text.len() - start - HEADER;
    text[start..start + 3].copy_from_slice(&[(len >> 16) as u8, (len >> 8) as u8, len as u8]);
}

/// Returns the number in the first four bytes.
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Returns the payload without padding (RFC 9113 section 6.1); `None` if the padding is longer.
pub(crate) fn unpadded(payload: &[u8], is_padded: bool) -> Option<&[u8]> {
    if !is_padded {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}
