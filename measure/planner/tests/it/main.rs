//! Tests of the formulas against simulations and published tables, linked into one program.
#![cfg(test)]

mod published;
mod simulation;
mod sizing;
mod tables;
