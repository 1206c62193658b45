//! The frames of the calling fiber, for deciding whether it can be left where it is.
//!
//! Why: a safe point of Ruby is safe for a switch of threads. A switch of fibers there may leave a lock held
//! that belongs to the thread, or drop a value that one fiber returns to another. `preempt_test.rb` has cases
//! of both.
//!
//! Relies on `rb_profile_frames`, and on names of methods and classes in CRuby's core. Checked with Ruby 3.1.
//! A library in C that holds a lock of its own at a safe point is not known here: its callers use
//! `Firebrick.unsliced`. Off with slices (`rack.fiber_slice = "off"`).

use super::gvl::Gvl;
use super::ruby::{NIL, Value};
use rb_sys::VALUE;
use std::ffi::c_int;

/// The largest number of frames that are examined. The largest stack of `rack.fiber_stack` has room for fewer.
const MOST: usize = 160_000;

/// Buffers for the frames of one thread.
pub(crate) struct Frames {
    frames: Vec<VALUE>,
    lines: Vec<c_int>,
    count: usize,
}

/// Prefixes of class names. Their functions may wait while they hold a lock, or are about to; or they have
/// just received a return value or exception from another fiber. Ruby checks for interrupts before it takes
/// that value from a place that the next switch overwrites.
const HOLDING: [&[u8]; 6] = [b"Enumerator", b"Fiber", b"IO", b"Monitor", b"Thread", b"Zlib"];

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames { frames: vec![0; MOST], lines: vec![0; MOST], count: 0 }
    }

    /// Collects the frames of the calling fiber, the innermost first. They are valid until Ruby allocates an object.
    fn take(&mut self, _gvl: &Gvl) {
        // SAFETY: both lists have room for MOST.
        let count = unsafe {
            rb_sys::rb_profile_frames(0, MOST as c_int, self.frames.as_mut_ptr(), self.lines.as_mut_ptr())
        };
        self.count = usize::try_from(count).unwrap_or(0).min(MOST);
    }

    /// Returns whether the calling fiber can be left here. It cannot
    ///
    /// - while it loads a file: others must not see it half loaded;
    /// - in Firebrick's library, whose paths begin with `own`, and in C functions that may hold a lock or a value;
    /// - if `keeps_locks`, where it holds a Mutex or a Monitor by `synchronize`;
    /// - if there are more frames than can be examined.
    ///
    /// May raise.
    pub(crate) fn can_be_left(&mut self, gvl: &mut Gvl, own: &[u8], keeps_locks: bool) -> bool {
        self.take(gvl);
        let frames = &self.frames[..self.count];
        let Some(&top) = frames.first().filter(|_| self.count < MOST) else { return false };
        for &frame in frames {
            let (label, method) = (
                name(rb_sys::rb_profile_frame_label, frame),
                name(rb_sys::rb_profile_frame_method_name, frame),
            );
            if is(gvl, label, b"<top (required)>")
                || is(gvl, method, b"require")
                || is(gvl, method, b"require_relative")
            {
                return false;
            }
            let locks =
                keeps_locks && (is(gvl, method, b"synchronize") || is(gvl, method, b"mon_synchronize"));
            if locks && is_native(frame) {
                return false;
            }
        }
        // Ruby checks for interrupts inside C functions that wait and, more often, when one has just returned.
        let code = frames.iter().copied().find(|&frame| !is_native(frame));
        let path = code.map_or(NIL, |frame| name(rb_sys::rb_profile_frame_absolute_path, frame));
        if path.is_string(gvl) && path.bytes(gvl).starts_with(own) {
            return false;
        }
        if !is_native(top) {
            return true;
        }
        // Checked last, because it allocates a String, and the collector does not know the frames.
        let class = name(rb_sys::rb_profile_frame_classpath, top);
        let holds =
            class.is_string(gvl) && HOLDING.iter().any(|holding| class.bytes(gvl).starts_with(holding));
        class.keep();
        !holds
    }
}

/// Returns a property of a frame: a String or nil.
fn name(ask: unsafe extern "C" fn(VALUE) -> VALUE, frame: VALUE) -> Value {
    // SAFETY: `frame` is one that `Frames::take` has got, and nothing has been made since.
    Value::from_raw(unsafe { ask(frame) })
}

/// Returns whether the frame belongs to a C function.
fn is_native(frame: VALUE) -> bool {
    name(rb_sys::rb_profile_frame_path, frame).is_nil()
}

fn is(gvl: &Gvl, name: Value, text: &[u8]) -> bool {
    name.is_string(gvl) && name.bytes(gvl) == text
}

/// Returns whether Ruby calls the scheduler for the calling fiber: it is not the thread's first fiber, not an
/// Enumerator's before Ruby 3.2, and not inside `Fiber.blocking { }`.
pub(crate) fn asks_scheduler(_gvl: &Gvl) -> bool {
    // SAFETY: called with the GVL.
    let scheduler = unsafe { rb_sys::rb_fiber_scheduler_current() };
    !Value::from_raw(scheduler).is_nil()
}

/// Returns whether fibers of Enumerators cannot wait for other fibers, which is so before Ruby 3.2.
pub(crate) fn enumerators_stop_the_thread() -> bool {
    super::os::symbol(c"rb_fiber_new_storage").is_none()
}
