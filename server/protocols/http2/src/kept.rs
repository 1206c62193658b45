//! Encodes frequent responses once for all connections; sending one is a copy and two stream numbers.
//!
//! Contract: only one byte of a message depends on the connection: the date, an index into the table.

use crate::frame::{self, END_HEADERS, END_STREAM, HEADER, MAX_PAYLOAD};
use crate::hpack::Encoder;
use handler::{Fields, Kept};

/// The HEADERS frame and the one DATA frame of a response.
pub(crate) struct Message {
    text: Box<[u8]>,
    /// The position of the date.
    date: usize,
    /// The position of the DATA frame.
    data: usize,
}

impl Message {
    /// Returns the message of a kept body, which always has the same status and the same frozen fields.
    /// Returns `None` if there are other fields as well, no body, or more fields than fit into one frame.
    #[inline]
    pub(crate) fn of<'a>(body: &'a Kept, status: u16, fields: &Fields) -> Option<&'a Message> {
        if fields.fresh().next().is_some() || body.body().is_empty() || !matches!(status, 200..=203) {
            return None;
        }
        body.cache().get_or_init(|| Message::new(status, fields, body.body())).as_ref()
    }

    #[cold]
    fn new(status: u16, fields: &Fields, body: &[u8]) -> Option<Message> {
        let mut text = Vec::new();
        frame::header(&mut text, 0, frame::HEADERS, END_HEADERS, 0);
        Encoder::status(&mut text, status);
        Encoder::fields(&mut text, fields);
        let date = text.len();
        text.push(0);
        Encoder::content_length(&mut text, body.len() as u64);
        if text.len() > HEADER + MAX_PAYLOAD {
            return None;
        }
        frame::set_len(&mut text, 0);
        let data = text.len();
        frame::header(&mut text, body.len(), frame::DATA, END_STREAM, 0);
        text.extend_from_slice(body);
        Some(Message { text: text.into(), date, data })
    }

    /// Appends the message. `date`: its index in the client's table.
    #[inline]
    pub(crate) fn write(&self, to: &mut Vec<u8>, stream: u32, date: u8) {
        let start = to.len();
        to.extend_from_slice(&self.text);
        let written = &mut to[start..];
        written[self.date] = date;
        let number = stream.to_be_bytes();
        written[HEADER - 4..HEADER].copy_from_slice(&number);
        written[self.data + HEADER - 4..self.data + HEADER].copy_from_slice(&number);
    }
}
