//! Ruby's fibers: entering and leaving them.
//!
//! Only by transfer: a fiber that was entered by `resume` leaves by `yield` to whoever resumed it, and code inside an Enumerator, which has a
//! fiber of its own, would so return to the Enumerator instead of to the loop.

use super::gvl::Gvl;
use super::ruby::{NIL, Value, protect};
use std::ffi::c_int;

/// How Ruby has left a protected call: an exception is still in `$!`.
#[derive(Clone, Copy)]
pub(crate) struct Unwind(c_int);

/// The fiber that runs.
#[inline]
pub(crate) fn current(_gvl: &Gvl) -> Value {
    // SAFETY: called with the GVL.
    Value::from_raw(unsafe { rb_sys::rb_fiber_current() })
}

/// Enters `fiber`; returns when this one is entered again. Never raises.
///
/// # Errors
/// What is to be unwound in this fiber: an interrupt, `Fiber#raise`, or a fiber that cannot be entered. [`go_on`] does it, when what must be put
/// in order first has been.
#[inline]
pub(crate) fn transfer(_gvl: &mut Gvl, fiber: Value) -> Result<(), Unwind> {
    unsafe extern "C" fn run(fiber: rb_sys::VALUE) -> rb_sys::VALUE {
        // SAFETY: callers pass a fiber.
        unsafe { rb_sys::rb_fiber_transfer(fiber, 0, std::ptr::null()) }
    }
    let mut state = 0;
    // SAFETY: the callback has the type that rb_protect wants; nothing is owned by this frame.
    unsafe { rb_sys::rb_protect(Some(run), fiber.raw(), &raw mut state) };
    if state == 0 { Ok(()) } else { Err(Unwind(state)) }
}

/// Goes on unwinding.
pub(crate) fn go_on(_gvl: &mut Gvl, unwind: Unwind) -> ! {
    // SAFETY: the state comes from rb_protect, on this fiber; the frames up to the nearest protect own nothing.
    unsafe { rb_sys::rb_jump_tag(unwind.0) }
}

/// Ends the unwinding here. Whether the thread is being killed, and what was raised, or nil.
pub(crate) fn caught(gvl: &mut Gvl, unwind: Unwind) -> (bool, Value) {
    match protect(gvl, |gvl| go_on(gvl, unwind)) {
        Ok(()) => (false, NIL),
        Err((jump, error)) => (jump.is_kill(), error),
    }
}
