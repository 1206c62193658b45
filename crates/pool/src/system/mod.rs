//! What differs between Linux and other systems: flags of sockets, memory to share, what is known about processes.
//!
//! Contract:
//! 1. `pair`: connected stream sockets that do not block and are closed on exec. `SEND` and `RECEIVE`: flags of sendmsg(2) and recvmsg(2)
//!    for calls that never wait; each descriptor that arrives goes through `close_on_exec`.
//! 2. `memory_file`: an empty file without a name, to be mapped.
//! 3. `state`: the state of a process as a letter of ps(1), `T` stopped, `Z` not reaped yet; `None` if there is none.
//! 4. `DUMP`: the signal that makes a worker write the backtraces of its threads, with its name for Ruby (`Firebrick::Template::DUMP`).
//!    `catches_dump`: whether it is certain that it does not end a process, which may have been started just now.
//! 5. `adopt_orphans` and `children`: processes that have lost their parent become ours, if the system can do that, and are among our
//!    children; otherwise the system reaps them, and there are no children to know of.
//! 6. `Exact`: a process for certain, also when its number has been given to another one; `Errno::SRCH` if there is none, another error
//!    where the system has no such thing. `ended` returns when it has exited, `signal` reaches it or nobody, `reap` reaps it if it is our
//!    child and has exited: its exit code, or (an error) the signal.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
