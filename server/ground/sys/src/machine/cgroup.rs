//! Limits of the process's control groups, read from the files of versions 1 and 2.
//!
//! A limit of any group on the way up applies, so the tightest one is taken. Inside a container the path in
//! `/proc/self/cgroup` may be the host's path and not exist below the mount. Then the top of the mount is the
//! group.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limits of all groups together; `None` where no group sets one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Granted {
    /// CPU time per second, in CPUs.
    pub(super) cpus: Option<f64>,
    /// Bytes.
    pub(super) memory: Option<u64>,
}

/// Reads the groups mounted at `root` that `membership` (the text of `/proc/self/cgroup`) names.
pub(super) fn read(root: &Path, membership: &str) -> Granted {
    let mut granted = Granted::default();
    for (controllers, path) in hierarchies(membership) {
        if controllers.is_empty() {
            for group in groups(root, path) {
                granted.tighten(cpu_max(&group), number(&group.join("memory.max")));
            }
            continue;
        }
        if let Some(mount) = v1_mount(root, controllers, "cpu") {
            groups(&mount, path).iter().for_each(|group| granted.tighten(cfs_quota(group), None));
        }
        if let Some(mount) = v1_mount(root, controllers, "memory") {
            let limit = |group: &PathBuf| {
                number(&group.join("memory.limit_in_bytes")).filter(|bytes| *bytes < V1_UNLIMITED)
            };
            groups(&mount, path).iter().for_each(|group| granted.tighten(None, limit(group)));
        }
    }
    granted
}

/// Returns for each group with a CPU quota the granted time (in CPUs) and the time used so far.
pub(super) fn quotas(root: &Path, membership: &str) -> Vec<(f64, Duration)> {
    let mut found = Vec::new();
    for (controllers, path) in hierarchies(membership) {
        if controllers.is_empty() {
            for group in groups(root, path) {
                let stat = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
                let used = counter(&stat, "usage_usec").map(Duration::from_micros);
                found.extend(cpu_max(&group).zip(used));
            }
        } else if let Some(mount) = v1_mount(root, controllers, "cpu") {
            // Another controller counts the time; it is nearly always mounted together with this one.
            for group in groups(&mount, path) {
                let used = number(&group.join("cpuacct.usage")).map(Duration::from_nanos);
                found.extend(cfs_quota(&group).zip(used));
            }
        }
    }
    found
}

/// Returns how many processes of the process's own group the kernel has killed because the memory of the
/// group or the machine ran out. `None` where the group does not count them.
pub(super) fn oom_kills(root: &Path, membership: &str) -> Option<u64> {
    hierarchies(membership).find_map(|(controllers, path)| {
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.events"),
            names => (v1_mount(root, names, "memory")?, "memory.oom_control"),
        };
        let text = fs::read_to_string(groups(&mount, path).first()?.join(file)).ok()?;
        counter(&text, "oom_kill")
    })
}

/// Returns the bytes that the tightest group on the way up still grants: its limit minus the used memory, not
/// counting memory that the kernel can reclaim at once ([`reclaimable`]). `None` where no group sets a limit.
pub(super) fn available(root: &Path, membership: &str) -> Option<u64> {
    let of = |(controllers, path): (&str, &str)| {
        let (mount, limit, used, files) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current", V2_FILES),
            names => {
                let mount = v1_mount(root, names, "memory")?;
                (mount, "memory.limit_in_bytes", "memory.usage_in_bytes", V1_FILES)
            }
        };
        let left = |group: &PathBuf| {
            let limit = number(&group.join(limit)).filter(|bytes| *bytes < V1_UNLIMITED)?;
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let used = number(&group.join(used))?.saturating_sub(reclaimable(&stat, files));
            Some(limit.saturating_sub(used))
        };
        groups(&mount, path).iter().filter_map(left).min()
    };
    hierarchies(membership).filter_map(of).min()
}

/// The fields of `memory.stat` for file pages of a group: pages in the cache, active or not, and the pages
/// among them that must be written first.
#[derive(Clone, Copy)]
struct Files {
    cached: [&'static str; 2],
    unwritten: [&'static str; 2],
}

const V2_FILES: Files =
    Files { cached: ["inactive_file", "active_file"], unwritten: ["file_dirty", "file_writeback"] };
/// Includes the groups below, as the used memory does.
const V1_FILES: Files = Files {
    cached: ["total_inactive_file", "total_active_file"],
    unwritten: ["total_dirty", "total_writeback"],
};

/// Returns the bytes of file pages that the kernel can reclaim without waiting, including active ones. Active
/// pages do not show that memory is needed: reading a file twice activates them, as log files and booting an
/// app do, and they stay until memory is short. Pages that must be written first take time, so they do not
/// count. Neither does memory outside the file lists: `tmpfs`, shared memory.
fn reclaimable(stat: &str, files: Files) -> u64 {
    let sum = |names: [&str; 2]| names.into_iter().filter_map(|name| counter(stat, name)).sum::<u64>();
    sum(files.cached).saturating_sub(sum(files.unwritten))
}

/// Returns the mount of a version 1 controller, if a line of `/proc/self/cgroup` with these `controllers`
/// includes it. The mount is named after the whole list, or is a link named after one controller.
fn v1_mount(root: &Path, controllers: &str, name: &str) -> Option<PathBuf> {
    let mounts = || [root.join(controllers), root.join(name)].into_iter().find(|mount| mount.is_dir());
    controllers.split(',').any(|one| one == name).then(mounts).flatten()
}

/// Returns the number after `name` in a text with one name and number per line.
pub(super) fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Version 1 writes "unlimited" as a number near the maximum; no machine has 4 EiB.
const V1_UNLIMITED: u64 = 1 << 62;

impl Granted {
    fn tighten(&mut self, cpus: Option<f64>, memory: Option<u64>) {
        self.cpus = self.cpus.into_iter().chain(cpus).reduce(f64::min);
        self.memory = self.memory.into_iter().chain(memory).min();
    }
}

/// Splits each line (hierarchy-ID:controller-list:path) into its controllers and path.
fn hierarchies(membership: &str) -> impl Iterator<Item = (&str, &str)> {
    membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

/// Returns the directories of the group `path` and of all its parents, up to the mount.
fn groups(mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative: PathBuf =
        Path::new(path).components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    relative.ancestors().map(|part| mount.join(part)).filter(|group| group.is_dir()).collect()
}

/// Reads `cpu.max`: "QUOTA PERIOD" in microseconds, or "max PERIOD".
fn cpu_max(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota.parse().ok()?, period.parse().ok()?)
}

/// Returns `cpu.cfs_quota_us` (-1 for none) divided by `cpu.cfs_period_us`.
fn cfs_quota(group: &Path) -> Option<f64> {
    let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
    share(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn share(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn version_2_takes_the_tightest_on_the_way_up() {
        let root = fixture(&[
            ("cpu.max", "400000 100000\n"),
            ("memory.max", "1073741824\n"),
            ("pods/cpu.max", "150000 100000\n"),
            ("pods/memory.max", "536870912\n"),
            ("pods/app/cpu.max", "max 100000\n"),
            ("pods/app/memory.max", "max\n"),
            ("pods/other/cpu.max", "10000 100000\n"),
        ]);
        let granted = read(root.path(), "0::/pods/app\n");
        assert_eq!(granted, Granted { cpus: Some(1.5), memory: Some(512 << 20) });
    }

    #[test]
    fn what_is_left_is_that_of_the_tightest_group() {
        let root = fixture(&[
            ("pods/memory.max", "1000\n"),
            ("pods/memory.current", "900\n"),
            ("pods/memory.stat", "anon 500\ninactive_file 300\n"),
            ("pods/app/memory.max", "800\n"),
            ("pods/app/memory.current", "100\n"),
            ("pods/other/memory.max", "max\n"),
            ("pods/other/memory.current", "700\n"),
        ]);
        assert_eq!(available(root.path(), "0::/pods/app\n"), Some(400));
        assert_eq!(available(root.path(), "0::/pods/other\n"), Some(400));
        assert_eq!(available(root.path(), "0::/\n"), None);
        let root = fixture(&[
            ("memory/a/memory.limit_in_bytes", "1000\n"),
            ("memory/a/memory.usage_in_bytes", "900\n"),
            ("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "5000\n"),
        ]);
        assert_eq!(available(root.path(), "4:memory:/a\n1:cpu:/a\n"), Some(150));
    }

    #[test]
    fn the_cache_of_files_is_left_but_for_what_is_to_be_written() {
        let stat = "anon 500\nfile 380\nfile_dirty 30\nfile_writeback 20\ninactive_file 200\nactive_file 150\nshmem 30\n";
        assert_eq!(reclaimable(stat, V2_FILES), 300);
        let stat =
            "active_file 9\ntotal_dirty 1\ntotal_writeback 2\ntotal_inactive_file 10\ntotal_active_file 20\n";
        assert_eq!(reclaimable(stat, V1_FILES), 27, "with the groups below");
        assert_eq!(reclaimable("", V2_FILES), 0);
        assert_eq!(reclaimable("file_dirty 5\ninactive_file 3\n", V2_FILES), 0);
        let root = fixture(&[
            ("memory.max", "1000\n"),
            ("memory.current", "990\n"),
            ("memory.stat", "inactive_file 100\nactive_file 400\nfile_dirty 50\n"),
        ]);
        assert_eq!(available(root.path(), "0::/\n"), Some(460));
    }

    #[test]
    fn version_1_is_mounted_by_its_list_or_by_a_name_of_it() {
        let root = fixture(&[("cpu,cpuacct/tasks", ""), ("memory/tasks", "")]);
        assert_eq!(v1_mount(root.path(), "cpu,cpuacct", "cpu"), Some(root.path().join("cpu,cpuacct")));
        assert_eq!(v1_mount(root.path(), "memory,hugetlb", "memory"), Some(root.path().join("memory")));
        assert_eq!(v1_mount(root.path(), "cpuacct", "cpu"), None, "another controller");
        assert_eq!(v1_mount(root.path(), "cpu", "cpu"), None, "not mounted");
    }

    #[test]
    fn version_2_in_a_container_reads_the_mounts_top() {
        let root = fixture(&[("cpu.max", "200000 100000"), ("memory.max", "1073741824")]);
        let granted = read(root.path(), "0::/../../docker/0123\n");
        assert_eq!(granted, Granted { cpus: Some(2.0), memory: Some(1 << 30) });
    }

    #[test]
    fn version_1_reads_each_controller_at_its_mount() {
        let root = fixture(&[
            ("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n"),
            ("memory/docker/1/memory.limit_in_bytes", "268435456\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let membership = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n";
        assert_eq!(read(root.path(), membership), Granted { cpus: Some(0.5), memory: Some(256 << 20) });
    }

    #[test]
    fn version_1_without_limits_grants_everything() {
        let root = fixture(&[
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(read(root.path(), "5:cpu,cpuacct:/\n4:memory:/\n"), Granted::default());
    }

    #[test]
    fn quotas_come_with_the_time_that_was_used() {
        let root = fixture(&[
            ("cpu.stat", "usage_usec 99\n"),
            ("pods/cpu.max", "150000 100000\n"),
            ("pods/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("pods/a/cpu.max", "max 100000\n"),
            ("pods/a/cpu.stat", "usage_usec 7\n"),
        ]);
        assert_eq!(quotas(root.path(), "0::/pods/a\n"), [(1.5, Duration::from_millis(2_500))]);
        assert_eq!(quotas(root.path(), "0::/\nnonsense\n"), []);
        let root = fixture(&[
            ("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/docker/1/cpuacct.usage", "3000000000\n"),
        ]);
        assert_eq!(quotas(root.path(), "5:cpu,cpuacct:/docker/1\n"), [(0.5, Duration::from_secs(3))]);
    }

    #[test]
    fn kills_for_lack_of_memory_are_read_from_the_own_group() {
        let root = fixture(&[
            ("memory.events", "low 0\noom 9\noom_kill 9\n"),
            ("pods/memory.events", "low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 0\n"),
        ]);
        assert_eq!(oom_kills(root.path(), "0::/pods\n"), Some(3));
        assert_eq!(oom_kills(root.path(), "0::/elsewhere\n"), Some(9), "a container's mount");
        let root = fixture(&[
            ("memory/docker/1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("unified/cgroup.procs", ""),
        ]);
        assert_eq!(oom_kills(root.path(), "4:memory:/docker/1\n1:name=systemd:/\n0::/\n"), Some(2));
        assert_eq!(oom_kills(root.path(), "0::/\nnonsense\n"), None);
        let old = fixture(&[("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")]);
        assert_eq!(oom_kills(old.path(), "4:memory:/\n"), None);
    }

    #[test]
    fn odd_files_grant_everything() {
        let root = fixture(&[("cpu.max", "lots"), ("memory.max", "-3")]);
        assert_eq!(read(root.path(), "0::/\nnonsense\n::\n"), Granted::default());
        assert_eq!(read(Path::new("/nonexistent"), "0::/a\n"), Granted::default());
        let zero = fixture(&[("cpu.max", "100000 0")]);
        assert_eq!(read(zero.path(), "0::/"), Granted::default());
    }
}
