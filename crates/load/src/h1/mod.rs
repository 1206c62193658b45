//! HTTP/1.1 as a client, our own: one read and one write per request, nothing allocated for one.

pub(crate) mod chunked;
pub(crate) mod connection;
pub(crate) mod head;
pub(crate) mod reader;
