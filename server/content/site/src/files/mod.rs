//! Serves files: from a path below a root to a response.
//!
//! [`root`] keeps paths inside the root with the help of [`beneath`]. [`store`] caches open files and bytes.
//! [`watches`] reports changes. [`document`] is one version of a file, [`presentation`] its header fields,
//! and [`respond`] the response to a request for it.

mod beneath;
pub(crate) mod compression_cache;
pub(crate) mod document;
pub(crate) mod path;
pub(crate) mod presentation;
pub(crate) mod requested;
pub(crate) mod respond;
pub(crate) mod root;
mod spill;
pub(crate) mod store;
mod validators;
pub(crate) mod watches;
