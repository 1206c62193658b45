//! Contains the differences between Linux and other systems: socket flags, shared memory, information about
//! processes.
//!
//! Contract:
//! 1. `pair`: connected stream sockets that do not block and are closed on exec. `SEND` and `RECEIVE`: flags
//!    of sendmsg(2) and recvmsg(2) for calls that never wait. Each descriptor that arrives must be passed to
//!    `close_on_exec`.
//! 2. `memory_file`: an empty file without a name, to be mapped.
//! 3. `state`: the state of a process as a letter of ps(1), `T` for stopped, `Z` for not reaped yet; `None`
//!    if there is no such process.
//! 4. `DUMP`: the signal that makes a worker write the backtraces of its threads, with its name for Ruby
//!    (`Firebrick::Template::DUMP`). `catches_dump`: whether it is certain that the signal does not end the
//!    process, which may have just been started.
//! 5. `adopt_orphans` and `children`: orphaned descendants become children of this process, if the system
//!    supports that. Otherwise the system reaps them, and `children` is empty.
//! 6. `Exact`: a handle of a process that stays valid when its number is reused. Opening returns
//!    `Errno::SRCH` if there is no such process, and another error if the system has no such handles. `ended`
//!    returns when the process has exited. `signal` reaches this process or none. `reap` reaps it if it is a
//!    child that has exited, and returns its exit code, or the signal as an error.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
