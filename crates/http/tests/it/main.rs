//! Connections of clients over real sockets and streams: one program of all tests, which is linked once.
#![cfg(test)]

mod limits;
mod offers;
mod serving;
mod support;
mod three;
mod three_floods;
mod two;
