//! The engine against servers of all kinds over real sockets: good ones, broken ones, and those that never answer.

mod answers;
mod closed;
mod encrypted;
mod hostile;
mod http2;
mod open;
mod support;
