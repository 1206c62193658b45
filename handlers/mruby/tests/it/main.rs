//! Tests of a VM from outside of the crate, linked into one program.
#![cfg(test)]

mod fibers;
mod memory;
mod shapes;
mod stress;
mod tapes;
mod tasks;
