//! The access log: one line per request.
//!
//! Why not one write per request: it costs more than a small response, and a full disk or a slow reader would
//! delay every client. Each front thread appends to its own buffer, and one thread writes all buffers, many
//! lines at a time.
//!
//! Contract:
//! 1. A line is written at most a tenth of a second after its request, unless the output is blocked.
//! 2. A `write` contains only whole lines, on a descriptor in append mode, so that lines of other processes
//!    do not mix in.
//! 3. Text from a client never results in a byte below 0x20 or a second line.
//! 4. Lines recorded before [`LogOutput::close`] are written before it returns. Lines are lost only if the
//!    output fails, or is so slow that a buffer is full. Both are reported.
//! 5. [`LogOutput::reopen`] loses no lines.

mod clock;
mod escape;
pub(crate) use escape::json;
mod line;
mod output;

pub use output::LogOutput;

use clock::Clock;
use handler::Ending;
use line::{Layout, LogEntry};
use output::Buffer;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

/// The access log of one front thread.
#[derive(Debug)]
pub struct AccessLog {
    layout: Layout,
    clock: RefCell<Clock>,
    buffer: Buffer,
}

impl AccessLog {
    fn new(format: settings::LogFormat, request_id_header: Option<Arc<str>>, buffer: Buffer) -> AccessLog {
        AccessLog {
            layout: Layout { format, request_id_header },
            clock: RefCell::new(Clock::local()),
            buffer,
        }
    }

    /// Writes the line of a finished exchange. Never blocks.
    pub fn record(&self, ending: &Ending<'_>) {
        let total = ending.ended.saturating_duration_since(ending.started);
        let received = match ending.request {
            Some(request) => request.received,
            None => SystemTime::now().checked_sub(total).unwrap_or(SystemTime::UNIX_EPOCH),
        };
        let mut clock = self.clock.borrow_mut();
        let entry = LogEntry { ending, total, time: clock.at(received) };
        self.buffer.append(|text| self.layout.write(text, &entry));
    }
}
