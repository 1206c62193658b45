//! Tests of the invariants of `stop.c`: the extents of the interpreter that are accepted, among them that of
//! this library.
#![cfg(mruby)]

use mruby_sys::{fb_can_stop, fb_close, fb_config, fb_open, stop_nearest, stop_plausible};
use std::ffi::c_void;

const BEGIN: usize = 0x40_0000;
const END: usize = BEGIN + 0x8000;

fn plausible(begin: usize, end: usize, call_site: usize, others: &[usize]) -> bool {
    // SAFETY: the pointer and the count are those of a slice.
    unsafe { stop_plausible(begin, end, call_site, others.as_ptr(), others.len()) != 0 }
}

#[test]
fn an_extent_with_the_call_site_and_no_other_function_is_accepted() {
    assert!(plausible(BEGIN, END, BEGIN + 100, &[BEGIN - 1, END, END + 1]));
    assert!(plausible(BEGIN, END, BEGIN, &[]));
}

#[test]
fn an_extent_of_the_wrong_size_is_rejected() {
    for end in [0, BEGIN - 1, BEGIN, BEGIN + 0xfff, BEGIN + (1 << 18) + 1] {
        assert!(!plausible(BEGIN, end, BEGIN, &[]), "{end:#x}");
    }
    assert!(!plausible(0, 0x8000, 0x10, &[]));
}

#[test]
fn an_extent_without_the_call_site_is_rejected() {
    for call_site in [0, BEGIN - 1, END, END + 1] {
        assert!(!plausible(BEGIN, END, call_site, &[]), "{call_site:#x}");
    }
}

#[test]
fn an_extent_with_another_function_is_rejected() {
    for other in [BEGIN, BEGIN + 1, END - 1] {
        assert!(!plausible(BEGIN, END, BEGIN + 8, &[END + 5, other]), "{other:#x}");
    }
}

#[test]
fn the_end_is_the_next_function() {
    let nearest = |others: &[usize]| {
        // SAFETY: the pointer and the count are those of a slice.
        unsafe { stop_nearest(BEGIN, others.as_ptr(), others.len()) }
    };
    assert_eq!(nearest(&[BEGIN - 1, END + 9, END, BEGIN]), END);
    assert_eq!(nearest(&[BEGIN - 1, BEGIN]), 0);
}

unsafe extern "C" fn no_call(_: *mut c_void, _: u32, _: mruby_sys::fb_bytes) -> mruby_sys::fb_bytes {
    mruby_sys::fb_bytes { data: b"n".as_ptr(), length: 1 }
}

/// If this test fails, endless code without allocations is not stopped on this platform: see the conditions
/// in `stop.c`.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn the_extent_of_this_library_is_verified() {
    let config =
        fb_config { host: std::ptr::null_mut(), call: no_call, heap_limit: 64 << 20, task_limit: 64 << 20 };
    let mut reason = std::ptr::null();
    // SAFETY: both pointers are valid for the call, and the VM is closed once.
    unsafe {
        let vm = fb_open(&config, &mut reason);
        assert!(!vm.is_null());
        assert_eq!(fb_can_stop(), 1);
        fb_close(vm);
    }
}
