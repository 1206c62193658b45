//! Follows the objects of the process: their creation, their end, and compactions of the heap, which move them.
//!
//! Relies on the internal events of debug.h, as Ruby's `objspace` does, and on the `dcompact` function of a data object, which each compaction calls.
//!
//! Contract:
//! 1. A watcher runs within an allocation or the collector: it must not call Ruby, allocate Ruby's memory, or panic (a panic ends the process).
//! 2. Ruby leaves out events that happen within the hooks of others (a collection that `objspace` causes): the end of an object may be missed,
//!    never the creation of one by code of the app.
//! 3. Only the main Ractor is followed.

use super::gvl::{Guarded, Gvl, unprotected};
use rb_sys::VALUE;
use std::ffi::c_void;
use std::sync::OnceLock;

/// The functions that are called while objects are followed. Addresses are those of the objects.
pub(crate) struct ObjectWatcher {
    pub(crate) created: fn(&Gvl, usize),
    pub(crate) freed: fn(&Gvl, usize),
    /// Addresses that are known so far may stand for other objects now.
    pub(crate) compacted: fn(&Gvl),
}

static WATCHER: OnceLock<&'static ObjectWatcher> = OnceLock::new();

/// The object that carries the events. Once made it stays, disabled while nothing is followed.
static POINT: Guarded<Option<VALUE>> = Guarded::new(None);

/// Ruby keeps a pointer to it.
struct DataType(rb_sys::rb_data_type_t);

// SAFETY: it is only read.
unsafe impl Send for DataType {}
// SAFETY: as above.
unsafe impl Sync for DataType {}

/// Follows objects from now on. `watcher`: the same one in each call.
pub(crate) fn follow(gvl: &mut Gvl, watcher: &'static ObjectWatcher) {
    WATCHER.get_or_init(|| watcher);
    let made = POINT.with(gvl, |point| *point);
    let point = made.unwrap_or_else(|| make(gvl));
    // SAFETY: a tracepoint, which is never freed.
    unsafe { rb_sys::rb_tracepoint_enable(point) };
}

/// Reverses [`follow`].
pub(crate) fn unfollow(gvl: &mut Gvl) {
    if let Some(point) = POINT.with(gvl, |point| *point) {
        // SAFETY: a tracepoint, which is never freed.
        unsafe { rb_sys::rb_tracepoint_disable(point) };
    }
}

#[cold]
fn make(gvl: &mut Gvl) -> VALUE {
    static KIND: OnceLock<DataType> = OnceLock::new();
    let events = rb_sys::RUBY_INTERNAL_EVENT_NEWOBJ | rb_sys::RUBY_INTERNAL_EVENT_FREEOBJ;
    // SAFETY: called with the GVL. The tracepoint and the marker are registered, so they are never freed. All zero is a valid
    // rb_data_type_t, and Ruby calls `dcompact` only for data that is not null.
    let point = unsafe {
        let point = rb_sys::rb_tracepoint_new(0, events as _, Some(hook), std::ptr::null_mut());
        rb_sys::rb_gc_register_mark_object(point);
        let kind = KIND.get_or_init(|| {
            let mut kind: rb_sys::rb_data_type_t = std::mem::zeroed();
            kind.wrap_struct_name = c"Firebrick::Native objects".as_ptr();
            kind.function.dcompact = Some(compacted);
            DataType(kind)
        });
        let data = std::ptr::from_ref(&POINT).cast_mut().cast();
        let marker = rb_sys::rb_data_typed_object_wrap(0, data, &raw const kind.0);
        rb_sys::rb_gc_register_mark_object(marker);
        point
    };
    POINT.with(gvl, |slot| *slot = Some(point));
    point
}

unsafe extern "C" fn hook(point: VALUE, _data: *mut c_void) {
    let Some(watcher) = WATCHER.get() else { return };
    // SAFETY: Ruby has called the hook for an event of this object, with the GVL; only the address of the object is taken.
    unsafe {
        let event = rb_sys::rb_tracearg_from_tracepoint(point);
        let flag = rb_sys::rb_tracearg_event_flag(event);
        let object = rb_sys::rb_tracearg_object(event) as usize;
        let is_new = flag & rb_sys::RUBY_INTERNAL_EVENT_NEWOBJ as rb_sys::rb_event_flag_t != 0;
        unprotected(|gvl| if is_new { (watcher.created)(gvl, object) } else { (watcher.freed)(gvl, object) });
    }
}

unsafe extern "C" fn compacted(_data: *mut c_void) {
    if let Some(watcher) = WATCHER.get() {
        // SAFETY: the collector runs with the GVL.
        unsafe { unprotected(|gvl| (watcher.compacted)(gvl)) };
    }
}
