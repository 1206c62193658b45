//! Reports each switch of fibers.
//!
//! Why: an app may set a `Timeout.timeout` in a fiber, leave that fiber inside the block, and let another one
//! resume it. Ruby does not report which fiber has resumed which; it only reports that a fiber goes on.

use super::gvl::{self, Gvl};
use rb_sys::{ID, RUBY_EVENT_FIBER_SWITCH, VALUE, rb_event_flag_t};
use std::sync::OnceLock;

/// The function that the hook calls at each switch; [`watch`] sets it once.
static SWITCHED: OnceLock<fn(&mut Gvl)> = OnceLock::new();

/// Calls `switched` from now on, on each fiber of the process that goes on. It must not raise.
#[cold]
pub(crate) fn watch(_gvl: &mut Gvl, switched: fn(&mut Gvl)) {
    unsafe extern "C" fn hook(_: rb_event_flag_t, _: VALUE, _: VALUE, _: ID, _: VALUE) {
        if let Some(switched) = SWITCHED.get() {
            // SAFETY: Ruby calls hooks with the GVL; nothing in this one raises.
            unsafe { gvl::unprotected(switched) };
        }
    }
    SWITCHED.get_or_init(|| {
        // SAFETY: called with the GVL; the function lives as long as the process.
        unsafe {
            rb_sys::rb_add_event_hook(
                Some(hook),
                RUBY_EVENT_FIBER_SWITCH as rb_event_flag_t,
                rb_sys::Qnil as VALUE,
            );
        }
        switched
    });
}
