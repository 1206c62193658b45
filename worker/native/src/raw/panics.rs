//! Stops panics: none reaches Ruby, and none ends the process.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of panics that a thread survives outside of requests.
const SURVIVED: usize = 100;

/// Runs `f`, and again after a panic in it: the next round completes the unfinished work.
pub(crate) fn persist(mut f: impl FnMut()) {
    (0..SURVIVED).any(|_| contain(&mut f).is_some());
}

/// Runs a function that Ruby has called, with the GVL. A panic becomes a Ruby exception, because a panic must
/// not unwind into Ruby, and should fail only its request.
#[inline]
pub(crate) fn guard<R>(f: impl FnOnce() -> R) -> R {
    match contain(f) {
        Some(result) => result,
        // SAFETY: the thread has the GVL, the class is set before any extension loads, and the text has no
        // directives. The frames up to the nearest protect own nothing: all that `f` owned has been dropped.
        None => unsafe { rb_sys::rb_raise(rb_sys::rb_eRuntimeError, INTERNAL_ERROR.as_ptr()) },
    }
}

/// The message of that exception. The panic's own message and place are in the log.
const INTERNAL_ERROR: &CStr = c"internal error in Firebrick's native part, which has been logged";

/// Runs `f`. A panic in it is logged, and the result is `None`.
#[inline]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Option<R> {
    // The panic hook has written the message and the place.
    catch_unwind(AssertUnwindSafe(f)).inspect_err(|_| say_internal_error()).ok()
}

#[cold]
fn say_internal_error() {
    crate::complain(format_args!("worker {}: internal error: the request at hand fails", std::process::id()));
}
