//! The shim's declarations; their contract is in `shim.h`. Rust uses nothing else of mruby.
#![allow(non_camel_case_types)]

#[cfg(mruby)]
use std::ffi::{c_char, c_uint};
use std::ffi::{c_int, c_void};

#[repr(C)]
pub struct fb_vm {
    _private: [u8; 0],
}

/// Borrowed bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fb_bytes {
    pub data: *const u8,
    pub length: usize,
}

/// The type of `Rt.call` in the host.
pub type fb_call = unsafe extern "C" fn(host: *mut c_void, op: u32, args: fb_bytes) -> fb_bytes;

#[repr(C)]
pub struct fb_config {
    pub host: *mut c_void,
    pub call: fb_call,
    pub heap_limit: usize,
    pub task_limit: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fb_field {
    pub key: *const u8,
    pub value: *const u8,
    pub key_length: u32,
    pub value_length: u32,
}

pub const FB_DONE: c_int = 0;
pub const FB_WAIT: c_int = 1;
pub const FB_RAISED: c_int = 2;
pub const FB_BROKEN: c_int = 3;
pub const FB_STOPPED: c_int = 4;

#[cfg(mruby)]
unsafe extern "C" {
    pub fn fb_open(config: *const fb_config, reason: *mut *const c_char) -> *mut fb_vm;
    pub fn fb_close(vm: *mut fb_vm);
    pub fn fb_discard(vm: *mut fb_vm);
    pub fn fb_version() -> *const c_char;
    pub fn fb_has_hook() -> c_int;
    pub fn fb_can_stop() -> c_int;
    pub fn stop_nearest(begin: usize, others: *const usize, count: usize) -> usize;
    pub fn stop_plausible(
        begin: usize,
        end: usize,
        call_site: usize,
        others: *const usize,
        count: usize,
    ) -> c_int;
    pub fn fb_out(vm: *mut fb_vm) -> fb_bytes;
    pub fn fb_eval(vm: *mut fb_vm, code: *const u8, length: usize, file: *const c_char) -> c_int;
    pub fn fb_check(vm: *mut fb_vm, code: *const u8, length: usize, file: *const c_char) -> c_int;
    pub fn fb_intern(vm: *mut fb_vm, text: *const u8, length: usize) -> u32;
    pub fn fb_start(vm: *mut fb_vm, slot: u32, job: u32, args: fb_bytes) -> c_int;
    pub fn fb_request(
        vm: *mut fb_vm,
        slot: u32,
        app: u32,
        fields: *const fb_field,
        count: usize,
        more: c_int,
    ) -> c_int;
    pub fn fb_resume(vm: *mut fb_vm, slot: u32, value: fb_bytes) -> c_int;
    pub fn fb_abandon(vm: *mut fb_vm, slot: u32);
    pub fn fb_limit(vm: *mut fb_vm, task_limit: usize);
    pub fn fb_heap(vm: *mut fb_vm) -> usize;
    pub fn fb_collect(vm: *mut fb_vm);
    pub fn fb_interrupt(vm: *mut fb_vm);
    pub fn fb_serial(vm: *mut fb_vm) -> c_uint;
    pub fn fb_stop(vm: *mut fb_vm, serial: c_uint);
}

#[cfg(not(mruby))]
mod missing;
#[cfg(not(mruby))]
pub use missing::*;
