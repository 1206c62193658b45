//! One VM from outside of the crate: one program of all tests, which is linked once.
#![cfg(test)]

mod fibers;
mod memory;
mod shapes;
mod stress;
mod tapes;
mod tasks;
