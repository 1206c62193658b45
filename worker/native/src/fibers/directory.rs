//! The working directory of a strand inside `Dir.chdir { }`. A process has only one, so when the fiber of
//! such a strand is left, the process returns to the directory before the block.
//!
//! Contract: costs nothing outside of such blocks. Threads of the app, and requests of other serving threads,
//! see the directory of the running strand, as with threads. If no descriptor is available, or the directory
//! is gone, the other strands run in the request's directory.

use crate::raw::os;
use crate::worker::task::strand::{self, Strand};
use std::os::fd::RawFd;

/// Records that a block of `Dir.chdir` in the calling fiber's strand begins (before it changes the directory)
/// or has ended.
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

/// Forgets the saved directory: the strand is over, or in no block any more.
pub(super) fn forget(part: &Strand) {
    part.away.set(0);
    let home = part.home.replace(-1);
    if home >= 0 {
        os::close(home);
    }
}

/// Changes to the directory of the other strands, because the fiber is about to be left. Returns the
/// directory for [`enter`].
#[inline]
pub(super) fn leave(strand: Option<&Strand>) -> Option<RawFd> {
    let home = strand?.home.get();
    if home < 0 { None } else { swap(home) }
}

/// Restores the directory of the other strands after the end of a strand that was left inside a block for good.
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

/// Changes back to the fiber's directory, because the fiber goes on.
#[inline]
pub(super) fn enter(own: Option<RawFd>) {
    if let Some(own) = own {
        os::change_directory(own);
        os::close(own);
    }
}
