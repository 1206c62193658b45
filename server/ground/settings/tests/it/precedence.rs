//! Tests of precedence among written values, and of the resulting settings.

use crate::shared;

use std::path::Path;
use std::time::Duration;

use settings::{
    AccessLog, Attached, Bind, Control, ControlAddress, ErrorLog, Loaded, LogFormat, Settings, Threads,
    ValueSource, Workers, load_attached,
};
use shared::{App, below};

#[test]
fn nothing_written_gives_the_defaults() {
    let app = App::new();
    let loaded = app.loaded();
    let settings = &loaded.settings;
    assert_eq!(settings.dir, app.dir());
    assert_eq!(settings.app, Some(below(&app, "config.ru")));
    assert_eq!(settings.binds, [Bind::tcp("::", 9292)]);
    assert_eq!(
        (settings.process.environment.as_str(), settings.workers.max, settings.front_threads),
        ("development", 1, 1)
    );
    assert_eq!(settings.threads, Threads { min: 1, max: 3 });
    assert_eq!(settings.limits.max_header_bytes, 65_536);
    assert_eq!(settings.limits.max_uri, 16_384);
    assert_eq!(settings.limits.max_body, Some(1 << 30));
    assert_eq!(settings.limits.max_requests_per_connection, None);
    assert_eq!(settings.limits.response_spool, 256 << 20);
    assert_eq!(settings.timeouts.body_min_rate, Some(500));
    assert_eq!(settings.timeouts.keep_alive, Duration::from_secs(65));
    assert_eq!(settings.timeouts.worker, None);
    assert_eq!(settings.rack.ruby, Path::new("ruby"));
    assert!(settings.rack.trusted_proxies.unix && !settings.rack.early_hints && settings.rack.compact);
    assert!(!settings.limits.allow_underscore_headers && settings.rack.warmup.is_empty());
    assert_eq!(settings.rack.request_id_header.as_deref(), Some("X-Request-Id"));
    assert_eq!(settings.files.public, Some(below(&app, "public")));
    assert_eq!(settings.logs.access, AccessLog::Stdout);
    assert_eq!((settings.logs.format, &settings.logs.error), (LogFormat::Combined, &ErrorLog::Stderr));
    assert_eq!((&settings.config, &settings.process.pidfile, settings.process.quiet), (&None, &None, false));
    assert_eq!(settings.tag, app.dir().file_name().expect("a name").to_string_lossy());
    assert_eq!(settings.process.temp_dir, Path::new("/tmp"));
    let ControlAddress::Unix(path) = settings.control.ask.as_ref().expect("a control socket") else {
        panic!("{:?}", settings.control)
    };
    assert!(path.starts_with("/tmp/firebrick-7"));
    assert_eq!((&loaded.choices, &loaded.warnings), (&vec![], &vec![]));
}

#[test]
fn certificates_are_listed_and_have_tables_of_their_own() {
    let app = App::with(
        "[tls]\ncert = ['a.pem']\nkey = ['a.key']\n[[tls.certificates]]\ncert = 'b.pem'\nkey = '/etc/b.key'\n",
    );
    let found = app.loaded().settings.tls.certificates;
    let found: Vec<_> = found.iter().map(|files| (files.cert.clone(), files.key.clone())).collect();
    assert_eq!(
        found,
        [(below(&app, "a.pem"), below(&app, "a.key")), (below(&app, "b.pem"), "/etc/b.key".into())],
        "relative to the file"
    );
}

#[test]
fn who_obtains_certificates_listens_on_both_families() {
    let binds = |app: &App| app.loaded().settings.binds.iter().map(Bind::to_string).collect::<Vec<_>>();
    let mut app = App::new().flag("--domain", "a.test");
    let both = ["tcp://0.0.0.0:80", "tcp://[::]:80", "ssl://0.0.0.0:443", "ssl://[::]:443"];
    assert_eq!(binds(&app), both);
    app.machine.ipv6 = false;
    assert_eq!(binds(&app), ["tcp://0.0.0.0:80", "ssl://0.0.0.0:443"]);
    assert!(app.loaded().warnings[0].starts_with("this machine has no IPv6"), "{:?}", app.loaded().warnings);
    let named = App::new().flag("--domain", "a.test").flag("--host", "192.0.2.1");
    assert_eq!(binds(&named), ["tcp://192.0.2.1:80", "ssl://192.0.2.1:443"]);
    let given = App::new().flag("--domain", "a.test").flag("--bind", "ssl://127.0.0.1:5001");
    assert_eq!(binds(&given), ["ssl://127.0.0.1:5001"]);
    assert_eq!(given.loaded().warnings, Vec::<String>::new());
}

#[test]
fn staging_belongs_to_lets_encrypt_unless_it_is_named() {
    let staging = |app: App| app.loaded().settings.acme.staging;
    let own = || App::new().flag("--domain", "a.test").flag("--acme-directory", "https://ca.test/dir");
    let lets_encrypt = staging(App::new().flag("--domain", "a.test"));
    assert_eq!(lets_encrypt.as_deref(), Some("https://acme-staging-v02.api.letsencrypt.org/directory"));
    assert_eq!(staging(App::new().flag("--domain", "a.test").flag("--acme-staging", "off")), None);
    assert_eq!(staging(own()), None);
    let named = staging(own().flag("--acme-staging", "https://ca.test/staging"));
    assert_eq!(named.as_deref(), Some("https://ca.test/staging"));
}

#[test]
fn defaults_without_loading_are_the_same() {
    let app = App::new().var("RACK_ENV", "production");
    let loaded = app.loaded().settings;
    let plain = Settings::defaults(&app.dir());
    assert_eq!((&plain.limits, &plain.timeouts), (&loaded.limits, &loaded.timeouts));
    assert_eq!((plain.limits, plain.timeouts), (Default::default(), Default::default()));
    assert_eq!((plain.rack, plain.files, plain.logs), (loaded.rack, loaded.files, loaded.logs));
}

#[test]
fn flag_over_variable_over_file_over_default() {
    let text = "workers = 3\nport = 1";
    assert_eq!(App::with(text).loaded().settings.workers, Workers::exactly(3));
    assert_eq!(App::with(text).var("WEB_CONCURRENCY", "4").loaded().settings.workers, Workers::exactly(4));
    assert_eq!(
        App::with(text).var("WEB_CONCURRENCY", "4").flag("--workers", "5").loaded().settings.workers.max,
        5
    );
    assert_eq!(App::with(text).var("WEB_CONCURRENCY", " ").loaded().settings.workers, Workers::exactly(3));
    assert_eq!(App::with(text).var("WEB_CONCURRENCY", "auto").loaded().settings.workers, Workers::exactly(2));
}

#[test]
fn environment_variables_have_an_order() {
    let name = |app: App| app.loaded().settings.process.environment;
    let app = || App::with("environment = 'test'");
    assert_eq!(name(app()), "test");
    assert_eq!(name(app().var("RAILS_ENV", "a")), "a");
    assert_eq!(name(app().var("RAILS_ENV", "a").var("RACK_ENV", "b")), "b");
    assert_eq!(name(app().var("RAILS_ENV", "a").var("RACK_ENV", "b").var("APP_ENV", "c")), "c");
    assert_eq!(name(app().var("RACK_ENV", "").var("RAILS_ENV", "a")), "a");
    assert_eq!(name(app().var("APP_ENV", "c").flag("--environment", "production")), "production");
}

#[test]
fn origins_name_the_place() {
    let app = App::with("\n[limits]\nmax_queue = 5\n").var("WEB_CONCURRENCY", "1").flag("--port", "80");
    let loaded = app.loaded();
    let choices: Vec<_> =
        loaded.choices.iter().map(|c| (c.key, c.value.as_str(), c.origin.clone())).collect();
    let file = ValueSource::File { path: "firebrick.toml".into(), line: 3 };
    assert_eq!(
        choices,
        [
            ("port", "80", ValueSource::Flag("--port".into())),
            ("workers", "1", ValueSource::Env("WEB_CONCURRENCY".into())),
            ("limits.max_queue", "5", file),
        ]
    );
    assert_eq!(
        (loaded.workers_why.as_str(), loaded.front_threads_why.as_str()),
        ("WEB_CONCURRENCY", "auto: three quarters of 2 CPUs")
    );
}

#[test]
fn https_encrypts_tcp_ports_unless_one_is_said_to_be() {
    let binds = |app: App| app.loaded().settings.binds.iter().map(Bind::to_string).collect::<Vec<_>>();
    assert_eq!(binds(App::new().flag("--https", "true")), ["ssl://[::]:9292"]);
    assert_eq!(binds(App::with("https = true\nport = 3000")), ["ssl://[::]:3000"]);
    assert_eq!(
        binds(App::with("https = true").flag("--bind", "tcp://h:3?h2c=true&backlog=7")),
        ["ssl://h:3?backlog=7"]
    );
    let both = "https = true\nbind = [\"tcp://h:3\", \"ssl://h:4\", \"unix:///a\"]";
    assert_eq!(binds(App::with(both)), ["tcp://h:3", "ssl://h:4", "unix:///a"]);
    assert!(App::with("https = true").loaded().settings.tls.development);
    assert!(!App::new().loaded().settings.tls.development);
    let mistakes = App::with("https = true\nbind = \"unix:///a\"").mistakes();
    assert!(mistakes.contains("TLS needs a TCP port"), "{mistakes}");
}

#[test]
fn binds_replace_the_default_and_a_port_beside_them_adds() {
    let binds = |app: App| app.loaded().settings.binds.iter().map(Bind::to_string).collect::<Vec<_>>();
    let file = || App::with("bind = 'tcp://127.0.0.1:1'");
    assert_eq!(binds(App::new().var("PORT", "5000")), ["tcp://[::]:5000"]);
    assert_eq!(binds(App::new().flag("--host", "::1").flag("--port", "0")), ["tcp://[::1]:0"]);
    assert_eq!(binds(file().var("PORT", "5000")), ["tcp://127.0.0.1:1"]);
    assert_eq!(binds(file().var("PORT", "tcp://10.0.0.1:5")), ["tcp://127.0.0.1:1"]);
    assert_eq!(binds(file().flag("--port", "2")), ["tcp://[::]:2"]);
    assert_eq!(binds(file().flag("--bind", "h:3").flag("--bind", "h:4")), ["tcp://h:3", "tcp://h:4"]);
    assert_eq!(binds(App::with("port = 2").flag("--bind", "h:3")), ["tcp://h:3"]);
    let both = file().flag("--bind", "h:3").flag("--port", "4").flag("--host", "h");
    assert_eq!(binds(both), ["tcp://h:3", "tcp://h:4"]);
    let in_file = App::with("bind = ['unix:///run/a.sock?mode=0660']\nport = 2").var("PORT", "5000");
    assert_eq!(binds(in_file), ["unix:///run/a.sock?mode=0660", "tcp://[::]:2"]);
    assert_eq!(binds(App::with("port = 2\nbind = []")), ["tcp://[::]:2"]);
}

#[test]
fn everybody_is_listened_to_unless_somebody_is_named() {
    let binds = |app: &App| app.loaded().settings.binds.iter().map(Bind::to_string).collect::<Vec<_>>();
    let mut app = App::new();
    assert_eq!(binds(&app), ["tcp://[::]:9292"]);
    app.machine.ipv6 = false;
    assert_eq!(binds(&app), ["tcp://0.0.0.0:9292"]);
    let named = App::new().flag("--host", "0.0.0.0");
    assert_eq!(binds(&named), ["tcp://0.0.0.0:9292"]);
    let both = App::with("bind = ['tcp://0.0.0.0:1', 'tcp://[::]:1']");
    assert_eq!(binds(&both), ["tcp://0.0.0.0:1", "tcp://[::]:1"]);
    let twice = App::with("bind = ['tcp://127.0.0.1:1', 'tcp://[::]:1']").mistakes();
    let said = "tcp://[::]:1 already accepts IPv4, including tcp://127.0.0.1:1: remove tcp://127.0.0.1:1, or write \
                tcp://[::]:1?ipv6only=true";
    assert!(twice.contains(said), "{twice}");
    for fine in [
        "bind = ['tcp://127.0.0.1:1', 'tcp://[::]:1?ipv6only=true']",
        "bind = ['tcp://127.0.0.1:1', 'tcp://[::]:2']",
        "bind = ['tcp://127.0.0.1:0', 'tcp://[::]:0']",
    ] {
        assert_eq!(App::with(fine).loaded().settings.binds.len(), 2, "{fine}");
    }
}

#[test]
fn none_is_one() {
    let of = |app: App| {
        let settings = app.loaded().settings;
        (settings.workers, settings.threads.to_string())
    };
    let one = |threads: &str| (Workers::exactly(1), threads.to_owned());
    assert_eq!(of(App::new().var("WEB_CONCURRENCY", "0")), one("1:3"));
    assert_eq!(of(App::new().flag("--workers", "0").flag("--threads", "0:16")), one("1:16"));
    assert_eq!(of(App::new().flag("--workers", "0:1").flag("--threads", "0:5")), one("1:5"));
    assert!(
        App::with("workers = 0").mistakes().contains("from 1 to 1024"),
        "our own file has words of its own"
    );
    let variables = App::new().var("RAILS_MIN_THREADS", "0").var("RAILS_MAX_THREADS", "5");
    assert_eq!(of(variables.flag("--workers", "0")), one("1:5"));
    let mistakes = App::new().var("RAILS_MAX_THREADS", "0").mistakes();
    assert!(mistakes.starts_with("RAILS_MAX_THREADS=0: expected a whole number from 1 to 512"), "{mistakes}");
}

#[test]
fn an_objective_has_bounds() {
    let shape = |app: App| {
        let settings = app.var("RACK_ENV", "production").loaded().settings;
        let shape = settings.shape.expect("an objective");
        let pool = settings.default_pool();
        (shape.workers.to_string(), shape.threads.to_string(), (pool.workers, shape.start), pool.threads.max)
    };
    let slo = |rest: &str| App::with(&format!("slo = 'p95 < 200ms'\n{rest}"));
    let of = |workers: &str, threads: &str, start: (u32, u16), most: u16| {
        (workers.to_owned(), threads.to_owned(), start, most)
    };
    assert_eq!(shape(slo("workers = 1\nthreads = 1\nshape.workers = 1")), of("1", "1:64", (1, 1), 64));
    // Without a bound, one worker for each CPU of the machine.
    let many = slo("workers = 300\nthreads = 5");
    assert_eq!(shape(many), of("1:300", "1:64", (300, 5), 64));
    assert_eq!(shape(slo("workers = '2:6'\nthreads = '2:9'")), of("2:6", "2:9", (2, 2), 9));
    let bounds = "[shape]\nthreads = '2:4'\nworkers = '2:3'";
    assert_eq!(shape(slo(bounds)), of("2:3", "2:4", (2, 3), 4), "defaults move into the bounds");
    assert_eq!(shape(slo("[shape]\nthreads = 1\nworkers = 1")), of("1", "1:1", (1, 1), 1));
    let fibers = slo("workers = 1\nfibers = 10\nthreads = 2").loaded().settings;
    assert_eq!(fibers.default_pool().threads.max, 2, "fibers have the threads of the settings");
    assert_eq!(App::with("threads = 4").loaded().settings.shape, None);
}

#[test]
fn an_objective_with_bounds_that_the_start_breaks_is_a_mistake() {
    let mistakes =
        App::with("slo = 'p95 < 1s'\nworkers = 8\nthreads = 20\n[shape]\nworkers = 2\nthreads = '1:16'")
            .mistakes();
    for said in [
        "shape.workers = 2: the server starts with 8 workers: set workers to a number from 2 to 2",
        "shape.threads = \"1:16\": the server starts with 20 threads: set threads to a number from 1 to 16",
    ] {
        assert!(mistakes.contains(said), "{mistakes}");
    }
    let warnings = App::with("[shape]\nworkers = 2").loaded().warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning
                .contains("shape.workers has no effect (firebrick.toml:2), because slo is off")),
        "{warnings:?}"
    );
    let fibers = App::with("slo = 'p95 < 1s'\nfibers = 10\n[shape]\nthreads = 2").loaded().warnings;
    assert!(
        fibers
            .iter()
            .any(|warning| warning.contains("shape.threads has no effect") && warning.contains("fibers")),
        "{fibers:?}"
    );
}

#[test]
fn each_thread_variable_sets_its_half() {
    let threads = |app: App| app.loaded().settings.threads.to_string();
    let file = || App::with("threads = '2:4'");
    assert_eq!(threads(App::with("threads = 4")), "4:4");
    assert_eq!(threads(file().var("RAILS_MAX_THREADS", "8")), "2:8");
    assert_eq!(threads(file().var("RAILS_MAX_THREADS", "1")), "1:1");
    assert_eq!(threads(file().var("RAILS_MIN_THREADS", "6")), "6:6");
    assert_eq!(threads(file().var("RAILS_MIN_THREADS", "3").var("RAILS_MAX_THREADS", "5")), "3:5");
    assert_eq!(threads(file().var("RAILS_MAX_THREADS", "8").flag("--threads", "1:2")), "1:2");
    assert_eq!(threads(App::new().var("RAILS_MAX_THREADS", "5")), "1:5");
}

#[test]
fn paths_begin_where_they_were_written() {
    let app =
        App::with("pidfile = 'tmp/pid'\n[files]\npublic = './static'\n[log]\naccess = 'log/access.log'");
    let sub = app.dir().join("sub");
    std::fs::create_dir(&sub).expect("a directory");
    std::fs::write(sub.join("config.ru"), "").expect("config.ru");
    std::fs::write(sub.join("firebrick.toml"), "pidfile = 'p'\nbind = 'unix://s'").expect("a file");
    let settings = app.loaded().settings;
    assert_eq!(settings.process.pidfile, Some(below(&app, "tmp/pid")));
    assert_eq!(settings.files.public, Some(below(&app, "static")));
    assert_eq!(settings.logs.access, AccessLog::File(below(&app, "log/access.log")));

    let app =
        app.flag("DIR", "sub").flag("--error-log", "errors").flag("--ruby", "bin/ruby").var("TMPDIR", "t");
    let settings = app.loaded().settings;
    assert_eq!((&settings.dir, &settings.config), (&sub, &Some(sub.join("firebrick.toml"))));
    assert_eq!(settings.process.pidfile, Some(sub.join("p")));
    assert_eq!(settings.binds, [Bind::unix(sub.join("s"))]);
    assert_eq!(settings.logs.error, ErrorLog::File(below(&app, "errors")));
    assert_eq!(settings.rack.ruby, below(&app, "bin/ruby"));
    assert_eq!(settings.process.temp_dir, below(&app, "t"));
}

#[test]
fn the_ruby_of_the_launcher_is_a_default() {
    let launched = |app: App| app.var("FIREBRICK_LAUNCHER_RUBY", "/opt/ruby-3.4/bin/ruby").loaded();
    let loaded = launched(App::new());
    assert_eq!(loaded.settings.rack.ruby, Path::new("/opt/ruby-3.4/bin/ruby"));
    let origins: Vec<_> = loaded.choices.iter().map(|choice| choice.origin.to_string()).collect();
    assert_eq!(origins, ["FIREBRICK_LAUNCHER_RUBY"]);
    assert_eq!(launched(App::with("ruby = '/r'")).settings.rack.ruby, Path::new("/r"));
    assert_eq!(launched(App::new().flag("--ruby", "/r")).settings.rack.ruby, Path::new("/r"));
    let unset = App::new().var("FIREBRICK_LAUNCHER_RUBY", "").loaded();
    assert_eq!(unset.settings.rack.ruby, Path::new("ruby"));
}

#[test]
fn a_rackup_file_stands_for_its_directory() {
    let app = App::new();
    app.write("other.ru", "");
    let settings = app.flag("DIR", "other.ru").loaded().settings;
    assert_eq!(
        (settings.app.as_deref(), &settings.dir),
        (Some(settings.dir.join("other.ru").as_path()), &settings.dir)
    );
    assert_eq!(settings.something_to_serve(), Ok(()));
}

#[test]
fn a_directory_without_an_app_loads_but_cannot_be_served() {
    let app = App::new();
    std::fs::remove_file(below(&app, "config.ru")).expect("it was there");
    let missing = app.loaded().settings.something_to_serve().expect_err("no app");
    assert!(missing.to_string().contains("there is no config.ru in"), "{missing}");
}

#[test]
fn a_static_site_is_found_where_generators_put_it() {
    let app = App::new();
    app.write("static.json", "{}");
    let site = app.loaded().settings.sites.main.expect("rules in front of the app");
    assert_eq!((site.static_json, site.found), (Some(below(&app, "static.json")), None));
    std::fs::remove_file(below(&app, "static.json")).expect("it was there");
    std::fs::create_dir(below(&app, "_site")).expect("a directory");
    assert_eq!(app.loaded().settings.sites.main, None, "the app answers");
    std::fs::remove_file(below(&app, "config.ru")).expect("it was there");
    let settings = app.loaded().settings;
    assert_eq!(settings.sites.main.as_ref().and_then(|site| site.found.clone()), Some(below(&app, "_site")));
    assert_eq!(settings.something_to_serve(), Ok(()));
}

#[test]
fn any_directory_is_a_site_when_it_is_named_so() {
    let app = App::new();
    std::fs::create_dir(below(&app, "files")).expect("a directory");
    let app = app.flag("--root", "files");
    assert_eq!(app.loaded().settings.sites.main.and_then(|site| site.root), Some(below(&app, "files")));
}

#[test]
fn sites_by_host_name() {
    let app = App::with("[sites]\n\"Example.com\" = 'a'\n'*.example.com' = 'b'");
    for name in ["a", "b"] {
        std::fs::create_dir(below(&app, name)).expect("a directory");
        app.write(&format!("{name}/index.html"), "");
    }
    let hosts = app.loaded().settings.sites.hosts;
    let found: Vec<_> = hosts.iter().map(|site| (site.host.as_str(), site.site.dir.clone())).collect();
    assert_eq!(found, [("example.com", below(&app, "a")), ("*.example.com", below(&app, "b"))]);
}

#[test]
fn the_config_file_can_be_named_or_left_out() {
    let app = App::with("workers = 3");
    app.write("other.toml", "workers = 4");
    let app = app.flag("--config", "other.toml");
    assert_eq!(app.loaded().settings.workers, Workers::exactly(4));
    let none = App::with("worker = 3").flag("--config", "-").loaded().settings;
    assert_eq!((none.workers.max, none.config), (1, None));
}

#[test]
fn off_is_none() {
    let text = "control = 'off'\n[limits]\nmax_body = 0\n[timeouts]\nworker = 'off'\nbody_min_rate = 0\n\
                [rack]\nrequest_id_header = false\n[files]\nserve_public = false\n[log]\naccess = 'off'";
    let settings = App::with(text).loaded().settings;
    assert_eq!(settings.control, Control::default());
    assert_eq!((settings.limits.max_body, settings.files.public), (None, None));
    assert_eq!((settings.timeouts.worker, settings.timeouts.body_min_rate), (None, None));
    assert_eq!((settings.rack.request_id_header, settings.logs.access), (None, AccessLog::Off));
}

#[test]
fn lists_are_arrays_commas_or_repeated() {
    let warmup = |app: App| app.loaded().settings.rack.warmup;
    assert_eq!(warmup(App::with("rack.warmup = ['/', '/up']")), ["/", "/up"]);
    assert_eq!(warmup(App::new().flag("--warmup", "/,/up")), ["/", "/up"]);
    assert_eq!(warmup(App::new().flag("--warmup", "/").flag("--warmup", "/up")), ["/", "/up"]);
    let proxies =
        App::with("rack = { trusted_proxies = ['10.0.0.0/8'] }").loaded().settings.rack.trusted_proxies;
    assert!(proxies.trusts("10.1.1.1".parse().ok()) && !proxies.trusts("127.0.0.1".parse().ok()));
    assert!(!proxies.trusts(None));
}

#[test]
fn control_keeps_its_own_socket_beside_ports() {
    let control = |app: App| {
        let control = app.loaded().settings.control;
        let told = |address: &ControlAddress| match address {
            ControlAddress::Unix(path) if path.starts_with("/tmp/firebrick-7") => "auto".to_owned(),
            address => address.to_string(),
        };
        (
            control.listen.iter().map(told).collect::<Vec<_>>(),
            control.ask.as_ref().map(told).unwrap_or_default(),
        )
    };
    let (port, other) = ("tcp://127.0.0.1:9293", "tcp://[::1]:0");
    let lists =
        |listen: &[&str], ask: &str| (listen.iter().map(|one| (*one).to_owned()).collect(), ask.to_owned());
    assert_eq!(control(App::new()), lists(&["auto"], "auto"));
    assert_eq!(control(App::with("control = 'tcp://127.0.0.1:9293'")), lists(&["auto", port], "auto"));
    assert_eq!(control(App::with("control = ['tcp://[::1]:0', 'auto']")), lists(&["auto", other], "auto"));
    assert_eq!(control(App::with("control = ['off', 'tcp://127.0.0.1:9293']")), lists(&[port], port));
    assert_eq!(
        control(App::with("control = ['/a', 'tcp://[::1]:0', '/b']")),
        lists(&["/a", "/b", other], "/a")
    );
    // A typed address overrides all others.
    assert_eq!(control(App::new().flag("--control", port)), lists(&["auto", port], port));
    let both = App::new().flag("--control", port).flag("--control", "off");
    assert_eq!(control(both), lists(&[port], port));
}

#[test]
fn the_default_target_length_follows_the_head() {
    assert_eq!(App::with("limits.max_header_bytes = '8KiB'").loaded().settings.limits.max_uri, 4096);
}

#[test]
fn what_is_allowed_but_odd_is_a_warning() {
    let warned = |app: App, text: &str| {
        let warnings = app.loaded().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(text)), "{text}: {warnings:?}");
    };
    warned(App::with("environment = 'prodution'"), "did you mean \"production\"?");
    warned(App::with("environment = 'production'\nlog.format = 'common'"), "log.format has no effect");
    warned(App::with("workers = 1\nworker_memory_estimate = '1GiB'"), "worker_memory_estimate has no effect");
    warned(App::with("files.public = 'x'").flag("--no-public", ""), "because --no-public turns it off");
    warned(App::with("bind = 'h:1'\nhost = '::1'"), "host from firebrick.toml:2 has no effect");
    warned(App::with("timeouts.body_grace = 1\ntimeouts.body_min_rate = 0"), "body_grace has no effect");
    warned(App::with("bind = 'h:1'").flag("--host", "::1"), "host from --host has no effect");
    assert_eq!(App::with("port = 2").flag("--bind", "h:3").loaded().warnings, Vec::<String>::new());
    let mut small = App::new();
    small.machine.open_files = Some(1024);
    warned(small, "only 1024 files may be open");
    let mut little = App::with("cache.memory = '300MiB'\nlimits.response_memory = '100MiB'");
    little.machine.memory_limit = Some(1 << 30);
    assert_eq!(little.loaded().settings.limits.memory, Some(600 << 20));
    warned(
        little,
        "cache.memory is 300MiB, more than a quarter of the memory that there is; limits.memory is 600MiB",
    );
    let mut little = App::with("limits.response_memory = '100MiB'");
    little.machine.memory_limit = Some(1 << 30);
    warned(little, "limits.response_memory is 100MiB, more than an eighth of limits.memory, which is 256MiB");
}

#[test]
fn auto_follows_the_machine() {
    let mut app = App::with("environment = 'production'\nworker_memory_estimate = '512MiB'");
    app.machine.cores = 32;
    app.machine.memory_limit = Some(2 << 30);
    let loaded = app.loaded();
    assert_eq!((loaded.settings.workers.max, loaded.settings.front_threads), (4, 16));
    assert!(loaded.workers_why.contains("room for 4 of 512MiB"), "{}", loaded.workers_why);
    assert_eq!(loaded.settings.limits.memory, Some(512 << 20));
}

#[test]
fn a_range_of_workers() {
    let range = Workers { min: 2, max: 8 };
    let production = || App::with("environment = 'production'\nworkers = '2:8'");
    let loaded = production().loaded();
    assert_eq!((loaded.settings.workers, loaded.workers_why.as_str()), (range, "firebrick.toml:2"));
    assert_eq!(
        App::new().var("RACK_ENV", "test").var("WEB_CONCURRENCY", "2:8").loaded().settings.workers,
        range
    );
    assert_eq!(production().flag("--workers", "3").loaded().settings.workers, Workers::exactly(3));
    let development = App::new().var("RACK_ENV", "development").flag("--workers", "2:8").loaded();
    assert_eq!(development.settings.workers, Workers::exactly(2));
    assert_eq!(development.workers_why, "--workers; in development the minimum");
    let mut small = production();
    small.machine.memory_limit = Some(1 << 30);
    let warnings = small.loaded().warnings;
    let expected = "workers is 2:8, but the cgroup's memory limit of 1 GiB has room for 4 of 256MiB each";
    assert!(warnings.iter().any(|warning| warning.contains(expected)), "{warnings:?}");
}

#[test]
fn rules_of_sendfile_begin_with_the_longest_prefix_and_in_the_apps_folder() {
    let app = App::with("[sendfile]\n'/' = 'all'\n'/a/b/' = '/srv/b'\n'/a/' = '../a'\n'/ä b/' = 'x'\n");
    let settings = app.loaded().settings;
    let rules: Vec<_> =
        settings.sendfile.iter().map(|rule| (rule.prefix.as_str(), rule.folder.clone())).collect();
    let dir = &settings.dir;
    let wanted = [
        ("/ä b/", dir.join("x")),
        ("/a/b/", "/srv/b".into()),
        ("/a/", dir.join("../a")),
        ("/", dir.join("all")),
    ];
    assert_eq!(rules, wanted);
}

#[test]
fn services_are_a_command_or_a_table() {
    let app = App::with(
        "[services]\njobs = 'bin/jobs --queue \"a b\"'\nlist = ['sh', '-c', 'a | b']\n\
         [services.pusher]\ncommand = 'bin/push'\nenv = { TARGET = 'x', PORT = 3 }\nrestart = 'on-failure'\n\
         stop_signal = 'SIGINT'\nstop_timeout = '1m'\nenvironments = 'production'\nprefix = false\n",
    );
    let services = app.loaded().settings.services;
    let words = |one: &settings::Service| match &one.program {
        settings::ServiceProgram::Command { words, .. } => words.join("|"),
        settings::ServiceProgram::Block => panic!("{} is a command", one.name),
    };
    let commands: Vec<_> = services.iter().map(|one| (one.name.as_str(), words(one))).collect();
    let wanted = [("jobs", "bin/jobs|--queue|a b"), ("list", "sh|-c|a | b"), ("pusher", "bin/push")];
    assert_eq!(commands, wanted.map(|(name, command)| (name, command.to_owned())));
    let places: Vec<_> = services.iter().map(|one| one.place.as_str()).collect();
    assert_eq!(places, ["firebrick.toml:2", "firebrick.toml:3", "firebrick.toml:4"]);
    let [jobs, _, pusher] = services.as_slice() else { panic!("three services") };
    assert_eq!(
        (jobs.restart, jobs.stop_timeout),
        (settings::Restart::Always, settings::Service::STOP_TIMEOUT)
    );
    assert!(jobs.prefix && jobs.runs_in("development"));
    let settings::ServiceProgram::Command { env, .. } = &pusher.program else { panic!("a command") };
    assert_eq!(
        *env,
        [("TARGET", "x"), ("PORT", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(
        (pusher.restart, pusher.stop_signal),
        (settings::Restart::OnFailure, settings::StopSignal::Int)
    );
    assert_eq!(pusher.stop_timeout, std::time::Duration::from_secs(60));
    assert!(!pusher.prefix && pusher.runs_in("production") && !pusher.runs_in("development"));
}

#[test]
fn development_has_defaults_of_its_own() {
    let (bare, production) = (App::new().loaded(), App::new().var("RACK_ENV", "production").loaded());
    let facts = |loaded: &Loaded| {
        let settings = &loaded.settings;
        (
            settings.workers,
            settings.timeouts.worker.is_some(),
            settings.logs.access.clone(),
            settings.limits.predict_wait,
        )
    };
    assert_eq!(facts(&bare), (Workers::exactly(1), false, AccessLog::Stdout, false));
    assert_eq!(bare.workers_why, "one in development");
    let (_, times_out, access, predicts) = facts(&production);
    assert_eq!((times_out, access, predicts), (true, AccessLog::Off, true));
    let written = App::new()
        .flag("--workers", "3")
        .flag("--worker-timeout", "5s")
        .flag("--access-log", "off")
        .flag("--queue-timeout", "7s")
        .loaded();
    let settings = written.settings;
    assert_eq!((settings.workers, settings.logs.access), (Workers::exactly(3), AccessLog::Off));
    assert_eq!(settings.timeouts.worker, Some(Duration::from_secs(5)));
    assert_eq!(settings.timeouts.queue, Duration::from_secs(7));
}

#[test]
fn an_attached_front_has_one_worker_and_defaults_of_who_has_started_it() {
    let weak = vec![("port".to_owned(), "3000".to_owned()), ("host".to_owned(), "127.0.0.1".to_owned())];
    let load = |app: &App, app_only| {
        let attached = Attached { app_only, weak: weak.clone() };
        load_attached(&app.arguments(), app, &attached).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let app = App::with("workers = 4\n[timeouts]\nworker = '9s'\n[limits]\nmax_requests = 5\n")
        .var("RACK_ENV", "production")
        .var("PIDFILE", "x.pid");
    std::fs::remove_file(app.dir().join("config.ru")).unwrap();
    app.write("static.json", "{}");
    let loaded = load(&app, false);
    let settings = &loaded.settings;
    assert_eq!(settings.binds, [Bind::tcp("127.0.0.1", 3000)]);
    assert_eq!((settings.workers, settings.timeouts.worker), (Workers::exactly(1), None));
    assert_eq!((settings.limits.max_requests, &settings.process.pidfile), (None, &None));
    assert_eq!(settings.logs.access, AccessLog::Off);
    assert!(settings.app.is_some() && settings.sites.main.is_some());
    assert!(loaded.warnings[0].contains("workers has no effect (firebrick.toml:1)"), "{:?}", loaded.warnings);
    assert!(load(&app, true).settings.sites.main.is_none());
    let stronger = [app.var("PORT", "4000"), App::with("port = 4000"), App::new().flag("--port", "4000")];
    for app in stronger {
        assert_eq!(load(&app, false).settings.binds, [Bind::tcp("127.0.0.1", 4000)]);
    }
}
