//! Origins that behave and origins that do not: one program of all tests, which is linked once.
#![cfg(test)]

mod forwarding;
mod hostile;
mod support;
mod tls;
