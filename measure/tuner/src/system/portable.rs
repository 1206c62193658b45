//! The part for other systems, which uses ps(1).

use super::{Memory, Stat};
use std::process::{Command, Stdio};

/// Empty, because CPUs cannot be divided here.
#[derive(Debug, Clone)]
pub(crate) enum Cpus {}

pub(crate) fn divide(_for_server: usize) -> Option<[Cpus; 3]> {
    None
}

pub(crate) fn run_on(cpus: &Cpus) {
    match *cpus {}
}

pub(crate) fn started(_pid: i32) -> u64 {
    0
}

pub(crate) fn running() -> Vec<Stat> {
    ps(&["-A", "-o", "pid=,ppid=,pgid=,stat="]).lines().filter_map(stat).collect()
}

/// Parses process, parent, group and state; `None` for a zombie.
fn stat(line: &str) -> Option<Stat> {
    let mut fields = line.split_whitespace();
    let mut number = || fields.next()?.parse().ok();
    let (pid, parent, group) = (number()?, number()?, number()?);
    let is_zombie = fields.next()?.starts_with('Z');
    (!is_zombie).then_some(Stat { pid, parent, group, ticks: 0, started: 0 })
}

pub(crate) fn memory_of(pid: i32) -> Memory {
    let rss = ps(&["-o", "rss=", "-p", &pid.to_string()]).trim().parse::<u64>().unwrap_or(0) * 1_024;
    Memory { pss: rss, rss }
}

fn ps(arguments: &[&str]) -> String {
    let told = Command::new("ps").args(arguments).stderr(Stdio::null()).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ps_are_parsed() {
        let found = Some(Stat { pid: 42, parent: 1, group: 40, ticks: 0, started: 0 });
        assert_eq!(stat("   42     1    40 Ss+"), found);
        assert_eq!(stat("   42     1    40 Z"), None);
        assert_eq!(stat("ps: no such option"), None);
    }
}
