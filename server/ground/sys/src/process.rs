//! Processes: the information that `/proc` gives about them, handles, orphans.
//!
//! Contract:
//! 1. Without `/proc` all figures of memory and time are 0, except those of [`running`] and [`memory`], which
//!    ask ps(1).
//! 2. [`state`]: the state of a process as a letter of ps(1), `T` for stopped, `Z` for not reaped yet; `None`
//!    if there is no such process.
//! 3. [`program`]: the program of a process; `None` if there is no such process, it has exited, or the system
//!    does not tell ([`PROGRAMS_ARE_KNOWN`]).
//! 4. [`own_program`]: a path of this program that works even if its file was replaced. [`BY_DESCRIPTOR`]:
//!    whether that path only works in this process, so that others need an open file. [`DESCRIPTORS`]: the
//!    directory of this process's descriptors.
//! 5. [`DUMP`]: the signal that makes a worker write the backtraces of its threads, with its name for Ruby
//!    (`Firebrick::Template::DUMP`). [`catches_dump`]: whether it is certain that the signal does not end the
//!    process, which may have just been started.
//! 6. [`die_with_parent`]: the kernel kills this process when its parent exits. [`adopt_orphans`] and
//!    [`children`]: orphaned descendants become children of this process. Systems without these features reap
//!    orphans themselves; there the functions do nothing, and `children` is empty.
//! 7. [`Handle`]: stays valid when the number of its process is reused. Opening returns `Errno::SRCH` if
//!    there is no such process, and another error if the system has no such handles. It is readable when the
//!    process has exited; `wait` waits for that, and returns whether it has happened. `signal` reaches this
//!    process or none. `reap` reaps it if it is a child that has exited, and returns its exit code, or the
//!    signal as an error.
//! 8. [`affinity`]: the CPUs on which the first thread of a process may run, or the calling thread, if the
//!    system tells. [`run_on`] moves the calling thread, and the processes that it starts, to these CPUs, if
//!    the system can.
//! 9. [`ThreadClock`]: the computing time of the thread that created it; any thread may read it. It never goes back.

use crate::proc::{kib_of, numbers, rollup, schedstat, status};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use crate::proc::{ProcessMemory, RunningProgram, Stat, name, working_dir};
pub use crate::system::{
    BY_DESCRIPTOR, DESCRIPTORS, DUMP, Handle, PROGRAMS_ARE_KNOWN, ThreadClock, adopt_orphans, affinity,
    catches_dump, children, die_with_parent, memory, own_program, program, run_on, running, state,
};

/// The maximum age of [`recent_pss_bytes`]: a history that is taken more often leaves all processes measured,
/// except new ones.
pub const KEPT: Duration = Duration::from_secs(30);

/// More than `stat` and `statm` can contain: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const SHORT: usize = 2_048;

/// Kills a child and reaps it, as [`reap`] does. It may have exited already.
pub fn kill(mut child: Child) {
    let _ = child.kill();
    reap(child);
}

/// Reaps a child that is ending, and does not wait for that: one that was killed while it waits for a file server
/// ends when the file server answers.
pub fn reap(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // Without a thread the child is a zombie until this process ends.
        let _ = std::thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait());
    }
}

/// Returns the proportional set size of a process in bytes: its private memory plus its share of shared
/// memory. This figure can be added up over forked workers. If the kernel does not report it (before Linux
/// 4.14, or for another user's process), returns the resident set size, or 0 if that is unknown too, as on
/// other systems.
///
/// The kernel walks the page tables of the process, which takes milliseconds for a large one. Do not call
/// this in an event loop.
pub fn pss_bytes(pid: u32) -> u64 {
    let [pss] = rollup(pid, ["Pss:"]);
    pss.or_else(|| rss(pid)).unwrap_or(0)
}

/// Returns the proportional set size of a process in bytes, measured at most `age` ago. The kernel walks the
/// page tables of a process for it, which delays the process's own page faults, so readers that poll share
/// what was measured. `age` is at most [`KEPT`].
pub fn recent_pss_bytes(pid: u32, age: Duration) -> u64 {
    static MEASURED: Mutex<BTreeMap<u32, (Instant, u64)>> = Mutex::new(BTreeMap::new());
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, pss)) = measured.get(&pid).filter(|(at, _)| at.elapsed() < age) {
        return *pss;
    }
    // Drops the entries of processes that have exited.
    measured.retain(|_, (at, _)| at.elapsed() < KEPT);
    let pss = pss_bytes(pid);
    measured.insert(pid, (Instant::now(), pss));
    pss
}

/// Returns the resident set size of a process in bytes, including all shared memory. 0 if the kernel does not
/// report it, as on other systems than Linux.
pub fn rss_bytes(pid: u32) -> u64 {
    rss(pid).unwrap_or(0)
}

/// Returns the memory of a process that is not backed by a file, in bytes: the memory that a similar process
/// would need if it shared nothing with this one. 0 if the kernel does not report it (before Linux 4.5).
pub fn anonymous_bytes(pid: u32) -> u64 {
    kib_of(&status(pid), "RssAnon:").unwrap_or(0)
}

/// Returns the memory that a process shares with no other, in bytes: the memory that its end would free. 0 if
/// the kernel does not report it. Takes as long as [`pss_bytes`].
pub fn private_bytes(pid: u32) -> u64 {
    let [private] = rollup(pid, ["Private_Dirty:"]);
    private.unwrap_or(0)
}

/// Returns the CPU time of all threads of a process, in user and kernel mode, in milliseconds, with the
/// precision of the kernel's clock tick (10 ms). 0 if the system does not report it, as on other systems than
/// Linux.
pub fn cpu_ms(pid: u32) -> u64 {
    let ticks = read_short(pid, "stat", stat_ticks);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    ticks.unwrap_or(0).saturating_mul(1_000) / per_second
}

/// Returns the entries of the environment with which a process was started: names and values, separated by NUL.
pub fn environment(pid: i32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// Returns for each thread of a process the nanoseconds on a CPU, and those waiting for one.
pub fn schedules(pid: i32) -> impl Iterator<Item = (i32, (u64, u64))> {
    let tasks = format!("/proc/{pid}/task");
    numbers(&tasks).filter_map(move |task| Some((task, schedstat(&format!("{tasks}/{task}/schedstat"))?)))
}

fn rss(pid: u32) -> Option<u64> {
    let pages = read_short(pid, "statm", statm_resident)?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Applies `find` to a file of a process that consists of one short line. The kernel produces such a file
/// completely on the first read, so there is no second read. Its size is not queried, because it would be 0.
/// Scrapes read such a file for each worker.
fn read_short(pid: u32, name: &str, find: fn(&str) -> Option<u64>) -> Option<u64> {
    let mut text = [0; SHORT];
    let length = std::fs::File::open(format!("/proc/{pid}/{name}")).ok()?.read(&mut text).ok()?;
    find(std::str::from_utf8(&text[..length]).ok()?)
}

fn statm_resident(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the sum of `utime` and `stime`. The second field is a name in parentheses that may contain any
/// characters.
fn stat_ticks(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    times.next()?.ok()?.checked_add(times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_schedstat;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_accepted(text in any::<String>()) {
            let _ = (Stat::parse(&text), parse_schedstat(&text), stat_ticks(&text), kib_of(&text, ""));
        }
    }

    #[test]
    fn stat_lines_are_parsed() {
        let line = "42 (a (b) c) S 1 40 40 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 777 1 2";
        assert_eq!(Stat::parse(line), Some(Stat { pid: 42, parent: 1, group: 40, ticks: 100, started: 777 }));
        assert_eq!(Stat::parse(&line.replace(") S", ") Z")), None, "a zombie is ignored");
        assert_eq!(parse_schedstat("123 45 6\n"), Some((123, 45)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_child_that_takes_long_to_end_is_reaped_later() {
        use std::process::{Command, Stdio};
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (pid, input) = (child.id(), child.stdin.take());
        reap(child);
        let exists = || state(pid).is_some();
        assert!(exists(), "nothing has waited for its end");
        drop(input);
        let until = Instant::now() + Duration::from_secs(30);
        while exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!exists(), "it is a zombie, or still runs");
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let rollup =
            "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  18432 kB\nPss:   9216 kB\nPss_Dirty: 12 kB\n";
        assert_eq!(kib_of(rollup, "Pss:"), Some(9_216 * 1_024));
        assert_eq!(kib_of("VmRSS:\t 90 kB\nRssAnon:\t  50 kB\n", "RssAnon:"), Some(50 * 1_024));
        assert_eq!(kib_of("Rss: 1 kB\n", "Pss:"), None);
        assert_eq!(kib_of("Pss: many kB\n", "Pss:"), None);
        assert_eq!(statm_resident("2000 150 90 1 0 60 0\n"), Some(150));
        assert_eq!(statm_resident(""), None);
        let stat = "42 (a ) R 1 2) name) S 1 42 42 0 -1 4194560 900 80 0 0 150 25 7 3 20 0 4 0 12345 0 0";
        assert_eq!(stat_ticks(stat), Some(175));
        assert_eq!(stat_ticks("42 (ruby) S 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_no_process_has_none() {
        let held = std::hint::black_box(vec![1_u8; 8 << 20]);
        assert!(pss_bytes(std::process::id()) > held.len() as u64);
        assert!(rss_bytes(std::process::id()) > held.len() as u64);
        assert!(anonymous_bytes(std::process::id()) > held.len() as u64);
        assert!(private_bytes(std::process::id()) > held.len() as u64);
        assert_eq!((pss_bytes(u32::MAX), rss_bytes(u32::MAX), cpu_ms(u32::MAX)), (0, 0, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_measured_once_in_a_while() {
        const AGE: Duration = Duration::from_millis(500);
        let own = std::process::id();
        let (begun, first) = (Instant::now(), recent_pss_bytes(own, AGE));
        let held = std::hint::black_box(vec![1_u8; 8 << 20]);
        let second = recent_pss_bytes(own, AGE);
        assert!(second == first || begun.elapsed() >= AGE, "kept");
        std::thread::sleep(AGE);
        assert_ne!(recent_pss_bytes(own, AGE), first, "measured again");
        let known = recent_pss_bytes(own, KEPT);
        std::thread::sleep(AGE);
        assert_eq!(recent_pss_bytes(own, KEPT), known, "old enough for a scrape");
        drop(held);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_takes_processor_time() {
        let id = std::process::id();
        let (before, begun) = (cpu_ms(id), std::time::Instant::now());
        while cpu_ms(id) < before + 20 {
            assert!(begun.elapsed().as_secs() < 60, "busy for a minute and it does not show");
        }
    }
}
