//! The fence around unsafe code: Ruby's C API, the operating system, and state guarded by the GVL.
//!
//! Why: everything outside this folder is ordinary safe Rust that reads like the protocol it implements.
//!
//! Contract:
//! 1. Ruby is only called with the GVL held. Functions of [`ruby`] may raise, that is, jump out to the nearest
//!    [`ruby::protect`]; between the two no frame owns anything that needs dropping.
//! 2. A panic never reaches Ruby: every function that Ruby calls is wrapped in [`ruby::guard`].
//! 3. [`gvl::Guarded`] state is borrowed for the length of a closure that does not call Ruby code.

pub(crate) mod entry;
pub(crate) mod gvl;
pub(crate) mod gvl_wait;
pub(crate) mod os;
pub(crate) mod ruby;
