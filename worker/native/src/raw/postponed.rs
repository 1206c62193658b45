//! Postponed jobs: functions that Ruby calls with the GVL, at a point where it could run other threads (debug.h).
//!
//! They are looked up at run time: since Ruby 3.3 `rb_postponed_job_preregister` and `_trigger`, before
//! `rb_postponed_job_register_one` and `ruby_thread_has_gvl_p`.
//!
//! Contract:
//! 1. Since Ruby 3.3 any thread may request a job, and Ruby runs it on the thread that has the GVL.
//! 2. Before that only the thread that is to run it may, in a handler of a signal, and only with the GVL: another
//!    thread may run jobs otherwise.

use super::os::symbol;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The function that Ruby calls. Ruby tells jobs apart by it.
pub(super) type Job = unsafe extern "C" fn(*mut c_void);

type Preregister = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_uint;
type Trigger = unsafe extern "C" fn(c_uint);
type Register = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_int;
type HasGvl = unsafe extern "C" fn() -> c_int;

/// `ruby_thread_has_gvl_p`, where Ruby has it.
static HAS_GVL: OnceLock<Option<HasGvl>> = OnceLock::new();

/// The means to request a job.
#[derive(Clone, Copy)]
pub(super) enum PostponedJob {
    /// Since Ruby 3.3.
    Anywhere(Trigger, c_uint),
    /// Before Ruby 3.3.
    ByItsThread(Register, HasGvl, Job),
}

impl PostponedJob {
    /// Registers `job` with Ruby; to be called once for each job. `None`: this Ruby cannot run any, or no more.
    pub(super) fn new(job: Job) -> Option<PostponedJob> {
        // SAFETY: the functions have these types in debug.h and thread.c.
        unsafe {
            HAS_GVL.get_or_init(|| {
                symbol(c"ruby_thread_has_gvl_p").map(|has| std::mem::transmute::<*mut c_void, HasGvl>(has))
            });
            if let (Some(preregister), Some(trigger)) =
                (symbol(c"rb_postponed_job_preregister"), symbol(c"rb_postponed_job_trigger"))
            {
                let preregister = std::mem::transmute::<*mut c_void, Preregister>(preregister);
                let handle = preregister(0, job, std::ptr::null_mut());
                let trigger = std::mem::transmute::<*mut c_void, Trigger>(trigger);
                return (handle != c_uint::MAX).then_some(PostponedJob::Anywhere(trigger, handle));
            }
            let (register, has_gvl) =
                (symbol(c"rb_postponed_job_register_one")?, symbol(c"ruby_thread_has_gvl_p")?);
            Some(PostponedJob::ByItsThread(
                std::mem::transmute::<*mut c_void, Register>(register),
                std::mem::transmute::<*mut c_void, HasGvl>(has_gvl),
                job,
            ))
        }
    }

    /// Requests the job in a handler of a signal, if the thread has the GVL: so Ruby runs it on this thread. Returns whether it has. `before` is
    /// called before the request.
    pub(super) fn request_with_gvl(&self, before: impl FnOnce()) -> bool {
        // SAFETY: made for signal handlers; it was found when the job was registered.
        let has = unsafe { HAS_GVL.get().copied().flatten().is_some_and(|has| has() != 0) };
        if has {
            before();
            self.request_here();
        }
        has
    }

    /// Requests the job from any thread, where that is possible.
    pub(super) fn request(&self) {
        if let PostponedJob::Anywhere(trigger, handle) = self {
            // SAFETY: made for signal handlers and for threads that are not Ruby's.
            unsafe { trigger(*handle) };
        }
    }

    /// Requests the job in a handler of a signal to the thread that is to run it.
    pub(super) fn request_here(&self) {
        let PostponedJob::ByItsThread(register, has_gvl, job) = self else { return self.request() };
        // SAFETY: both are made for signal handlers.
        unsafe {
            if has_gvl() != 0 {
                register(0, *job, std::ptr::null_mut());
            }
        }
    }
}
