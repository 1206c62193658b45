//! Adds `X-Request-Start`, the time of arrival, for the app, as a proxy does.
//!
//! The value is `t=` and milliseconds since the epoch. The field of a proxy is kept.

use handler::Request;
use std::cell::RefCell;
use std::io::Write;
use std::time::UNIX_EPOCH;

#[derive(Default)]
pub(crate) struct Stamp {
    /// The last text and its millisecond. Under load many requests share one.
    last: RefCell<(u64, Vec<u8>)>,
}

impl Stamp {
    /// Adds the field unless the request has one.
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
