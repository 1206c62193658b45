//! Checks that a reload changes exactly the options that the table marks as reloadable.

use super::*;
use settings::table::{AnyEntry, entries};
use settings::{Argument, Environment, Machine, Raw, Workers, load};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn what_cannot_change_stays() {
    let now = Settings::defaults(Path::new("/app/releases/1"));
    let mut fresh = Settings::defaults(Path::new("/app/releases/2"));
    (fresh.workers, fresh.workers_auto) = (Workers::exactly(9), None);
    fresh.front_threads = 9;
    fresh.limits.max_queue = 9;
    fresh.rack.warmup = vec!["/up".to_owned()];
    fresh.rack.yjit = settings::Yjit::On;
    fresh.rack.out_of_band_gc = true;
    fresh.timeouts.keep_alive = Duration::from_secs(1);
    let auto = Settings { workers_auto: now.workers_auto, ..fresh.clone() };
    assert_eq!(merge(&now, auto).workers, now.workers, "the machine decides");
    let merged = merge(&now, fresh.clone());
    assert_eq!(merged.dir, Path::new("/app/releases/2"));
    assert_eq!((merged.front_threads, merged.tag), (now.front_threads, now.tag));
    assert_eq!((merged.workers, merged.workers_auto), (fresh.workers, None));
    assert_eq!((merged.rack, merged.timeouts), (fresh.rack, fresh.timeouts));
    assert_eq!(merged.limits, now.limits);
}

/// A directory with an app. The settings do not depend on the machine that runs the test.
struct TestDir(tempfile::TempDir);

impl TestDir {
    fn new() -> TestDir {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("other")).expect("a folder in it");
        for file in ["config.ru", "other/index.html", "auth.rb", "other.pem", "static.json"] {
            std::fs::write(dir.path().join(file), "{}").expect("a file");
        }
        TestDir(dir)
    }

    fn load(&self, values: &[(&'static str, &str)]) -> Option<Settings> {
        let argument = |(key, value): &(&'static str, &str)| Argument {
            key,
            flag: (*key).to_owned(),
            values: vec![(*value).to_owned()],
        };
        load(&values.iter().map(argument).collect::<Vec<_>>(), self).ok().map(|loaded| loaded.settings)
    }

    /// Returns settings that differ in the value of one entry only.
    fn two(&self, entry: &dyn AnyEntry) -> Option<(Settings, Settings)> {
        let key = entry.about().key;
        let words = entry.words().into_iter().chain(VALUES.iter().copied());
        let taken = words.filter(|word| entry.check(&Raw::Word((*word).to_owned())).is_ok());
        for word in taken {
            for company in COMPANIES {
                let company: Vec<_> = [PRODUCTION].iter().chain(*company).copied().collect();
                let others = company.iter().copied().filter(|(other, _)| *other != key);
                let with: Vec<_> = others.chain([(key, word)]).collect();
                if let (Some(now), Some(fresh)) = (self.load(&company), self.load(&with))
                    && now != fresh
                {
                    return Some((now, fresh));
                }
            }
        }
        None
    }
}

impl Environment for TestDir {
    fn var(&self, _: &str) -> Option<String> {
        None
    }

    fn current_dir(&self) -> PathBuf {
        self.0.path().canonicalize().expect("the folder is there")
    }

    fn uid(&self) -> u32 {
        7
    }

    fn machine(&self) -> Machine {
        Machine {
            memory_limit: Some(1 << 30),
            memory_total: Some(1 << 30),
            open_files: Some(100_000),
            ..Machine::unlimited(8)
        }
    }
}

/// For each option, one of these is a valid value that differs from its default.
const VALUES: &[&str] = &[
    "7",
    "70%",
    "7s",
    "20ms",
    "7MiB",
    "7GiB",
    "1:7",
    "off",
    "on",
    "true",
    "false",
    "other",
    "/other",
    "auth.rb",
    "other.pem",
    "static.json",
    "other.example",
    "tcp://127.0.0.1:7007",
    "redis://127.0.0.1:7379",
    "https://other.example/x",
    "https://other.example",
    "me@other.example",
    "X-Other",
    "10.7.0.0/16",
    "name=value",
    "0.7",
    "7KiB",
    "700",
    "b3RoZXI",
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "p95 < 7s",
];

/// In development, some options have other defaults.
const PRODUCTION: (&str, &str) = ("environment", "production");

/// Settings that an option needs to have an effect.
const COMPANIES: &[&[(&str, &str)]] = &[
    &[],
    &[("dir", "auth.rb"), ("mruby_file", "true")],
    &[("traces.endpoint", "http://127.0.0.1:4318")],
    &[("slo", "p50 < 1s")],
    &[("hub.path", "/cable"), ("hub.secret", "00112233445566778899aabbccddeeff")],
    // A reload can replace a list of paths by another one, but cannot add or remove the list.
    &[("fibers", "7"), ("fiber_paths", "/one")],
    &[("bind", "ssl://127.0.0.1:7443"), ("tls.cert", "other.pem"), ("tls.key", "auth.rb")],
    &[
        ("bind", "ssl://127.0.0.1:7443"),
        ("tls.cert", "other.pem"),
        ("tls.key", "auth.rb"),
        ("tls.client_ca", "other.pem"),
    ],
    &[("bind", "ssl://127.0.0.1:7443"), ("acme.domains", "one.example"), ("acme.email", "me@one.example")],
    &[
        ("bind", "ssl://127.0.0.1:7443"),
        ("acme.domains", "one.example"),
        ("acme.eab_kid", "one"),
        ("acme.eab_hmac", "b25l"),
    ],
    &[
        ("bind", "ssl://127.0.0.1:7443"),
        ("acme.domains", "one.example"),
        ("acme.on_demand", "true"),
        ("acme.ask", "http://127.0.0.1:7007/ask"),
    ],
];

/// An option is `reloadable` if and only if `merge` applies it.
#[test]
fn the_table_says_what_a_reload_changes() {
    let place = TestDir::new();
    // A reload does not change options of the command line.
    let wrong: Vec<String> = entries()
        .filter(|entry| entry.about().in_file)
        .filter_map(|entry| {
            let about = entry.about();
            let Some((now, fresh)) = place.two(entry) else {
                return Some(format!("{}: no value makes a difference, see VALUES and COMPANIES", about.key));
            };
            let merged = merge(&now, fresh.clone());
            match about.reloadable {
                true => {
                    (merged != fresh).then(|| format!("{}: reloadable, but merge() leaves it", about.key))
                }
                false => {
                    (merged != now).then(|| format!("{}: not reloadable, but merge() changes it", about.key))
                }
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `firebrick set` applies the options that a reload applies, except for those of the files and of new workers.
#[test]
fn a_change_at_once_applies_what_a_reload_applies() {
    let place = TestDir::new();
    let mut applied = 0;
    for entry in entries().filter(|entry| entry.about().reloadable) {
        let about = entry.about();
        let Some((now, fresh)) = place.two(entry) else { panic!("{}: see VALUES", about.key) };
        let changed = at_once(&now, fresh.clone());
        match settings::settable(about.key) {
            Ok(_) => assert_eq!(changed, fresh, "{}", about.key),
            Err(_) => assert_eq!(changed, now, "{}", about.key),
        }
        applied += 1;
    }
    assert!(applied > 50, "{applied}");
}

#[test]
fn the_paths_and_workers_of_a_pool_change_but_not_which_pools_there_are() {
    let pool = |name: &str, paths: &str, fibers| Pool {
        name: name.to_owned(),
        paths: vec![paths.to_owned()],
        fibers,
        ..Settings::defaults(Path::new("/")).default_pool()
    };
    let with = |pools: &[Pool]| Settings { pools: pools.to_vec(), ..Settings::defaults(Path::new("/")) };
    let (slow, fibers) = (pool("slow", "/a", 0), pool(Pool::FIBERS, "/b", 10));
    let [none, one, both] =
        [with(&[]), with(std::slice::from_ref(&slow)), with(&[slow.clone(), fibers.clone()])];
    let warned = |now: &Settings, fresh: &Settings| takes_restart(now, fresh).join("; ");
    assert_eq!((warned(&both, &both), warned(&none, &none)), (String::new(), String::new()));
    assert_eq!(merge(&none, both.clone()).pools, []);
    assert!(warned(&none, &one).contains("pools.slow (/a) takes effect only after a restart"));
    assert!(warned(&one, &both).contains("fiber_paths (/b) takes effect only after a restart"));
    assert_eq!(merge(&both, one.clone()).pools, both.pools);
    assert!(warned(&both, &one).contains("without fiber_paths a restart is needed: fibers still serve /b"));
    let other = Pool { workers: 7, queue: Duration::from_secs(1), worker: None, ..pool("slow", "/c", 0) };
    let fresh = with(std::slice::from_ref(&other));
    assert_eq!((warned(&one, &fresh), merge(&one, fresh).pools), (String::new(), vec![other]));
    let more = with(&[slow.clone(), Pool { fibers: 20, ..fibers.clone() }]);
    assert!(warned(&both, &more).contains("fibers of the pool fibers takes effect only after a restart"));
    assert_eq!(merge(&both, more).pools, both.pools);
    for (other, what) in [
        (Pool { fibers: 3, ..slow.clone() }, "threads or fibers"),
        (Pool { threads: settings::Threads { min: 9, max: 9 }, ..slow.clone() }, "threads"),
        (Pool { max_queue: 3, ..slow.clone() }, "limits.max_queue"),
    ] {
        let fresh = with(&[other]);
        assert_eq!(
            warned(&one, &fresh),
            format!("{what} of the pool slow takes effect only after a restart")
        );
        assert_eq!(merge(&one, fresh).pools, one.pools);
    }
}
