//! front
#![forbid(unsafe_code)]

pub mod access_log;
pub mod static_files;
