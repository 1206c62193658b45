//! The working directory of a strand that is in `Dir.chdir { }`. A process has one; so while the fiber of such a strand is left, the process is where it was
//! before the block.
//!
//! Contract: costs nothing outside of such blocks. Threads of the app, and requests of other serving threads, see the directory of whoever runs, as
//! with threads. Where no descriptor can be had, or a directory is gone, the others run in that of the request.

use super::strand::{self, Strand};
use crate::raw::os;
use std::os::fd::RawFd;

/// A block of `Dir.chdir` begins in the strand of the calling fiber, before it changes the directory, or has ended.
pub(crate) fn changes_directory(begins: bool) {
    let Some(part) = strand::current() else { return };
    let depth = part.away.get();
    if !begins {
        part.away.set(depth.saturating_sub(1));
        if depth <= 1 {
            forget(part);
        }
        return;
    }
    if depth == 0 {
        part.home.set(os::working_directory().unwrap_or(-1));
    }
    part.away.set(depth + 1);
}

/// The strand is over, or in no block any more.
pub(super) fn forget(part: &Strand) {
    part.away.set(0);
    let home = part.home.replace(-1);
    if home >= 0 {
        os::close(home);
    }
}

/// The fiber is about to be left: goes to the directory of the others. Where to go back to with [`enter`].
#[inline]
pub(super) fn leave(strand: Option<&Strand>) -> Option<RawFd> {
    let home = strand?.home.get();
    if home < 0 { None } else { swap(home) }
}

/// The strand is over: if it was left inside a block for good, the others are where they were.
#[inline]
pub(super) fn go_home(strand: &Strand) {
    let home = strand.home.get();
    if home >= 0 {
        os::change_directory(home);
        forget(strand);
    }
}

#[cold]
fn swap(home: RawFd) -> Option<RawFd> {
    let own = os::working_directory().ok()?;
    os::change_directory(home);
    Some(own)
}

/// The fiber goes on.
#[inline]
pub(super) fn enter(own: Option<RawFd>) {
    if let Some(own) = own {
        os::change_directory(own);
        os::close(own);
    }
}
