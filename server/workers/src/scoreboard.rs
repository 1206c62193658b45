//! The scoreboard: memory in which each worker writes its state to its own slot, for the front to read.
//!
//! Its format is [`wire::scoreboard`]'s. The memory is a file, so that it can be passed to workers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering::SeqCst, fence};
use wire::profile::Order;
use wire::recorder::{self, Flight};
use wire::scoreboard::{Layout, PROFILE, Slot, withdrawn_at};

/// The slots of all workers.
#[derive(Debug)]
pub struct Scoreboard {
    memory: File,
    layout: Layout,
}

impl Scoreboard {
    /// Creates `slots` zeroed slots.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(slots: usize, layout: Layout) -> io::Result<Scoreboard> {
        let memory = sys::file::in_memory("firebrick-scoreboard")?;
        memory.set_len((slots * layout.slot_len()) as u64)?;
        Ok(Scoreboard { memory, layout })
    }

    /// Returns the state of the worker in slot `index`. Words that change during the copy may be inconsistent
    /// with each other.
    pub fn slot(&self, index: usize) -> Slot {
        let mut bytes = vec![0; self.layout.recorder_at()];
        let read = self.memory.read_at(&mut bytes, self.position(index)).unwrap_or(0);
        bytes.truncate(read);
        Slot::read(&bytes, self.layout)
    }

    /// Returns what the worker in slot `index` has recorded last.
    pub(crate) fn flight(&self, index: usize) -> Flight {
        let mut bytes = vec![0; recorder::LEN];
        let at = self.position(index) + self.layout.recorder_at() as u64;
        let read = self.memory.read_at(&mut bytes, at).unwrap_or(0);
        Flight::read(&bytes[..read])
    }

    /// Withdraws the first `count` requests of a link from the worker in slot `index`, except those that it
    /// has taken up. Returns the number taken up, or `None` if the worker is taking some up right now; then
    /// the worker itself returns the others (`RETURNED`).
    pub(crate) fn withdraw(&self, index: usize, link: u16, count: u64) -> io::Result<Option<u64>> {
        let link = usize::from(link);
        self.write(index, withdrawn_at(link), &count.to_le_bytes())?;
        // The worker counts a request as taken up and then reads the word written here; see docs/internals/wire.md.
        fence(SeqCst);
        let taken = || self.slot(index).taken.get(link).copied();
        // Requires two equal reads: the system copies words in pieces, so a word that changes during the copy
        // may be read as neither value.
        Ok(taken().filter(|first| taken() == Some(*first)))
    }

    /// Orders the worker in slot `index` to take a profile; `None`: to end it.
    pub(crate) fn order_profile(&self, index: usize, order: Option<Order>) {
        let word = order.map_or(0, Order::pack);
        // The scoreboard is memory of this length, so the write cannot fail.
        let _ = self.write(index, PROFILE, &word.to_le_bytes());
    }

    /// Writes `bytes` at offset `at` of slot `index`.
    pub(crate) fn write(&self, index: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, self.position(index) + at as u64)
    }

    fn position(&self, index: usize) -> u64 {
        (index * self.layout.slot_len()) as u64
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn memory(&self) -> &File {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_scoreboard_is_all_idle() {
        let scoreboard = Scoreboard::new(2, Layout { threads: 4, links: 1 }).unwrap();
        assert_eq!(scoreboard.slot(1).busy, []);
    }
}
