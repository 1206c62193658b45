//! How many, and why: pure arithmetic from a few facts.
#![forbid(unsafe_code)]
