//! Ruby objects that hold a number. The app can keep them and pass them on, and can neither create nor change them.
//!
//! Why not a String or an Integer: the number identifies a request, and only this library may choose it.

use super::gvl::Gvl;
use super::ruby::Value;
use rb_sys::VALUE;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// Each object keeps a pointer to it.
struct DataType(rb_sys::rb_data_type_t);

// SAFETY: it is only read.
unsafe impl Send for DataType {}
// SAFETY: as above.
unsafe impl Sync for DataType {}

/// Returns the type. In place of a pointer an object has the number, so there is nothing to mark or to free.
fn kind() -> &'static rb_sys::rb_data_type_t {
    static KIND: OnceLock<DataType> = OnceLock::new();
    let kind = KIND.get_or_init(|| {
        // SAFETY: all zero is a valid rb_data_type_t.
        let mut kind: rb_sys::rb_data_type_t = unsafe { std::mem::zeroed() };
        kind.wrap_struct_name = c"Firebrick::Native handle".as_ptr();
        // The object refers to nothing, so no write barrier is ever needed. Without the flag Ruby allocates
        // such objects slowly and never treats them as old; one is made for each request.
        #[allow(deprecated, reason = "deprecated is only its old name in C")]
        let flags = rb_sys::ruby_fl_type::RUBY_FL_WB_PROTECTED as VALUE;
        kind.flags = flags;
        DataType(kind)
    });
    &kind.0
}

/// Defines a class of such objects in `module`.
pub(super) fn define(module: VALUE, name: &CStr) {
    // SAFETY: called while the library is loaded, with the GVL; a module, and a name that is a constant.
    unsafe {
        let class = rb_sys::rb_define_class_under(module, name.as_ptr(), rb_sys::rb_cObject);
        rb_sys::rb_undef_alloc_func(class);
    }
}

/// Makes an object of one of these classes.
///
/// # Panics
/// For 0, which Ruby treats as an uninitialised object.
#[inline]
pub(crate) fn new(_gvl: &mut Gvl, class: Value, number: u64) -> Value {
    assert!(number != 0, "a handle of nothing");
    let pointer = std::ptr::without_provenance_mut::<c_void>(number as usize);
    // SAFETY: callers pass a class of `define`; nothing ever follows the pointer, for the type has no functions.
    Value::from_raw(unsafe { rb_sys::rb_data_typed_object_wrap(class.raw(), pointer, kind()) })
}

/// Returns the number; `None` for any other object.
pub(crate) fn number(_gvl: &Gvl, value: Value) -> Option<u64> {
    // SAFETY: any value may be asked; data of this type has a number in the place of the pointer.
    unsafe {
        (rb_sys::rb_typeddata_is_kind_of(value.raw(), kind()) != 0)
            .then(|| rb_sys::rb_check_typeddata(value.raw(), kind()).addr() as u64)
    }
}
