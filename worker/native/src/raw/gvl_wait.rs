//! Measures how long a thread waits for the GVL: from its READY event (it wants to run) to RESUMED (it runs).
//!
//! Ruby reports these events since 3.2. The functions are looked up at run time, so that one build of the
//! source serves all Rubies; with an older one the waits are unknown. Since 3.3 the events of a thread may
//! arrive on another native thread, and name the Ruby thread that they concern; in 3.2 they arrive on the
//! thread itself.

use super::gvl::Gvl;
use super::os::symbol;
use super::panics::contain;
use super::ruby::{Value, protect};
use rb_sys::VALUE;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// `RUBY_INTERNAL_THREAD_EVENT_READY` and `_RESUMED` of thread.h.
const READY: u32 = 1 << 1;
const RESUMED: u32 = 1 << 2;

/// The waits of one serving thread. Written by the hook, which runs without the GVL.
pub(crate) struct GvlWait {
    watched: AtomicBool,
    /// The time since which it has been ready to run, in nanoseconds; 0 when it runs.
    ready_ns: AtomicU64,
    sum_ns: AtomicU64,
}

impl GvlWait {
    pub(crate) const fn new() -> GvlWait {
        GvlWait { watched: AtomicBool::new(false), ready_ns: AtomicU64::new(0), sum_ns: AtomicU64::new(0) }
    }

    /// Restarts the count. Must run on the thread for which [`attach`] was called, with the GVL.
    pub(crate) fn begin(&self) {
        self.ready_ns.store(0, Relaxed);
        self.sum_ns.store(0, Relaxed);
        self.watched.store(true, Relaxed);
    }

    /// Returns the microseconds waited since [`GvlWait::begin`]; `None` when Ruby does not report waits. The
    /// count goes on.
    pub(crate) fn so_far_us(&self) -> Option<u64> {
        api().map(|_| self.sum_ns.load(Relaxed) / 1_000)
    }

    pub(crate) fn end(&self) {
        self.watched.store(false, Relaxed);
    }

    /// Returns whether the thread waits for the GVL now, while [`watch_all`] is on; `None` when Ruby does not report it.
    pub(crate) fn waits(&self) -> Option<bool> {
        api().map(|_| self.ready_ns.load(Relaxed) != 0)
    }

    #[inline]
    fn record(&self, event: u32) {
        if !self.watched.load(Relaxed) && !ALL.load(Relaxed) {
            return;
        }
        if event == READY {
            self.ready_ns.store(super::os::now_ns(), Relaxed);
        } else {
            let since = self.ready_ns.swap(0, Relaxed);
            if since != 0 {
                self.sum_ns.fetch_add(super::os::now_ns().saturating_sub(since), Relaxed);
            }
        }
    }
}

/// All threads are watched, not only those whose requests are measured.
static ALL: AtomicBool = AtomicBool::new(false);

/// Watches all threads, or only those whose requests are measured.
pub(crate) fn watch_all(watch: bool) {
    ALL.store(watch, Relaxed);
}

/// `rb_internal_thread_event_data_t` since 3.3; empty before.
#[repr(C)]
struct EventData {
    thread: VALUE,
}

type Hook = unsafe extern "C" fn(u32, *const EventData, *mut c_void);
type AddHook = unsafe extern "C" fn(Hook, u32, *mut c_void) -> *mut c_void;
type CreateKey = unsafe extern "C" fn() -> c_int;
type Get = unsafe extern "C" fn(VALUE, c_int) -> *mut c_void;
type Set = unsafe extern "C" fn(VALUE, c_int, *mut c_void);

/// The place where the [`GvlWait`] of a thread is stored.
#[derive(Clone, Copy)]
enum Storage {
    /// In the native thread (Ruby 3.2).
    Native,
    /// In the Ruby thread, under this key (Ruby 3.3).
    Ruby { key: c_int, get: Get, set: Set },
}

thread_local! {
    static OWN: Cell<Option<&'static GvlWait>> = const { Cell::new(None) };
}

static API: OnceLock<Option<Storage>> = OnceLock::new();

/// Returns the storage; `None` when Ruby does not report waits, or before the first [`attach`].
fn api() -> Option<Storage> {
    API.get().copied().flatten()
}

/// Registers for the events of all threads.
fn register(gvl: &mut Gvl) -> Option<Storage> {
    let add = symbol(c"rb_internal_thread_add_event_hook")?;
    let storage = match (
        symbol(c"rb_internal_thread_specific_key_create"),
        symbol(c"rb_internal_thread_specific_get"),
        symbol(c"rb_internal_thread_specific_set"),
    ) {
        (Some(create), Some(get), Some(set)) => {
            let mut key = 0;
            // There are eight keys. If other libraries have taken all of them, Ruby raises, and the waits are unknown.
            // SAFETY: the functions have these types in thread.h.
            unsafe {
                let create = std::mem::transmute::<*mut c_void, CreateKey>(create);
                protect(gvl, |_| key = create()).ok()?;
                Storage::Ruby {
                    key,
                    get: std::mem::transmute::<*mut c_void, Get>(get),
                    set: std::mem::transmute::<*mut c_void, Set>(set),
                }
            }
        }
        _ => Storage::Native,
    };
    // SAFETY: as above; the hook stays for as long as the process lives.
    unsafe {
        std::mem::transmute::<*mut c_void, AddHook>(add)(hook, READY | RESUMED, std::ptr::null_mut());
    }
    Some(storage)
}

/// Counts the calling Ruby thread's waits in `wait` from now on.
pub(crate) fn attach(gvl: &mut Gvl, wait: &'static GvlWait) {
    match *API.get_or_init(|| register(gvl)) {
        None => {}
        Some(Storage::Native) => OWN.set(Some(wait)),
        Some(Storage::Ruby { key, set, .. }) => {
            let this = Value::current_thread(gvl);
            // SAFETY: a thread, a key that was created, and a pointer that is always valid.
            unsafe { set(this.raw(), key, std::ptr::from_ref(wait).cast_mut().cast()) };
        }
    }
}

unsafe extern "C" fn hook(event: u32, data: *const EventData, _user: *mut c_void) {
    let _ = contain(|| match api() {
        Some(Storage::Ruby { key, get, .. }) => {
            // SAFETY: since 3.3 Ruby passes the event's data, with a living thread. The value under the key
            // is null or a
            // GvlWait that is never freed. Reading it needs no GVL.
            let wait = unsafe { get((*data).thread, key).cast::<GvlWait>().as_ref() };
            wait.into_iter().for_each(|wait| wait.record(event));
        }
        // A thread that is exiting has no locals any more.
        Some(Storage::Native) => {
            let _ = OWN.try_with(|own| own.get().into_iter().for_each(|wait| wait.record(event)));
        }
        None => {}
    });
}
