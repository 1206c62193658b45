//! Lets the kernel keep paths inside a folder (`openat2`).

use super::{FILE, portable};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(in crate::files) struct Opener {
    /// Kernels before 5.6 lack the call, and some sandboxes forbid it.
    refused: Cell<bool>,
}

impl Opener {
    pub(in crate::files) fn new() -> Opener {
        Opener { refused: Cell::new(false) }
    }

    pub(in crate::files) fn open(&self, folder: &File, path: &str) -> io::Result<File> {
        if !self.refused.get() {
            match open(folder, path) {
                Err(Errno::NOSYS | Errno::PERM) => self.refused.set(true),
                // Another process renames without pause: each step of a walk in user space is safe by itself.
                Err(Errno::AGAIN) => {}
                opened => return Ok(opened?.into()),
            }
        }
        portable::Opener::new().open(folder, path)
    }
}

fn open(folder: &File, path: &str) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: a directory, anywhere in the system, is renamed during a step to `..`, so the kernel cannot guarantee the path. EPERM: only
    // the owner may use NOATIME, which makes each read slightly cheaper.
    let mut flags = FILE | OFlags::NOATIME;
    for _ in 0..4 {
        match openat2(folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::PERM) if flags != FILE => flags = FILE,
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}
