//! The methods of `Firebrick::Native`: functions of this library that Ruby calls.

use super::gvl::{self, Gvl};
use super::ruby::Value;
use super::{handle, panics};
use rb_sys::VALUE;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;

type Pointer = unsafe extern "C" fn() -> VALUE;

/// The Ruby module that the methods belong to.
pub(crate) struct Module(VALUE);

/// A function that can be a method with so many arguments. Its type has no size, as that of any `fn` item: Ruby passes no data with a
/// call, so the type alone must tell which function to run.
pub(crate) trait Method<const ARGUMENTS: usize>: Copy {
    /// Returns the C function that calls it.
    fn pointer(self) -> Pointer;
}

macro_rules! method {
    ($count:literal $($argument:ident: $value:ty),*) => {
        impl<F: Fn(&mut Gvl $(, $value)*) -> Value + Copy> Method<$count> for F {
            fn pointer(self) -> Pointer {
                unsafe extern "C" fn call<F: Fn(&mut Gvl $(, $value)*) -> Value + Copy>(
                    _module: VALUE $(, $argument: VALUE)*
                ) -> VALUE {
                    // SAFETY: `F` has no size, and a value of it exists: that which was defined.
                    let method = unsafe { NonNull::<F>::dangling().read() };
                    // SAFETY: Ruby calls methods with the GVL.
                    unsafe { gvl::enter(|gvl| method(gvl $(, Value::from_raw($argument))*)) }.raw()
                }
                const { assert!(size_of::<F>() == 0, "a method has no data") };
                // SAFETY: Ruby calls the function with as many values as `Module::define` says.
                unsafe { std::mem::transmute::<*const (), Pointer>(call::<F> as *const ()) }
            }
        }
    };
}

method!(0);
method!(1 a: Value);
method!(2 a: Value, b: Value);
method!(3 a: Value, b: Value, c: Value);
method!(4 a: Value, b: Value, c: Value, d: Value);
method!(5 a: Value, b: Value, c: Value, d: Value, e: Value);

impl Module {
    pub(crate) fn define<const ARGUMENTS: usize>(&self, name: &CStr, method: impl Method<ARGUMENTS>) {
        // SAFETY: a module; the function takes as many values as is said here.
        unsafe {
            rb_sys::rb_define_singleton_method(
                self.0,
                name.as_ptr(),
                Some(method.pointer()),
                ARGUMENTS as i32,
            );
        }
    }

    /// Makes a module in this one.
    pub(crate) fn under(&self, name: &CStr) -> Module {
        // SAFETY: a module and a C string.
        Module(unsafe { rb_sys::rb_define_module_under(self.0, name.as_ptr()) })
    }

    /// Defines a class of [`handle`]s.
    pub(crate) fn define_handle(&self, name: &CStr) {
        handle::define(self.0, name);
    }
}

/// Makes the module when Ruby loads the library, and lets `define` define its methods.
pub(crate) fn load(define: fn(&Module)) {
    panics::guard(|| {
        // SAFETY: Ruby is up and this thread has the GVL.
        let module = unsafe {
            let firebrick = rb_sys::rb_define_module(c"Firebrick".as_ptr());
            rb_sys::rb_define_module_under(firebrick, c"Native".as_ptr())
        };
        define(&Module(module));
    });
}

/// Exports the function that Ruby calls when it loads the library; see [`load`].
macro_rules! library {
    ($define:path) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn Init_native() {
            $crate::raw::methods::load($define);
        }
    };
}
pub(crate) use library;

/// The function that `io_read` calls; [`define_io_read`] sets it once.
static BEFORE_READ: OnceLock<fn(&mut Gvl, Value)> = OnceLock::new();

/// Defines the method `io_read` on the class of schedulers, which only calls `before` with the IO.
///
/// It returns "undefined", as if the method did not exist, so Ruby reads by itself. Only a C function can return that, and only to Ruby's own C
/// code, its caller.
pub(crate) fn define_io_read(_gvl: &mut Gvl, scheduler: Value, before: fn(&mut Gvl, Value)) {
    unsafe extern "C" fn io_read(count: i32, arguments: *const VALUE, _scheduler: VALUE) -> VALUE {
        if count > 0
            && let Some(before) = BEFORE_READ.get()
        {
            // SAFETY: Ruby calls methods with the GVL, and this one with so many arguments.
            unsafe { gvl::enter(|gvl| before(gvl, Value::from_raw(*arguments))) };
        }
        rb_sys::Qundef as VALUE
    }
    BEFORE_READ.get_or_init(|| before);
    // SAFETY: a class, and a method that takes any number of arguments.
    unsafe {
        let method = std::mem::transmute::<*const (), Pointer>(io_read as *const ());
        rb_sys::rb_define_method(scheduler.raw(), c"io_read".as_ptr(), Some(method), -1);
    }
}
