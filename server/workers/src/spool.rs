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
//! 5. Nothing here waits for a disk. Bytes that go to the file stay in memory, and count there, until another thread has written
//!    them: [`Backlog::begin_write`] returns them as a [`Batch`], and [`Backlog::written`] takes the result. Until then the client
//!    gets them from memory. The backlog can be dropped meanwhile.

use bytes::Bytes;
use handler::held::{Amount, Hold, Holding, OpenFile, SharedFile, memory_is_short};
use handler::{Chunk, FileRegion};
use net::memory::{self, AwaitsDisk, MemoryClass, Reserved};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use sys::file::UnnamedFile;

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
/// The most bytes of a [`Batch`], unless a single piece is longer.
pub(crate) const BATCH: usize = 1 << 20;

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
    /// The bytes of all unwritten pieces.
    unwritten: AwaitsDisk,
    /// Set from the first unwritten piece until no piece is unwritten.
    has_writer: bool,
    writing: Option<Writing>,
    /// Set after the file could not be written.
    unspooled: bool,
}

#[derive(Debug)]
enum BacklogPiece {
    Bytes(Bytes),
    /// These bytes go to the file.
    Unwritten(Bytes),
    Spooled {
        offset: u64,
        len: u64,
    },
    Foreign(FileRegion),
}

impl BacklogPiece {
    fn len(&self) -> u64 {
        match self {
            BacklogPiece::Bytes(bytes) | BacklogPiece::Unwritten(bytes) => bytes.len() as u64,
            BacklogPiece::Spooled { len, .. } => *len,
            BacklogPiece::Foreign(region) => region.len,
        }
    }
}

/// The pieces that are being written.
#[derive(Debug)]
struct Writing {
    /// The place of the first of them.
    at: usize,
    /// How many of them the client has not taken.
    count: usize,
    /// Counts those that have left the backlog and are still in memory.
    late: Rc<Reserved>,
}

/// Bytes to be written to the file of a backlog, on any thread.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Created with the first batch.
    file: Option<Arc<SharedFile>>,
    offset: u64,
    pieces: Vec<Bytes>,
}

/// The result of a written batch.
#[derive(Debug)]
pub(crate) struct Written {
    created: Option<UnnamedFile>,
    end: u64,
}

impl Batch {
    /// Writes the bytes. Waits for the disk.
    ///
    /// # Errors
    /// The file in `temp_dir` cannot be created or written.
    pub(crate) fn write(self, temp_dir: &Path) -> io::Result<Written> {
        let (mut created, mut end) = (None, self.offset);
        let file: &std::fs::File = match &self.file {
            Some(file) => file,
            None => created.insert(sys::file::unnamed(temp_dir)?),
        };
        for piece in &self.pieces {
            file.write_all_at(piece, end)?;
            end += piece.len() as u64;
        }
        Ok(Written { created, end })
    }
}

impl Backlog {
    /// Adds bytes that used up window. Returns whether a writer must begin, which calls [`Backlog::begin_write`].
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        room: &Room,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> bool {
        self.owed += bytes.len() as u64;
        let memory = room.memory.min(wire::INITIAL_WINDOW as usize / 2);
        let stays = self.in_file == 0 && self.in_memory + bytes.len() <= memory;
        self.in_memory += bytes.len();
        let bytes = Bytes::copy_from_slice(bytes);
        self.pieces.push_back(if stays {
            BacklogPiece::Bytes(bytes)
        } else {
            self.unwritten.add(bytes.len() as u64);
            BacklogPiece::Unwritten(bytes)
        });
        if self.held.is_none() && (self.in_memory > COUNTED || memory_is_short()) {
            self.held = holding().map(|holding| holding.hold(Amount::default()));
        }
        self.count();
        !stays && !std::mem::replace(&mut self.has_writer, true)
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

    /// Returns the next bytes for the file, and what must be kept until they are written. `None` ends the writer: the client has taken
    /// them meanwhile.
    pub(crate) fn begin_write(&mut self) -> Option<(Batch, Rc<Reserved>)> {
        let first = self.pieces.iter().position(|piece| matches!(piece, BacklogPiece::Unwritten(_)));
        self.has_writer = first.is_some();
        let (at, mut len) = (first?, 0);
        let next = |piece: &BacklogPiece| match piece {
            BacklogPiece::Unwritten(bytes) if len == 0 || len + bytes.len() <= BATCH => {
                len += bytes.len();
                Some(bytes.clone())
            }
            _ => None,
        };
        let pieces: Vec<Bytes> = self.pieces.range(at..).map_while(next).collect();
        let late = Rc::new(Reserved::new(MemoryClass::Responses, 0));
        self.writing = Some(Writing { at, count: pieces.len(), late: late.clone() });
        let file = self.file.as_ref().map(|file| file.shared());
        Some((Batch { file, offset: self.end, pieces }, late))
    }

    /// Takes the result of a batch. Returns the error once if the file cannot be written.
    pub(crate) fn written(
        &mut self,
        result: io::Result<Written>,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> Option<io::Error> {
        // Without it, the reader has gone.
        let Writing { at, count, .. } = self.writing.take()?;
        let error = match result {
            Ok(written) => {
                self.put_in_file(at, count, written, holding);
                None
            }
            Err(error) => {
                for piece in self.pieces.range_mut(at..at + count) {
                    if let BacklogPiece::Unwritten(bytes) = piece {
                        self.unwritten.remove(bytes.len() as u64);
                        *piece = BacklogPiece::Bytes(std::mem::take(bytes));
                    }
                }
                Some(error)
            }
        };
        self.release_file();
        error.filter(|_| !std::mem::replace(&mut self.unspooled, true))
    }

    /// Puts the written bytes in the place of these pieces.
    fn put_in_file(
        &mut self,
        at: usize,
        count: usize,
        written: Written,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) {
        if let Some(file) = written.created {
            let hold = holding().map(|holding| holding.hold(Amount::FILE));
            self.file = Some(Rc::new(OpenFile::of_response(file, hold)));
        }
        self.end = written.end;
        if let Some(hold) = self.file.as_ref().and_then(|file| file.hold()) {
            // The space of removed bytes is not reused.
            hold.set(Amount { disk: self.end, ..Amount::FILE });
        }
        let len: u64 = self.pieces.drain(at..at + count).map(|piece| piece.len()).sum();
        let offset = self.end - len;
        match at.checked_sub(1).and_then(|before| self.pieces.get_mut(before)) {
            _ if len == 0 => {}
            Some(BacklogPiece::Spooled { offset: start, len: so_far }) if *start + *so_far == offset => {
                *so_far += len;
            }
            _ => self.pieces.insert(at, BacklogPiece::Spooled { offset, len }),
        }
        self.in_memory -= len as usize;
        self.in_file += len;
        self.unwritten.remove(len);
        self.count();
    }

    /// Gives up a file of which nothing waits. The client may still read from it, so the next backlog gets a new one.
    fn release_file(&mut self) {
        if self.in_file == 0 && self.writing.is_none() {
            (self.file, self.end) = (None, 0);
        }
    }

    /// Adds a part of a file of the app.
    pub(crate) fn push_file(&mut self, region: FileRegion) {
        self.pieces.push_back(BacklogPiece::Foreign(region));
    }

    /// Returns the next piece for the client.
    pub(crate) fn pop(&mut self) -> Option<Chunk> {
        let piece = self.pieces.pop_front()?;
        if let Some(writing) = &mut self.writing {
            match writing.at.checked_sub(1) {
                Some(at) => writing.at = at,
                None if writing.count > 0 => {
                    writing.count -= 1;
                    writing.late.set(writing.late.bytes() + piece.len());
                }
                None => {}
            }
        }
        if let BacklogPiece::Unwritten(bytes) = &piece {
            self.unwritten.remove(bytes.len() as u64);
        }
        Some(match piece {
            BacklogPiece::Bytes(bytes) | BacklogPiece::Unwritten(bytes) => {
                self.in_memory -= bytes.len();
                self.count();
                Chunk::Bytes(bytes)
            }
            BacklogPiece::Foreign(region) => Chunk::File(region),
            BacklogPiece::Spooled { offset, len } => {
                self.in_file -= len;
                let file = self.file.clone()?;
                self.release_file();
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
        self.pieces.iter().map(BacklogPiece::len).sum()
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
        if let Some(Writing { at, count, late }) = &self.writing {
            let len: u64 = self.pieces.range(*at..at + count).map(BacklogPiece::len).sum();
            late.set(late.bytes() + len);
        }
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
                region.file.shared().read_exact_at(&mut out, region.offset).unwrap();
                out
            }
            Chunk::Offer(_) => panic!("a backlog holds no offers"),
        }
    }

    /// Writes all batches at once. Returns the errors.
    fn write_all(backlog: &mut Backlog, dir: &Path) -> usize {
        let mut errors = 0;
        while let Some((batch, _late)) = backlog.begin_write() {
            errors += usize::from(backlog.written(batch.write(dir), &|| None).is_some());
        }
        errors
    }

    fn push(backlog: &mut Backlog, bytes: &[u8], room: &Room, dir: &Path) -> usize {
        if backlog.push(bytes, room, &|| None) { write_all(backlog, dir) } else { 0 }
    }

    #[test]
    fn a_reader_that_keeps_up_needs_no_file() {
        let room = Room { memory: 1 << 20, file: 1 << 20 };
        let mut backlog = Backlog::default();
        for _ in 0..100 {
            assert!(!backlog.push(&[7; 65536], &room, &|| None));
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
            assert_eq!(push(&mut backlog, &[1; 65536], &room, &std::env::temp_dir()), 0);
            window -= 65536;
            sent += 65536;
            window += u64::from(backlog.grant(&room));
        }
        assert!((3_000_000..5_000_000).contains(&sent), "{sent}");
        assert_eq!(
            (backlog.pieces(), backlog.on_disk()),
            (2, sent - 65536),
            "the first piece fits into memory"
        );
        let mut taken = 0;
        while let Some(chunk) = backlog.pop() {
            taken += chunk.len();
        }
        assert_eq!((taken, backlog.on_disk()), (sent, 0));
        assert!(backlog.grant(&room) > 0, "room again");
    }

    #[test]
    fn without_a_file_the_worker_waits_for_the_client() {
        let room = Room { memory: 100_000, file: 3_000_000 };
        let (mut backlog, nowhere) = (Backlog::default(), Path::new("/nonexistent"));
        let (mut window, mut sent, mut errors) = (u64::from(wire::INITIAL_WINDOW), 0, 0);
        while window >= 65536 {
            errors += push(&mut backlog, &[1; 65536], &room, nowhere);
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

    #[test]
    fn while_a_disk_is_stuck_the_worker_waits_and_the_client_reads() {
        let room = Room { memory: 0, file: 3_000_000 };
        let mut backlog = Backlog::default();
        let (mut window, mut sent) = (u64::from(wire::INITIAL_WINDOW), 0);
        assert!(backlog.push(&[1; 65536], &room, &|| None), "a writer begins");
        let (batch, late) = backlog.begin_write().unwrap();
        while window >= 65536 {
            window -= 65536;
            sent += 65536;
            assert!(!backlog.push(&[1; 65536], &room, &|| None), "it is there already");
            window += u64::from(backlog.grant(&room));
        }
        assert_eq!((sent, backlog.on_disk()), (u64::from(wire::INITIAL_WINDOW), 0));
        assert!(matches!(backlog.pop(), Some(Chunk::Bytes(bytes)) if bytes.len() == 65536));
        assert_eq!(late.bytes(), 65536, "the writer has it still");
        assert!(backlog.written(batch.write(&std::env::temp_dir()), &|| None).is_none());
        assert_eq!(backlog.on_disk(), 0, "nobody reads what was written");
        assert_eq!(write_all(&mut backlog, &std::env::temp_dir()), 0);
        assert_eq!((backlog.on_disk(), backlog.pieces()), (sent, 1));
        assert!(u64::from(backlog.grant(&room)) >= sent);
    }

    #[test]
    fn a_backlog_can_be_dropped_while_it_is_written() {
        let mut backlog = Backlog::default();
        assert!(backlog.push(&[1; 1000], &Room { memory: 0, file: 3_000_000 }, &|| None));
        let (batch, late) = backlog.begin_write().unwrap();
        backlog.clear();
        assert_eq!(late.bytes(), 1000, "the bytes count until they are written");
        assert!(backlog.written(batch.write(&std::env::temp_dir()), &|| None).is_none());
        assert!(backlog.is_empty() && backlog.on_disk() == 0 && backlog.begin_write().is_none());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Pop,
        Begin,
        /// Ends a write; `false` if it fails.
        End(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1usize..5000).prop_map(Step::Push),
            3 => Just(Step::Pop),
            2 => Just(Step::Begin),
            2 => prop::bool::weighted(0.8).prop_map(Step::End),
        ];
        proptest::collection::vec(step, 1..120)
    }

    proptest! {
        /// However late the writes end, and whichever fail.
        #[test]
        fn order_is_kept(steps in steps()) {
            let room = Room { memory: 4000, file: 20_000 };
            let (mut backlog, mut put, mut got) = (Backlog::default(), Vec::new(), Vec::new());
            let (mut writer, mut batch, mut granted) = (false, None, 0);
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(len) => {
                        let bytes: Vec<u8> = (0..len).map(|at| (n * 7 + at) as u8).collect();
                        let begins = backlog.push(&bytes, &room, &|| None);
                        prop_assert!(!(begins && writer), "one writer at a time");
                        writer |= begins;
                        put.extend(bytes);
                    }
                    Step::Pop => got.extend(backlog.pop().map(bytes_of).unwrap_or_default()),
                    Step::Begin if writer && batch.is_none() => {
                        batch = backlog.begin_write();
                        writer = batch.is_some();
                    }
                    Step::End(succeeds) => if let Some((batch, late)) = batch.take() {
                        let nowhere = Path::new("/nonexistent");
                        let created = batch.file.is_none();
                        let result = batch.write(if succeeds { Path::new("/tmp") } else { nowhere });
                        prop_assert!(result.is_ok() == succeeds || !created);
                        backlog.written(result, &|| None);
                        drop(late);
                    },
                    Step::Begin => {}
                }
                granted += u64::from(backlog.grant(&room));
                let waiting = put.len() - got.len();
                prop_assert_eq!(backlog.len(), waiting as u64);
                prop_assert_eq!(backlog.in_memory as u64 + backlog.in_file, waiting as u64);
                let unwritten = backlog.pieces.iter().filter(|piece| matches!(piece, BacklogPiece::Unwritten(_)));
                prop_assert_eq!(backlog.unwritten.bytes(), unwritten.map(BacklogPiece::len).sum::<u64>());
                prop_assert!(granted <= put.len() as u64);
            }
            while let Some(chunk) = backlog.pop() { got.extend(bytes_of(chunk)); }
            prop_assert_eq!(put, got);
            prop_assert_eq!((backlog.in_memory, backlog.in_file), (0, 0));
        }
    }
}
