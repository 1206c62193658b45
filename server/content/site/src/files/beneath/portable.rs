//! Walks folder by folder and follows links itself.
//!
//! Why it is safe: each name is opened in the folder that holds it, never as a link (`O_NOFOLLOW`), and `..`
//! goes back to the previous folder of the walk, which is held open. So the walk cannot leave the root,
//! whatever other processes move meanwhile.

use super::FILE;
use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The most links on a path, as in Linux.
const MOST_LINKS: usize = 40;

#[derive(Debug)]
pub(in crate::files) struct Opener;

impl Opener {
    pub(in crate::files) fn new() -> Opener {
        Opener
    }

    pub(in crate::files) fn open(&self, folder: &File, path: &str) -> io::Result<File> {
        Ok(walk(folder, path.as_bytes().to_vec())?.into())
    }
}

fn walk(root: &File, mut path: Vec<u8>) -> rustix::io::Result<OwnedFd> {
    let mut folders: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    loop {
        if path.first() == Some(&b'/') {
            return Err(Errno::XDEV);
        }
        // A name followed by anything, even a slash only, must be a folder.
        let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let (name, rest) = path.split_at(end);
        let is_last = rest.is_empty();
        let rest = &rest[rest.iter().take_while(|&&byte| byte == b'/').count()..];
        let here = folders.last().map_or(root.as_fd(), AsFd::as_fd);
        match name {
            b"." => {}
            b".." => drop(folders.pop().ok_or(Errno::XDEV)?),
            name => match open(here, name, is_last) {
                Ok(file) if is_last => return Ok(file),
                Ok(folder) => folders.push(folder),
                // The entry is not a folder, or is a link, which may lead to one.
                Err(error @ (Errno::LOOP | Errno::NOTDIR | Errno::MLINK)) => {
                    let Ok(target) = readlinkat(here, name, Vec::new()) else { return Err(error) };
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let mut target = target.into_bytes();
                    if !is_last {
                        target.push(b'/');
                        target.extend(rest);
                    }
                    path = target;
                    continue;
                }
                Err(error) => return Err(error),
            },
        }
        if rest.is_empty() {
            let here = folders.last().map_or(root.as_fd(), AsFd::as_fd);
            return openat(here, c".", FILE, Mode::empty());
        }
        path = rest.to_vec();
    }
}

fn open(folder: impl AsFd, name: &[u8], is_last: bool) -> rustix::io::Result<OwnedFd> {
    let kind = if is_last { FILE } else { FILE | OFlags::DIRECTORY };
    loop {
        match openat(&folder, name, kind | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::INTR) => {}
            opened => return opened,
        }
    }
}
