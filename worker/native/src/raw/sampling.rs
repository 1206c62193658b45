//! The means for profiles that Ruby and the system have: the frames of the calling thread, a call at one of Ruby's safe points, the state of
//! other threads.
//!
//! Relies on `rb_profile_frames`, on the events of the collector, and on postponed jobs ([`super::postponed`]). Before Ruby 3.3 the thread that is
//! to run a job gets a signal, and only while it computes: a signal ends waits of the app's.
//!
//! Contract:
//! 1. The handler of the signal asks for a job only while its thread has the GVL, and does nothing else.
//! 2. No memory of Ruby's is read without the GVL. The state of a thread comes from the kernel.

use super::gvl::{self, Gvl, enter};
use super::postponed::PostponedJob;
use super::ruby::Value;
use super::slice::take_signal;
use rb_sys::VALUE;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The most frames of a stack that are looked at, from the innermost on.
const DEEPEST: usize = 2_048;

static JOB: OnceLock<fn(&mut Gvl)> = OnceLock::new();
static POSTPONED: OnceLock<Option<PostponedJob>> = OnceLock::new();
/// The signal that makes a thread request the job, where only that thread may.
static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();

/// Registers `job` with Ruby, once. Returns whether jobs can be asked for.
pub(crate) fn prepare(_gvl: &Gvl, job: fn(&mut Gvl)) -> bool {
    JOB.get_or_init(|| job);
    match POSTPONED.get_or_init(|| PostponedJob::new(run)) {
        None => false,
        Some(PostponedJob::Anywhere(..)) => true,
        Some(PostponedJob::ByItsThread(..)) => SIGNAL.get_or_init(|| take_signal(handler)).is_some(),
    }
}

unsafe extern "C" fn run(_data: *mut c_void) {
    if let Some(job) = JOB.get() {
        // SAFETY: Ruby runs jobs with the GVL, at a point where it could run other threads.
        unsafe { enter(job) };
    }
}

extern "C" fn handler(_signal: c_int) {
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.request_here();
    }
}

/// Requests the job, where any thread may.
pub(crate) fn ask() {
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.request();
    }
}

/// Makes a thread that computes request the job, where only that thread may.
pub(crate) fn ask_of(thread: i32) {
    #[cfg(target_os = "linux")]
    if let Some(Some(signal)) = SIGNAL.get() {
        // SAFETY: no pointers. A thread that has ended gets nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, *signal) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = thread;
}

/// A frame: the object that stands for its code, and its line.
pub(crate) type Frame = (Value, u32);

/// Collects the frames of the calling thread, the innermost first. The objects live as long as their frames.
pub(crate) fn frames(gvl: &Gvl, into: &mut Vec<Frame>) {
    /// Not on the stack: a fiber's may be small.
    static FOUND: gvl::Guarded<(Vec<VALUE>, Vec<c_int>)> = gvl::Guarded::new((Vec::new(), Vec::new()));
    FOUND.with(gvl, |(frames, lines)| {
        frames.resize(DEEPEST, 0);
        lines.resize(DEEPEST, 0);
        // SAFETY: both lists have room for so many.
        let count = unsafe {
            rb_sys::rb_profile_frames(0, DEEPEST as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
        };
        let count = usize::try_from(count).unwrap_or(0).min(DEEPEST);
        let lines = lines.iter().map(|line| u32::try_from(*line).unwrap_or(0));
        into.clear();
        into.extend(frames.iter().map(|frame| Value::from_raw(*frame)).zip(lines).take(count));
    });
}

/// The names of a frame: Strings or nil. A function in C has no path.
pub(crate) struct Names {
    pub(crate) path: Value,
    pub(crate) label: Value,
    /// The label with its class.
    pub(crate) full: Value,
}

/// Returns the names of a frame. May raise.
pub(crate) fn names(_gvl: &mut Gvl, frame: Value) -> Names {
    // SAFETY: the frame's object is alive: the caller holds it.
    unsafe {
        let mut label = Value::from_raw(rb_sys::rb_profile_frame_label(frame.raw()));
        if label.is_nil() {
            // A function in C.
            label = Value::from_raw(rb_sys::rb_profile_frame_method_name(frame.raw()));
        }
        Names {
            path: Value::from_raw(rb_sys::rb_profile_frame_path(frame.raw())),
            label,
            full: Value::from_raw(rb_sys::rb_profile_frame_full_label(frame.raw())),
        }
    }
}

/// Calls `collects` on a thread that begins (`true`) or ends a step of garbage collection, from now on or no longer. `collects` must not call
/// Ruby.
pub(crate) fn watch_collector(gvl: &mut Gvl, collects: fn(bool), watch: bool) {
    static COLLECTS: OnceLock<fn(bool)> = OnceLock::new();
    static POINT: gvl::Guarded<Option<VALUE>> = gvl::Guarded::new(None);
    unsafe extern "C" fn hook(point: VALUE, _data: *mut c_void) {
        if let Some(collects) = COLLECTS.get() {
            // SAFETY: Ruby has called the hook for an event of this object.
            let flag = unsafe { rb_sys::rb_tracearg_event_flag(rb_sys::rb_tracearg_from_tracepoint(point)) };
            collects(flag & rb_sys::RUBY_INTERNAL_EVENT_GC_ENTER as rb_sys::rb_event_flag_t != 0);
        }
    }
    COLLECTS.get_or_init(|| collects);
    let made = POINT.with(gvl, |point| *point);
    // SAFETY: called with the GVL; the events are those of debug.h, and the object is never freed.
    unsafe {
        let point = made.unwrap_or_else(|| {
            let events = rb_sys::RUBY_INTERNAL_EVENT_GC_ENTER | rb_sys::RUBY_INTERNAL_EVENT_GC_EXIT;
            let point = rb_sys::rb_tracepoint_new(0, events as _, Some(hook), std::ptr::null_mut());
            rb_sys::rb_gc_register_mark_object(point);
            point
        });
        POINT.with(gvl, |slot| *slot = Some(point));
        if watch {
            rb_sys::rb_tracepoint_enable(point);
        } else {
            rb_sys::rb_tracepoint_disable(point);
        }
    }
}

/// The state of a thread, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    Runs,
    /// It waits for another thread of the process at this address (futex(2)).
    WaitsForThread(u64),
    Sleeps,
    Waits,
}

/// A thread as seen by another one.
pub(crate) struct Observed {
    pub(crate) thread: i32,
    clock: libc::clockid_t,
    /// Its `syscall` file, where the system has one.
    calls: Option<File>,
}

impl Observed {
    pub(crate) fn new(thread: i32, clock: libc::clockid_t) -> Observed {
        Observed { thread, clock, calls: File::open(format!("/proc/self/task/{thread}/syscall")).ok() }
    }

    /// Returns its processor time in microseconds; 0 once it has ended.
    pub(crate) fn used_us(&self) -> u64 {
        super::os::clock_us(self.clock)
    }

    /// Returns what it does now; `None` where the system does not say.
    pub(crate) fn activity(&self) -> Option<Activity> {
        let mut text = [0; 128];
        let read = self.calls.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?;
        let mut address =
            || words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        Some(match number.parse::<libc::c_long>() {
            // "running"; -1 stands for a fault of the memory.
            Err(_) | Ok(-1) => Activity::Runs,
            Ok(libc::SYS_futex) => Activity::WaitsForThread(address().unwrap_or(0)),
            Ok(libc::SYS_nanosleep | libc::SYS_clock_nanosleep) => Activity::Sleeps,
            Ok(_) => Activity::Waits,
        })
    }
}
