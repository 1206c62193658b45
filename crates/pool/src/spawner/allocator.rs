//! The variables that choose the allocator of Ruby's processes.
//!
//! Why: a page of a large app allocates and frees tens of thousands of blocks. jemalloc takes less time for that than glibc, leaves
//! fewer holes, and takes what the threads of a worker allocate from pages of their own, so fewer pages of the template are copied.
//! An allocator is chosen when a process starts, or never.
//!
//! Contract: what the user has set wins. The app's own children are not affected: the template puts `LD_PRELOAD` back to what
//! [`BEFORE`] says.

use settings::Allocator;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Settings of glibc's malloc, unless the user has set them. By default it gives every thread an arena of its own, and
/// learns to keep large blocks for the next time: with ten workers of ten threads that sort large arrays, 690 MiB
/// instead of 190, for 4 % less CPU.
const GLIBC: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "524288")];

/// The same for jemalloc: large blocks are given back at once. It would keep them until it is used again, which an idle process does
/// not do: 142 MiB instead of 312 with four workers of ten threads that sort large arrays, for the same CPU.
const CONF: (&str, &str) = ("MALLOC_CONF", "oversize_threshold:524288");

const PRELOAD: &str = "LD_PRELOAD";
/// What `LD_PRELOAD` was before; empty when it was not set.
const BEFORE: &str = "FIREBRICK_LD_PRELOAD";
/// With any of these the environment has chosen an allocator, or tuned that of the C library.
const CHOSEN: [&str; 3] = [PRELOAD, "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"];

/// Where jemalloc is installed, if it is: by Debian, by other distributions, by hand.
pub(super) fn jemalloc() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let debian = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let dirs = [debian.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    dirs.iter().map(|dir| Path::new(dir).join("libjemalloc.so.2")).find(|path| path.is_file())
}

/// The variables to set. `now`: the environment that Ruby would have otherwise.
pub(super) fn variables(
    wanted: Allocator,
    jemalloc: Option<&Path>,
    now: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let unset = |(name, value): (&'static str, &str)| now(name).is_none().then(|| (name, value.into()));
    let mut variables: Vec<_> = GLIBC.into_iter().filter_map(unset).collect();
    let take = match wanted {
        Allocator::Auto => CHOSEN.iter().all(|name| now(name).is_none()),
        Allocator::Jemalloc => true,
        Allocator::System => false,
    };
    if let Some(path) = jemalloc.filter(|_| take) {
        let before = now(PRELOAD).unwrap_or_default();
        let separator = if before.is_empty() { "" } else { ":" };
        let preload: OsString =
            [path.as_os_str(), OsStr::new(separator), before.as_os_str()].into_iter().collect();
        variables.extend([(PRELOAD, preload), (BEFORE, before)]);
        variables.extend(unset(CONF));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "/usr/lib/libjemalloc.so.2";

    fn chosen(wanted: Allocator, installed: bool, now: &[(&str, &str)]) -> Vec<(&'static str, OsString)> {
        let get = |name: &str| now.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).into());
        variables(wanted, installed.then_some(Path::new(LIBRARY)), get)
    }

    fn with(more: &[(&'static str, &str)]) -> Vec<(&'static str, OsString)> {
        GLIBC.iter().chain(more).map(|&(name, value)| (name, value.into())).collect()
    }

    #[test]
    fn jemalloc_is_taken_where_it_is_installed() {
        let preloaded = with(&[(PRELOAD, LIBRARY), (BEFORE, ""), CONF]);
        assert_eq!(chosen(Allocator::Auto, true, &[]), preloaded);
        assert_eq!(chosen(Allocator::Jemalloc, true, &[]), preloaded);
        assert_eq!(chosen(Allocator::System, true, &[]), with(&[]));
        for wanted in [Allocator::Auto, Allocator::Jemalloc, Allocator::System] {
            assert_eq!(chosen(wanted, false, &[]), with(&[]));
        }
    }

    #[test]
    fn what_the_user_has_set_stays() {
        for set in [("LD_PRELOAD", "/lib/other.so"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")] {
            assert_eq!(chosen(Allocator::Auto, true, &[set]), with(&[]), "{set:?}");
        }
        let threshold = ("MALLOC_MMAP_THRESHOLD_", OsString::from("524288"));
        assert_eq!(chosen(Allocator::Auto, true, &[("MALLOC_ARENA_MAX", "4")]), [threshold]);
    }

    #[test]
    fn other_libraries_stay_preloaded() {
        let set = chosen(Allocator::Jemalloc, true, &[("LD_PRELOAD", "/lib/other.so")]);
        let both = format!("{LIBRARY}:/lib/other.so");
        assert_eq!(set, with(&[(PRELOAD, &both), (BEFORE, "/lib/other.so"), CONF]));
        let own = chosen(Allocator::Auto, true, &[("MALLOC_CONF", "narenas:2")]);
        assert_eq!(own, with(&[(PRELOAD, LIBRARY), (BEFORE, "")]));
    }
}
