//! Reports each switch of fibers.
//!
//! Why: an app may set a `Timeout.timeout` in a fiber, leave that fiber inside the block, and let another one resume it. Ruby does not report which
//! fiber has resumed which; it only reports that a fiber goes on.

use super::gvl::{self, Gvl};
use crate::fibers;
use rb_sys::{ID, RUBY_EVENT_FIBER_SWITCH, VALUE, rb_event_flag_t};
use std::sync::Once;

/// Calls [`fibers::switched`] from now on, on each fiber of the process that goes on.
#[cold]
pub(crate) fn watch(_gvl: &mut Gvl) {
    static WATCHED: Once = Once::new();
    unsafe extern "C" fn switched(_: rb_event_flag_t, _: VALUE, _: VALUE, _: ID, _: VALUE) {
        // SAFETY: Ruby calls hooks with the GVL; nothing in this one raises.
        unsafe { gvl::unprotected(fibers::switched) };
    }
    // SAFETY: called with the GVL; the function lives as long as the process.
    WATCHED.call_once(|| unsafe {
        rb_sys::rb_add_event_hook(
            Some(switched),
            RUBY_EVENT_FIBER_SWITCH as rb_event_flag_t,
            rb_sys::Qnil as VALUE,
        );
    });
}
