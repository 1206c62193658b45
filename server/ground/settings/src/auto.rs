//! The numbers that `auto` derives from the machine. Pure.

use sys::Machine;

/// A number derived for `auto`, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// At least 1.
    pub number: u32,
    /// Fits after the number: `auto: 2 CPUs by cgroup quota`.
    pub why: String,
}

/// Returns the number of workers for this machine if each takes about `worker_memory` bytes, beside `others` of
/// other pools.
pub fn auto_workers(machine: &Machine, worker_memory: u64, others: u32) -> Chosen {
    let cpus = machine.cpus();
    let why = format!("auto: {}", cpu_reason(machine));
    let room = worker_room(machine, worker_memory);
    match room.filter(|(room, _)| room.saturating_sub(others) < cpus) {
        None => Chosen { number: cpus, why },
        Some((room, what)) => {
            let each = text::size::exact(worker_memory);
            let with =
                if others == 0 { String::new() } else { format!(", {others} of them for other pools") };
            let why = format!("auto: {what} has room for {room} of {each} each{with}");
            Chosen { number: room.saturating_sub(others).max(1), why }
        }
    }
}

/// Returns how many workers fit into memory, at least 1, and a description of that memory: `the cgroup's
/// memory limit of 512 MiB`. `None` if the memory is unknown.
pub(crate) fn worker_room(machine: &Machine, worker_memory: u64) -> Option<(u32, String)> {
    let (memory, what) = memory_bound(machine)?;
    let room = u32::try_from(memory / worker_memory.max(1)).unwrap_or(u32::MAX).max(1);
    Some((room, format!("{what} of {}", text::people::size(memory as f64, text::people::figure))))
}

/// Returns the number of event-loop threads for this machine. `beside_workers`: workers need CPUs, too.
///
/// Then it is three quarters of the CPUs, because that is the front's share of the smallest request
/// that Ruby answers. With more threads each turn of an event loop handles fewer requests; on two CPUs a
/// second thread costs 9 to 19 % of CPU time per request.
pub fn auto_front_threads(machine: &Machine, beside_workers: bool) -> Chosen {
    const MOST: u32 = 16;
    let cpus = machine.cpus();
    let wanted = if beside_workers { (cpus * 3 / 4).max(1) } else { cpus };
    let why = if wanted > MOST {
        format!("auto: at most {MOST}")
    } else if beside_workers && cpus > 1 {
        format!("auto: three quarters of {}", cpu_reason(machine))
    } else {
        format!("auto: {}", cpu_reason(machine))
    };
    Chosen { number: wanted.min(MOST), why }
}

/// The least memory of the front that `auto` chooses.
const LEAST_MEMORY: u64 = 64 << 20;

/// Returns the memory of the front for this machine: a quarter, and at least twice that of the cache. `None`
/// if the machine's memory is unknown.
pub fn auto_memory(machine: &Machine, cache: u64) -> Option<u64> {
    let quarter = machine.memory()? / 4;
    Some(quarter.max(LEAST_MEMORY).max(cache.saturating_mul(2)))
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(cores: u32) -> Machine {
        Machine { memory_total: Some(64 << 30), ..Machine::unlimited(cores) }
    }

    #[test]
    fn cores_decide_when_nothing_is_limited() {
        assert_eq!(auto_workers(&machine(8), 256 * MIB, 0), Chosen { number: 8, why: "auto: 8 CPUs".into() });
        assert_eq!(auto_workers(&machine(1), 256 * MIB, 0).why, "auto: 1 CPU");
    }

    #[test]
    fn the_quota_is_rounded_up_and_never_raises() {
        let with = |quota| Machine { cpu_quota: Some(quota), ..machine(8) };
        assert_eq!(
            auto_workers(&with(2.0), 256 * MIB, 0),
            Chosen { number: 2, why: "auto: 2 CPUs by cgroup quota".into() }
        );
        let half = auto_workers(&with(1.5), 256 * MIB, 0);
        assert_eq!((half.number, half.why.as_str()), (2, "auto: 2 CPUs by cgroup quota (1.50, rounded up)"));
        assert_eq!(auto_workers(&with(0.1), 256 * MIB, 0).number, 1);
        assert_eq!(auto_workers(&with(64.0), 256 * MIB, 0), Chosen { number: 8, why: "auto: 8 CPUs".into() });
    }

    #[test]
    fn memory_bounds_and_leaves_one() {
        let with = |limit| Machine { memory_limit: Some(limit), ..machine(8) };
        let three = auto_workers(&with(900 * MIB), 256 * MIB, 0);
        assert_eq!(three.number, 3);
        assert_eq!(three.why, "auto: the cgroup's memory limit of 900 MiB has room for 3 of 256MiB each");
        assert_eq!(auto_workers(&with(100 * MIB), 256 * MIB, 0).number, 1);
        assert_eq!(auto_workers(&with(900 * MIB), 256 * MIB, 2).number, 1, "two are of other pools");
        assert_eq!(auto_workers(&with(u64::MAX), 256 * MIB, 0).number, 8);
        let small = Machine { memory_total: Some(600 * MIB), ..machine(4) };
        assert_eq!(auto_workers(&small, 256 * MIB, 0).number, 2);
    }

    #[test]
    fn the_front_has_a_quarter_of_the_memory() {
        let with = |limit| Machine { memory_limit: Some(limit), ..machine(8) };
        assert_eq!(auto_memory(&machine(8), 0), Some(16 << 30));
        assert_eq!(auto_memory(&with(1 << 30), 0), Some(256 * MIB));
        assert_eq!(auto_memory(&with(100 * MIB), 0), Some(64 * MIB));
        assert_eq!(auto_memory(&with(1 << 30), 200 * MIB), Some(400 * MIB));
        assert_eq!(auto_memory(&Machine::unlimited(8), 1 << 30), None);
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
}
