//! The processes of a server, with their memory and CPU time.
//!
//! Contract:
//! 1. A process belongs to a server if it descends from its first process, is in its process group, or has
//!    the server's mark in its environment (a daemonized process has left both).
//! 2. A process that exits while it is examined is not an error; it is left out.
//! 3. Without `/proc` there are no marks, CPU times are 0, and shared memory counts for each process.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
pub(crate) use sys::process::ProcessMemory;
use sys::process::{self, Stat, running};

/// The name of the environment variable with a server's mark.
pub(crate) const MARK: &str = "FIREBRICK_TUNE_SERVER";

/// Identifies a server's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerProcesses {
    /// The first process, which leads a process group.
    pub(crate) leader: i32,
    /// The start time of the first process in ticks since boot; older processes do not belong to the server.
    /// 0 if unknown.
    pub(crate) started: u64,
    /// The value of [`MARK`] in all its processes.
    pub(crate) mark: String,
}

impl ServerProcesses {
    /// Returns the processes of a server that was just started.
    pub(crate) fn of(leader: i32, mark: String) -> ServerProcesses {
        let started = running().iter().find(|stat| stat.pid == leader).map_or(0, |stat| stat.started);
        ServerProcesses { leader, started, mark }
    }

    /// Returns the pids of all running processes of the server.
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
        let young = stat.started >= self.started;
        young && (stat.pid == self.leader || stat.group == self.leader || self.is_marked(stat.pid))
    }

    fn is_marked(&self, pid: i32) -> bool {
        let wanted = format!("{MARK}={}", self.mark);
        process::environment(pid).split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }

    /// Returns the CPU time of all processes since their start, including reaped children.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks: u64 = self.members().iter().map(|stat| stat.ticks).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Returns how long each thread has run on a CPU and waited for one.
    pub(crate) fn sched_times(&self) -> SchedTimes {
        SchedTimes(self.members().iter().flat_map(|stat| process::schedules(stat.pid)).collect())
    }

    /// Returns the memory of all processes. Takes milliseconds for each large one.
    pub(crate) fn memory(&self) -> ProcessMemory {
        self.members().iter().map(|stat| process::memory(stat.pid)).fold(
            ProcessMemory::default(),
            |sum, one| ProcessMemory { pss: sum.pss + one.pss, rss: sum.rss + one.rss },
        )
    }

    /// Sends a signal to all processes.
    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
            // The process may have exited meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Nanoseconds by thread: running on a CPU, and runnable without a CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchedTimes(HashMap<i32, (u64, u64)>);

impl SchedTimes {
    /// Returns the difference to `before`: time on a CPU, and waiting for one. Threads that have exited
    /// meanwhile are not included.
    pub(crate) fn since(&self, before: &SchedTimes) -> (Duration, Duration) {
        let (mut ran, mut waited) = (0, 0);
        for (task, now) in &self.0 {
            let then = before.0.get(task).copied().unwrap_or_default();
            ran += now.0.saturating_sub(then.0);
            waited += now.1.saturating_sub(then.1);
        }
        (Duration::from_nanos(ran), Duration::from_nanos(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_differences_of_living_threads() {
        let sched_times = |all: &[(i32, u64, u64)]| {
            SchedTimes(all.iter().map(|(task, ran, waited)| (*task, (*ran, *waited))).collect())
        };
        let (before, now) = (sched_times(&[(1, 10, 1), (2, 90, 9)]), sched_times(&[(1, 30, 5), (3, 7, 2)]));
        assert_eq!(now.since(&before), (Duration::from_nanos(27), Duration::from_nanos(6)));
    }

    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    #[test]
    fn processes_are_found_by_descent_and_by_mark() {
        use std::os::unix::process::CommandExt;
        let mark = format!("test-{}", std::process::id());
        let mut shell = std::process::Command::new("sh");
        // A process that has left both the group and its parent is found only by its mark.
        shell.args(["-c", "setsid sleep 30 & sleep 30 & wait"]).env(MARK, &mark).process_group(0);
        let mut child = shell.spawn().unwrap();
        let processes = ServerProcesses::of(child.id() as i32, mark);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while processes.pids().len() < 3 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(processes.pids().len(), 3);
        let memory = processes.memory();
        assert!(memory.pss > 0 && memory.rss >= memory.pss, "{memory:?}");
        processes.signal(Signal::KILL);
        child.wait().unwrap();
        while !processes.pids().is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(processes.pids(), Vec::<i32>::new());
    }

    #[test]
    fn processes_are_found_by_descent() {
        use std::os::unix::process::CommandExt;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sleep 30 & sleep 30 & wait"]).process_group(0);
        let mut child = shell.spawn().unwrap();
        let processes = ServerProcesses::of(child.id() as i32, "another".to_owned());
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while processes.pids().len() < 3 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(processes.pids().len(), 3);
        assert!(processes.memory().rss > 0);
        processes.signal(Signal::KILL);
        child.wait().unwrap();
        while !processes.pids().is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(processes.pids(), Vec::<i32>::new());
    }
}
