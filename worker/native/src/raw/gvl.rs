//! The proof that a thread has the GVL, state that the GVL guards, and waits without it.

use super::panics::{contain, guard};
use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Proof that the calling thread has the GVL.
///
/// It is made where Ruby calls into this library, and nowhere else. `&Gvl` is enough to read Ruby's memory;
/// functions that may run Ruby code, the collector, or other threads take `&mut Gvl`. So a borrow of Ruby's
/// memory by a `&Gvl`, such as the bytes of a String, cannot be used after Ruby has run: it does not compile.
/// The proof does not leave its thread, and [`release`] takes it away from the code that runs without the
/// GVL.
pub(crate) struct Gvl(PhantomData<*mut ()>);

/// Runs a function that Ruby has called. A panic in it becomes an exception.
///
/// # Safety
/// The thread has the GVL, and every other `Gvl` of this thread is borrowed by the call that has led here.
#[inline]
pub(super) unsafe fn enter<R>(f: impl FnOnce(&mut Gvl) -> R) -> R {
    guard(|| f(&mut Gvl(PhantomData)))
}

/// Runs `f` inside the collector, where raising is impossible and unmarked objects would be lost: a panic
/// ends the process. No code that runs here should be able to panic.
///
/// # Safety
/// As [`enter`].
pub(super) unsafe fn unprotected<R>(f: impl FnOnce(&mut Gvl) -> R) -> R {
    contain(|| f(&mut Gvl(PhantomData))).unwrap_or_else(|| std::process::abort())
}

/// State shared by the worker's threads and touched only while the GVL is held.
///
/// The closure given to [`Guarded::with`] cannot call Ruby, because the token is borrowed meanwhile; so no
/// other thread can interfere. A nested use panics.
pub(crate) struct Guarded<T>(RefCell<T>);

// SAFETY: access is serialised by the GVL, which the token proves.
unsafe impl<T> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Guarded(RefCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, _gvl: &Gvl, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

/// A buffer of a serving thread that lives as long as the process.
///
/// Unlike a local `Vec` it may be in scope while Ruby raises: there is nothing to drop. As with [`Guarded`],
/// the closure cannot call Ruby, and a nested use panics.
pub(crate) type Scratch = Guarded<Vec<u8>>;

/// Runs `f` without the GVL. Returns `None` when an interrupt was pending and `f` did not run; the caller then lets
/// Ruby handle it ([`super::ruby::check_interrupts`]). While `f` waits in a system call, an interrupt makes that
/// call return `EINTR`.
#[inline]
pub(crate) fn release<R: Send, F: FnOnce() -> R + Send>(_gvl: &mut Gvl, f: F) -> Option<R> {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<thread::Result<R>>,
    }
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(arg: *mut c_void) -> *mut c_void {
        // SAFETY: `arg` is the `Call` below, which outlives the call and is not touched meanwhile.
        let call = unsafe { &mut *arg.cast::<Call<F, R>>() };
        call.result = call.f.take().map(|f| catch_unwind(AssertUnwindSafe(f)));
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
    // A panic is resumed with the GVL held again.
    call.result.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
}
