//! State that the GVL guards, and waiting without it.

use std::cell::{RefCell, UnsafeCell};
use std::ffi::c_void;

/// State shared by the worker's threads and touched only while the GVL is held.
///
/// Contract: the closure given to [`Guarded::with`] neither calls Ruby code nor waits, so no other thread can come
/// in between; the `RefCell` turns a breach into a panic, which ends the process with a message.
pub(crate) struct Guarded<T>(RefCell<T>);

// SAFETY: access is serialised by the GVL (contract above).
unsafe impl<T> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Guarded(RefCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

/// A buffer that belongs to one thread and lives as long as the process.
///
/// Unlike a local `Vec` it may be in scope while Ruby raises: there is nothing to drop.
pub(crate) struct Scratch(UnsafeCell<Vec<u8>>);

// SAFETY: used by one thread only, the one that its task belongs to.
unsafe impl Sync for Scratch {}

impl Scratch {
    pub(crate) const fn new() -> Self {
        Scratch(UnsafeCell::new(Vec::new()))
    }

    /// Borrows the buffer. The closure must not reach the same buffer again, nor call Ruby code.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        // SAFETY: one thread, and closures do not nest (contract above), so this is the only reference.
        f(unsafe { &mut *self.0.get() })
    }
}

/// Runs `f` without the GVL. Returns `None` when an interrupt was pending and `f` did not run; the caller then lets
/// Ruby handle it ([`super::ruby::check_interrupts`]). While `f` waits in a system call, an interrupt makes that
/// call return `EINTR`.
#[inline]
pub(crate) fn release<R, F: FnOnce() -> R>(f: F) -> Option<R> {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(arg: *mut c_void) -> *mut c_void {
        // SAFETY: `arg` is the `Call` below, which outlives the call and is not touched meanwhile.
        let call = unsafe { &mut *arg.cast::<Call<F, R>>() };
        super::ruby::guard(|| {
            if let Some(f) = call.f.take() {
                call.result = Some(f());
            }
        });
        std::ptr::null_mut()
    }
    let mut call = Call { f: Some(f), result: None };
    // SAFETY: RUBY_UBF_IO is this constant in thread.h; it stands for Ruby's own unblock function. An unblock
    // function of ours would make Ruby start a thread for each wait. rb_thread_call_without_gvl2 never raises.
    unsafe {
        let ubf_io = std::mem::transmute::<usize, rb_sys::rb_unblock_function_t>(usize::MAX);
        let call = (&raw mut call).cast();
        rb_sys::rb_thread_call_without_gvl2(Some(run::<R, F>), call, ubf_io, std::ptr::null_mut());
    }
    call.result
}
