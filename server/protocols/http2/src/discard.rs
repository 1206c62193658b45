//! Drops the rest of a request whose response has been sent (RFC 9113 section 8.1).
//!
//! Why: a client in the middle of an upload may drop the response if its stream is reset. So a part of the
//! rest is read and dropped first; most clients see the response and stop, or reach the end.
//!
//! Contract:
//! 1. At most `discard_bytes` of a stream are dropped, for at most `discard_timeout`; then the stream is
//!    reset with `NO_ERROR`.
//! 2. The connection's window is credited at once: other streams do not wait for this one.

use crate::connection::{Connection, Discard, Reading};
use crate::{ErrorCode, StreamId};
use std::time::Instant;

impl Connection {
    /// Drops the rest of a request whose response has been sent, within limits, and closes the stream. No
    /// event follows. Does nothing if the request has ended.
    pub fn discard(&mut self, name: StreamId, now: Instant) {
        if self.discards.iter().any(|discard| discard.stream == name) {
            return;
        }
        let bound = self.limits.discard_bytes;
        let Some(stream) = self.streams.get_mut(name).filter(|stream| stream.receiving) else { return };
        if matches!(self.reading, Reading::Over) {
            return self.reset(name, ErrorCode::NO_ERROR);
        }
        stream.refused = Some(ErrorCode::NO_ERROR);
        let unconsumed = std::mem::take(&mut stream.unconsumed);
        // The window may be closed because no handler read the data: the request would never reach its end.
        let useful = u32::try_from(stream.left).unwrap_or(bound).min(bound);
        let more = useful.saturating_sub(stream.receive_window);
        if more > 0 {
            stream.receive_window += more;
            self.window_update_frame(name.number(), more);
        }
        self.credit_connection(unconsumed);
        // The last bytes may have arrived long ago.
        let until = self.now.max(now) + self.limits.discard_timeout;
        self.discards.push_back(Discard { stream: name, left: bound, until });
    }

    /// Counts `size` dropped bytes of a refused request that continues.
    pub(crate) fn discarded(&mut self, name: StreamId, size: u32) {
        let Some(discard) = self.discards.iter_mut().find(|discard| discard.stream == name) else { return };
        match discard.left.checked_sub(size) {
            Some(left) => discard.left = left,
            None => self.reset(name, ErrorCode::NO_ERROR),
        }
    }

    /// Ends the discard of a closed stream.
    #[inline]
    pub(crate) fn end_discard(&mut self, name: StreamId) {
        if !self.discards.is_empty() {
            self.discards.retain(|discard| discard.stream != name);
        }
    }

    /// Resets the streams whose time is over.
    pub(crate) fn reset_discards(&mut self, now: Instant) {
        while let Some(first) = self.discards.front().filter(|first| first.until <= now) {
            self.reset(first.stream, ErrorCode::NO_ERROR);
        }
    }

    /// Resets all streams in discard, because nothing more is read.
    pub(crate) fn reset_all_discards(&mut self) {
        while let Some(first) = self.discards.front() {
            self.reset(first.stream, ErrorCode::NO_ERROR);
        }
    }

    pub(crate) fn discard_deadline(&self) -> Option<Instant> {
        self.discards.front().map(|first| first.until)
    }
}
