//! The formulas beside simulations and published tables: one program of all tests, which is linked once.
#![cfg(test)]

mod published;
mod simulation;
mod sizing;
mod tables;
