//! The parts of Ruby's C API that the worker uses: values, strings, hashes, calls, protection.
//!
//! All of it needs the GVL, which a [`Gvl`] proves. Functions marked "may raise" jump to the nearest [`protect`]; see the
//! contract in `raw/mod.rs`.

use super::gvl::{Gvl, enter};
use rb_sys::{ID, VALUE};
use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::OnceLock;

/// A Ruby value. It is safe from the collector only while on the machine stack or in a [`Slot`]; using it needs a [`Gvl`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Value(VALUE);

pub(crate) const NIL: Value = Value(rb_sys::Qnil as VALUE);
pub(crate) const TRUE: Value = Value(rb_sys::Qtrue as VALUE);
pub(crate) const FALSE: Value = Value(rb_sys::Qfalse as VALUE);

impl Value {
    pub(super) const fn from_raw(raw: VALUE) -> Value {
        Value(raw)
    }

    pub(super) const fn raw(self) -> VALUE {
        self.0
    }

    /// Returns a number that distinguishes it from other live objects.
    #[inline]
    pub(crate) fn id(self) -> usize {
        self.0 as usize
    }

    /// Returns the Ruby thread that runs this.
    pub(crate) fn current_thread(_gvl: &Gvl) -> Value {
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
    fn is_type(self, _gvl: &Gvl, kind: rb_sys::ruby_value_type) -> bool {
        // SAFETY: `RB_TYPE_P` accepts any value.
        unsafe { rb_sys::macros::RB_TYPE_P(self.0, kind) }
    }

    #[inline]
    pub(crate) fn is_string(self, gvl: &Gvl) -> bool {
        self.is_type(gvl, rb_sys::ruby_value_type::RUBY_T_STRING)
    }

    #[inline]
    pub(crate) fn is_array(self, gvl: &Gvl) -> bool {
        self.is_type(gvl, rb_sys::ruby_value_type::RUBY_T_ARRAY)
    }

    #[inline]
    pub(crate) fn is_hash(self, gvl: &Gvl) -> bool {
        self.is_type(gvl, rb_sys::ruby_value_type::RUBY_T_HASH)
    }

    /// Returns whether this is an Array with no subclass and no singleton methods.
    #[inline]
    pub(crate) fn is_plain_array(self, gvl: &Gvl) -> bool {
        // SAFETY: arrays are heap objects and start with an `RBasic`; rb_cArray is set before any extension loads.
        self.is_array(gvl) && unsafe { (*(self.0 as *const rb_sys::RBasic)).klass == rb_sys::rb_cArray }
    }

    /// Returns the value as a small integer, if it is one.
    #[inline]
    pub(crate) fn fixnum(self) -> Option<i64> {
        // SAFETY: only asked of a fixnum.
        rb_sys::macros::FIXNUM_P(self.0).then(|| unsafe { rb_sys::macros::FIX2LONG(self.0) })
    }

    /// Returns the bytes of a String. They are valid until Ruby runs.
    ///
    /// # Panics
    /// When this is not a String.
    #[inline]
    pub(crate) fn bytes(self, gvl: &Gvl) -> &[u8] {
        assert!(self.is_string(gvl), "bytes of something that is not a String");
        // SAFETY: it is a String. Neither Ruby code nor the collector runs while `gvl` is borrowed.
        unsafe {
            let (ptr, len) = (rb_sys::macros::RSTRING_PTR(self.0), rb_sys::macros::RSTRING_LEN(self.0));
            if len == 0 { &[] } else { std::slice::from_raw_parts(ptr.cast(), len as usize) }
        }
    }

    /// Returns the length of an Array.
    ///
    /// # Panics
    /// When this is not an Array.
    #[inline]
    pub(crate) fn array_len(self, gvl: &Gvl) -> usize {
        assert!(self.is_array(gvl), "length of something that is not an Array");
        // SAFETY: it is an Array.
        unsafe { rb_sys::macros::RARRAY_LEN(self.0) as usize }
    }

    /// Returns element `at` of an Array; nil behind its end.
    #[inline]
    pub(crate) fn at(self, gvl: &Gvl, at: usize) -> Value {
        assert!(self.is_array(gvl), "element of something that is not an Array");
        // SAFETY: it is an Array; rb_ary_entry checks the index.
        Value(unsafe { rb_sys::rb_ary_entry(self.0, at as c_long) })
    }

    /// Keeps the value alive up to here.
    #[inline]
    pub(crate) fn keep(self) {
        std::hint::black_box(self);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Id(ID);

pub(crate) fn id(_gvl: &mut Gvl, name: &str) -> Id {
    // SAFETY: pointer and length belong together and `name` is not empty.
    Id(unsafe { rb_sys::rb_intern2(name.as_ptr().cast(), name.len() as c_long) })
}

/// Returns the Symbol of this name, which must not be empty.
pub(crate) fn symbol(gvl: &mut Gvl, name: &str) -> Value {
    let id = id(gvl, name);
    // SAFETY: the name's id; rb_intern2 makes ids that are never collected.
    Value(unsafe { rb_sys::rb_id2sym(id.0) })
}

fn pointer(bytes: &[u8]) -> *const c_char {
    // An empty Rust slice may point at 0x1, which rb_interned_str reads.
    if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() }
}

/// Makes a new binary String.
#[inline]
pub(crate) fn string(_gvl: &mut Gvl, bytes: &[u8]) -> Value {
    // SAFETY: pointer and length belong together.
    Value(unsafe { rb_sys::rb_str_new(pointer(bytes), bytes.len() as c_long) })
}

/// Returns the interned frozen String with these bytes.
#[inline]
pub(crate) fn interned(_gvl: &mut Gvl, bytes: &[u8]) -> Value {
    // SAFETY: pointer and length belong together; see `pointer` for the empty case.
    Value(unsafe { rb_sys::rb_interned_str(pointer(bytes), bytes.len() as c_long) })
}

/// Appends to a String that is not shared yet.
pub(crate) fn append(gvl: &mut Gvl, string: Value, bytes: &[u8]) {
    assert!(string.is_string(gvl), "append to something that is not a String");
    // SAFETY: it is a String.
    unsafe { rb_sys::rb_str_cat(string.0, pointer(bytes), bytes.len() as c_long) };
}

pub(crate) fn integer(_gvl: &mut Gvl, number: i64) -> Value {
    Value(rb_sys::macros::LONG2NUM(number))
}

pub(crate) fn float(_gvl: &mut Gvl, number: f64) -> Value {
    // SAFETY: any double is a Float.
    Value(unsafe { rb_sys::rb_float_new(number) })
}

/// Strings up to this size, in bytes, may lie within an object, or share the memory of one that does. Set generously.
const EMBEDDED: usize = 4 << 10;

/// A String that cannot change, and whose bytes stay in place while it is on the stack, even while Ruby code or other
/// threads run.
#[derive(Clone, Copy)]
pub(crate) struct Pinned(Value);

impl Pinned {
    /// A placeholder without bytes.
    pub(crate) const NONE: Pinned = Pinned(NIL);

    /// Pins `part` itself when it is frozen, otherwise a String that shares its memory. Short ones are copied. May raise.
    ///
    /// # Panics
    /// When `part` is not a String.
    pub(crate) fn new(gvl: &mut Gvl, part: Value) -> Pinned {
        if part.bytes(gvl).len() <= EMBEDDED {
            // The memory of the original could move with an object that only the original refers to.
            // SAFETY: it is a String, which is alive until its bytes have been copied, being on the stack.
            return Pinned(unsafe {
                let copy = rb_sys::rb_str_new(
                    rb_sys::macros::RSTRING_PTR(part.0),
                    rb_sys::macros::RSTRING_LEN(part.0),
                );
                part.keep();
                Value(rb_sys::rb_str_freeze(copy))
            });
        }
        // SAFETY: it is a String, as `bytes` has found.
        Pinned(Value(unsafe { rb_sys::rb_str_new_frozen(part.0) }))
    }

    /// Returns the bytes. The caller must keep this `Pinned` on the stack meanwhile, where the collector sees it.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.is_nil() {
            return &[];
        }
        // SAFETY: a frozen String that is neither embedded nor shared with one that is; its bytes live as long as it does,
        // and `self` is borrowed from the stack for as long as they are used.
        unsafe {
            let (ptr, len) = (rb_sys::macros::RSTRING_PTR(self.0.0), rb_sys::macros::RSTRING_LEN(self.0.0));
            if len == 0 { &[] } else { std::slice::from_raw_parts(ptr.cast(), len as usize) }
        }
    }

    /// Keeps the String alive up to here.
    #[inline]
    pub(crate) fn keep(&self) {
        self.0.keep();
    }
}

pub(crate) fn array(_gvl: &mut Gvl, values: &[Value]) -> Value {
    // SAFETY: `Value` is a transparent VALUE; pointer and length belong together.
    Value(unsafe { rb_sys::rb_ary_new_from_values(values.len() as c_long, values.as_ptr().cast()) })
}

/// Adds an element to the end of an Array that is not shared yet.
pub(crate) fn push(gvl: &mut Gvl, array: Value, value: Value) {
    assert!(array.is_array(gvl), "push to something that is not an Array");
    // SAFETY: it is an Array.
    unsafe { rb_sys::rb_ary_push(array.0, value.0) };
}

/// Makes a shallow copy of a Hash.
#[inline]
pub(crate) fn hash_dup(gvl: &mut Gvl, hash: Value) -> Value {
    assert!(hash.is_hash(gvl), "copy of something that is not a Hash");
    // SAFETY: it is a Hash.
    Value(unsafe { rb_sys::rb_hash_dup(hash.0) })
}

#[inline]
pub(crate) fn hash_set(gvl: &mut Gvl, hash: Value, key: Value, value: Value) {
    assert!(hash.is_hash(gvl), "assignment to something that is not a Hash");
    // SAFETY: it is a Hash.
    unsafe { rb_sys::rb_hash_aset(hash.0, key.0, value.0) };
}

/// Pairs to be put into a Hash together. Separate assignments would look up each key, and let the table grow repeatedly.
///
/// The pairs are on the stack, where Ruby's garbage collector finds them.
pub(crate) struct Pairs {
    flat: [Value; 2 * Pairs::MOST],
    len: usize,
}

impl Pairs {
    const MOST: usize = 32;

    pub(crate) fn new() -> Pairs {
        Pairs { flat: [NIL; 2 * Pairs::MOST], len: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, gvl: &mut Gvl, hash: Value, key: Value, value: Value) {
        if self.len == self.flat.len() {
            self.put(gvl, hash);
        }
        self.flat[self.len] = key;
        self.flat[self.len + 1] = value;
        self.len += 2;
    }

    /// Returns the value last added with this key (the same object).
    pub(crate) fn find(&self, key: Value) -> Option<Value> {
        let pairs = self.flat[..self.len].chunks_exact(2);
        pairs.rev().find(|pair| pair[0].0 == key.0).map(|pair| pair[1])
    }

    /// Puts the pairs into the Hash. Later pairs replace earlier ones with an equal key, and existing entries. May raise (out of memory).
    #[inline]
    pub(crate) fn put(&mut self, gvl: &mut Gvl, hash: Value) {
        assert!(hash.is_hash(gvl), "assignment to something that is not a Hash");
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return;
        }
        // SAFETY: it is a Hash; so many values, in pairs.
        unsafe {
            rb_sys::rb_hash_bulk_insert(len as std::ffi::c_long, self.flat.as_ptr().cast::<VALUE>(), hash.0)
        };
    }
}

/// Returns the value of a key; nil when it is missing. Never calls a default block.
#[inline]
pub(crate) fn hash_get(gvl: &mut Gvl, hash: Value, key: Value) -> Value {
    assert!(hash.is_hash(gvl), "look-up in something that is not a Hash");
    // SAFETY: it is a Hash.
    Value(unsafe { rb_sys::rb_hash_lookup(hash.0, key.0) })
}

pub(crate) fn hash_delete(gvl: &mut Gvl, hash: Value, key: Value) {
    assert!(hash.is_hash(gvl), "removal from something that is not a Hash");
    // SAFETY: it is a Hash.
    unsafe { rb_sys::rb_hash_delete(hash.0, key.0) };
}

/// Calls `f` with each pair of a Hash. May raise.
#[inline]
pub(crate) fn hash_each<F: FnMut(&mut Gvl, Value, Value)>(gvl: &mut Gvl, hash: Value, f: &mut F) {
    unsafe extern "C" fn pair<F: FnMut(&mut Gvl, Value, Value)>(
        key: VALUE,
        value: VALUE,
        arg: VALUE,
    ) -> c_int {
        // SAFETY: `arg` is the closure below, which outlives the iteration; the token of the caller is borrowed by it.
        unsafe {
            let f = &mut *(arg as *mut F);
            enter(|gvl| f(gvl, Value(key), Value(value)));
        }
        rb_sys::st_retval::ST_CONTINUE as c_int
    }
    assert!(hash.is_hash(gvl), "iteration over something that is not a Hash");
    // SAFETY: it is a Hash, and the callback has the type that rb_hash_foreach wants.
    unsafe { rb_sys::rb_hash_foreach(hash.0, Some(pair::<F>), std::ptr::from_mut(f) as VALUE) };
}

/// The body of a block of this library. Its only state is one Ruby value: the app may keep the block, and call it from any thread or fiber, even when
/// the call that it was given to is over.
pub(crate) trait Block {
    /// Runs the block. `data` is the value that the block was made with. May raise.
    fn call(gvl: &mut Gvl, data: Value, arguments: &[Value]);
}

/// Calls `method` of `receiver` with a block that keeps `data`. May raise.
pub(crate) fn each<B: Block>(_gvl: &mut Gvl, receiver: Value, method: Id, data: Value) {
    unsafe extern "C" fn block<B: Block>(
        _first: VALUE,
        data: VALUE,
        argc: c_int,
        argv: *const VALUE,
        _block: VALUE,
    ) -> VALUE {
        // SAFETY: Ruby calls blocks with the GVL; argv holds argc values.
        unsafe {
            let arguments =
                if argc == 0 { &[] } else { std::slice::from_raw_parts(argv.cast::<Value>(), argc as usize) };
            enter(|gvl| B::call(gvl, Value(data), arguments));
        }
        NIL.0
    }
    // SAFETY: the callback has the type that rb_block_call wants. Ruby keeps its data alive, if it is an object.
    unsafe { rb_sys::rb_block_call(receiver.0, method.0, 0, std::ptr::null(), Some(block::<B>), data.0) };
}

/// Returns the number of collections so far, of all kinds.
#[inline]
pub(crate) fn gc_count(_gvl: &Gvl) -> usize {
    // SAFETY: reads a counter.
    unsafe { rb_sys::rb_gc_count() as usize }
}

/// The keys of `GC.stat` that [`gc_figures`] reads: `:time`, which Ruby has since 3.1, and `:total_allocated_objects`.
static GC_KEYS: OnceLock<(Option<Value>, Value)> = OnceLock::new();

/// Looks for what Ruby tells about its collector, before [`gc_figures`] is called.
pub(crate) fn find_gc_figures(gvl: &mut Gvl) {
    GC_KEYS.get_or_init(|| {
        // Symbols that C code has made are never collected.
        let (time, objects) = (symbol(gvl, "time"), symbol(gvl, "total_allocated_objects"));
        // An unknown key raises.
        // SAFETY: called with the GVL and a Symbol.
        let known = protect(gvl, |_| _ = unsafe { rb_sys::rb_gc_stat(time.0) }).is_ok();
        (known.then_some(time), objects)
    });
}

/// Returns the milliseconds in the collector (0 before Ruby 3.1), and the number of objects that were allocated, since the start of the process.
pub(crate) fn gc_figures(_gvl: &Gvl) -> (u64, u64) {
    // SAFETY: called with the GVL and a Symbol that `GC.stat` knows, so that nothing is raised.
    let read = |key: Value| unsafe { rb_sys::rb_gc_stat(key.0) as u64 };
    GC_KEYS.get().map_or((0, 0), |(time, objects)| (time.map_or(0, read), read(*objects)))
}

/// Returns whether the collector tells its time.
pub(crate) fn has_gc_time(_gvl: &Gvl) -> bool {
    GC_KEYS.get().is_some_and(|(time, _)| time.is_some())
}

/// Returns the class of an object, without singleton classes.
pub(crate) fn class_of(_gvl: &Gvl, object: Value) -> Value {
    // SAFETY: any value may be asked.
    Value(unsafe { rb_sys::rb_obj_class(object.0) })
}

/// Calls a method, public or not. May raise.
#[inline]
pub(crate) fn call(_gvl: &mut Gvl, receiver: Value, method: Id, arguments: &[Value]) -> Value {
    // SAFETY: `Value` is a transparent VALUE; pointer and length belong together.
    Value(unsafe {
        rb_sys::rb_funcallv(receiver.0, method.0, arguments.len() as c_int, arguments.as_ptr().cast())
    })
}

/// Returns whether the object has the public method. May raise (from `respond_to_missing?`).
#[inline]
pub(crate) fn responds(_gvl: &mut Gvl, receiver: Value, method: Id) -> bool {
    // SAFETY: any value may be asked.
    unsafe { rb_sys::rb_respond_to(receiver.0, method.0) != 0 }
}

/// Calls `to_s`. May raise.
pub(crate) fn to_s(_gvl: &mut Gvl, value: Value) -> Value {
    // SAFETY: any value may be asked.
    Value(unsafe { rb_sys::rb_obj_as_string(value.0) })
}

/// Returns `value` as an array if it is one, or has `to_ary`; nil otherwise. May raise.
pub(crate) fn to_ary(_gvl: &mut Gvl, value: Value) -> Value {
    // SAFETY: any value may be asked.
    Value(unsafe { rb_sys::rb_check_array_type(value.0) })
}

/// Returns the constant with this full name. May raise.
pub(crate) fn constant(_gvl: &mut Gvl, path: &CStr) -> Value {
    // SAFETY: a C string.
    Value(unsafe { rb_sys::rb_path2class(path.as_ptr()) })
}

/// Raises an exception with a text. The text is copied to Ruby and dropped before the jump.
pub(crate) fn raise(gvl: &mut Gvl, class: Value, text: impl AsRef<str>) -> ! {
    let message = string(gvl, text.as_ref().as_bytes());
    drop(text);
    let new = id(gvl, "new");
    let exception = call(gvl, class, new, &[message]);
    raise_exception(gvl, exception)
}

pub(crate) fn raise_exception(_gvl: &mut Gvl, exception: Value) -> ! {
    // SAFETY: callers pass an exception; the frames up to the nearest protect own nothing.
    unsafe { rb_sys::rb_exc_raise(exception.0) }
}

pub(crate) fn runtime_error(_gvl: &Gvl) -> Value {
    // SAFETY: set before any extension loads.
    Value(unsafe { rb_sys::rb_eRuntimeError })
}

pub(crate) fn type_error(_gvl: &Gvl) -> Value {
    // SAFETY: set before any extension loads.
    Value(unsafe { rb_sys::rb_eTypeError })
}

/// `RUBY_TAG_RAISE` and `RUBY_TAG_FATAL` of vm_core.h, unchanged since Ruby 1.9.
const TAG_RAISE: c_int = 6;
const TAG_FATAL: c_int = 8;

/// The way in which Ruby left a protected call other than by returning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jump(c_int);

impl Jump {
    /// Returns whether the thread is being killed and must not go on.
    pub(crate) fn is_kill(self) -> bool {
        self.0 == TAG_FATAL
    }
}

/// Calls `f` and catches whatever Ruby raises in it. An exception is removed from `$!`.
///
/// Contract: `f` owns nothing that needs dropping; all it captures is borrowed.
///
/// # Errors
/// The jump, and the exception or nil.
#[inline]
pub(crate) fn protect<F: FnMut(&mut Gvl)>(_gvl: &mut Gvl, mut f: F) -> Result<(), (Jump, Value)> {
    unsafe extern "C" fn run<F: FnMut(&mut Gvl)>(arg: VALUE) -> VALUE {
        // SAFETY: `arg` is the closure below, which outlives the call; the token of the caller is borrowed by it.
        unsafe {
            let f = &mut *(arg as *mut F);
            enter(|gvl| f(gvl));
        }
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

/// Returns `$?` of the calling thread.
pub(crate) fn last_status(_gvl: &Gvl) -> Value {
    // SAFETY: called with the GVL.
    Value::from_raw(unsafe { rb_sys::rb_last_status_get() })
}

/// Restores `$?`, if it has changed. Ruby cannot make it nil again. May raise.
pub(crate) fn restore_status(gvl: &mut Gvl, status: Value) {
    if status.is_nil() || last_status(gvl) == status {
        return;
    }
    let [code, pid] = ["to_i", "pid"].map(|method| {
        let method = id(gvl, method);
        call(gvl, status, method, &[]).fixnum()
    });
    if let (Some(code), Some(pid)) = (code, pid) {
        // SAFETY: called with the GVL; it makes an object of two numbers.
        unsafe { rb_sys::rb_last_status_set(code as c_int, pid as c_int) };
    }
    status.keep();
}

/// Lets Ruby act on signals, `Thread#raise` and the like. May raise.
pub(crate) fn check_interrupts(_gvl: &mut Gvl) {
    // SAFETY: called with the GVL.
    unsafe { rb_sys::rb_thread_check_ints() };
}

/// Starts a Ruby thread that runs `f`.
pub(crate) fn spawn(_gvl: &mut Gvl, f: Box<dyn FnOnce(&mut Gvl) + Send>) -> Value {
    unsafe extern "C" fn run(arg: *mut std::ffi::c_void) -> VALUE {
        // SAFETY: `arg` is the box below, given up by its maker. Ruby starts a thread with the GVL.
        unsafe {
            let f = Box::from_raw(arg.cast::<Box<dyn FnOnce(&mut Gvl) + Send>>());
            enter(f);
        }
        NIL.0
    }
    let arg = Box::into_raw(Box::new(f)).cast();
    // SAFETY: the callback has the type that rb_thread_create wants.
    Value(unsafe { rb_sys::rb_thread_create(Some(run), arg) })
}
