//! Tests of the engine against all kinds of servers over real sockets: working, broken and silent ones.

mod closed;
mod encrypted;
mod hostile;
mod http2;
mod open;
mod parts;
mod responses;
mod support;
