//! Idle processor time: of the CPUs that this process may use, and of the time that its control groups grant.
//!
//! The kernel counts since boot, so a share is the difference of two readings. Time in which the hypervisor
//! runs other machines (steal) is not idle; time in which a CPU waits for a disk (iowait) is idle.

use std::path::Path;
use std::time::{Duration, Instant};

use super::cgroup;

#[derive(Clone, Debug, PartialEq)]
pub struct CpuClock {
    at: Instant,
    /// Idle time of the usable CPUs; `None` where the system does not report it.
    idle: Option<Duration>,
    cpus: u32,
    /// For each control group with a quota: the CPU time per second that it grants, in CPUs, and the time used so far.
    groups: Vec<(f64, Duration)>,
}

impl CpuClock {
    pub(super) fn read() -> CpuClock {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let usable = super::usable_cpus();
        CpuClock {
            at: Instant::now(),
            idle: idle_ticks(&stat, |cpu| usable.as_ref().is_none_or(|usable| usable.contains(&cpu)))
                .map(time_of),
            cpus: super::cores(),
            groups: cgroup::quotas(Path::new("/sys/fs/cgroup"), &membership),
        }
    }

    /// Returns the time of the reading.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns the share of the usable processor time that was idle between `earlier` and now, 0 to 1. `None`
    /// if the system does not report it or too little time has passed.
    pub fn idle_since(&self, earlier: &CpuClock) -> Option<f64> {
        let time = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        if time < 0.05 || self.cpus != earlier.cpus {
            return None;
        }
        let idle = self.idle?.saturating_sub(earlier.idle?).as_secs_f64() / time;
        // If a group's quota has changed, the new one counts.
        let groups = self.groups.iter().zip(&earlier.groups);
        let left = groups.map(|((quota, used), (_, before))| {
            (*quota, quota - used.saturating_sub(*before).as_secs_f64() / time)
        });
        let (cpus, idle) = left.fold((f64::from(self.cpus), idle), |(cpus, idle), (quota, left)| {
            (cpus.min(quota), idle.min(left))
        });
        Some((idle / cpus).clamp(0.0, 1.0))
    }
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Returns the sum of `idle` and `iowait` of the CPUs that `counts` selects, from `/proc/stat` (proc_stat(5)).
fn idle_ticks(stat: &str, counts: impl Fn(usize) -> bool) -> Option<u64> {
    let mut sum = None;
    for line in stat.lines() {
        let Some((cpu, times)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let Ok(cpu) = cpu.parse() else { continue };
        if !counts(cpu) {
            continue;
        }
        let mut times = times.split_whitespace().map(str::parse::<u64>);
        let idle = times.nth(3)?.ok()?;
        let iowait = times.next()?.ok()?;
        sum = Some(u64::saturating_add(idle, iowait).saturating_add(sum.unwrap_or(0)));
    }
    sum
}

/// Returns idle ticks and all ticks of all CPUs since boot; `None` if unknown.
pub fn ticks() -> Option<(u64, u64)> {
    idle_and_all(std::fs::read_to_string("/proc/stat").ok()?.lines().next()?)
}

fn idle_and_all(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; the following fields are included in user and nice.
    let idle = fields.get(3)?.checked_add(*fields.get(4)?)?;
    Some((idle, fields.iter().take(8).try_fold(0_u64, |sum, ticks| sum.checked_add(*ticks))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_accepted(text in any::<String>()) {
            let _ = (idle_and_all(&text), idle_ticks(&text, |_| true));
        }
    }

    #[test]
    fn idle_time_includes_iowait() {
        assert_eq!(idle_and_all("cpu  10 1 5 100 7 2 3 4 99 99"), Some((107, 132)));
        assert_eq!(idle_and_all("cpu0 10 1 5 100 7 2 3 4 0 0"), None);
        assert_eq!(idle_and_all("intr 1"), None);
    }

    #[test]
    fn idle_time_is_that_of_the_own_cpus() {
        let stat =
            "cpu  9 9 9 999 9 0 0 0 0 0\ncpu0 1 0 1 100 5 0 0 0 0 0\ncpu1 1 0 1 300 7 0 0 9 0 0\nintr 5\n";
        assert_eq!(idle_ticks(stat, |_| true), Some(412));
        assert_eq!(idle_ticks(stat, |cpu| cpu == 1), Some(307));
        assert_eq!(idle_ticks(stat, |_| false), None);
        assert_eq!(idle_ticks("cpu0 1 2\n", |_| true), None);
        assert_eq!(idle_ticks("", |_| true), None);
    }

    fn clock(at: Instant, idle_ms: u64, groups: &[(f64, u64)]) -> CpuClock {
        let groups = groups.iter().map(|(quota, used)| (*quota, Duration::from_millis(*used))).collect();
        CpuClock { at, idle: Some(Duration::from_millis(idle_ms)), cpus: 4, groups }
    }

    #[test]
    fn the_tightest_bound_says_what_is_idle() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(2);
        let share = |before: &[(f64, u64)], after: &[(f64, u64)]| {
            clock(later, 4_000, after).idle_since(&clock(begun, 0, before))
        };
        assert_eq!(share(&[], &[]), Some(0.5), "2 of 4 CPUs");
        assert_eq!(share(&[(2.0, 100)], &[(2.0, 1_100)]), Some(0.75), "1.5 of 2 CPUs are left");
        assert_eq!(
            share(&[(3.0, 0), (1.0, 500)], &[(3.0, 0), (1.0, 2_500)]),
            Some(0.0),
            "a quota is used up"
        );
        assert_eq!(share(&[(1.0, 0)], &[(2.0, 2_000)]), Some(0.5), "it was doubled in between");
        assert_eq!(clock(begun, 5, &[]).idle_since(&clock(begun, 0, &[])), None);
        let unknown = CpuClock { idle: None, ..clock(later, 0, &[]) };
        assert_eq!(unknown.idle_since(&clock(begun, 0, &[])), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_a_clock() {
        let before = CpuClock::read();
        std::thread::sleep(Duration::from_millis(100));
        let idle = CpuClock::read().idle_since(&before);
        assert!(idle.is_some_and(|idle| (0.0..=1.0).contains(&idle)), "{idle:?}");
    }
}
