//! Enters and leaves Ruby's fibers.
//!
//! Always by transfer. A fiber entered by `resume` leaves by `yield` to the fiber that resumed it; code
//! inside an Enumerator, which has its own fiber, would then return to the Enumerator instead of the loop.

use super::gvl::Gvl;
use super::ruby::{NIL, Value, protect};
use std::ffi::c_int;

/// The way in which Ruby has left a protected call; an exception is still in `$!`.
#[derive(Clone, Copy)]
pub(crate) struct Unwind(c_int);

/// Returns the running fiber.
#[inline]
pub(crate) fn current(_gvl: &Gvl) -> Value {
    // SAFETY: called with the GVL.
    Value::from_raw(unsafe { rb_sys::rb_fiber_current() })
}

/// Enters `fiber`, and returns when this one is entered again. Never raises.
///
/// # Errors
/// A pending unwind of this fiber: an interrupt, `Fiber#raise`, or a fiber that cannot be entered. The caller
/// restores its state and then calls [`go_on`].
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

/// Continues the unwind.
pub(crate) fn go_on(_gvl: &mut Gvl, unwind: Unwind) -> ! {
    // SAFETY: the state comes from rb_protect, on this fiber; the frames up to the nearest protect own nothing.
    unsafe { rb_sys::rb_jump_tag(unwind.0) }
}

/// Ends the unwind here. Returns whether the thread is being killed, and the exception or nil.
pub(crate) fn caught(gvl: &mut Gvl, unwind: Unwind) -> (bool, Value) {
    match protect(gvl, |gvl| go_on(gvl, unwind)) {
        Ok(()) => (false, NIL),
        Err((jump, error)) => (jump.is_kill(), error),
    }
}
