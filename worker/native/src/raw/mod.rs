//! The unsafe code: Ruby's C API, the operating system, and state guarded by the GVL.
//!
//! Why: everything outside this folder is ordinary safe Rust that reads like the protocol it implements.
//!
//! Contract:
//! 1. Ruby is only called with the GVL held, which a [`gvl::Gvl`] proves. Functions that may run Ruby code or
//!    its collector take `&mut Gvl`, so a borrow of Ruby's memory, or of [`gvl::Guarded`] state, cannot be
//!    used afterwards.
//! 2. Functions of [`ruby`] may raise, that is, jump to the nearest [`ruby::protect`]; between the two no frame owns
//!    anything that needs dropping.
//! 3. Nothing here names a module above this folder: functions that Ruby or the system calls back are given
//!    by the callers.
//! 4. A panic never reaches Ruby, and never ends the process: every function that Ruby calls is wrapped in
//!    [`panics::guard`], which turns a panic into an exception, and code that runs without Ruby in
//!    [`panics::contain`].

pub(crate) mod afterwards;
pub(crate) mod fiber;
pub(crate) mod frames;
pub(crate) mod gvl;
pub(crate) mod gvl_wait;
pub(crate) mod handle;
pub(crate) mod heap;
pub(crate) mod hold;
pub(crate) mod malloc;
pub(crate) mod methods;
pub(crate) mod objects;
pub(crate) mod os;
pub(crate) mod panics;
pub(crate) mod poller;
mod postponed;
pub(crate) mod ruby;
pub(crate) mod sampling;
pub(crate) mod signals;
pub(crate) mod slice;
pub(crate) mod slots;
pub(crate) mod switches;
