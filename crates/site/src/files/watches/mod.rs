//! Change notifications instead of checking each file.
//!
//! Why: checking whether each file is unchanged costs a system call that walks its whole path, for each request. The kernel
//! queues an event before the call that changes something returns, so one look at an empty queue shows that nothing has
//! changed, for all files at once.
//!
//! Contract:
//! 1. What is [covered](Watches::cover) has not changed as long as [`Watches::epoch`] stays the same.
//! 2. A path is covered only if the kernel reports every change: no symbolic links, a local file system, and directories
//!    that could be watched. Other paths have to be checked.
//! 3. A directory that changes all the time costs no more than it would without watches.
//! 4. Where the system has no such queue (it is Linux's inotify), nothing is covered, and each request checks its file by `stat`.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::Watches;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::Watches;
