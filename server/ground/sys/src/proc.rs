//! Reads files of `/proc` (proc(5)). A file or figure that is missing is unknown.

/// The program of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunningProgram {
    /// The command line, or the title that the process has set.
    pub words: Vec<String>,
    /// The executable file, if this user may see it.
    pub file: Option<std::path::PathBuf>,
    pub began: Option<std::time::SystemTime>,
}

/// A process that has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    /// CPU time in ticks, including that of reaped children; 0 if unknown.
    pub ticks: u64,
    /// The start time in ticks since boot; together with the pid it identifies a process uniquely. 0 if unknown.
    pub started: u64,
}

impl Stat {
    /// Parses a line of `/proc/PID/stat`; `None` for a zombie.
    #[cfg_attr(any(not(target_os = "linux"), firebrick_portable), allow(dead_code))]
    pub(crate) fn parse(line: &str) -> Option<Stat> {
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
            ticks: (11..=14).try_fold(0_u64, |sum, at| sum.checked_add(number(at)?))?,
            started: number(19)?,
        })
    }
}

/// Memory of processes in bytes; 0 if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Proportional set size: shared pages are divided among the processes that share them.
    pub pss: u64,
    /// Resident set size: shared pages count for each process.
    pub rss: u64,
}

/// Returns the name of a process's program, at most 15 bytes.
pub fn name(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

/// Returns the working directory of a process. `None` for another user's process, and without `/proc`.
pub fn working_dir(pid: u32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Reads a file of scheduler statistics (proc(5)): nanoseconds on a CPU, nanoseconds waiting for one.
pub(crate) fn schedstat(path: &str) -> Option<(u64, u64)> {
    parse_schedstat(&std::fs::read_to_string(path).ok()?)
}

pub(crate) fn parse_schedstat(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns the entries of a folder whose names are numbers.
pub(crate) fn numbers(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn status(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// Returns figures of a process's memory maps in bytes. The kernel walks the page tables for them.
pub(crate) fn rollup<const N: usize>(pid: impl std::fmt::Display, names: [&str; N]) -> [Option<u64>; N] {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    names.map(|name| kib_of(&text, name))
}

/// Returns the figure after `name`, in bytes, from a text with one figure per line.
pub(crate) fn kib_of(text: &str, name: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1_024)
}
