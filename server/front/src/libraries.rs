//! The report of `firebrick check` about fibers and the app's libraries.

use settings::Settings;
use stats::{Library, WithFibers};

/// Returns whether fibers are used or could be, and a line for each library. Empty if Ruby has reported no libraries.
pub(crate) fn lines(settings: &Settings, libraries: &[Library]) -> Vec<String> {
    if libraries.is_empty() {
        return Vec::new();
    }
    let width = libraries.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let rows = libraries
        .iter()
        .map(|one| format!("  {:<width$}  {:<16}  {}", one.name, one.with_fibers.words(), one.text));
    std::iter::once(verdict(settings, libraries)).chain(rows).collect()
}

fn verdict(settings: &Settings, libraries: &[Library]) -> String {
    let named = |verdict: WithFibers| {
        let names: Vec<&str> =
            libraries.iter().filter(|one| one.with_fibers == verdict).map(|one| one.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let but = match (named(WithFibers::Stops), named(WithFibers::Slows)) {
        (Some(stops), _) => format!(", but a wait in {stops} stops the other requests of its thread"),
        (None, Some(slows)) => format!(", but requests wait for one another in {slows}"),
        (None, None) => String::new(),
    };
    if let Some(pool) = settings.pools.iter().find(|pool| pool.fibers > 0) {
        return format!("{} fibers for {}{but} (docs/fibers.md):", pool.fibers, pool.paths_text());
    }
    match (settings.fibers, named(WithFibers::Forbids)) {
        (0, Some(why)) => {
            format!("Fibers are off, and could not be used, because of {why} (docs/fibers.md):")
        }
        (0, None) => format!("Fibers are off. They could be used{but} (docs/fibers.md):"),
        (fibers, _) => format!("{fibers} fibers in each thread{but} (docs/fibers.md):"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(fact: &str) -> Library {
        Library::from_fact(fact).unwrap()
    }

    #[test]
    fn what_forbids_is_named_first_then_what_stops() {
        let (forbids, stops, waits) = (
            library("forbids\tSequel\tAdd where the app loads it: x"),
            library("stops\tsqlite3\treads with the thread"),
            library("waits\tredis\tothers run"),
        );
        let mut settings = Settings::defaults(std::path::Path::new("/"));
        let all = lines(&settings, &[forbids, stops.clone(), waits.clone()]);
        assert!(all[0].starts_with("Fibers are off, and could not be used, because of Sequel"), "{all:?}");
        assert_eq!(all[1], "  Sequel   forbids fibers    Add where the app loads it: x");
        assert_eq!(all[3], "  redis    waits             others run");
        let some = lines(&settings, &[stops.clone(), waits.clone()]);
        assert!(
            some[0].starts_with("Fibers are off. They could be used, but a wait in sqlite3 stops"),
            "{some:?}"
        );
        assert_eq!(lines(&settings, &[waits])[0], "Fibers are off. They could be used (docs/fibers.md):");
        assert_eq!(lines(&settings, &[]), Vec::<String>::new());
        settings.fibers = 100;
        let with = |settings: &Settings| lines(settings, std::slice::from_ref(&stops)).remove(0);
        assert!(with(&settings).starts_with("100 fibers in each thread, but a wait in sqlite3"));
        let paths = vec!["/events".to_owned(), String::new()];
        settings.pools = vec![settings::Pool { paths, ..settings.default_pool() }];
        settings.fibers = 0;
        assert!(with(&settings).starts_with("100 fibers for /events, /, but a wait in sqlite3"));
    }
}
