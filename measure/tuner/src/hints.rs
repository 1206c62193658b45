//! Finds limits in the environment: the cgroup, `config/database.yml`, variables. Each note names its source,
//! so that no limit comes as a surprise.

use std::path::Path;

use planner::{Budget, Shape};
use settings::Machine;

/// Returns the budget with missing limits filled in, and notes on their sources.
pub(crate) fn fill(budget: Budget, machine: &Machine) -> (Budget, Vec<String>) {
    let mut filled = budget;
    let mut notes = Vec::new();
    if let (None, Some(limit)) = (budget.memory_bytes, machine.memory_limit) {
        filled.memory_bytes = Some(limit);
        notes.push(format!(
            "The cgroup limits memory to {}: used as --memory.",
            crate::figures::size(limit as f64)
        ));
    }
    if let (None, Some(quota)) =
        (budget.cpus, machine.cpu_quota.filter(|quota| *quota < f64::from(machine.cores)))
    {
        filled.cpus = Some(quota);
        notes.push(format!("The cgroup limits CPUs to {quota}: used as --cpus."));
    }
    (filled, notes)
}

/// The size of a process's database connection pool in `config/database.yml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The number of threads, because the file reads `RAILS_MAX_THREADS`.
    Follows,
    Fixed(u32),
}

/// Reads an app's `config/database.yml`.
pub(crate) fn pool(dir: &Path) -> Option<Pool> {
    pool_in(&std::fs::read_to_string(dir.join("config/database.yml")).ok()?)
}

/// Finds the first `pool:` (or `max_connections:`). The file is a template, so it is not parsed as YAML.
fn pool_in(text: &str) -> Option<Pool> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let value = lines
        .filter_map(|line| line.strip_prefix("pool:").or_else(|| line.strip_prefix("max_connections:")))
        .map(str::trim)
        .next()?;
    if value.contains("RAILS_MAX_THREADS") {
        return Some(Pool::Follows);
    }
    value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().map(Pool::Fixed)
}

/// Returns a remark on the database pool for a shape.
pub(crate) fn about_pool(pool: Option<Pool>, shape: Shape) -> Option<String> {
    match pool? {
        Pool::Follows if shape.fibers > 0 => Some(format!(
            "config/database.yml takes its pool from RAILS_MAX_THREADS, which is the number of threads: give it the connections that the {} fibers of a worker hold at a time.",
            shape.seats()
        )),
        Pool::Follows => Some(format!(
            "config/database.yml takes its pool from RAILS_MAX_THREADS; with {shape} the app may open {} connections.",
            shape.slots()
        )),
        Pool::Fixed(pool) if pool < shape.seats() => Some(format!(
            "config/database.yml has a pool of {pool} for {} {}, which may have to wait: set it to {}.",
            shape.seats(),
            if shape.fibers > 0 { "fibers" } else { "threads" },
            shape.seats()
        )),
        Pool::Fixed(_) => None,
    }
}

/// Returns a note on variables that configure other servers and are ignored.
pub(crate) fn set_aside() -> Option<String> {
    let set: Vec<String> = ["WEB_CONCURRENCY", "RAILS_MAX_THREADS"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")))
        .collect();
    (!set.is_empty()).then(|| format!("{} is ignored: each shape sets its own.", set.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine(memory_limit: Option<u64>, cpu_quota: Option<f64>) -> Machine {
        Machine { cpu_quota, memory_limit, ..Machine::unlimited(8) }
    }

    #[test]
    fn cgroup_limits_apply_where_none_is_given() {
        let (budget, notes) = fill(Budget::default(), &machine(Some(512 << 20), Some(1.5)));
        assert_eq!((budget.memory_bytes, budget.cpus), (Some(512 << 20), Some(1.5)));
        assert!(notes[0].contains("512 MiB") && notes[1].contains("CPUs to 1.5"), "{notes:?}");
        let typed = Budget { memory_bytes: Some(1 << 20), cpus: Some(1.0), ..Budget::default() };
        assert_eq!(fill(typed, &machine(Some(512 << 20), Some(1.5))), (typed, Vec::new()));
        assert_eq!(fill(Budget::default(), &machine(None, Some(8.0))).1, Vec::<String>::new());
    }

    #[test]
    fn pools_are_read_from_templates() {
        let text =
            |value: &str| format!("# pool: 99\ndefault: &default\n  adapter: postgresql\n  pool: {value}\n");
        assert_eq!(pool_in(&text("5 # five")), Some(Pool::Fixed(5)));
        assert_eq!(pool_in(&text("<%= ENV.fetch(\"RAILS_MAX_THREADS\") { 5 } %>")), Some(Pool::Follows));
        assert_eq!(pool_in("adapter: sqlite3\n"), None);
        assert!(about_pool(Some(Pool::Fixed(5)), Shape::new(1, 10)).unwrap().contains("set it to 10"));
        assert_eq!(about_pool(Some(Pool::Fixed(5)), Shape::new(1, 5)), None);
        let fibers = about_pool(Some(Pool::Fixed(5)), Shape::new(1, 2).with_fibers(100)).unwrap();
        assert!(fibers.contains("a pool of 5 for 200 fibers"), "{fibers}");
        assert!(about_pool(Some(Pool::Follows), Shape::new(2, 5)).unwrap().contains("10 connections"));
    }

    proptest! {
        #[test]
        fn any_file_is_accepted(text in any::<String>()) {
            let _ = pool_in(&text);
        }
    }
}
