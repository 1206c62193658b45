//! `X-Request-Start`: tells the app when its request came in, as a proxy in front would.
//!
//! `t=` and milliseconds since the epoch. What a proxy has said already stays.

use handler::Request;
use std::cell::RefCell;
use std::io::Write;
use std::time::UNIX_EPOCH;

/// Stamps requests.
#[derive(Default)]
pub(crate) struct Stamp {
    /// The last text and its millisecond: under load many requests share one.
    last: RefCell<(u64, Vec<u8>)>,
}

impl Stamp {
    /// Adds the field unless it is there.
    pub(crate) fn apply(&self, request: &mut Request) {
        if request.fields.get("x-request-start").is_some() {
            return;
        }
        let ms = request.received.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let mut last = self.last.borrow_mut();
        let (at, text) = &mut *last;
        if *at != ms || text.is_empty() {
            *at = ms;
            text.clear();
            // Writing to a Vec cannot fail.
            let _ = write!(text, "t={ms}");
        }
        request.fields.push(b"X-Request-Start", text);
    }
}
