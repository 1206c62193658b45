//! The machine: the resources that this process may use, those that are idle, and the names of processor and kernel.

mod cgroup;
mod cpu;

use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use cpu::{CpuClock, ticks};

use crate::proc::kib_of;
use crate::process::affinity;

/// The maximum age of [`Machine::recent`]. A pod can be resized while it runs; but a reading takes a dozen
/// files, and a socket to test for IPv6.
pub const AGE: Duration = Duration::from_secs(5);

/// The resources that this process may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// CPUs that the process may run on.
    pub cores: u32,
    /// CPU time per second that the cgroup grants, in CPUs; `None` without a quota.
    pub cpu_quota: Option<f64>,
    /// The cgroup's memory limit in bytes; `None` without a limit.
    pub memory_limit: Option<u64>,
    /// The machine's memory in bytes; `None` if unknown.
    pub memory_total: Option<u64>,
    /// The most files that the process may have open (`RLIMIT_NOFILE`, the hard limit); `None` if unlimited.
    pub open_files: Option<u64>,
    /// The most memory maps of a process (`vm.max_map_count`); `None` if unlimited.
    pub max_map_count: Option<u64>,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
}

impl Machine {
    /// Returns a machine with `cores` CPUs and IPv6 and without limits, for tests and defaults.
    pub fn unlimited(cores: u32) -> Machine {
        Machine {
            cores,
            cpu_quota: None,
            memory_limit: None,
            memory_total: None,
            open_files: None,
            max_map_count: None,
            ipv6: true,
        }
    }

    /// Reads the limits of this process and its cgroups.
    pub fn read() -> Machine {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let granted = cgroup::read(Path::new("/sys/fs/cgroup"), &membership);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            cores: cores(),
            cpu_quota: granted.cpus,
            memory_limit: granted.memory,
            memory_total: kib_of(&meminfo, "MemTotal:"),
            open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
            max_map_count: std::fs::read_to_string("/proc/sys/vm/max_map_count")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            // A kernel without IPv6, or with IPv6 disabled, does not have this address.
            ipv6: std::net::UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok(),
        }
    }

    /// Returns a reading that is at most [`AGE`] old. All readers in this program share it.
    pub fn recent() -> Machine {
        static LAST: Mutex<Option<(Instant, Machine)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, machine)) if at.elapsed() < AGE => machine.clone(),
            _ => last.insert((Instant::now(), Machine::read())).1.clone(),
        }
    }

    /// Returns how many processes the kernel has killed because memory ran out: in this process's control
    /// group, or on the whole machine where the group has no counter. `None` if neither has one.
    pub fn oom_kills() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        cgroup::oom_kills(Path::new("/sys/fs/cgroup"), &membership)
            .or_else(|| cgroup::counter(&std::fs::read_to_string("/proc/vmstat").ok()?, "oom_kill"))
    }

    /// Returns the bytes of memory that processes can still use, including file cache that the kernel can
    /// reclaim. The tighter of the control groups and the machine counts. `None` if unknown.
    pub fn memory_available() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = cgroup::available(Path::new("/sys/fs/cgroup"), &membership);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        group.into_iter().chain(kib_of(&meminfo, "MemAvailable:")).min()
    }

    /// Reads the used and idle processor time so far. Two readings give the idle share.
    pub fn cpu_clock() -> CpuClock {
        CpuClock::read()
    }

    /// Returns the usable CPU time in CPUs: the CPUs of the affinity mask, or the quota if that is less.
    pub fn cpu_time(&self) -> f64 {
        self.cpu_quota.map_or(f64::from(self.cores), |quota| quota.min(f64::from(self.cores)))
    }

    /// Returns the usable memory in bytes: the tighter of the cgroup's limit and the machine's memory. `None`
    /// if neither is known.
    pub fn memory(&self) -> Option<u64> {
        self.memory_limit.into_iter().chain(self.memory_total).min()
    }

    /// Returns the number of whole usable CPUs: the affinity mask, lowered by the quota (rounded up).
    pub fn cpus(&self) -> u32 {
        let quota = self.cpu_quota.map_or(u32::MAX, |quota| quota.ceil().max(1.0) as u32);
        self.cores.min(quota).max(1)
    }
}

/// Returns the most files that this process may have open now (`RLIMIT_NOFILE`, the soft limit); `None` if unlimited. A server raises it
/// to [`Machine::open_files`].
pub fn soft_open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns the CPUs of the first thread: `taskset -p` changes only that one, and any thread may read them.
fn usable_cpus() -> Option<Vec<usize>> {
    affinity(Some(rustix::process::getpid()))
}

/// Returns the number of CPUs in the affinity mask. Without a mask, uses `available_parallelism`, which
/// includes the quota, rounded down.
fn cores() -> u32 {
    let count = match usable_cpus() {
        Some(cpus) => cpus.len().max(1),
        None => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the processor's name, if the kernel provides it.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the kernel's name and release.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_tighter_of_limit_and_machine() {
        let machine =
            |limit, total| Machine { memory_limit: limit, memory_total: total, ..Machine::unlimited(1) };
        assert_eq!(machine(Some(5), Some(9)).memory(), Some(5));
        assert_eq!(machine(Some(u64::MAX), Some(9)).memory(), Some(9));
        assert_eq!(machine(None, None).memory(), None);
    }

    #[test]
    fn the_soft_limit_is_within_the_hard_one() {
        let hard = Machine::read().open_files.unwrap_or(u64::MAX);
        assert!(soft_open_files().unwrap_or(u64::MAX) <= hard);
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(Machine::read().cores >= 1 && !kernel().is_empty());
    }

    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    #[test]
    fn any_thread_reads_the_cpus_of_the_first() {
        use crate::process::run_on;
        let all = Machine::read().cores;
        let pinned = std::thread::spawn(|| {
            run_on(&affinity(None).unwrap()[..1]);
            (affinity(None).unwrap().len(), Machine::read().cores)
        });
        assert_eq!(pinned.join().unwrap(), (1, all));
    }
}
