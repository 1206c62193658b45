//! Ruby's C API as the worker uses it: values, strings, hashes, calls, protection.
//!
//! All of it needs the GVL. Functions marked "may raise" jump to the nearest [`protect`]; see the contract in
//! `raw/mod.rs`.

use rb_sys::{ID, VALUE};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A Ruby value. Only safe from the collector while on the machine stack or in a [`Slot`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Value(VALUE);

pub(crate) const NIL: Value = Value(rb_sys::Qnil as VALUE);
pub(crate) const FALSE: Value = Value(rb_sys::Qfalse as VALUE);

impl Value {
    pub(crate) const fn from_raw(raw: VALUE) -> Value {
        Value(raw)
    }

    pub(crate) const fn raw(self) -> VALUE {
        self.0
    }

    /// The Ruby thread that this runs on.
    pub(crate) fn current_thread() -> Value {
        // SAFETY: called with the GVL.
        Value(unsafe { rb_sys::rb_thread_current() })
    }

    #[inline]
    pub(crate) fn is_nil(self) -> bool {
        self == NIL
    }

    #[inline]
    pub(crate) fn truthy(self) -> bool {
        rb_sys::macros::TEST(self.0)
    }

    #[inline]
    fn is_type(self, kind: rb_sys::ruby_value_type) -> bool {
        // SAFETY: `RB_TYPE_P` accepts any value.
        unsafe { rb_sys::macros::RB_TYPE_P(self.0, kind) }
    }

    #[inline]
    pub(crate) fn is_string(self) -> bool {
        self.is_type(rb_sys::ruby_value_type::RUBY_T_STRING)
    }

    #[inline]
    pub(crate) fn is_array(self) -> bool {
        self.is_type(rb_sys::ruby_value_type::RUBY_T_ARRAY)
    }

    #[inline]
    pub(crate) fn is_hash(self) -> bool {
        self.is_type(rb_sys::ruby_value_type::RUBY_T_HASH)
    }

    /// Whether this is an Array with nothing special about it: no subclass, no singleton methods.
    #[inline]
    pub(crate) fn is_plain_array(self) -> bool {
        // SAFETY: arrays are heap objects and start with an `RBasic`; rb_cArray is set before any extension loads.
        self.is_array() && unsafe { (*(self.0 as *const rb_sys::RBasic)).klass == rb_sys::rb_cArray }
    }

    /// The small integer that this is.
    #[inline]
    pub(crate) fn fixnum(self) -> Option<i64> {
        // SAFETY: only asked of a fixnum.
        rb_sys::macros::FIXNUM_P(self.0).then(|| unsafe { rb_sys::macros::FIX2LONG(self.0) })
    }

    /// The bytes of a String, until Ruby code runs again.
    ///
    /// # Panics
    /// When this is not a String.
    #[inline]
    pub(crate) fn bytes<'a>(self) -> &'a [u8] {
        assert!(self.is_string(), "bytes of something that is not a String");
        // SAFETY: it is a String; callers use the bytes before they call Ruby code (see above).
        unsafe {
            let (ptr, len) = (rb_sys::macros::RSTRING_PTR(self.0), rb_sys::macros::RSTRING_LEN(self.0));
            if len == 0 { &[] } else { std::slice::from_raw_parts(ptr.cast(), len as usize) }
        }
    }

    /// Length of an Array.
    ///
    /// # Panics
    /// When this is not an Array.
    #[inline]
    pub(crate) fn array_len(self) -> usize {
        assert!(self.is_array(), "length of something that is not an Array");
        // SAFETY: it is an Array.
        unsafe { rb_sys::macros::RARRAY_LEN(self.0) as usize }
    }

    /// Element `at` of an Array; nil behind its end.
    #[inline]
    pub(crate) fn at(self, at: usize) -> Value {
        assert!(self.is_array(), "element of something that is not an Array");
        // SAFETY: it is an Array; rb_ary_entry checks the index.
        Value(unsafe { rb_sys::rb_ary_entry(self.0, at as c_long) })
    }

    /// Keeps the value alive up to here.
    #[inline]
    pub(crate) fn keep(self) {
        std::hint::black_box(self);
    }
}

/// A place that the collector knows: what is in it stays alive and does not move.
pub(crate) struct Slot(Cell<VALUE>);

// SAFETY: touched with the GVL held only.
unsafe impl Sync for Slot {}

impl Slot {
    /// Makes a slot that lives as long as the process.
    pub(crate) fn leak(value: Value) -> &'static Slot {
        let slot: &'static Slot = Box::leak(Box::new(Slot(Cell::new(value.0))));
        // SAFETY: the address is valid for ever.
        unsafe { rb_sys::rb_gc_register_address(slot.0.as_ptr()) };
        slot
    }

    #[inline]
    pub(crate) fn get(&self) -> Value {
        Value(self.0.get())
    }

    #[inline]
    pub(crate) fn set(&self, value: Value) {
        self.0.set(value.0);
    }
}

/// A method name.
#[derive(Clone, Copy)]
pub(crate) struct Id(ID);

pub(crate) fn id(name: &str) -> Id {
    // SAFETY: pointer and length belong together and `name` is not empty.
    Id(unsafe { rb_sys::rb_intern2(name.as_ptr().cast(), name.len() as c_long) })
}

fn pointer(bytes: &[u8]) -> *const c_char {
    // An empty Rust slice may point at 0x1, which rb_interned_str reads.
    if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() }
}

/// A new binary String.
#[inline]
pub(crate) fn string(bytes: &[u8]) -> Value {
    // SAFETY: pointer and length belong together.
    Value(unsafe { rb_sys::rb_str_new(pointer(bytes), bytes.len() as c_long) })
}

/// The one frozen String with these bytes.
#[inline]
pub(crate) fn interned(bytes: &[u8]) -> Value {
    // SAFETY: pointer and length belong together; see `pointer` for the empty case.
    Value(unsafe { rb_sys::rb_interned_str(pointer(bytes), bytes.len() as c_long) })
}

/// Appends to a String that nobody else has yet.
pub(crate) fn append(string: Value, bytes: &[u8]) {
    assert!(string.is_string(), "append to something that is not a String");
    // SAFETY: it is a String.
    unsafe { rb_sys::rb_str_cat(string.0, pointer(bytes), bytes.len() as c_long) };
}

pub(crate) fn integer(number: i64) -> Value {
    Value(rb_sys::macros::LONG2NUM(number))
}

pub(crate) fn float(number: f64) -> Value {
    // SAFETY: any double is a Float.
    Value(unsafe { rb_sys::rb_float_new(number) })
}

/// Strings up to this size may lie within an object, or share the memory of one that does, in bytes. Generous.
const EMBEDDED: usize = 4 << 10;

/// A String with these bytes that nobody can change, and whose bytes stay where they are while it is on a stack: itself when
/// it is frozen, otherwise one that shares its memory. Short ones are copied. May raise.
pub(crate) fn pinned(part: Value) -> Value {
    if part.bytes().len() <= EMBEDDED {
        // The memory of the original could move with an object that only the original knows.
        return string(part.bytes());
    }
    // SAFETY: it is a String, as `bytes` has found.
    Value(unsafe { rb_sys::rb_str_new_frozen(part.0) })
}

pub(crate) fn array(values: &[Value]) -> Value {
    // SAFETY: `Value` is a transparent VALUE; pointer and length belong together.
    Value(unsafe { rb_sys::rb_ary_new_from_values(values.len() as c_long, values.as_ptr().cast()) })
}

/// Adds an element at the end of an Array that nobody else has yet.
pub(crate) fn push(array: Value, value: Value) {
    assert!(array.is_array(), "push to something that is not an Array");
    // SAFETY: it is an Array.
    unsafe { rb_sys::rb_ary_push(array.0, value.0) };
}

/// A shallow copy of a Hash.
#[inline]
pub(crate) fn hash_dup(hash: Value) -> Value {
    assert!(hash.is_hash(), "copy of something that is not a Hash");
    // SAFETY: it is a Hash.
    Value(unsafe { rb_sys::rb_hash_dup(hash.0) })
}

#[inline]
pub(crate) fn hash_set(hash: Value, key: Value, value: Value) {
    // SAFETY: callers pass a Hash that they own.
    unsafe { rb_sys::rb_hash_aset(hash.0, key.0, value.0) };
}

/// The value of a key; nil when there is none. Never calls a default block.
#[inline]
pub(crate) fn hash_get(hash: Value, key: Value) -> Value {
    assert!(hash.is_hash(), "look-up in something that is not a Hash");
    // SAFETY: it is a Hash.
    Value(unsafe { rb_sys::rb_hash_lookup(hash.0, key.0) })
}

pub(crate) fn hash_delete(hash: Value, key: Value) {
    // SAFETY: callers pass a Hash that they own.
    unsafe { rb_sys::rb_hash_delete(hash.0, key.0) };
}

/// Calls `f` with each pair of a Hash. May raise.
#[inline]
pub(crate) fn hash_each<F: FnMut(Value, Value)>(hash: Value, f: &mut F) {
    unsafe extern "C" fn pair<F: FnMut(Value, Value)>(key: VALUE, value: VALUE, arg: VALUE) -> c_int {
        // SAFETY: `arg` is the closure below, which outlives the iteration.
        let f = unsafe { &mut *(arg as *mut F) };
        guard(|| f(Value(key), Value(value)));
        rb_sys::st_retval::ST_CONTINUE as c_int
    }
    assert!(hash.is_hash(), "iteration over something that is not a Hash");
    // SAFETY: it is a Hash, and the callback has the type that rb_hash_foreach wants.
    unsafe { rb_sys::rb_hash_foreach(hash.0, Some(pair::<F>), std::ptr::from_mut(f) as VALUE) };
}

/// Calls `receiver.each` with `f` as its block; `f` gets the block's arguments. May raise.
pub(crate) fn each<F: FnMut(&[Value])>(receiver: Value, method: Id, f: &mut F) {
    unsafe extern "C" fn block<F: FnMut(&[Value])>(
        _first: VALUE,
        arg: VALUE,
        argc: c_int,
        argv: *const VALUE,
        _block: VALUE,
    ) -> VALUE {
        // SAFETY: `arg` is the closure below, which outlives the iteration; argv holds argc values.
        let (f, arguments) = unsafe {
            let arguments =
                if argc == 0 { &[] } else { std::slice::from_raw_parts(argv.cast::<Value>(), argc as usize) };
            (&mut *(arg as *mut F), arguments)
        };
        guard(|| f(arguments));
        NIL.0
    }
    // SAFETY: the callback has the type that rb_block_call wants.
    unsafe {
        rb_sys::rb_block_call(
            receiver.0,
            method.0,
            0,
            std::ptr::null(),
            Some(block::<F>),
            std::ptr::from_mut(f) as VALUE,
        )
    };
}

/// Calls a method, public or not. May raise.
#[inline]
pub(crate) fn call(receiver: Value, method: Id, arguments: &[Value]) -> Value {
    // SAFETY: `Value` is a transparent VALUE; pointer and length belong together.
    Value(unsafe {
        rb_sys::rb_funcallv(receiver.0, method.0, arguments.len() as c_int, arguments.as_ptr().cast())
    })
}

/// Whether the public method is there. May raise (from `respond_to_missing?`).
#[inline]
pub(crate) fn responds(receiver: Value, method: Id) -> bool {
    // SAFETY: any value may be asked.
    unsafe { rb_sys::rb_respond_to(receiver.0, method.0) != 0 }
}

/// `to_s`. May raise.
pub(crate) fn to_s(value: Value) -> Value {
    // SAFETY: any value may be asked.
    Value(unsafe { rb_sys::rb_obj_as_string(value.0) })
}

/// The array that `value` is or turns into by `to_ary`; nil otherwise. May raise.
pub(crate) fn to_ary(value: Value) -> Value {
    // SAFETY: any value may be asked.
    Value(unsafe { rb_sys::rb_check_array_type(value.0) })
}

pub(crate) fn is_a(value: Value, class: Value) -> bool {
    // SAFETY: callers pass a class.
    Value(unsafe { rb_sys::rb_obj_is_kind_of(value.0, class.0) }).truthy()
}

/// The constant with this full name. May raise.
pub(crate) fn constant(path: &CStr) -> Value {
    // SAFETY: a C string.
    Value(unsafe { rb_sys::rb_path2class(path.as_ptr()) })
}

/// Raises an exception with a text, which is handed to Ruby, and dropped, before the jump.
pub(crate) fn raise(class: Value, text: impl AsRef<str>) -> ! {
    let message = string(text.as_ref().as_bytes());
    drop(text);
    raise_exception(call(class, id("new"), &[message]))
}

pub(crate) fn raise_exception(exception: Value) -> ! {
    // SAFETY: callers pass an exception; the frames up to the nearest protect own nothing.
    unsafe { rb_sys::rb_exc_raise(exception.0) }
}

/// `TypeError`.
pub(crate) fn type_error() -> Value {
    // SAFETY: set before any extension loads.
    Value(unsafe { rb_sys::rb_eTypeError })
}

/// `RUBY_TAG_RAISE` and `RUBY_TAG_FATAL` of vm_core.h, unchanged since Ruby 1.9.
const TAG_RAISE: c_int = 6;
const TAG_FATAL: c_int = 8;

/// How Ruby left a protected call other than by returning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jump(c_int);

impl Jump {
    /// The thread is being killed: it must not go on.
    pub(crate) fn is_kill(self) -> bool {
        self.0 == TAG_FATAL
    }
}

/// Calls `f` and catches whatever Ruby raises in it. The exception, if it is one, is taken out of `$!`.
///
/// Contract: `f` owns nothing that needs dropping; all it captures is borrowed.
///
/// # Errors
/// The jump, and the exception or nil.
#[inline]
pub(crate) fn protect<F: FnMut()>(mut f: F) -> Result<(), (Jump, Value)> {
    unsafe extern "C" fn run<F: FnMut()>(arg: VALUE) -> VALUE {
        // SAFETY: `arg` is the closure below, which outlives the call.
        let f = unsafe { &mut *(arg as *mut F) };
        guard(f);
        NIL.0
    }
    const { assert!(!std::mem::needs_drop::<F>(), "a protected closure owns nothing") };
    let mut state = 0;
    // SAFETY: the callback has the type that rb_protect wants.
    unsafe { rb_sys::rb_protect(Some(run::<F>), std::ptr::from_mut(&mut f) as VALUE, &raw mut state) };
    if state == 0 {
        return Ok(());
    }
    // SAFETY: $! may be read and cleared at any time. Only after a raise is it an exception; after a throw it is an
    // object that must not be looked at.
    let error = unsafe {
        let error = Value(rb_sys::rb_errinfo());
        rb_sys::rb_set_errinfo(NIL.0);
        error
    };
    Err((Jump(state), if state == TAG_RAISE { error } else { NIL }))
}

/// Lets Ruby act on signals, `Thread#raise` and the like. May raise.
pub(crate) fn check_interrupts() {
    // SAFETY: called with the GVL.
    unsafe { rb_sys::rb_thread_check_ints() };
}

/// Starts a Ruby thread that runs `f`.
pub(crate) fn spawn(f: Box<dyn FnOnce() + Send>) -> Value {
    unsafe extern "C" fn run(arg: *mut std::ffi::c_void) -> VALUE {
        // SAFETY: `arg` is the box below, given up by its maker.
        let f = unsafe { Box::from_raw(arg.cast::<Box<dyn FnOnce() + Send>>()) };
        guard(f);
        NIL.0
    }
    let arg = Box::into_raw(Box::new(f)).cast();
    // SAFETY: the callback has the type that rb_thread_create wants.
    Value(unsafe { rb_sys::rb_thread_create(Some(run), arg) })
}

/// Runs what Ruby has called: a panic in it is reported and ends the process, for it must not reach Ruby.
#[inline]
pub(crate) fn guard<R>(f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(_) => {
            // The panic hook has written the message and the place.
            eprintln!("firebrick: worker {}: internal error, ending the process", std::process::id());
            std::process::abort()
        }
    }
}
