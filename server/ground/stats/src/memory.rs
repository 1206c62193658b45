//! Reads the memory and CPU time of a process.

use std::io::Read;

/// More than `stat` and `statm` can contain: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const SHORT: usize = 2_048;

/// Returns the proportional set size of a process in bytes: its private memory plus its share of shared
/// memory. This figure can be added up over forked workers. If the kernel does not report it (before Linux
/// 4.14, or for another user's process), returns the resident set size, or 0 if that is unknown too, as on
/// other systems.
///
/// The kernel walks the page tables of the process, which takes milliseconds for a large one. Do not call
/// this in an event loop.
pub fn pss_bytes(pid: u32) -> u64 {
    pss(pid).or_else(|| rss(pid)).unwrap_or(0)
}

/// Returns the resident set size of a process in bytes, including all shared memory. 0 if the kernel does not
/// report it, as on other systems than Linux.
pub fn rss_bytes(pid: u32) -> u64 {
    rss(pid).unwrap_or(0)
}

/// Returns the memory of a process that is not backed by a file, in bytes: the memory that a similar process
/// would need if it shared nothing with this one. 0 if the kernel does not report it (before Linux 4.5).
pub fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kib_of(&status, "RssAnon:").unwrap_or(0)
}

/// Returns the memory that a process shares with no other, in bytes: the memory that its end would free. 0 if
/// the kernel does not report it. Takes as long as [`pss_bytes`].
pub fn private_bytes(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    kib_of(&rollup, "Private_Dirty:").unwrap_or(0)
}

/// Returns the CPU time of all threads of a process, in user and kernel mode, in milliseconds, with the
/// precision of the kernel's clock tick (10 ms). 0 if the system does not report it, as on other systems than
/// Linux.
pub fn cpu_ms(pid: u32) -> u64 {
    let ticks = read_short(pid, "stat", stat_ticks);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    ticks.unwrap_or(0).saturating_mul(1_000) / per_second
}

fn pss(pid: u32) -> Option<u64> {
    rollup_pss(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
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

fn rollup_pss(text: &str) -> Option<u64> {
    kib_of(text, "Pss:")
}

/// Returns the figure after `name`, in bytes, from a text with one figure per line.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1_024)
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

    #[test]
    fn the_kernels_tables_are_read() {
        let rollup =
            "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  18432 kB\nPss:   9216 kB\nPss_Dirty: 12 kB\n";
        assert_eq!(rollup_pss(rollup), Some(9_216 * 1_024));
        assert_eq!(kib_of("VmRSS:\t 90 kB\nRssAnon:\t  50 kB\n", "RssAnon:"), Some(50 * 1_024));
        assert_eq!(rollup_pss("Rss: 1 kB\n"), None);
        assert_eq!(rollup_pss("Pss: many kB\n"), None);
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
    fn work_takes_processor_time() {
        let id = std::process::id();
        let (before, begun) = (cpu_ms(id), std::time::Instant::now());
        while cpu_ms(id) < before + 20 {
            assert!(begun.elapsed().as_secs() < 60, "busy for a minute and it does not show");
        }
    }
}
