//! Keeps the response bytes that the client has not read yet: in memory first, then in an unlinked file.
//!
//! Why: a Ruby thread must be free as soon as the app has finished its response, however slowly the client
//! reads.
//!
//! Contract:
//! 1. Pieces leave in the order in which they arrived.
//! 2. About `memory` bytes are in memory and `file` bytes in the file at most. [`Backlog::grant`] lets the
//!    worker continue only while there is room, so an endless response waits for its reader.
//! 3. Waiting bytes are counted ([`handler::held`]). If a connection already holds its share of memory, its
//!    responses go to the file at once. The bytes in all files of a connection together count against `file`.
//! 4. A file that cannot be written (a full disk) counts as full: up to a window of bytes stays in memory
//!    until the client takes them.

use bytes::Bytes;
use handler::held::{Amount, Hold, Holding, OpenFile, memory_is_short};
use handler::{Chunk, FileRegion};
use net::memory::{self, MemoryClass};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// How many bytes may wait.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) memory: usize,
    pub(crate) file: u64,
}

/// Less than this in memory is not counted for the client unless memory is short: most responses never hold more, and each change of the count has
/// a cost.
const COUNTED: usize = 64 << 10;
/// Smaller grants are deferred, because each grant costs a frame.
const GRANT: u64 = 128 << 10;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pieces: VecDeque<BacklogPiece>,
    in_memory: usize,
    in_file: u64,
    /// Bytes received that have not been granted back to the worker.
    owed: u64,
    file: Option<Rc<OpenFile>>,
    end: u64,
    /// The counted part of the bytes in memory.
    held: Option<Hold>,
    /// The bytes in memory that are counted without that.
    reserved: u64,
    /// Set after the file could not be written.
    unspooled: bool,
}

#[derive(Debug)]
enum BacklogPiece {
    Bytes(Bytes),
    Spooled { offset: u64, len: u64 },
    Foreign(FileRegion),
}

impl Backlog {
    /// Adds bytes that used up window. Returns an error once if they should go to the file and it cannot be
    /// written.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        room: &Room,
        temp_dir: &Path,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> Option<io::Error> {
        self.owed += bytes.len() as u64;
        let memory = room.memory.min(wire::INITIAL_WINDOW as usize / 2);
        if self.in_file == 0 && self.in_memory + bytes.len() <= memory {
            self.keep(bytes, holding);
            return None;
        }
        let error = self.spool(bytes, temp_dir, holding).err()?;
        self.keep(bytes, holding);
        (!std::mem::replace(&mut self.unspooled, true)).then_some(error)
    }

    fn keep(&mut self, bytes: &[u8], holding: &dyn Fn() -> Option<Rc<Holding>>) {
        self.in_memory += bytes.len();
        self.pieces.push_back(BacklogPiece::Bytes(Bytes::copy_from_slice(bytes)));
        if self.held.is_none() && (self.in_memory > COUNTED || memory_is_short()) {
            self.held = holding().map(|holding| holding.hold(Amount::default()));
        }
        self.count();
    }

    /// Counts the bytes in memory that no hold covers.
    fn reserve(&mut self) {
        let own = if self.held.is_some() { 0 } else { self.in_memory as u64 };
        memory::change(MemoryClass::Responses, std::mem::replace(&mut self.reserved, own), own);
    }

    /// Updates the count of the bytes in memory, unless it has hardly changed.
    fn count(&mut self) {
        let now = self.in_memory as u64;
        match &self.held {
            Some(_) if now == 0 => self.held = None,
            Some(held) if held.amount().memory.abs_diff(now) >= COUNTED as u64 => {
                held.set(Amount::of_memory(now))
            }
            _ => {}
        }
        self.reserve();
    }

    fn spool(
        &mut self,
        bytes: &[u8],
        temp_dir: &Path,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                self.end = 0;
                let file = sys::file::unnamed(temp_dir)?;
                let hold = holding().map(|holding| holding.hold(Amount::FILE));
                self.file.insert(Rc::new(OpenFile::of_response(file, hold)))
            }
        };
        file.write_all_at(bytes, self.end)?;
        if let Some(hold) = file.hold() {
            // The space of removed bytes is not reused.
            hold.set(Amount { disk: self.end + bytes.len() as u64, ..Amount::FILE });
        }
        let len = bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(BacklogPiece::Spooled { len: so_far, .. }) => *so_far += len,
            _ => self.pieces.push_back(BacklogPiece::Spooled { offset: self.end, len }),
        }
        self.end += len;
        self.in_file += len;
        Ok(())
    }

    /// Adds a part of a file of the app.
    pub(crate) fn push_file(&mut self, region: FileRegion) {
        self.pieces.push_back(BacklogPiece::Foreign(region));
    }

    /// Returns the next piece for the client.
    pub(crate) fn pop(&mut self) -> Option<Chunk> {
        Some(match self.pieces.pop_front()? {
            BacklogPiece::Bytes(bytes) => {
                self.in_memory -= bytes.len();
                self.count();
                Chunk::Bytes(bytes)
            }
            BacklogPiece::Foreign(region) => Chunk::File(region),
            BacklogPiece::Spooled { offset, len } => {
                self.in_file -= len;
                let file = self.file.clone()?;
                if self.in_file == 0 {
                    // The client still reads from this file, so the next backlog gets a new one.
                    self.file = None;
                }
                Chunk::File(FileRegion { file, offset, len })
            }
        })
    }

    /// Returns the number of bytes of window to grant now; 0 for none yet.
    pub(crate) fn grant(&mut self, room: &Room) -> u32 {
        let held = self.in_memory as u64 + self.in_file.saturating_sub(room.file);
        let grant = self.owed.saturating_sub(held);
        if grant < GRANT {
            return 0;
        }
        self.owed -= grant;
        grant as u32
    }

    /// Returns whether the worker may hardly send any more bytes.
    pub(crate) fn is_waiting(&self) -> bool {
        self.owed + GRANT / 2 > u64::from(wire::INITIAL_WINDOW)
    }

    /// Returns the total length of all pieces, if none has been taken yet.
    pub(crate) fn len(&self) -> u64 {
        let len = |piece: &BacklogPiece| match piece {
            BacklogPiece::Bytes(bytes) => bytes.len() as u64,
            BacklogPiece::Spooled { len, .. } => *len,
            BacklogPiece::Foreign(region) => region.len,
        };
        self.pieces.iter().map(len).sum()
    }

    /// Returns the size of the file that is being written.
    pub(crate) fn on_disk(&self) -> u64 {
        self.file.as_ref().map_or(0, |_| self.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Drops all pieces, because the reader has gone.
    pub(crate) fn clear(&mut self) {
        *self = Backlog::default();
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        memory::change(MemoryClass::Responses, self.reserved, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(chunk: Chunk) -> Vec<u8> {
        match chunk {
            Chunk::Bytes(bytes) => bytes.to_vec(),
            Chunk::File(region) => {
                let mut out = vec![0; region.len as usize];
                region.file.read_exact_at(&mut out, region.offset).unwrap();
                out
            }
            Chunk::Offer(_) => panic!("a backlog holds no offers"),
        }
    }

    #[test]
    fn a_reader_that_keeps_up_needs_no_file() {
        let room = Room { memory: 1 << 20, file: 1 << 20 };
        let mut backlog = Backlog::default();
        for _ in 0..100 {
            assert!(backlog.push(&[7; 65536], &room, Path::new("/nonexistent"), &|| None).is_none());
            assert!(matches!(backlog.pop(), Some(Chunk::Bytes(_))));
        }
        assert!(backlog.grant(&room) > 6_000_000);
    }

    #[test]
    fn without_a_reader_the_worker_has_to_wait_in_the_end() {
        let room = Room { memory: 100_000, file: 3_000_000 };
        let mut backlog = Backlog::default();
        let (mut window, mut sent) = (u64::from(wire::INITIAL_WINDOW), 0);
        while window >= 65536 {
            assert!(backlog.push(&[1; 65536], &room, &std::env::temp_dir(), &|| None).is_none());
            window -= 65536;
            sent += 65536;
            window += u64::from(backlog.grant(&room));
        }
        assert!((3_000_000..5_000_000).contains(&sent), "{sent}");
        let mut taken = 0;
        while let Some(chunk) = backlog.pop() {
            taken += chunk.len();
        }
        assert_eq!(taken, sent);
        assert!(backlog.grant(&room) > 0, "room again");
    }

    #[test]
    fn without_a_file_the_worker_waits_for_the_client() {
        let room = Room { memory: 100_000, file: 3_000_000 };
        let (mut backlog, nowhere) = (Backlog::default(), Path::new("/nonexistent"));
        let (mut window, mut sent, mut errors) = (u64::from(wire::INITIAL_WINDOW), 0, 0);
        while window >= 65536 {
            errors += usize::from(backlog.push(&[1; 65536], &room, nowhere, &|| None).is_some());
            (window, sent) = (window - 65536, sent + 65536);
            window += u64::from(backlog.grant(&room));
        }
        assert_eq!((sent, errors), (u64::from(wire::INITIAL_WINDOW), 1));
        let mut taken = 0;
        while let Some(chunk) = backlog.pop() {
            taken += chunk.len();
            window += u64::from(backlog.grant(&room));
        }
        assert_eq!((taken, window), (sent, u64::from(wire::INITIAL_WINDOW)));
    }

    proptest! {
        #[test]
        fn order_is_kept(steps in proptest::collection::vec((any::<bool>(), 1usize..5000), 1..60)) {
            let room = Room { memory: 4000, file: 20_000 };
            let (mut backlog, mut put, mut got) = (Backlog::default(), Vec::new(), Vec::new());
            for (n, (push, len)) in steps.into_iter().enumerate() {
                if push {
                    let bytes = vec![n as u8; len];
                    assert!(backlog.push(&bytes, &room, &std::env::temp_dir(), &|| None).is_none());
                    put.extend(bytes);
                } else if let Some(chunk) = backlog.pop() {
                    got.extend(bytes_of(chunk));
                }
            }
            while let Some(chunk) = backlog.pop() { got.extend(bytes_of(chunk)); }
            prop_assert_eq!(put, got);
        }
    }
}
