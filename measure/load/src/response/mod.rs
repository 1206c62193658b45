//! Reads responses of HTTP/1.1: no I/O, no allocation per response.

pub(crate) mod chunked;
pub(crate) mod head;
pub(crate) mod reader;
