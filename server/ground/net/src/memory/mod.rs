//! Counts the memory that the front holds for clients, and derives the measures to take when it comes near
//! the limit.
//!
//! Why: each buffer has its own limit, but a server has thousands of buffers. Without a common limit, many
//! slow clients together take more memory than the machine has, and the kernel kills the process.
//!
//! Contract:
//! 1. Buffers whose number or size depends on clients are counted in bytes, by [`MemoryClass`]: with a
//!    [`Reserved`], or with [`change`].
//! 2. A count is cheap: each thread gathers its changes in steps of 64 KiB, so most changes cost no atomic
//!    operation. The figures are exact to one step for each thread and class; [`settle`] makes those of a
//!    thread exact.
//! 3. Memory that is not counted (the allocator's own needs, the heads of requests) is measured:
//!    [`MemoryClass::Other`] is the resident memory above the counted bytes. At most a quarter of the limit counts,
//!    so that a wrong measurement does not stop a server.
//! 4. The [`Level`] follows from the sum and the limit. Each user of memory reads it: see the levels.
//! 5. From [`Level::Waiting`] on, what is kept only to save work is given back ([`scarcity`]): no client waits while the cache could make room.
//! 6. From [`Level::Full`] on, requests that have not begun wait ([`holds_requests_back`]), and go on at once when memory is less
//!    scarce ([`relief`]). If those that wait hold most of the memory themselves, they go on, or memory would stay full.
//!    They also wait while the disk is behind ([`AwaitsDisk`]).
//! 7. Without a limit ([`set_limit`]) the level is always [`Level::Normal`].

mod awaits_disk;
mod class;
mod ledger;
mod level;

pub use awaits_disk::AwaitsDisk;
pub use class::MemoryClass;
pub use ledger::{LevelChange, Usage};
pub use level::Level;

use ledger::{Ledger, Share};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The shortest time between two measurements of the process.
const MEASURED_EVERY: Duration = Duration::from_millis(100);

static LEDGER: Ledger = Ledger::new();
/// Called when the level changes.
static OBSERVER: OnceLock<Box<dyn Fn(LevelChange) + Send + Sync>> = OnceLock::new();
/// Changes while what saves only work must be given back.
static SCARCITY: LazyLock<watch::Sender<()>> = LazyLock::new(watch::Sender::default);
/// Changes when requests that are held back may perhaps begin.
static RELIEF: LazyLock<watch::Sender<()>> = LazyLock::new(watch::Sender::default);
/// The start of the clock for [`MEASURED_AT`].
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
/// When the process was last measured, in milliseconds.
static MEASURED_AT: AtomicU64 = AtomicU64::new(0);
/// Requests that were refused because of the limit.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Whether temporary files are in memory, too.
static FILES_IN_MEMORY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SHARE: Local = const { Local(Share::new()) };
}

/// The changes of a thread that the ledger does not have yet.
struct Local(Share);

impl Drop for Local {
    fn drop(&mut self) {
        LEDGER.settle(&self.0);
    }
}

/// Sets the limit in bytes.
pub fn set_limit(bytes: u64) {
    LEDGER.set_limit(bytes);
    measure();
}

/// Returns the limit in bytes; `None` without one.
pub fn limit() -> Option<u64> {
    Some(LEDGER.limit()).filter(|limit| *limit < u64::MAX)
}

/// Sets the function that is called when the level changes. Only the first call has an effect.
pub fn observe(observer: impl Fn(LevelChange) + Send + Sync + 'static) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// Returns a receiver that changes when [`Level::Waiting`] is reached, and then about every 100 ms until memory is less scarce. Each time, each thread gives
/// back what it keeps only to save work.
pub fn scarcity() -> watch::Receiver<()> {
    SCARCITY.subscribe()
}

/// Returns a receiver that changes when the level falls, or the disk is no longer behind, so that requests may perhaps begin again.
pub fn relief() -> watch::Receiver<()> {
    RELIEF.subscribe()
}

/// Returns whether requests must wait before they begin, because their responses would have no room, or too many wait for the disk. Unlike
/// [`level`], it never measures the process.
#[inline]
pub fn holds_requests_back() -> bool {
    LEDGER.holds_requests_back() || awaits_disk::is_behind()
}

/// Declares whether files in the folder of temporary files are in memory (tmpfs). They then count as [`MemoryClass::Files`], and no buffer is
/// relieved by writing it to a file.
pub fn files_are_in_memory(are: bool) {
    FILES_IN_MEMORY.store(are, Ordering::Relaxed);
}

/// Returns whether temporary files are in memory.
pub fn are_files_in_memory() -> bool {
    FILES_IN_MEMORY.load(Ordering::Relaxed)
}

/// Counts a buffer of this class that was `from` bytes long and is now `to` bytes long.
#[inline]
pub fn change(class: MemoryClass, from: u64, to: u64) {
    if from == to {
        return;
    }
    // Wraps around when the buffer shrinks, which gives the right difference.
    let by = to.wrapping_sub(from).cast_signed();
    if SHARE.try_with(|share| share.0.gather(class, by)).unwrap_or(true) {
        settle_class(class, by);
    }
}

#[cold]
fn settle_class(class: MemoryClass, by: i64) {
    let changed = match SHARE.try_with(|share| LEDGER.settle_class(&share.0, class)) {
        Ok(changed) => changed,
        // The thread is ending.
        Err(_) => LEDGER.add(class, by),
    };
    tell(changed);
    if is_due() {
        measure();
    }
}

/// Adds this thread's last changes to the figures.
pub fn settle() {
    if let Ok(changed) = SHARE.try_with(|share| LEDGER.settle(&share.0)) {
        tell(changed);
    }
}

#[inline]
pub fn level() -> Level {
    match LEDGER.level() {
        Level::Normal => Level::Normal,
        known => look_again(known),
    }
}

/// Returns the level after a shortage: memory may have become free in the meantime.
#[cold]
fn look_again(known: Level) -> Level {
    if !is_due() {
        return known;
    }
    settle();
    measure();
    LEDGER.level()
}

/// Measures the process and returns the figures.
pub fn usage() -> Usage {
    settle();
    measure();
    LEDGER.usage()
}

/// Returns the known figures.
pub fn figures() -> Usage {
    LEDGER.usage()
}

/// Counts a refused request. Returns the reason, which is the same for all that are refused for it, so that a
/// log can count them together.
#[cold]
pub fn refuse() -> String {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    let limit = LEDGER.usage().limit();
    match awaits_disk::is_behind() {
        true => format!(
            "the disk of temp_dir is too slow for the responses that wait for it (limits.memory is {limit})"
        ),
        false => format!("the memory for clients is used up (limits.memory is {limit})"),
    }
}

/// Returns the number of refused requests.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

fn is_due() -> bool {
    let now = millis();
    now.saturating_sub(MEASURED_AT.load(Ordering::Relaxed)) >= MEASURED_EVERY.as_millis() as u64
}

fn millis() -> u64 {
    // A measurement is due at the start.
    (BASE.elapsed() + MEASURED_EVERY).as_millis() as u64
}

/// Measures the process.
fn measure() {
    MEASURED_AT.store(millis(), Ordering::Relaxed);
    tell(LEDGER.measured(sys::process::rss_bytes(std::process::id())));
    if LEDGER.level() >= Level::Waiting {
        SCARCITY.send_replace(());
    }
}

fn tell(changed: Option<LevelChange>) {
    let Some(change) = changed else { return };
    // Not only at the next measurement: memory may be less scarce then, because clients have lost their responses.
    if change.to >= Level::Waiting {
        SCARCITY.send_replace(());
    }
    if change.to < change.from {
        RELIEF.send_replace(());
    }
    if let Some(observer) = OBSERVER.get() {
        observer(change);
    }
}

/// Bytes of a class, counted until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    class: MemoryClass,
    bytes: Cell<u64>,
}

impl Reserved {
    pub fn new(class: MemoryClass, bytes: u64) -> Reserved {
        change(class, 0, bytes);
        Reserved { class, bytes: Cell::new(bytes) }
    }

    /// Changes the number of bytes.
    #[inline]
    pub fn set(&self, bytes: u64) {
        change(self.class, self.bytes.replace(bytes), bytes);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        change(self.class, self.bytes.get(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because the ledger belongs to the process.
    #[test]
    fn threads_count_together_and_leave_nothing_behind() {
        let seen = || LEDGER.usage().of(MemoryClass::Streams);
        assert_eq!((level(), limit()), (Level::Normal, None));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let held: Vec<Reserved> =
                        (0..1000).map(|_| Reserved::new(MemoryClass::Streams, 1000)).collect();
                    held.iter().for_each(|one| one.set(500));
                    std::mem::forget(held);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(seen(), 4 * 1000 * 500, "a thread that ends leaves its last changes");
        change(MemoryClass::Streams, 4 * 1000 * 500, 0);
        let small = Reserved::new(MemoryClass::Streams, 10);
        assert_eq!((seen(), small.bytes()), (0, 10));
        settle();
        assert_eq!(seen(), 10);
        drop(small);
        settle();
        assert_eq!(seen(), 0);
        // The memory of this process is above 1 MiB, but a quarter at most counts as other.
        set_limit(1 << 20);
        let usage = usage();
        assert_eq!(
            (usage.of(MemoryClass::Other), level(), limit()),
            (256 << 10, Level::Normal, Some(1 << 20))
        );
        let reserved = Reserved::new(MemoryClass::Responses, 1 << 20);
        assert_eq!(level(), Level::Full);
        assert!(holds_requests_back());
        let relief = relief();
        assert!(!relief.has_changed().unwrap());
        let reason = refuse();
        assert!(reason.contains("limits.memory is 1 MiB"), "{reason}");
        assert_eq!(refused(), 1);
        drop(reserved);
        assert!(relief.has_changed().unwrap() && !holds_requests_back());
        assert_eq!(level(), Level::Normal);
        let waiting = AwaitsDisk::new(64 << 10);
        let more = AwaitsDisk::new(1);
        assert!(!holds_requests_back(), "memory is not scarce");
        drop(more);
        let scarce = Reserved::new(MemoryClass::Responses, 600 << 10);
        assert!(level() == Level::Files && !holds_requests_back(), "a sixteenth of the limit");
        let relief = super::relief();
        let more = AwaitsDisk::new(1);
        assert!(holds_requests_back() && !relief.has_changed().unwrap());
        assert!(refuse().contains("the disk of temp_dir"), "{}", refuse());
        waiting.remove(1);
        assert!(relief.has_changed().unwrap() && !holds_requests_back());
        drop((waiting, more, scarce));
        assert_eq!(level(), Level::Normal);
    }
}
