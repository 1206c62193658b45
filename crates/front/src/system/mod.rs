//! What differs between Linux and other systems in the server itself.
//!
//! Contract:
//! 1. `SPREADS`: whether the kernel spreads connections over the sockets of a port (`SO_REUSEPORT`). If it does not, all threads share one
//!    socket.
//! 2. `do_not_pace` prepares the socket of an address that only this machine reaches. `defer_accept`: a connection
//!    comes with its first bytes, or a moment later without. `bound_unsent`: what the system keeps for the clients of a listener is
//!    bounded, of open connections and of closed ones. `listens`: whether a socket that was passed to the
//!    program accepts connections; true if that is not known.
//! 3. `program`: a path of this program, good also when its file has been replaced; `BY_DESCRIPTOR`: if that path is only good in this
//!    process, others need an open file. `DESCRIPTORS`: the folder whose files are this process's descriptors.
//! 4. `die_with_parent`: this process is killed when its parent ends. `adopt_orphans` and `children`: descendants that have lost their
//!    parent become children of this process. Where the system cannot do these, nothing happens, and there are no children to know of.
//! 5. `listener_of`: which process listens on a TCP port of this machine, as far as this user may know.
//! 6. `abstract_address`: of a Unix socket that has no file.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
