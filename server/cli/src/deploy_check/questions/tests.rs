//! Each finding that needs another machine is planted here; the others in test/deploy_check_test.rb.

use super::super::facts::*;
use super::super::finding::TrafficLight;
use super::super::platform::{ProxyInFront, Surroundings};
use super::*;
use front::AddressTrial;
use proptest::prelude::*;
use settings::{Allocator, Bind, Machine, Threads, Workers};
use stats::CertificateSnapshot;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const GIB: u64 = 1 << 30;

/// An app without faults on a machine of eight CPUs.
fn good() -> DeployFacts {
    let mut settings = Settings::defaults(Path::new("/srv/app"));
    settings.app = Some("/srv/app/config.ru".into());
    (settings.workers, settings.workers_auto) = (Workers::exactly(8), None);
    let machine = Machine { memory_total: Some(16 * GIB), open_files: Some(65_536), ..Machine::unlimited(8) };
    DeployFacts {
        environment: EnvironmentName {
            name: "production".to_owned(),
            origin: Some("RACK_ENV".to_owned()),
            contradicting: Vec::new(),
        },
        sections: Vec::new(),
        soft_open_files: Some(1_024),
        worker_memory: None,
        surroundings: Surroundings {
            proxy: ProxyInFront::Nothing,
            because: "no sign of a proxy".to_owned(),
            grace: None,
            kubernetes: false,
            routed_by: None,
        },
        rails: None,
        ruby: Some(Ok(RubyAnswer {
            engine: "ruby".to_owned(),
            version: "3.3.0".to_owned(),
            has_yjit: true,
            ..RubyAnswer::default()
        })),
        database_limit: None,
        temp: TemporaryFolder { problem: None, in_memory: false, free: Some(100 * GIB) },
        folders: vec![WrittenFolder {
            purpose: FolderPurpose::ControlSocket,
            path: "/run/user/1000".into(),
            problem: None,
        }],
        addresses: settings.binds.iter().map(|bind| (bind.clone(), Ok(AddressTrial::Free))).collect(),
        port_variable: None,
        program: PathBuf::from("/usr/bin/firebrick"),
        certificates: Vec::new(),
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000),
        names: LookedUpNames::Done(Vec::new()),
        nginx: None,
        jemalloc: None,
        arenas: None,
        public_entries: None,
        machine,
        settings,
    }
}

/// Changes the good facts, and returns the worst finding of a question: its light, and its text with the lines to paste.
fn asked(question: &str, change: impl FnOnce(&mut DeployFacts)) -> (TrafficLight, String) {
    let mut facts = good();
    change(&mut facts);
    let all = answer(&facts);
    let worst = all.iter().filter(|one| one.question == question).max_by_key(|one| one.light);
    let worst = worst.unwrap_or_else(|| panic!("no finding about {question}"));
    let paste: Vec<String> =
        worst.paste.iter().map(|line| format!("{}: {}", line.place, line.text)).collect();
    (worst.light, format!("{}\n{}", worst.text, paste.join("\n")))
}

#[track_caller]
fn is(light: TrafficLight, question: &str, parts: &[&str], change: impl FnOnce(&mut DeployFacts)) {
    let (found, text) = asked(question, change);
    assert_eq!(found, light, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

use TrafficLight::{Green, Red, Yellow};

fn behind(facts: &mut DeployFacts, proxy: ProxyInFront) {
    (facts.surroundings.proxy, facts.surroundings.because) = (proxy, "--behind".to_owned());
    // The time-outs of docs/heroku.md.
    facts.settings.timeouts.worker = Some(Duration::from_secs(29));
    facts.settings.timeouts.keep_alive = Duration::from_secs(95);
}

#[test]
fn an_app_without_faults_is_green() {
    for one in answer(&good()) {
        assert_eq!(one.light, Green, "{one:?}");
    }
    let mut site = good();
    (site.settings.app, site.ruby) = (None, None);
    let questions: Vec<&str> = answer(&site).iter().map(|one| one.question).collect();
    assert!(!questions.contains(&"environment") && questions.contains(&"descriptors"), "{questions:?}");
}

#[test]
fn environments() {
    let named = |name: &'static str| move |facts: &mut DeployFacts| facts.environment.name = name.to_owned();
    is(
        Red,
        "environment",
        &["development (RACK_ENV)", "environment: RACK_ENV=production"],
        named("development"),
    );
    is(Yellow, "environment", &["test (RACK_ENV)"], named("test"));
    is(Green, "environment", &["staging"], named("staging"));
    is(Yellow, "environment", &["none is set"], |facts| facts.environment.origin = None);
    is(Yellow, "environment", &["RAILS_ENV is staging", "environment: RAILS_ENV=production"], |facts| {
        facts.environment.contradicting.push(("RAILS_ENV", "staging".to_owned()));
    });
}

#[test]
fn secrets_of_rails() {
    let rails = |rails: RailsFacts| move |facts: &mut DeployFacts| facts.rails = Some(rails);
    let file = || Some(PathBuf::from("config/credentials.yml.enc"));
    let key =
        |characters, open| MasterKey::Present { place: "config/master.key".to_owned(), characters, open };
    is(Red, "secrets", &["SECRET_KEY_BASE is not set", "bin/rails secret"], rails(RailsFacts::default()));
    is(
        Yellow,
        "secrets",
        &["config/secrets.yml"],
        rails(RailsFacts { secrets_yml: true, ..RailsFacts::default() }),
    );
    is(
        Green,
        "secrets",
        &["SECRET_KEY_BASE"],
        rails(RailsFacts { secret_key_base: true, ..RailsFacts::default() }),
    );
    is(Red, "secrets", &["for builds"], rails(RailsFacts { dummy_secret: true, ..RailsFacts::default() }));
    is(
        Red,
        "secrets",
        &["RAILS_MASTER_KEY", "cat config/master.key"],
        rails(RailsFacts { credentials: file(), ..RailsFacts::default() }),
    );
    is(
        Yellow,
        "secrets",
        &["cannot be read"],
        rails(RailsFacts { credentials: file(), secret_key_base: true, ..RailsFacts::default() }),
    );
    is(
        Red,
        "secrets",
        &["31 characters"],
        rails(RailsFacts { credentials: file(), key: key(31, false), ..RailsFacts::default() }),
    );
    is(
        Yellow,
        "secrets",
        &["chmod 600 config/master.key"],
        rails(RailsFacts { credentials: file(), key: key(32, true), ..RailsFacts::default() }),
    );
    is(
        Green,
        "secrets",
        &["config/master.key"],
        rails(RailsFacts { credentials: file(), key: key(32, false), ..RailsFacts::default() }),
    );
    let unreadable =
        MasterKey::Unreadable { file: "config/master.key".into(), why: "Permission denied".to_owned() };
    is(
        Red,
        "secrets",
        &["Permission denied", "chown"],
        rails(RailsFacts { credentials: file(), key: unreadable, ..RailsFacts::default() }),
    );
    let of_production = Some(PathBuf::from("config/credentials/production.yml.enc"));
    is(
        Red,
        "secrets",
        &["cat config/credentials/production.key"],
        rails(RailsFacts { credentials: of_production, ..RailsFacts::default() }),
    );
}

fn pool(size: Option<u32>, origin: &str) -> impl FnOnce(&mut DeployFacts) {
    let pool = ConnectionPool {
        name: "primary".to_owned(),
        adapter: "postgresql".to_owned(),
        size,
        origin: origin.to_owned(),
    };
    move |facts| {
        facts.settings.threads = Threads { min: 1, max: 5 };
        facts.ruby.as_mut().unwrap().as_mut().unwrap().pools = vec![pool];
    }
}

#[test]
fn pools_against_threads_and_the_database() {
    is(
        Red,
        "database",
        &["4 connections", "5 threads", "config/database.yml: pool: 5"],
        pool(Some(4), "config/database.yml"),
    );
    is(Red, "database", &["environment: DATABASE_URL=…?pool=5"], pool(Some(1), "DATABASE_URL"));
    is(Green, "database", &["5 connections"], pool(Some(5), "default"));
    is(Green, "database", &["only the app knows"], pool(None, "the app"));
    is(Yellow, "database", &["50 fibers"], |facts| {
        pool(Some(5), "default")(facts);
        facts.settings.fibers = 10;
    });
    let limited = |limit| {
        move |facts: &mut DeployFacts| {
            pool(Some(5), "default")(facts);
            facts.database_limit = Some(limit);
        }
    };
    is(
        Red,
        "database",
        &["8 workers x 5 connections are 40, and the database accepts 39", "workers = 6"],
        limited(39),
    );
    is(Yellow, "database", &["45 while a worker is replaced"], limited(44));
    is(Green, "database", &["40 of 45"], limited(45));
    is(Red, "database", &["KeyError"], |facts| {
        facts.ruby.as_mut().unwrap().as_mut().unwrap().pools_error = Some("KeyError: x".to_owned());
    });
}

#[test]
fn memory_and_cpus() {
    is(Yellow, "memory", &["8 workers of 256 MiB need 2 GiB", "assumed", "workers = 4"], |facts| {
        facts.machine.memory_limit = Some(GIB)
    });
    is(Red, "memory", &["need 8 GiB, the container's limit is 4 GiB"], |facts| {
        (facts.machine.memory_limit, facts.worker_memory) = (Some(4 * GIB), Some(GIB));
    });
    is(Green, "memory", &["unknown"], |facts| facts.machine.memory_total = None);
    is(Yellow, "CPUs", &["8 workers for 2 CPUs", "quota", "workers = 2"], |facts| {
        facts.machine.cpu_quota = Some(2.0)
    });
    is(Yellow, "CPUs", &["3 workers for 8 CPUs"], |facts| facts.settings.workers = Workers::exactly(3));
    is(Yellow, "CPUs", &["cpu: \"2\""], |facts| {
        (facts.surroundings.kubernetes, facts.settings.workers_auto) = (true, Some(1));
    });
}

#[test]
fn descriptors_and_folders() {
    is(
        Yellow,
        "descriptors",
        &["4,096 (the server raises the soft limit of 1,024)", "LimitNOFILE=16384", "ulimit -Hn 16384"],
        |facts| facts.machine.open_files = Some(4_096),
    );
    is(Red, "descriptors", &["leave 0 of 10,000"], |facts| facts.machine.open_files = Some(16));
    is(Green, "descriptors", &["unlimited"], |facts| facts.machine.open_files = None);
    let temp = |change: fn(&mut TemporaryFolder)| move |facts: &mut DeployFacts| change(&mut facts.temp);
    is(
        Red,
        "temporary files",
        &["Read-only", "TMPDIR=/var/tmp"],
        temp(|temp| temp.problem = Some("Read-only file system".to_owned())),
    );
    is(Yellow, "temporary files", &["tmpfs"], temp(|temp| temp.in_memory = true));
    is(
        Yellow,
        "temporary files",
        &["limits.max_body", "max_body = \"256MiB\""],
        temp(|temp| temp.free = Some(GIB / 2)),
    );
    is(Red, "temporary files", &["emptyDir", "mountPath: /tmp"], |facts| {
        (facts.temp.problem, facts.surroundings.kubernetes) = (Some("x".to_owned()), true);
    });
    for (purpose, light, part) in [
        (FolderPurpose::ControlSocket, Yellow, "XDG_RUNTIME_DIR"),
        (FolderPurpose::Pidfile, Red, "pidfile ="),
        (FolderPurpose::Certificates, Red, "acme.dir ="),
        (FolderPurpose::RailsTemporary, Yellow, "chown"),
    ] {
        is(light, "folders", &["denied", part], |facts| {
            facts.folders =
                vec![WrittenFolder { purpose, path: "/x".into(), problem: Some("denied".to_owned()) }];
        });
    }
}

#[test]
fn addresses_and_proxies() {
    let tried = |trial: Result<AddressTrial, String>| {
        move |facts: &mut DeployFacts| {
            facts.addresses = vec![("tcp://[::]:80".parse::<Bind>().unwrap(), trial)];
        }
    };
    is(
        Red,
        "addresses",
        &["in use by process 7 (nginx)"],
        tried(Ok(AddressTrial::InUse(Some("process 7 (nginx)".to_owned())))),
    );
    is(
        Green,
        "addresses",
        &["tcp://[::]:80"],
        tried(Ok(AddressTrial::InUse(Some("process 7 (firebrick)".to_owned())))),
    );
    is(Yellow, "addresses", &["ss -ltnp"], tried(Ok(AddressTrial::InUse(None))));
    is(
        Red,
        "addresses",
        &["setcap cap_net_bind_service=+ep /usr/bin/firebrick"],
        tried(Err("needs a right".to_owned())),
    );
    is(Yellow, "addresses", &["PORT is 5000"], |facts| facts.port_variable = Some(5_000));
    is(Red, "addresses", &["DYNO", "$PORT"], |facts| {
        (facts.port_variable, facts.surroundings.routed_by) = (Some(5_000), Some("DYNO"));
    });
    is(Red, "addresses", &["connects from another machine"], |facts| {
        facts.addresses = vec![(Bind::tcp("127.0.0.1", 9292), Ok(AddressTrial::Free))];
        facts.surroundings.kubernetes = true;
    });
    for proxy in [
        ProxyInFront::Nginx,
        ProxyInFront::Alb,
        ProxyInFront::Heroku,
        ProxyInFront::Kubernetes,
        ProxyInFront::Cloudflare,
    ] {
        is(Red, "proxy", &["is not trusted"], |facts| {
            behind(facts, proxy);
            facts.settings.rack.trusted_proxies = settings::TrustedProxies::default();
        });
    }
    is(Red, "proxy", &["https_only redirects for ever"], |facts| {
        behind(facts, ProxyInFront::Nginx);
        facts.settings.rack.trusted_proxies = settings::TrustedProxies::default();
        facts.settings.https.https_only = Some(true);
    });
    is(Red, "proxy", &["Unix socket"], |facts| {
        behind(facts, ProxyInFront::Nginx);
        facts.settings.binds = vec![Bind::unix("/s")];
        facts.settings.rack.trusted_proxies.unix = false;
    });
    is(Red, "proxy", &["10.0.0.1"], |facts| {
        behind(facts, ProxyInFront::Heroku);
        facts.settings.rack.trusted_proxies.networks = vec!["192.0.2.0/24".parse().unwrap()];
    });
    is(Yellow, "proxy", &["public addresses", "cloudflare.com/ips-v4"], |facts| {
        behind(facts, ProxyInFront::Cloudflare)
    });
    is(Green, "proxy", &["trusted by"], |facts| behind(facts, ProxyInFront::Alb));
}

#[test]
fn early_hints() {
    let on = |proxy, nginx| {
        move |facts: &mut DeployFacts| {
            behind(facts, proxy);
            (facts.settings.rack.early_hints, facts.nginx) = (true, nginx);
        }
    };
    is(
        Red,
        "early hints",
        &["nginx 1.22.1", "early_hints = false"],
        on(ProxyInFront::Nginx, Some((1, 22, 1))),
    );
    is(Green, "early hints", &["nginx 1.29.0"], on(ProxyInFront::Nginx, Some((1, 29, 0))));
    is(Yellow, "early hints", &["before nginx 1.29"], on(ProxyInFront::Nginx, None));
    is(Yellow, "early hints", &["Heroku"], on(ProxyInFront::Heroku, None));
    is(Green, "early hints", &["on"], on(ProxyInFront::Nothing, None));
}

#[test]
fn time_outs_and_the_end() {
    let defaults = |proxy| move |facts: &mut DeployFacts| facts.surroundings.proxy = proxy;
    is(Red, "time-outs", &["keep-alive 1 min 5 s", "keep_alive = \"95s\""], defaults(ProxyInFront::Heroku));
    is(Yellow, "time-outs", &["worker = \"55s\"", "proxy_read_timeout 65s;"], defaults(ProxyInFront::Nginx));
    is(Yellow, "time-outs", &["keep_alive = \"905s\""], defaults(ProxyInFront::Cloudflare));
    is(Red, "time-outs", &["keep_alive = \"65s\""], |facts| {
        behind(facts, ProxyInFront::Alb);
        facts.settings.timeouts.keep_alive = Duration::from_secs(60);
    });
    is(Yellow, "time-outs", &["time-out is off"], |facts| {
        behind(facts, ProxyInFront::Alb);
        facts.settings.timeouts.worker = None;
    });
    is(Green, "time-outs", &["Heroku"], |facts| behind(facts, ProxyInFront::Heroku));
    is(Green, "time-outs", &["keep-alive"], |facts| {
        behind(facts, ProxyInFront::Heroku);
        facts.settings.timeouts.keep_alive = Duration::ZERO;
    });
    let grace = |seconds| Some((Duration::from_secs(seconds), "--grace".to_owned()));
    is(Yellow, "shutdown", &["30 s", "shutdown = \"5s\""], |facts| facts.surroundings.grace = grace(10));
    is(Green, "shutdown", &["KILL comes after 31 s"], |facts| facts.surroundings.grace = grace(31));
    is(Yellow, "shutdown", &["35 s", "terminationGracePeriodSeconds: 40"], |facts| {
        (facts.surroundings.grace, facts.surroundings.kubernetes) = (grace(30), true);
        facts.settings.timeouts.lame_duck = Some(Duration::from_secs(5));
    });
}

#[test]
fn certificates_and_names() {
    let certificate = |days: u64, name: &'static str| {
        move |facts: &mut DeployFacts| {
            facts.certificates = vec![CertificateSnapshot {
                names: vec![name.to_owned()],
                not_before: Some(SystemTime::UNIX_EPOCH),
                not_after: Some(facts.now + Duration::from_secs(days * 86_400)),
                storage: "cert.pem".to_owned(),
                ..CertificateSnapshot::default()
            }];
            facts.settings.https.canonical_host = Some("www.a.test".to_owned());
        }
    };
    is(Red, "certificates", &["expired", "cert.pem"], certificate(0, "www.a.test"));
    is(Red, "certificates", &["for 2 d more"], certificate(2, "www.a.test"));
    is(Yellow, "certificates", &["for 20 d more"], certificate(20, "*.a.test"));
    is(Green, "certificates", &["for 90 d more"], certificate(90, "*.A.test"));
    is(Red, "certificates", &["no certificate is for www.a.test"], certificate(90, "a.test"));
    is(Red, "certificates", &["key.pem: no key"], |facts| {
        let (error, storage) = (Some("no key".to_owned()), "key.pem".to_owned());
        facts.certificates = vec![CertificateSnapshot { error, storage, ..CertificateSnapshot::default() }];
    });
    is(Red, "certificates", &["only this machine trusts"], |facts| {
        facts.settings.tls.development = true;
        facts.settings.binds = vec!["ssl://[::]:9292".parse().unwrap()];
    });
    let orders = |facts: &mut DeployFacts| {
        let domains = vec!["a.test".to_owned()];
        let challenge = settings::AcmeChallenge::Auto;
        facts.settings.acme.certificates =
            vec![settings::CertificateOrder { domains, profile: None, challenge }];
    };
    is(Yellow, "certificates", &["port 80 or 443"], orders);
    is(Green, "certificates", &["obtained from"], |facts| {
        orders(facts);
        facts.settings.binds = vec![Bind::tcp("::", 80)];
    });
    let looked = |addresses: Result<Vec<(std::net::IpAddr, bool)>, String>| {
        move |facts: &mut DeployFacts| {
            let (name, key) = ("a.test".to_owned(), "acme.domains");
            facts.names = LookedUpNames::Done(vec![LookedUpName { name, key, addresses }]);
        }
    };
    let address = || std::net::IpAddr::from([192, 0, 2, 1]);
    is(Yellow, "host names", &["leads nowhere"], looked(Err("no such name".to_owned())));
    is(Red, "host names", &["leads nowhere", "dig +short a.test"], |facts| {
        orders(facts);
        looked(Err("no such name".to_owned()))(facts);
    });
    is(
        Yellow,
        "host names",
        &["192.0.2.1, no address of this machine"],
        looked(Ok(vec![(address(), false)])),
    );
    is(Green, "host names", &["192.0.2.1"], looked(Ok(vec![(address(), true)])));
    is(Green, "host names", &["--offline"], |facts| facts.names = LookedUpNames::Skipped);
}

#[test]
fn ruby_allocator_files_and_logs() {
    is(Red, "ruby", &["no such file"], |facts| facts.ruby = Some(Err("no such file".to_owned())));
    is(Yellow, "ruby", &["has YJIT", "yjit = \"auto\""], |facts| {
        facts.settings.rack.yjit = settings::Yjit::Off
    });
    is(Yellow, "ruby", &["without YJIT"], |facts| {
        facts.settings.rack.yjit = settings::Yjit::On;
        facts.ruby.as_mut().unwrap().as_mut().unwrap().has_yjit = false;
    });
    if cfg!(target_os = "linux") {
        is(Yellow, "allocator", &["apt-get"], |facts| facts.settings.rack.allocator = Allocator::Jemalloc);
        is(Yellow, "allocator", &["MALLOC_ARENA_MAX is 8, with 3 threads"], |facts| {
            facts.arenas = Some("8".to_owned())
        });
        is(Green, "allocator", &["jemalloc"], |facts| {
            facts.jemalloc = Some("/usr/lib/libjemalloc.so.2".into())
        });
    }
    let assets = |has_files, manifest| {
        move |facts: &mut DeployFacts| {
            let pipeline = AssetPipeline { name: "propshaft", output: "public/assets", has_files, manifest };
            facts.rails = Some(RailsFacts {
                pipeline: Some(pipeline),
                sources: 3,
                secret_key_base: true,
                ..RailsFacts::default()
            });
        }
    };
    is(Red, "assets", &["3 source files", "assets:precompile"], assets(false, false));
    is(Red, "assets", &["no manifest"], assets(true, false));
    is(Green, "assets", &["compiled"], assets(true, true));
    is(Yellow, "public files", &["public = \"auto\""], |facts| {
        facts.settings.files.public = None;
        facts.rails = Some(RailsFacts { leaves_files_to_the_server: true, ..RailsFacts::default() });
    });
    is(Yellow, "log of the app", &["RAILS_LOG_TO_STDOUT=1"], |facts| {
        facts.surroundings.routed_by = Some("DYNO");
        facts.rails = Some(RailsFacts { logs_to_a_file: true, ..RailsFacts::default() });
    });
}

#[test]
fn a_key_is_a_flag_where_a_file_would_replace_puma_rb() {
    let mut facts = good();
    let line = |facts: &DeployFacts, key, value| set(facts, key, value);
    let above = "firebrick.toml, above the first [section]".to_owned();
    let (keep_alive, early_hints) = (("timeouts.keep_alive", "\"95s\""), ("rack.early_hints", "false"));
    let top = line(&facts, keep_alive.0, keep_alive.1);
    assert_eq!((top.place, top.text.as_str()), (above, "timeouts.keep_alive = \"95s\""));
    assert_eq!(line(&facts, "workers", "4").text, "workers = 4");
    facts.sections = vec!["timeouts".to_owned()];
    let below = line(&facts, keep_alive.0, keep_alive.1);
    assert_eq!(
        (below.place.as_str(), below.text.as_str()),
        ("firebrick.toml, below [timeouts]", "keep_alive = \"95s\"")
    );
    let file = PathBuf::from("config/puma.rb");
    facts.settings.puma_rb =
        Some(settings::puma::PumaFile { path: file.clone(), shown: file, workers: None, environment: None });
    assert_eq!(line(&facts, keep_alive.0, keep_alive.1).text, "firebrick --keep-alive-timeout 95s");
    assert_eq!(line(&facts, early_hints.0, early_hints.1).text, "firebrick --no-early-hints");
    facts.settings.config = Some("/srv/app/firebrick.toml".into());
    assert_eq!(line(&facts, "workers", "4").text, "workers = 4");
}

prop_compose! {
    fn any_facts()(
        numbers in proptest::array::uniform8(prop_oneof![Just(0u64), 1u64..20, any::<u64>()]),
        bits in any::<u64>(),
        proxy in 0usize..6,
        word in "[a-z.*]{1,12}",
    ) -> DeployFacts {
        let bit = |at: u32| bits >> at & 1 == 1;
        let small = |at: usize| u32::try_from(numbers[at] % 1_025).unwrap_or(0);
        let mut facts = good();
        facts.settings.workers = Workers { min: 1, max: small(0).max(1) };
        facts.settings.threads.max = u16::try_from(small(1) % 512).unwrap_or(0).max(1);
        facts.settings.fibers = small(2) * 60;
        facts.settings.limits.max_body = bit(0).then_some(numbers[3]);
        facts.settings.timeouts.keep_alive = Duration::from_secs(numbers[4] % 100_000);
        facts.settings.timeouts.worker = bit(1).then(|| Duration::from_millis(numbers[5] % 100_000));
        facts.settings.timeouts.shutdown = Duration::from_secs(numbers[6] % 100_000);
        if bit(2) { facts.settings.app = None; }
        facts.settings.files.public = bit(3).then(|| PathBuf::from("/srv/app/public"));
        facts.settings.rack.early_hints = bit(4);
        if bit(5) { facts.settings.rack.trusted_proxies = settings::TrustedProxies::default(); }
        facts.settings.https.canonical_host = bit(6).then(|| word.clone());
        facts.settings.binds = if bit(7) { vec![Bind::unix("/s")] } else { vec![Bind::tcp("127.0.0.1", 80)] };
        let trial = match numbers[7] % 4 {
            0 => Ok(AddressTrial::Free),
            1 => Ok(AddressTrial::InUse(None)),
            2 => Ok(AddressTrial::InUse(Some(word.clone()))),
            _ => Err(word.clone()),
        };
        facts.addresses = facts.settings.binds.iter().map(|bind| (bind.clone(), trial.clone())).collect();
        facts.environment.name = if bit(8) { "development".to_owned() } else { word.clone() };
        if bit(9) { facts.environment.origin = None; }
        facts.machine.memory_limit = bit(10).then_some(numbers[0]);
        facts.machine.memory_total = bit(11).then_some(numbers[1]);
        facts.machine.open_files = bit(12).then_some(numbers[2]);
        facts.machine.cpu_quota = bit(13).then_some(numbers[3] as f64 / 7.0);
        facts.soft_open_files = bit(14).then_some(numbers[4]);
        facts.worker_memory = bit(15).then_some(numbers[5]);
        facts.surroundings.proxy = [ProxyInFront::Nothing, ProxyInFront::Nginx, ProxyInFront::Alb, ProxyInFront::Heroku, ProxyInFront::Kubernetes, ProxyInFront::Cloudflare][proxy];
        facts.surroundings.grace = bit(16).then(|| (Duration::from_secs(numbers[6] % 1_000), word.clone()));
        facts.surroundings.kubernetes = bit(17);
        facts.surroundings.routed_by = bit(18).then_some("DYNO");
        facts.rails = bit(19).then(|| RailsFacts {
            credentials: bit(20).then(|| PathBuf::from(&word)),
            key: if bit(21) { MasterKey::Missing } else { MasterKey::Present { place: word.clone(), characters: 32, open: bit(22) } },
            secret_key_base: bit(23),
            dummy_secret: bit(24),
            secrets_yml: bit(25),
            pipeline: bit(26).then_some(AssetPipeline { name: "vite_ruby", output: "public/vite", has_files: bit(27), manifest: bit(28) }),
            sources: usize::from(bit(29)),
            logs_to_a_file: bit(30),
            leaves_files_to_the_server: bit(31),
        });
        if bit(32) { facts.ruby = Some(Err(word.clone())); }
        if let Some(Ok(answer)) = &mut facts.ruby {
            answer.version.clone_from(&word);
            answer.pools_error = bit(33).then(|| word.clone());
            let (name, adapter, origin) = (word.clone(), word.clone(), "default".to_owned());
            answer.pools = vec![ConnectionPool { name, adapter, size: bit(34).then(|| small(7)), origin }; small(6) as usize % 3];
        }
        facts.database_limit = bit(35).then(|| small(5).max(1));
        facts.temp = TemporaryFolder { problem: bit(36).then(|| word.clone()), in_memory: bit(37), free: bit(38).then_some(numbers[1]) };
        if bit(39) { facts.folders[0].problem = Some(word.clone()); }
        facts.port_variable = bit(40).then_some(5_000);
        facts.arenas = bit(41).then(|| word.clone());
        facts.nginx = bit(42).then_some((1, small(3), small(4)));
        facts.certificates = vec![CertificateSnapshot {
            names: if bit(43) { vec![word.clone()] } else { Vec::new() },
            not_after: bit(44).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(numbers[2] % 2_000_000_000)),
            error: bit(45).then(|| word.clone()),
            directory: if bit(46) { word.clone() } else { String::new() },
            ..CertificateSnapshot::default()
        }];
        facts.names = LookedUpNames::Done(vec![LookedUpName {
            name: word.clone(),
            key: "sites",
            addresses: if bit(47) { Err(word) } else { Ok(vec![(std::net::IpAddr::from([192, 0, 2, 1]), bit(48))]) },
        }]);
        facts.public_entries = bit(49).then_some(small(2) as usize);
        facts
    }
}

proptest! {
    /// No facts make it panic, and no finding is without a figure or a name, or, if it is not green, without a line to paste.
    #[test]
    fn all_facts_have_findings(facts in any_facts()) {
        let findings = answer(&facts);
        let questions = ["memory", "environment", "CPUs"].map(|name| findings.iter().any(|one| one.question == name));
        prop_assert_eq!(questions, [facts.settings.app.is_some(); 3]);
        for name in ["descriptors", "temporary files", "folders", "addresses", "proxy", "time-outs", "shutdown", "host names"] {
            prop_assert!(findings.iter().any(|one| one.question == name), "no finding about {}", name);
        }
        for one in &findings {
            prop_assert!(!one.text.is_empty() && !one.figures.is_empty(), "{:?}", one);
            prop_assert!(one.light == Green || !one.paste.is_empty(), "{:?}", one);
            prop_assert!(one.paste.iter().all(|line| !line.place.is_empty() && !line.text.is_empty()), "{:?}", one);
        }
    }
}
