//! Chooses the allocator of Ruby's processes through environment variables.
//!
//! Why: a page of a large app allocates and frees tens of thousands of blocks. jemalloc needs less time for
//! that than glibc and fragments less. It also serves the threads of a worker from separate pages, so fewer
//! pages of the template are copied. An allocator can only be chosen when a process starts.
//!
//! Contract: the user's own variables take precedence. The app's child processes are not affected, because
//! the template restores `LD_PRELOAD` from [`BEFORE`].

use settings::Allocator;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Settings of glibc's malloc, unless the user has set them. By default glibc gives each thread its own arena
/// and starts to keep large blocks for reuse: ten workers of ten threads that sort large arrays take 690 MiB
/// instead of 190, for 4 % less CPU.
const GLIBC: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "524288")];

/// The same for jemalloc: large blocks are freed at once. By default jemalloc keeps them until its next use,
/// and an idle process does not use it: 142 MiB instead of 312 with four workers of ten threads that sort
/// large arrays, for the same CPU.
const CONF: (&str, &str) = ("MALLOC_CONF", "oversize_threshold:524288");

const PRELOAD: &str = "LD_PRELOAD";
/// The original value of `LD_PRELOAD`; empty if it was not set.
const BEFORE: &str = "FIREBRICK_LD_PRELOAD";
/// If any of these is set, the environment has chosen an allocator or tuned that of the C library.
const CHOSEN: [&str; 3] = [PRELOAD, "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"];

/// Returns the path of jemalloc, if it is installed by Debian, by another distribution or by hand.
pub fn jemalloc() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let debian = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let dirs = [debian.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    dirs.iter().map(|dir| Path::new(dir).join("libjemalloc.so.2")).find(|path| path.is_file())
}

/// Returns the variables to set. `now`: the environment that Ruby would get otherwise.
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
