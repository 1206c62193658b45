//! The memory that the allocator of the process holds from the system, and how much of it is in use.
//!
//! jemalloc is asked if it is loaded (`rack.allocator`), as `mallctl` is then in the process, otherwise glibc. Both functions are looked up at
//! run time: `mallinfo2` came with glibc 2.33, and neither is in other C libraries.

use super::os::symbol;
use std::ffi::{CStr, c_char, c_int, c_void};

pub(crate) struct MallocFigures {
    pub(crate) allocator: &'static str,
    /// Bytes that it holds from the system.
    pub(crate) held: u64,
    /// Bytes of these that the program uses.
    pub(crate) used: u64,
}

type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// `struct mallinfo2` of glibc.
#[repr(C)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Returns the figures; `None` if the allocator does not tell them.
pub(crate) fn figures() -> Option<MallocFigures> {
    jemalloc().or_else(glibc)
}

fn jemalloc() -> Option<MallocFigures> {
    let found = symbol(c"mallctl")?;
    // SAFETY: jemalloc's function of this name has this type (its manual page).
    let mallctl = unsafe { std::mem::transmute::<*mut c_void, Mallctl>(found) };
    let mut epoch = 1_u64;
    // SAFETY: the value is a u64, read and written. It makes jemalloc take its figures anew.
    unsafe {
        let size = size_of::<u64>();
        mallctl(c"epoch".as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), (&raw mut epoch).cast(), size);
    }
    let figure = |name: &CStr| {
        let (mut value, mut size) = (0_usize, size_of::<usize>());
        // SAFETY: these figures are of the type size_t.
        let failed = unsafe {
            mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut size, std::ptr::null_mut(), 0)
        };
        (failed == 0).then_some(value as u64)
    };
    let (held, used) = (figure(c"stats.resident")?, figure(c"stats.allocated")?);
    Some(MallocFigures { allocator: "jemalloc", held, used })
}

fn glibc() -> Option<MallocFigures> {
    let found = symbol(c"mallinfo2")?;
    // SAFETY: glibc's function of this name has this type (mallinfo(3)).
    let info = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> Mallinfo2>(found)() };
    // Another allocator that is preloaded leaves glibc's empty.
    let held = info.arena as u64 + info.hblkhd as u64;
    (held > 0).then_some(MallocFigures {
        allocator: "glibc's malloc",
        held,
        used: info.uordblks as u64 + info.hblkhd as u64,
    })
}
