//! What the machine lets this process use, and what `auto` makes of it.
//!
//! Contract: [`auto_workers`] and [`auto_front_threads`] are pure; only [`Machine::read`] looks at the system.

mod cgroup;
mod cpu;

use std::num::NonZero;
use std::path::Path;

pub use cpu::CpuClock;

use crate::kind::numbers::size_text;
use crate::system::affinity;

/// What the machine lets this process use.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// CPUs that the process may run on.
    pub cores: u32,
    /// CPUs' worth of time that the cgroup grants; `None` when it sets no quota.
    pub cpu_quota: Option<f64>,
    /// Bytes of memory that the cgroup grants; `None` when it sets no limit.
    pub memory_limit: Option<u64>,
    /// Bytes of memory of the machine; `None` when unknown.
    pub memory_total: Option<u64>,
    /// Files that the process may have open (`RLIMIT_NOFILE`, the hard limit); `None` when unlimited.
    pub open_files: Option<u64>,
    /// Memory maps that a process may have (`vm.max_map_count`); `None` where that is not limited.
    pub max_map_count: Option<u64>,
    /// Whether it speaks IPv6.
    pub ipv6: bool,
}

impl Machine {
    /// A machine of that many CPUs with IPv6, of which nothing else is known and nothing is limited: for tests, and for defaults.
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

    /// Looks at this process and its cgroups.
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
            // A kernel without it has no such address, nor has one that was told to leave it alone.
            ipv6: std::net::UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok(),
        }
    }

    /// How many processes the kernel has killed because memory ran out: of this process's control group, or of the machine where the
    /// group does not count. `None` where neither does.
    pub fn oom_kills() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        cgroup::oom_kills(Path::new("/sys/fs/cgroup"), &membership)
            .or_else(|| cgroup::counter(&std::fs::read_to_string("/proc/vmstat").ok()?, "oom_kill"))
    }

    /// Bytes of memory that processes can still take, with what the kernel takes back from its cache of files: of the tightest control group, or of the
    /// machine. `None` when unknown.
    pub fn memory_available() -> Option<u64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = cgroup::available(Path::new("/sys/fs/cgroup"), &membership);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        group.into_iter().chain(meminfo_field(&meminfo, "MemAvailable:")).min()
    }

    /// Reads how much processor time has been used and left idle so far; two readings give the share that is idle.
    pub fn cpu_clock() -> CpuClock {
        CpuClock::read()
    }

    /// CPUs' worth of time that may be used: those of the affinity, or the quota if that is less.
    pub fn cpu_time(&self) -> f64 {
        self.cpu_quota.map_or(f64::from(self.cores), |quota| quota.min(f64::from(self.cores)))
    }

    /// Bytes of memory that may be used: the cgroup's limit, or else the machine's memory. `None` when neither is known.
    pub fn memory(&self) -> Option<u64> {
        memory_bound(self).map(|(bytes, _)| bytes)
    }

    /// Whole CPUs that may be used: affinity, lowered by the quota (rounded up).
    pub fn cpus(&self) -> u32 {
        let quota = self.cpu_quota.map_or(u32::MAX, |quota| quota.ceil().max(1.0) as u32);
        self.cores.min(quota).max(1)
    }
}

/// CPUs in the affinity mask. `available_parallelism`, which mixes in the quota, rounded down, only where there is none.
fn cores() -> u32 {
    let count = match affinity() {
        Some(cpus) => cpus.len().max(1),
        None => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// `MemTotal` of `/proc/meminfo` in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    meminfo_field(meminfo, "MemTotal:")
}

/// A line of `/proc/meminfo` in bytes.
fn meminfo_field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A number that `auto` stood for, and why it is that number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// At least 1.
    pub number: u32,
    /// To be read after the number: `auto: 2 CPUs by cgroup quota`.
    pub why: String,
}

/// Workers for this machine when each takes about `worker_memory` bytes.
pub fn auto_workers(machine: &Machine, worker_memory: u64) -> Chosen {
    let cpus = machine.cpus();
    let why = format!("auto: {}", cpu_reason(machine));
    match worker_room(machine, worker_memory).filter(|(room, _)| *room < cpus) {
        None => Chosen { number: cpus, why },
        Some((room, what)) => {
            let each = size_text(worker_memory);
            Chosen { number: room, why: format!("auto: {what} has room for {room} of {each} each") }
        }
    }
}

/// How many workers the memory has room for, at least 1, and what that memory is: `the cgroup's memory limit of 512 MiB`. `None` when
/// it is not known.
pub(crate) fn worker_room(machine: &Machine, worker_memory: u64) -> Option<(u32, String)> {
    let (memory, what) = memory_bound(machine)?;
    let room = u32::try_from(memory / worker_memory.max(1)).unwrap_or(u32::MAX).max(1);
    Some((room, format!("{what} of {}", mebibytes(memory))))
}

/// Event-loop threads for this machine, which also runs workers, or does not.
///
/// Beside workers they are three quarters of the CPUs: that is the front's part of the smallest request that Ruby answers. More threads gather fewer
/// requests in each of their turns; on two CPUs a second thread costs 9 to 17 % of CPU time for each request.
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

/// The tighter of the cgroup's limit and the machine's memory.
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
