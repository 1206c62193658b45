//! Tests origins that behave and origins that do not. One program for all tests, so that it is linked once.
#![cfg(test)]

mod forwarding;
mod hostile;
mod support;
mod tls;
