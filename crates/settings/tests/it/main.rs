//! What settings say of mistakes, which one wins, and what is read of Puma's file: one program of all tests, which is linked once.
#![cfg(test)]

mod mistakes;
mod precedence;
mod puma;
mod shared;
