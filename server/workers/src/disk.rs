//! Copies responses from memory to the disk on other threads, while memory is short.
//!
//! Why: a front thread serves many clients. If it waited for a disk, a slow or stuck disk would hold up all of them, also those whose
//! responses need no disk.
//!
//! Contract:
//! 1. tokio's blocking pool creates and writes the files. The event loop never does.
//! 2. Until its copy is complete, a response is served from memory, and counts there ([`handler::held`]). Then its hold counts the disk,
//!    which may let requests of its connection go on, and its worker gets the window that it is owed.
//! 3. A thread has at most [`JOBS`] copies of [`BATCH`] bytes at a time; a longer one takes the place of several. The others wait in
//!    their order. A response that has been sent by then, or has been given up, costs no copy; nor does a file in memory when memory
//!    is not short any more.
//! 4. The bytes that wait are counted ([`AwaitsDisk`]): while there are too many, no further request begins.
//! 5. If a file cannot be written, the response stays in memory.

use crate::spool::BATCH;
use handler::held::{OpenFile, SharedFile, memory_is_short};
use net::descriptors::CountedDescriptor;
use net::memory::AwaitsDisk;
use net::task::spawn_local;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use sys::file::UnnamedFile;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;

/// The copies of a thread at a time.
const JOBS: u32 = 8;
/// Bytes of a file that are copied at a time.
const BLOCK: usize = 64 << 10;

/// The copies of one front thread.
#[derive(Debug)]
pub(crate) struct Disk(Semaphore);

impl Default for Disk {
    fn default() -> Disk {
        Disk(Semaphore::new(JOBS as usize))
    }
}

impl Disk {
    /// Waits for its turn. `None` never happens: nothing closes the semaphore.
    pub(crate) async fn turn(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let places = u32::try_from(bytes.div_ceil(BATCH as u64)).unwrap_or(JOBS).clamp(1, JOBS);
        self.0.acquire_many(places).await.ok()
    }

    /// Moves the `part` of a file in memory to a file in `temp_dir`. There must be nothing else in it.
    pub(crate) fn move_file(self: &Rc<Disk>, file: &Rc<OpenFile>, part: Range<u64>, temp_dir: PathBuf) {
        let (disk, file) = (self.clone(), Rc::downgrade(file));
        let awaits = AwaitsDisk::new(part.end - part.start);
        spawn_local(async move {
            let turn = disk.turn(part.end - part.start).await;
            if memory_is_short() {
                move_now(file, part, temp_dir).await;
            }
            drop((turn, awaits));
        });
    }
}

/// Moves a file unless its response has been sent.
async fn move_now(file: Weak<OpenFile>, part: Range<u64>, temp_dir: PathBuf) {
    let Some((source, late)) = file.upgrade().map(|file| file.begin_copy()) else { return };
    let counted = CountedDescriptor::begin();
    let len = part.end - part.start;
    let copied = spawn_blocking(move || copy(&source, part, &temp_dir)).await;
    // A file that cannot be copied stays in memory.
    if let (Ok(Ok(copied)), Some(file)) = (copied, file.upgrade()) {
        file.replace(copied, len);
    }
    drop((late, counted));
}

/// Copies a part of a file to the same place in a new one.
fn copy(source: &SharedFile, part: Range<u64>, temp_dir: &Path) -> io::Result<UnnamedFile> {
    let copied = sys::file::unnamed(temp_dir)?;
    copy_to(source, part, &copied).map(|()| copied)
}

fn copy_to(source: &File, part: Range<u64>, copied: &File) -> io::Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK], part.start);
    while at < part.end {
        let most = usize::try_from(part.end - at).unwrap_or(BLOCK).min(BLOCK);
        source.read_exact_at(&mut block[..most], at)?;
        copied.write_all_at(&block[..most], at)?;
        at += most as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::held::{Account, Amount, Holding};
    use std::io::Write;

    fn in_memory(text: &[u8]) -> File {
        let mut file = sys::file::in_memory("firebrick-test").unwrap();
        file.write_all(text).unwrap();
        file
    }

    /// A file of a response, in memory, and its account.
    fn response(text: &[u8]) -> (Rc<OpenFile>, Rc<Account>) {
        let account = Rc::new(Account::new());
        let amount = Amount { memory: text.len() as u64, ..Amount::FILE };
        let hold = Holding::new(account.clone(), || (), || None).hold(amount);
        (Rc::new(OpenFile::of_response(in_memory(text), Some(hold)).made(true)), account)
    }

    fn is_unlinked_in(file: &File, dir: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        file.metadata().unwrap().dev() == dir.metadata().unwrap().dev()
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(test));
    }

    #[test]
    fn a_part_is_copied_to_the_same_place() {
        let text: Vec<u8> = (0..3 * BLOCK + 17).map(|at| (at % 251) as u8).collect();
        let source = SharedFile::from(in_memory(&text));
        let (start, end) = (13, text.len() - 5);
        let copied = copy(&source, start as u64..end as u64, &std::env::temp_dir()).unwrap();
        let mut read = vec![0; end - start];
        copied.read_exact_at(&mut read, start as u64).unwrap();
        assert!(read == text[start..end]);
        assert!(copy(&source, 0..text.len() as u64 + 1, &std::env::temp_dir()).is_err(), "it is shorter");
        assert!(copy(&source, 0..1, Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_moved_file_counts_on_the_disk_and_readers_keep_the_old_one() {
        run(async {
            let (file, account) = response(b"0123456789");
            let before = file.shared();
            let dir = std::env::current_dir().unwrap();
            move_now(Rc::downgrade(&file), 0..10, dir.clone()).await;
            assert_eq!(account.held(), Amount { descriptors: 1, memory: 0, disk: 10 });
            assert!(is_unlinked_in(&file.shared(), &dir) && !is_unlinked_in(&before, &dir));
            for one in [file.shared(), before] {
                let mut read = [0; 4];
                one.read_exact_at(&mut read, 6).unwrap();
                assert_eq!(&read, b"6789");
            }
            drop(file);
            assert_eq!(account.held(), Amount::default());
        });
    }

    #[test]
    fn a_file_stays_in_memory_if_the_folder_cannot_be_used() {
        run(async {
            let (file, account) = response(b"0123456789");
            move_now(Rc::downgrade(&file), 0..10, "/nonexistent".into()).await;
            assert_eq!(account.held(), Amount { descriptors: 1, memory: 10, disk: 0 });
            let mut read = [0; 10];
            file.shared().read_exact_at(&mut read, 0).unwrap();
            assert_eq!(&read, b"0123456789");
        });
    }

    #[test]
    fn the_memory_of_a_copied_file_counts_until_the_copy_ends() {
        let (file, account) = response(b"0123456789");
        let (source, late) = file.begin_copy();
        assert_eq!(late.bytes(), 0, "the hold counts it");
        drop(file);
        assert_eq!((late.bytes(), account.held()), (10, Amount::default()));
        drop((source, late));
        let (file, _account) = response(b"0123456789");
        let (_, late) = file.begin_copy();
        file.replace(sys::file::unnamed(&std::env::temp_dir()).unwrap(), 10);
        drop(file);
        assert_eq!(late.bytes(), 0, "the copy has ended");
    }

    #[test]
    fn copies_wait_for_their_turn() {
        run(async {
            let disk = Disk::default();
            let mut turns = Vec::new();
            for _ in 0..JOBS - 1 {
                turns.push(disk.turn(1).await);
            }
            let is_soon =
                async |bytes| tokio::time::timeout(std::time::Duration::ZERO, disk.turn(bytes)).await.is_ok();
            assert!(is_soon(BATCH as u64).await && !is_soon(BATCH as u64 + 1).await);
            turns.clear();
            assert!(is_soon(u64::MAX).await, "alone");
        });
    }
}
