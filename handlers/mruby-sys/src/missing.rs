//! The same functions for a program without mruby. No VM can be opened, so functions that take one are never called.

use crate::{fb_bytes, fb_config, fb_field, fb_vm};
use std::ffi::{c_char, c_int, c_uint};

/// Ends in a zero byte.
const REASON: &str = concat!("this program was built without mruby: ", env!("FIREBRICK_WITHOUT_MRUBY"), "\0");

/// # Safety
/// `reason` must be valid for a write.
pub unsafe extern "C" fn fb_open(_: *const fb_config, reason: *mut *const c_char) -> *mut fb_vm {
    // SAFETY: see above.
    unsafe { *reason = REASON.as_ptr().cast() };
    std::ptr::null_mut()
}

/// # Safety
/// None is needed.
pub unsafe extern "C" fn fb_version() -> *const c_char {
    std::ptr::null()
}

/// # Safety
/// None is needed.
pub unsafe extern "C" fn fb_has_hook() -> c_int {
    0
}

/// # Safety
/// None is needed.
pub unsafe extern "C" fn fb_can_stop() -> c_int {
    0
}

macro_rules! never {
    ($($name:ident($($kind:ty),*) $(-> $result:ty)?;)*) => { $(
        /// # Safety
        /// Needs a VM.
        pub unsafe extern "C" fn $name($(_: $kind),*) $(-> $result)? {
            unreachable!("there is no VM without mruby")
        }
    )* };
}

never! {
    fb_close(*mut fb_vm);
    fb_discard(*mut fb_vm);
    fb_out(*mut fb_vm) -> fb_bytes;
    fb_eval(*mut fb_vm, *const u8, usize, *const c_char) -> c_int;
    fb_check(*mut fb_vm, *const u8, usize, *const c_char) -> c_int;
    fb_intern(*mut fb_vm, *const u8, usize) -> u32;
    fb_start(*mut fb_vm, u32, u32, fb_bytes) -> c_int;
    fb_request(*mut fb_vm, u32, u32, *const fb_field, usize, c_int) -> c_int;
    fb_resume(*mut fb_vm, u32, fb_bytes) -> c_int;
    fb_abandon(*mut fb_vm, u32);
    fb_limit(*mut fb_vm, usize);
    fb_heap(*mut fb_vm) -> usize;
    fb_collect(*mut fb_vm);
    fb_interrupt(*mut fb_vm);
    fb_serial(*mut fb_vm) -> c_uint;
    fb_stop(*mut fb_vm, c_uint);
}
