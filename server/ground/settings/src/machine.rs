//! The resources that this process may use, and the numbers that `auto` derives from them.
//!
//! Contract: [`auto_workers`] and [`auto_front_threads`] are pure; only [`Machine::read`] reads from the system.

mod cgroup;
mod cpu;

use std::num::NonZero;
use std::path::Path;

pub use cpu::CpuClock;

use crate::system::affinity;

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
            memory_total: memory_total(&meminfo),
            open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
            max_map_count: std::fs::read_to_string("/proc/sys/vm/max_map_count")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            // A kernel without IPv6, or with IPv6 disabled, does not have this address.
            ipv6: std::net::UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok(),
        }
    }

    /// Returns how many processes the kernel has killed because memory ran out: in this process's control group, or on the whole machine where the
    /// group has no counter. `None` if neither has one.
    pub fn oom_kills() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        cgroup::oom_kills(Path::new("/sys/fs/cgroup"), &membership)
            .or_else(|| cgroup::counter(&std::fs::read_to_string("/proc/vmstat").ok()?, "oom_kill"))
    }

    /// Returns the bytes of memory that processes can still use, including file cache that the kernel can reclaim. The tighter of the control
    /// groups and the machine counts. `None` if unknown.
    pub fn memory_available() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = cgroup::available(Path::new("/sys/fs/cgroup"), &membership);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        group.into_iter().chain(meminfo_field(&meminfo, "MemAvailable:")).min()
    }

    /// Reads the used and idle processor time so far. Two readings give the idle share.
    pub fn cpu_clock() -> CpuClock {
        CpuClock::read()
    }

    /// Returns the usable CPU time in CPUs: the CPUs of the affinity mask, or the quota if that is less.
    pub fn cpu_time(&self) -> f64 {
        self.cpu_quota.map_or(f64::from(self.cores), |quota| quota.min(f64::from(self.cores)))
    }

    /// Returns the usable memory in bytes: the tighter of the cgroup's limit and the machine's memory. `None` if neither is known.
    pub fn memory(&self) -> Option<u64> {
        memory_bound(self).map(|(bytes, _)| bytes)
    }

    /// Returns the number of whole usable CPUs: the affinity mask, lowered by the quota (rounded up).
    pub fn cpus(&self) -> u32 {
        let quota = self.cpu_quota.map_or(u32::MAX, |quota| quota.ceil().max(1.0) as u32);
        self.cores.min(quota).max(1)
    }
}

/// Returns the number of CPUs in the affinity mask. Without a mask, uses `available_parallelism`, which includes the quota, rounded down.
fn cores() -> u32 {
    let count = match affinity() {
        Some(cpus) => cpus.len().max(1),
        None => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns `MemTotal` of `/proc/meminfo` in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    meminfo_field(meminfo, "MemTotal:")
}

/// Returns a field of `/proc/meminfo` in bytes.
fn meminfo_field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A number derived for `auto`, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// At least 1.
    pub number: u32,
    /// Fits after the number: `auto: 2 CPUs by cgroup quota`.
    pub why: String,
}

/// Returns the number of workers for this machine if each takes about `worker_memory` bytes.
pub fn auto_workers(machine: &Machine, worker_memory: u64) -> Chosen {
    let cpus = machine.cpus();
    let why = format!("auto: {}", cpu_reason(machine));
    match worker_room(machine, worker_memory).filter(|(room, _)| *room < cpus) {
        None => Chosen { number: cpus, why },
        Some((room, what)) => {
            let each = text::size::exact(worker_memory);
            Chosen { number: room, why: format!("auto: {what} has room for {room} of {each} each") }
        }
    }
}

/// Returns how many workers fit into memory, at least 1, and a description of that memory: `the cgroup's memory limit of 512 MiB`. `None` if the
/// memory is unknown.
pub(crate) fn worker_room(machine: &Machine, worker_memory: u64) -> Option<(u32, String)> {
    let (memory, what) = memory_bound(machine)?;
    let room = u32::try_from(memory / worker_memory.max(1)).unwrap_or(u32::MAX).max(1);
    Some((room, format!("{what} of {}", mebibytes(memory))))
}

/// Returns the number of event-loop threads for this machine. `workers`: whether it also runs workers.
///
/// With workers it is three quarters of the CPUs, because that is the front's share of the smallest request that Ruby answers. With more threads
/// each turn of an event loop handles fewer requests; on two CPUs a second thread costs 9 to 17 % of CPU time per request.
pub fn auto_front_threads(machine: &Machine, workers: bool) -> Chosen {
    const MOST: u32 = 16;
    let cpus = machine.cpus();
    let wanted = if workers { (cpus * 3 / 4).max(1) } else { cpus };
    let why = if wanted > MOST {
        format!("auto: at most {MOST}")
    } else if workers && cpus > 1 {
        format!("auto: three quarters of {}", cpu_reason(machine))
    } else {
        format!("auto: {}", cpu_reason(machine))
    };
    Chosen { number: wanted.min(MOST), why }
}

fn cpu_reason(machine: &Machine) -> String {
    let cpus = machine.cpus();
    let plural = if cpus == 1 { "CPU" } else { "CPUs" };
    match machine.cpu_quota {
        Some(quota) if cpus < machine.cores && quota.fract() != 0.0 => {
            format!("{cpus} {plural} by cgroup quota ({quota:.2}, rounded up)")
        }
        Some(_) if cpus < machine.cores => format!("{cpus} {plural} by cgroup quota"),
        _ => format!("{cpus} {plural}"),
    }
}

/// Returns the tighter of the cgroup's limit and the machine's memory.
fn memory_bound(machine: &Machine) -> Option<(u64, &'static str)> {
    let limit = machine.memory_limit.map(|bytes| (bytes, "the cgroup's memory limit"));
    let total = machine.memory_total.map(|bytes| (bytes, "the machine's memory"));
    limit.into_iter().chain(total).min_by_key(|(bytes, _)| *bytes)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(cores: u32) -> Machine {
        Machine { memory_total: Some(64 << 30), ..Machine::unlimited(cores) }
    }

    #[test]
    fn cores_decide_when_nothing_is_limited() {
        assert_eq!(auto_workers(&machine(8), 256 * MIB), Chosen { number: 8, why: "auto: 8 CPUs".into() });
        assert_eq!(auto_workers(&machine(1), 256 * MIB).why, "auto: 1 CPU");
    }

    #[test]
    fn the_quota_is_rounded_up_and_never_raises() {
        let with = |quota| Machine { cpu_quota: Some(quota), ..machine(8) };
        assert_eq!(
            auto_workers(&with(2.0), 256 * MIB),
            Chosen { number: 2, why: "auto: 2 CPUs by cgroup quota".into() }
        );
        let half = auto_workers(&with(1.5), 256 * MIB);
        assert_eq!((half.number, half.why.as_str()), (2, "auto: 2 CPUs by cgroup quota (1.50, rounded up)"));
        assert_eq!(auto_workers(&with(0.1), 256 * MIB).number, 1);
        assert_eq!(auto_workers(&with(64.0), 256 * MIB), Chosen { number: 8, why: "auto: 8 CPUs".into() });
    }

    #[test]
    fn memory_bounds_and_leaves_one() {
        let with = |limit| Machine { memory_limit: Some(limit), ..machine(8) };
        let three = auto_workers(&with(900 * MIB), 256 * MIB);
        assert_eq!(three.number, 3);
        assert_eq!(three.why, "auto: the cgroup's memory limit of 900 MiB has room for 3 of 256MiB each");
        assert_eq!(auto_workers(&with(100 * MIB), 256 * MIB).number, 1);
        assert_eq!(auto_workers(&with(u64::MAX), 256 * MIB).number, 8);
        let small = Machine { memory_total: Some(600 * MIB), ..machine(4) };
        assert_eq!(auto_workers(&small, 256 * MIB).number, 2);
    }

    #[test]
    fn front_threads_stop_at_sixteen() {
        for (cpus, alone, beside_workers) in
            [(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 3), (8, 8, 6), (64, 16, 16)]
        {
            let machine = machine(cpus);
            assert_eq!(auto_front_threads(&machine, false).number, alone);
            assert_eq!(auto_front_threads(&machine, true).number, beside_workers);
        }
    }

    #[test]
    fn memory_total_is_read_from_meminfo() {
        assert_eq!(memory_total("MemTotal:       16374692 kB\nMemFree: 1 kB\n"), Some(16_374_692 * 1024));
        assert_eq!(memory_total(""), None);
        assert_eq!(memory_total("MemTotal: lots kB"), None);
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(Machine::read().cores >= 1);
    }
}
