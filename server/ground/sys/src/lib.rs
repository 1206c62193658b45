//! Questions to the operating system, on Linux and elsewhere: the machine, processes, sockets, files.
//!
//! Why one crate: each fact of `/proc` and each difference between systems is known in one place, and tested there.
//!
//! Contract:
//! 1. This crate decides nothing. It keeps nothing but readings that cost the kernel much, each for a documented time
//!    ([`Machine::recent`], [`process::recent_pss_bytes`]), and a thread that closes files ([`file::UnnamedFile`]).
//! 2. Where a system has no such feature, the documentation of the function says what happens instead. A file
//!    of `/proc` that is missing means that the value is unknown.
//! 3. Only `tcp.rs` contains `unsafe`: setting a socket option by its number.
#![deny(unsafe_code)]

mod closer;
pub mod file;
pub mod machine;
mod other_side;
mod proc;
pub mod process;
pub mod socket;
mod unlinked;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(test, not(target_os = "linux"), firebrick_portable))]
mod portable;
#[cfg(all(target_os = "linux", not(firebrick_portable)))]
#[allow(unsafe_code)]
mod tcp;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
use linux as system;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
use portable as system;

pub use machine::{CpuClock, Machine};
