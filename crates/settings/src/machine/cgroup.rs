//! What the process's control groups grant, from the files of version 1 and 2.
//!
//! A limit of any group on the way up counts, so the tightest is taken. Inside a container the path in
//! `/proc/self/cgroup` may be the host's and not exist below the mount: then the mount's top is the group.

use std::fs;
use std::path::{Path, PathBuf};

/// What the groups grant; `None` where none of them sets a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Granted {
    /// CPUs' worth of time.
    pub(super) cpus: Option<f64>,
    /// Bytes.
    pub(super) memory: Option<u64>,
}

/// Reads the groups mounted at `root` that `membership` (the text of `/proc/self/cgroup`) names.
pub(super) fn read(root: &Path, membership: &str) -> Granted {
    let mut granted = Granted::default();
    for line in membership.lines() {
        // hierarchy-ID:controller-list:path
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if controllers.is_empty() {
            for group in groups(root, path) {
                granted.tighten(cpu_max(&group), number(&group.join("memory.max")));
            }
            continue;
        }
        let names: Vec<&str> = controllers.split(',').collect();
        // The mount is named after the whole list, or is a link named after one of it.
        let mounts =
            |name: &str| [root.join(controllers), root.join(name)].into_iter().find(|mount| mount.is_dir());
        if let Some(mount) = names.contains(&"cpu").then(|| mounts("cpu")).flatten() {
            groups(&mount, path).iter().for_each(|group| granted.tighten(cfs_quota(group), None));
        }
        if let Some(mount) = names.contains(&"memory").then(|| mounts("memory")).flatten() {
            let limit = |group: &PathBuf| {
                number(&group.join("memory.limit_in_bytes")).filter(|bytes| *bytes < V1_UNLIMITED)
            };
            groups(&mount, path).iter().for_each(|group| granted.tighten(None, limit(group)));
        }
    }
    granted
}

/// Processes of the own group that the kernel has killed because memory ran out, the group's or the machine's. `None` where the
/// group does not count them.
pub(super) fn oom_kills(root: &Path, membership: &str) -> Option<u64> {
    membership.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.events"),
            names if names.split(',').any(|name| name == "memory") => {
                let mount =
                    [root.join(names), root.join("memory")].into_iter().find(|mount| mount.is_dir())?;
                (mount, "memory.oom_control")
            }
            _ => return None,
        };
        let text = fs::read_to_string(groups(&mount, path).first()?.join(file)).ok()?;
        counter(&text, "oom_kill")
    })
}

/// The number behind `name` in a text with a name and a number in each line.
pub(super) fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Version 1 says "unlimited" with a number near the largest; no machine has 4 EiB.
const V1_UNLIMITED: u64 = 1 << 62;

impl Granted {
    fn tighten(&mut self, cpus: Option<f64>, memory: Option<u64>) {
        self.cpus = self.cpus.into_iter().chain(cpus).reduce(f64::min);
        self.memory = self.memory.into_iter().chain(memory).min();
    }
}

/// The directories of the group `path` and of all above it, up to the mount.
fn groups(mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative: PathBuf =
        Path::new(path).components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    relative.ancestors().map(|part| mount.join(part)).filter(|group| group.is_dir()).collect()
}

/// `cpu.max`: "QUOTA PERIOD" in microseconds, or "max PERIOD".
fn cpu_max(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota.parse().ok()?, period.parse().ok()?)
}

/// `cpu.cfs_quota_us`, -1 for none, over `cpu.cfs_period_us`.
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
