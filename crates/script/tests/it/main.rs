//! Handlers on a real VM: one program of all tests, which is linked once.
#![cfg(test)]

mod http;
mod kit;
mod leaving;
mod redis;
mod stdlib;
mod support;
mod waiting;
