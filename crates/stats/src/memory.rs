//! How much memory a process takes.

/// The proportional set size of a process in bytes: what it has for itself, and of what it shares with others its share.
/// That is the figure that can be added up over forked workers. Where the kernel does not tell it (before Linux 4.14, or
/// another user's process), the resident set size; 0 when that cannot be had either, as outside of Linux.
///
/// The kernel walks the process's page tables for it, which takes milliseconds for a large one: not for an event loop.
pub fn pss_bytes(pid: u32) -> u64 {
    pss(pid).or_else(|| rss(pid)).unwrap_or(0)
}

fn pss(pid: u32) -> Option<u64> {
    rollup_pss(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn rss(pid: u32) -> Option<u64> {
    let pages = statm_resident(&std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

fn rollup_pss(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

fn statm_resident(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let rollup =
            "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  18432 kB\nPss:   9216 kB\nPss_Dirty: 12 kB\n";
        assert_eq!(rollup_pss(rollup), Some(9_216 * 1_024));
        assert_eq!(rollup_pss("Rss: 1 kB\n"), None);
        assert_eq!(rollup_pss("Pss: many kB\n"), None);
        assert_eq!(statm_resident("2000 150 90 1 0 60 0\n"), Some(150));
        assert_eq!(statm_resident(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_no_process_has_none() {
        let held = std::hint::black_box(vec![1_u8; 8 << 20]);
        assert!(pss_bytes(std::process::id()) > held.len() as u64);
        assert_eq!(pss_bytes(u32::MAX), 0);
    }
}
