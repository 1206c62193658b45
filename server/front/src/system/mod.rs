//! The differences between Linux and other systems in the front.
//!
//! Contract:
//! 1. `SPREADS`: whether the kernel spreads connections over the sockets of a port (`SO_REUSEPORT`). If not, all threads share one socket.
//! 2. `do_not_pace` prepares the socket of a loopback address. `defer_accept`: a connection is accepted with its first bytes, or a moment
//!    later without. `bound_unsent` limits the memory that the system keeps for the clients of a listener, for open and closed connections.
//!    `listens`: whether a socket passed to the program accepts connections; true if unknown.
//! 3. `program`: a path of this program that works even if its file was replaced. `BY_DESCRIPTOR`: whether that path only works in this
//!    process, so that others need an open file. `DESCRIPTORS`: the directory of this process's descriptors.
//! 4. `die_with_parent`: the kernel kills this process when its parent exits. `adopt_orphans` and `children`: descendants that have lost
//!    their parent become children of this process. On systems without these features, the functions do nothing and `children` is empty.
//! 5. `listener_of`: the process that listens on a TCP port of this machine, as far as this user may see it.
//! 6. `abstract_address`: the address of a Unix socket without a file.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
