//! Variables that the collector marks.
//!
//! Why not `rb_gc_register_address`: each registration is an element of a list that every collection walks,
//! and a worker with thousands of fibers has a dozen variables for each. Here they lie side by side, and one
//! object marks all of them.

use super::gvl::{Guarded, Gvl, unprotected};
use super::ruby::{NIL, Value};
use rb_sys::VALUE;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of slots allocated at a time.
const CHUNK: usize = 256;

/// A variable that the collector marks: its object stays alive and does not move.
pub(crate) struct RootSlot(AtomicUsize);

const _: () = assert!(size_of::<VALUE>() == size_of::<usize>());

struct Slots {
    chunks: Vec<&'static [RootSlot]>,
    /// The number of slots of the last chunk that are in use.
    used: usize,
    /// The object that marks them.
    marker: VALUE,
}

static SLOTS: Guarded<Slots> = Guarded::new(Slots { chunks: Vec::new(), used: CHUNK, marker: 0 });

impl RootSlot {
    /// Makes a slot that lives as long as the process.
    pub(crate) fn leak(gvl: &mut Gvl, value: Value) -> &'static RootSlot {
        if SLOTS.with(gvl, |slots| slots.marker == 0) {
            register(gvl);
        }
        let slot = SLOTS.with(gvl, |slots| {
            if slots.used == CHUNK {
                let empty = || RootSlot(AtomicUsize::new(NIL.raw() as usize));
                slots.chunks.push(Vec::leak((0..CHUNK).map(|_| empty()).collect()));
                slots.used = 0;
            }
            slots.used += 1;
            &slots.chunks[slots.chunks.len() - 1][slots.used - 1]
        });
        slot.set(value);
        slot
    }

    #[inline]
    pub(crate) fn get(&self) -> Value {
        Value::from_raw(self.0.load(Relaxed) as VALUE)
    }

    #[inline]
    pub(crate) fn set(&self, value: Value) {
        self.0.store(value.raw() as usize, Relaxed);
    }
}

/// Ruby keeps a pointer to it as long as the marker lives. The marker is never freed.
struct DataType(rb_sys::rb_data_type_t);

// SAFETY: it is only read.
unsafe impl Send for DataType {}
// SAFETY: as above.
unsafe impl Sync for DataType {}

/// Makes the object that marks all slots.
#[cold]
fn register(gvl: &mut Gvl) {
    unsafe extern "C" fn mark(_data: *mut c_void) {
        // SAFETY: the collector runs with the GVL, and never while slots are being made: no object is made meanwhile.
        unsafe {
            unprotected(|gvl| {
                SLOTS.with(gvl, |slots| {
                    let all = slots.chunks.iter().flat_map(|chunk| chunk.iter());
                    all.filter(|slot| !slot.get().is_nil())
                        .for_each(|slot| rb_sys::rb_gc_mark(slot.get().raw()));
                });
            });
        }
    }
    static TYPE: std::sync::OnceLock<DataType> = std::sync::OnceLock::new();
    // SAFETY: all zero is a valid rb_data_type_t. The marker has no data of its own (Ruby does not mark
    // through a null pointer, so it is given one), is registered, and its type is never freed.
    unsafe {
        let kind = TYPE.get_or_init(|| {
            let mut kind: rb_sys::rb_data_type_t = std::mem::zeroed();
            kind.wrap_struct_name = c"Firebrick::Native slots".as_ptr();
            kind.function.dmark = Some(mark);
            DataType(kind)
        });
        let data = std::ptr::from_ref(&SLOTS).cast_mut().cast();
        let marker = rb_sys::rb_data_typed_object_wrap(0, data, &raw const kind.0);
        rb_sys::rb_gc_register_mark_object(marker);
        SLOTS.with(gvl, |slots| slots.marker = marker);
    }
}
