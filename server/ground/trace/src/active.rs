//! A request that is being recorded for a distributed trace.

use crate::{SpanId, TraceId};
use std::cell::Cell;
use std::time::Instant;

/// The state of the server's spans during a request.
#[derive(Debug)]
pub struct Active {
    pub trace: TraceId,
    /// The caller's span; `None` if the trace begins here.
    pub parent: Option<SpanId>,
    /// The span of the whole request.
    pub server: SpanId,
    /// The span of the app or the origin that serves the request. Spans that these report are its children.
    pub handler: SpanId,
    /// The flags of the `traceparent` field that is passed on.
    pub flags: u8,
    /// The `tracestate` that is passed on; empty if there is none.
    pub state: Box<str>,
    /// When the request was sent to an origin.
    pub forwarded: Cell<Option<Instant>>,
    /// When the response was ready to be sent.
    pub responded: Cell<Option<Instant>>,
    /// Whether an mruby handler serves it.
    pub scripted: Cell<bool>,
}
