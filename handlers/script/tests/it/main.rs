//! Tests of handlers on a real VM, linked into one program.
#![cfg(test)]

mod http;
mod kit;
mod leaving;
mod redis;
mod stdlib;
mod support;
mod waiting;
