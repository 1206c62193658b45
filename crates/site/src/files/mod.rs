//! Files: from a path below a root to a response.
//!
//! [`root`] keeps paths inside, [`store`] keeps what was opened and read, [`watches`] hear of changes, [`document`] is one version of one file,
//! [`presentation`] its fields, [`respond`] what a request gets of it.

pub(crate) mod coder;
pub(crate) mod conditions;
pub(crate) mod document;
pub(crate) mod path;
pub(crate) mod presentation;
pub(crate) mod respond;
pub(crate) mod root;
pub(crate) mod store;
pub(crate) mod watches;
pub(crate) mod wishes;
