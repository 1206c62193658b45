//! Tests client connections over real sockets and streams. One program for all tests, so that it is linked once.
#![cfg(test)]

mod limits;
mod offers;
mod serving;
mod support;
mod three;
mod three_floods;
mod two;
mod websocket;
