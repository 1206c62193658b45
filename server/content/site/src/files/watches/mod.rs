//! Uses change notifications instead of checking each file.
//!
//! Why: checking whether a file is unchanged costs a system call per request that walks the whole path. The
//! kernel queues an event before the call that changes a file returns, so one look at an empty queue shows
//! that no file has changed.
//!
//! Contract:
//! 1. A [covered](Watches::cover) path has not changed as long as [`Watches::epoch`] stays the same.
//! 2. A path is covered only if the kernel reports every change: no symbolic links, a local file system, and
//!    directories that could be watched. Other paths have to be checked.
//! 3. A directory that changes all the time costs no more than it would without watches.
//! 4. On systems without inotify nothing is covered, and each request checks its file by `stat`.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::Watches;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::Watches;
