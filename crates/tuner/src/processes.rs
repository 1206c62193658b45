//! What the system knows about a server's processes: who belongs to it, what they hold and what they have used.
//!
//! Contract:
//! 1. A process belongs to a server when it descends from its first process, is in that one's group, or carries the
//!    server's mark in its environment (what was made a daemon has left both).
//! 2. A process that ends while it is looked at is no error: it is left out.
//! 3. Where there is no `/proc`, nothing is known, and all figures are 0.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Name of the environment variable that carries a server's mark.
pub(crate) const MARK: &str = "FIREBRICK_TUNE_SERVER";

/// One line of `/proc/PID/stat`, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    group: i32,
    /// Ticks of CPU time, those of ended children included.
    ticks: u64,
    /// Ticks since the system's start; together with the pid it names one process for good.
    born: u64,
}

/// Memory of some processes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Shared pages divided among those who share them.
    pub(crate) pss: u64,
    /// Shared pages counted for each.
    pub(crate) rss: u64,
}

/// How to know a server's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    /// Its first process, which leads a process group.
    pub(crate) leader: i32,
    /// When that one was born, in ticks since the system's start: nobody who is older belongs to it. 0 when unknown.
    pub(crate) born: u64,
    /// What stands in [`MARK`] of all its processes.
    pub(crate) mark: String,
}

impl Family {
    /// The family of a process that has just been started.
    pub(crate) fn of(leader: i32, mark: String) -> Family {
        let line = fs::read_to_string(format!("/proc/{leader}/stat")).ok();
        let born = line.and_then(|line| stat(&line)).map_or(0, |stat| stat.born);
        Family { leader, born, mark }
    }

    /// Everything of it that runs now.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.members().iter().map(|stat| stat.pid).collect()
    }

    fn members(&self) -> Vec<Stat> {
        let all = running();
        let mut members: Vec<Stat> = all.iter().copied().filter(|stat| self.is_root(stat)).collect();
        let mut next = 0;
        while let Some(parent) = members.get(next).map(|stat| stat.pid) {
            next += 1;
            let children = all.iter().filter(|stat| stat.parent == parent);
            let new: Vec<Stat> = children.copied().filter(|child| !members.contains(child)).collect();
            members.extend(new);
        }
        members
    }

    fn is_root(&self, stat: &Stat) -> bool {
        let young = stat.born >= self.born;
        young && (stat.pid == self.leader || stat.group == self.leader || self.is_marked(stat.pid))
    }

    fn is_marked(&self, pid: i32) -> bool {
        let wanted = format!("{MARK}={}", self.mark);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }

    /// CPU time of all its processes since they began; what ended and was waited for is part of it.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks: u64 = self.members().iter().map(|stat| stat.ticks).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// What its threads have got of the CPUs, and how long they waited for one.
    pub(crate) fn turns(&self) -> Turns {
        let tasks = self.members().into_iter().flat_map(|stat| tasks(stat.pid));
        Turns(tasks.filter_map(|(task, path)| Some((task, turn(&fs::read_to_string(path).ok()?)?))).collect())
    }

    /// Memory of all its processes. Takes milliseconds for each large one.
    pub(crate) fn memory(&self) -> Memory {
        self.members()
            .iter()
            .map(|stat| memory_of(stat.pid))
            .fold(Memory::default(), |sum, one| Memory { pss: sum.pss + one.pss, rss: sum.rss + one.rss })
    }

    /// Sends a signal to all of them.
    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
            // Whoever has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

/// By thread, in nanoseconds: on a CPU, and ready to run without getting one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(HashMap<i32, (u64, u64)>);

impl Turns {
    /// What came after `before`: on a CPU, and waiting for one. Threads that ended meanwhile are not in it.
    pub(crate) fn since(&self, before: &Turns) -> (Duration, Duration) {
        let (mut ran, mut waited) = (0, 0);
        for (task, now) in &self.0 {
            let then = before.0.get(task).copied().unwrap_or_default();
            ran += now.0.saturating_sub(then.0);
            waited += now.1.saturating_sub(then.1);
        }
        (Duration::from_nanos(ran), Duration::from_nanos(waited))
    }
}

/// The threads of a process, and where the kernel tells about each.
fn tasks(pid: i32) -> Vec<(i32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.map(|task| (task, format!("/proc/{pid}/task/{task}/schedstat"))).collect()
}

/// Reads a line of `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, turns.
fn turn(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn running() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    names.filter_map(|pid| stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// Reads a line of `/proc/PID/stat`; `None` for what has ended and only waits to be asked how.
fn stat(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(' ')?;
    // The name stands in parentheses and may hold any character, parentheses too.
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
        born: number(19)?,
    })
}

fn memory_of(pid: i32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
    };
    Memory { pss: bytes("Pss").unwrap_or(0), rss: bytes("Rss").unwrap_or(0) }
}

/// Time that all CPUs together were idle and in all, in ticks since the system's start; `None` where it is unknown.
pub(crate) fn machine_ticks() -> Option<(u64, u64)> {
    idle_and_all(fs::read_to_string("/proc/stat").ok()?.lines().next()?)
}

fn idle_and_all(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
    let idle = fields.get(3)?.checked_add(*fields.get(4)?)?;
    Some((idle, fields.iter().take(8).try_fold(0_u64, |sum, ticks| sum.checked_add(*ticks))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line = "42 (a (b) c) S 1 40 40 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 777 1 2";
        assert_eq!(stat(line), Some(Stat { pid: 42, parent: 1, group: 40, ticks: 100, born: 777 }));
        assert_eq!(stat(&line.replace(") S", ") Z")), None, "what has ended is nobody");
    }

    #[test]
    fn turns_are_differences_of_threads_that_live() {
        let turns = |all: &[(i32, u64, u64)]| {
            Turns(all.iter().map(|(task, ran, waited)| (*task, (*ran, *waited))).collect())
        };
        let (before, now) = (turns(&[(1, 10, 1), (2, 90, 9)]), turns(&[(1, 30, 5), (3, 7, 2)]));
        assert_eq!(now.since(&before), (Duration::from_nanos(27), Duration::from_nanos(6)));
        assert_eq!(turn("123 45 6\n"), Some((123, 45)));
        assert_eq!(turn(""), None);
    }

    #[test]
    fn idle_time_counts_waiting_for_disks() {
        assert_eq!(idle_and_all("cpu  10 1 5 100 7 2 3 4 99 99"), Some((107, 132)));
        assert_eq!(idle_and_all("cpu0 10 1 5 100 7 2 3 4 0 0"), None);
        assert_eq!(idle_and_all("intr 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_family_is_known_by_descent_and_by_mark() {
        use std::os::unix::process::CommandExt;
        let mark = format!("test-{}", std::process::id());
        let mut shell = std::process::Command::new("sh");
        // A process that has left both the group and its parent is known by its mark alone.
        shell.args(["-c", "setsid sleep 30 & sleep 30 & wait"]).env(MARK, &mark).process_group(0);
        let mut child = shell.spawn().unwrap();
        let family = Family::of(child.id() as i32, mark);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while family.pids().len() < 3 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(family.pids().len(), 3);
        let memory = family.memory();
        assert!(memory.pss > 0 && memory.rss >= memory.pss, "{memory:?}");
        family.signal(Signal::KILL);
        child.wait().unwrap();
        while !family.pids().is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(family.pids(), Vec::<i32>::new());
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in any::<String>()) {
            let _ = (stat(&text), idle_and_all(&text), turn(&text));
        }
    }
}
