//! HEAP orders of the front, for the Ruby code that carries them out (`worker/lib/firebrick/heap.rb`).
//!
//! Contract:
//! 1. The thread that reads the links only keeps the order and wakes the worker's own thread ([`signals::ask`]). The descriptor belongs to
//!    Ruby as soon as [`next`] has returned it.
//! 2. An attached worker takes no orders, because its process must not be forked: it says so in the pipe.

use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::methods::Module;
use crate::raw::os;
use crate::raw::ruby::{self, FALSE, NIL, TRUE, Value};
use crate::raw::{malloc, signals};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use wire::heap::HeapOrder;

/// The most orders that wait. The front sends one at a time.
const MOST: usize = 4;

static ORDERS: Guarded<VecDeque<(HeapOrder, RawFd)>> = Guarded::new(VecDeque::new());

/// Defines the methods.
pub(crate) fn define(module: &Module) {
    module.define(c"heap_order", next);
    module.define(c"malloc_figures", malloc_figures);
    module.define(c"shed_descriptors", shed_descriptors);
}

/// Keeps an order for [`next`].
pub(crate) fn asked(gvl: &Gvl, order: HeapOrder, fd: RawFd) {
    let kept = ORDERS.with(gvl, |orders| {
        let kept = orders.len() < MOST;
        if kept {
            orders.push_back((order, fd));
        }
        kept
    });
    if kept {
        signals::ask(signals::PendingWork::HeapDump);
    } else {
        os::close(fd);
    }
}

/// Tells the reader of the pipe that this worker takes no orders.
pub(crate) fn refuse(fd: RawFd) {
    os::tell(fd, b"{\"error\":\"Firebrick::Server runs in a process of the app, which must not be forked: use `firebrick serve`\"}\n");
    os::close(fd);
}

/// Returns the next order: the descriptor of the pipe, whether to dump, the seconds of tracing or nil, the limit in milliseconds. Nil if
/// there is none.
fn next(gvl: &mut Gvl) -> Value {
    let Some((order, fd)) = ORDERS.with(gvl, VecDeque::pop_front) else { return NIL };
    let fd = ruby::integer(gvl, i64::from(fd));
    let dump = if order.dump { TRUE } else { FALSE };
    let trace = order.trace_s.map_or(NIL, |seconds| ruby::integer(gvl, i64::from(seconds)));
    let limit = ruby::integer(gvl, i64::from(order.limit_ms));
    ruby::array(gvl, &[fd, dump, trace, limit])
}

/// Returns the name of the allocator, its bytes from the system, and its bytes in use; nil if it does not tell.
fn malloc_figures(gvl: &mut Gvl) -> Value {
    let Some(figures) = malloc::figures() else { return NIL };
    let name = ruby::string(gvl, figures.allocator.as_bytes());
    let held = ruby::integer(gvl, figures.held as i64);
    let used = ruby::integer(gvl, figures.used as i64);
    ruby::array(gvl, &[name, held, used])
}

/// See [`os::shed_descriptors`].
fn shed_descriptors(_gvl: &mut Gvl, keep: Value) -> Value {
    let keep = keep.fixnum().and_then(|fd| RawFd::try_from(fd).ok());
    os::shed_descriptors(keep.unwrap_or(-1));
    NIL
}
