//! The generator's own HTTP/1.1 client: one read and one write per request, no allocation per request.

pub(crate) mod chunked;
pub(crate) mod connection;
pub(crate) mod head;
pub(crate) mod reader;
