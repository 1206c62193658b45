//! Tests of mistakes, precedence and Puma's file, linked into one program.
#![cfg(test)]

mod mistakes;
mod precedence;
mod puma;
mod shared;
