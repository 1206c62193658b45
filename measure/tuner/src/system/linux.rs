//! The Linux part: `/proc`, affinity masks.

use super::{Memory, Stat};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

pub(crate) type Cpus = CpuSet;

pub(crate) fn divide(for_server: usize) -> Option<[Cpus; 3]> {
    let all = sched_getaffinity(None).ok()?;
    let (mut server, mut load) = (CpuSet::new(), CpuSet::new());
    let here = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    for (at, cpu) in here.enumerate() {
        if at < for_server { server.set(cpu) } else { load.set(cpu) }
    }
    (load.count() > 0 && server.count() > 0).then_some([all, server, load])
}

pub(crate) fn run_on(cpus: &Cpus) {
    let _ = sched_setaffinity(None, cpus);
}

pub(crate) fn started(pid: i32) -> u64 {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    line.and_then(|line| stat(&line)).map_or(0, |stat| stat.started)
}

pub(crate) fn running() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    names.filter_map(|pid| stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// Parses a line of `/proc/PID/stat`; `None` for a zombie.
fn stat(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(' ')?;
    // The name is in parentheses and may contain any character, including parentheses.
    let fields: Vec<&str> = rest.get(rest.rfind(')')? + 1..)?.split_whitespace().collect();
    if ["Z", "X"].contains(fields.first()?) {
        return None;
    }
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        ticks: number(11)?.checked_add(number(12)?)?.checked_add(number(13)?)?.checked_add(number(14)?)?,
        started: number(19)?,
    })
}

pub(crate) fn memory_of(pid: i32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
    };
    Memory { pss: bytes("Pss").unwrap_or(0), rss: bytes("Rss").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_lines_are_parsed() {
        let line = "42 (a (b) c) S 1 40 40 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 777 1 2";
        assert_eq!(stat(line), Some(Stat { pid: 42, parent: 1, group: 40, ticks: 100, started: 777 }));
        assert_eq!(stat(&line.replace(") S", ") Z")), None, "a zombie is ignored");
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in any::<String>()) {
            let _ = stat(&text);
        }
    }
}
