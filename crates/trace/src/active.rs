//! A request that is being recorded.

use crate::{SpanId, TraceId};
use std::cell::Cell;
use std::time::Instant;

/// What the server knows of its spans while a request is under way.
#[derive(Debug)]
pub struct Active {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span; `None` where the trace begins here.
    pub parent: Option<SpanId>,
    /// The span of the whole request.
    pub server: SpanId,
    /// The span of what serves the request: the app, or the origin. Spans that those report are its children.
    pub handler: SpanId,
    /// The flags of the field that is passed on.
    pub flags: u8,
    /// The `tracestate` that is passed on; empty if there is none.
    pub state: Box<str>,
    /// When the request went to an origin.
    pub forwarded: Cell<Option<Instant>>,
    /// When the response was ready to be sent.
    pub responded: Cell<Option<Instant>>,
    /// Whether a handler on mruby serves it.
    pub scripted: Cell<bool>,
}
