//! Tests of typed commands and their results.

use std::path::{Path, PathBuf};

use settings::{Bind, Machine, Settings};

use super::*;
use crate::check::{Plan, try_app};

struct Shelf {
    folder: tempfile::TempDir,
    vars: Vec<(&'static str, &'static str)>,
}

impl Shelf {
    fn new() -> Shelf {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join("config.ru"), "").expect("config.ru");
        Shelf { folder, vars: Vec::new() }
    }

    fn type_in(&self, words: &str) -> Result<Command, Output> {
        interpret(["firebrick"].into_iter().chain(words.split_whitespace()), self)
    }

    fn settings(&self, words: &str) -> Settings {
        match self.type_in(words) {
            Ok(Command::Serve(loaded, _) | Command::Check { loaded, .. }) => loaded.settings,
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Returns the app's directory of a command for a server.
    fn dir(&self, words: &str) -> PathBuf {
        match self.type_in(words) {
            Ok(
                Command::Stats { dir, .. }
                | Command::Routes { dir, .. }
                | Command::Deaths { dir, .. }
                | Command::Reload { dir, .. }
                | Command::Upgrade { dir, .. }
                | Command::Pause { dir, .. }
                | Command::Resume { dir, .. }
                | Command::Maintenance { dir, .. }
                | Command::Status { target: Target { dir, .. }, .. }
                | Command::Stop { target: Target { dir, .. }, .. }
                | Command::Top { dir, .. }
                | Command::Profile { dir, .. }
                | Command::Set { dir, .. }
                | Command::Shape { dir, .. }
                | Command::Leaks { dir, .. }
                | Command::Record { dir, .. }
                | Command::Cache { dir, .. },
            ) => dir,
            Ok(
                Command::Certs { loaded, .. }
                | Command::Explain(loaded, _)
                | Command::Check { loaded, .. }
                | Command::DeployCheck { loaded, .. },
            ) => loaded.settings.dir,
            other => panic!("{words}: {other:?}"),
        }
    }

    fn refused(&self, words: &str) -> (String, u8) {
        match self.type_in(words) {
            Err(Output::Clap(error)) => (error.to_string(), u8::try_from(error.exit_code()).expect("a code")),
            Err(Output::Wrong { errors, code }) => (errors.join("\n"), code),
            Ok(command) => panic!("{words}: {command:?}"),
        }
    }
}

impl Environment for Shelf {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn current_dir(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the directory")
    }

    fn uid(&self) -> u32 {
        7
    }

    fn machine(&self) -> Machine {
        Machine { cpu_quota: Some(2.0), ..Machine::unlimited(4) }
    }
}

#[test]
fn serving_needs_no_command() {
    let shelf = Shelf::new();
    for words in ["", ".", "config.ru", "serve", "serve .", "-q", "-p 9292", "-p 9292 serve", "serve -p 9292"]
    {
        assert!(matches!(shelf.type_in(words), Ok(Command::Serve(..))), "{words}");
        assert_eq!(shelf.settings(words).dir, shelf.current_dir(), "{words}");
    }
}

#[test]
fn every_flag_reaches_its_setting() {
    let settings = Shelf::new().settings(
        "-b tcp://h:1 -b unix:///s?mode=0660 -p 3 -o h -w 7 -t 2:4 -e production -C - -q -v --log-format json \
         --no-early-hints --no-public --no-compact --allow-underscore-headers --max-body 10MB --worker-timeout 0 \
         --trusted-proxies none --warmup / --warmup /up --tag t --pidfile p --control off --ruby r",
    );
    let unix =
        Bind::Unix { path: "/s".into(), umask: None, mode: Some(0o660), backlog: settings::DEFAULT_BACKLOG };
    assert_eq!(settings.binds, [Bind::tcp("h", 1), unix, Bind::tcp("h", 3)]);
    assert_eq!((settings.workers.max, settings.threads.to_string().as_str()), (7, "2:4"));
    assert_eq!(
        (settings.process.environment.as_str(), settings.tag.as_str(), settings.process.quiet),
        ("production", "t", true)
    );
    assert_eq!(settings.logs.access, settings::AccessLog::Stdout);
    assert_eq!(settings.logs.format, settings::LogFormat::Json);
    assert!(!settings.rack.early_hints && !settings.rack.compact && settings.limits.allow_underscore_headers);
    assert_eq!((settings.files.public, settings.control), (None, settings::Control::default()));
    assert_eq!((settings.limits.max_body, settings.timeouts.worker), (Some(10_000_000), None));
    assert_eq!(settings.rack.warmup, ["/", "/up"]);
    assert_eq!(settings.rack.ruby, Path::new("r"));
    assert!(!settings.rack.trusted_proxies.unix);
    assert!(settings.process.pidfile.is_some_and(|path| path.ends_with("p")));
}

#[test]
fn flags_of_other_servers_are_taken_or_translated() {
    let shelf = Shelf::new();
    let words = "--preload --prune-bundler -S s.state --state=x -Sy --redirect-append --debug -R x -N -w 2 --silent \
                 --no-config --bind-to-activated-sockets only --redirect-stderr err.log -f -P p -E production -l tcp://h:1";
    for words in [
        words.to_owned(),
        format!("check {words}"),
        format!("{words} --dir {}", shelf.current_dir().display()),
    ] {
        let settings = shelf.settings(&words);
        assert_eq!(settings.dir, shelf.current_dir());
        assert!(settings.process.quiet && settings.process.pidfile.is_some_and(|path| path.ends_with("p")));
        assert_eq!((settings.workers.max, settings.process.environment.as_str()), (2, "production"));
        assert_eq!(settings.binds, [Bind::tcp("h", 1)]);
        assert!(matches!(settings.logs.error, settings::ErrorLog::File(path) if path.ends_with("err.log")));
    }
    for (words, after) in [("-f", 1000), ("--fork-worker=50", 50), ("-f70", 70)] {
        assert!(
            format!("{:?}", shelf.settings(words).rack.refork_after).contains(&after.to_string()),
            "{words}"
        );
    }
    assert!(matches!(shelf.type_in("version"), Ok(Command::Version)));
}

#[test]
fn the_last_of_contradicting_flags_wins() {
    let shelf = Shelf::new();
    assert_eq!(shelf.settings("-w 1 -w 2").workers, settings::Workers::exactly(2));
    assert!(!shelf.settings("--early-hints --no-early-hints").rack.early_hints);
    assert!(shelf.settings("--no-early-hints --early-hints").rack.early_hints);
    assert_eq!(shelf.settings("-v --access-log off").logs.access, settings::AccessLog::Off);
    assert_eq!(shelf.settings("--access-log off -v").logs.access, settings::AccessLog::Stdout);
    assert_eq!(shelf.settings("-w 1 serve -w 2").workers, settings::Workers::exactly(2));
}

#[test]
fn commands_take_their_own() {
    let shelf = Shelf::new();
    assert!(matches!(shelf.type_in("check -w 2"), Ok(Command::Check { .. })));
    let asks = |words: &str| match shelf.type_in(words) {
        Ok(Command::Stats { client, json, .. }) => (client, json),
        other => panic!("{words}: {other:?}"),
    };
    let path = settings::ControlAddress::Unix(shelf.current_dir().join("c.sock"));
    assert_eq!(asks("stats --json --control c.sock"), (ControlClient::new(path, None), true));
    let port = settings::ControlAddress::Tcp { host: "127.0.0.1".into(), port: 9293 };
    for words in
        ["--control tcp://127.0.0.1:9293 --token t", "--control-url http://127.0.0.1:9293 --control-token t"]
    {
        let wanted = ControlClient::new(port.clone(), Some("t".to_owned()));
        assert_eq!(asks(&format!("stats {words}")), (wanted, false), "{words}");
    }
    for (name, shell) in [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)] {
        assert_eq!(shelf.type_in(&format!("completions {name}")).ok(), Some(Command::Completions(shell)));
    }
    assert_eq!(shelf.type_in("man").ok(), Some(Command::Man));
}

#[test]
fn stats_and_serve_agree_on_the_control_socket() {
    let shelf = Shelf::new();
    for toml in ["", "control = 'tcp://127.0.0.1:9293'\n", "control = 'c.sock'\n"] {
        std::fs::write(shelf.folder.path().join("firebrick.toml"), toml).expect("a file");
        let Ok(Command::Stats { client, .. }) = shelf.type_in("stats .") else { panic!("no stats") };
        let listen = shelf.settings("config.ru").control.listen;
        assert_eq!(listen.first(), Some(client.address()), "{toml}");
        assert!(matches!(client.address(), settings::ControlAddress::Unix(_)), "{toml}");
    }
}

#[test]
fn the_directory_comes_with_a_flag_or_without() {
    let shelf = Shelf::new();
    let other = tempfile::tempdir().expect("a temporary directory");
    let dir = other.path().canonicalize().expect("the directory");
    let shown = dir.display();
    for name in [
        "stats",
        "routes",
        "deaths",
        "reload",
        "upgrade",
        "pause",
        "resume",
        "maintenance status",
        "maintenance on",
        "status",
        "stop",
        "top",
        "profile",
        "profile 20s",
        "certs",
        "explain /path",
        "check",
        "deploy-check",
    ] {
        for words in
            [format!("{name} {shown}"), format!("{name} --dir {shown}"), format!("--dir {shown} {name}")]
        {
            assert_eq!(shelf.dir(&words), dir, "{words}");
        }
    }
    for name in ["set", "shape", "leaks", "record FILE", "cache"] {
        for words in [format!("{name} --dir {shown}"), format!("--dir {shown} {name}")] {
            assert_eq!(shelf.dir(&words), dir, "{words}");
        }
    }
    assert_eq!(shelf.settings(&format!("--dir {shown}")).dir, dir);
}

#[test]
fn a_reload_with_or_without_a_shadow_is_ordered() {
    let shelf = Shelf::new();
    let wish = |words: &str| match shelf.type_in(words) {
        Ok(Command::Reload { wish, .. }) => wish,
        other => panic!("{words}: {other:?}"),
    };
    assert_eq!(wish("reload"), ReloadWish::Reload);
    assert_eq!(wish("reload --shadow 2m"), ReloadWish::Shadowed(Duration::from_secs(120)));
    for none in ["0", "0s", "0ms"] {
        assert_eq!(wish(&format!("reload --shadow {none}")), ReloadWish::Shadowed(Duration::ZERO));
    }
    for wrong in ["50ms", "25h", "x"] {
        let (said, code) = shelf.refused(&format!("reload --shadow {wrong}"));
        assert!(said.contains("from 100ms to 24h, such as 2m, or 0 for none") && code == 2, "{said}");
    }
    let (said, _) = shelf.refused("reload --undo --shadow 0");
    assert!(said.contains("--shadow does not go with --undo"), "{said}");
}

#[test]
fn what_is_wrong_has_its_exit_code() {
    let shelf = Shelf::new();
    for (words, message, code) in [
        ("--prot 1", "a similar argument exists: '--port'", 2),
        ("completions tcsh", "[possible values: bash, zsh, fish]", 2),
        ("-w", "a value is required for '--workers <N|RANGE|auto>'", 2),
        ("-w x", "--workers x: expected \"MIN:MAX\" or a number of workers, from 1 to 1024, or \"auto\"", 2),
        ("check -w x", "--workers x: expected", 1),
        (
            "chekc",
            "argument chekc: expected a directory or a rackup file (.ru) that exists; did you mean \"check\"?",
            2,
        ),
        ("stats --control off", "the control socket is turned off by --control", 2),
        ("-I lib", "Firebrick has no flag -I: set RUBYLIB", 2),
        ("--redirect-stdout=x", "--access-log FILE", 2),
        ("-d", "stays in the foreground", 2),
        ("--dir", "a value is required for '--dir <DIR>'", 2),
        ("reload . --dir .", "'[DIR|config.ru]' cannot be used with '--dir <DIR>'", 2),
        ("bench --preload", "unexpected argument", 2),
        ("help nosuch", "nosuch", 2),
        ("--help", "Frequent options:", 0),
        ("help", "Frequent options:", 0),
        ("--help-all", "Workers and threads:", 0),
        ("check --help-all -w x", "Workers and threads:", 0),
        ("reload --help-all", "--in-place", 0),
        ("help bench", "Usage: firebrick bench", 0),
        ("help check", "Usage: firebrick check", 0),
        ("-V", crate::VERSION, 0),
        ("check --help", "Usage: firebrick check", 0),
    ] {
        let (said, exit) = shelf.refused(words);
        assert!(said.contains(message), "{words}: {said}");
        assert_eq!(exit, code, "{words}");
    }
    let (said, _) = shelf.refused("-w x -t 0 --max-body x");
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn check_says_what_it_would_do_and_why() {
    let mut shelf = Shelf::new();
    shelf.vars = vec![("RACK_ENV", "production")];
    std::fs::write(shelf.folder.path().join("firebrick.toml"), "[limits]\nmax_body = '10MB'\n")
        .expect("a file");
    let Ok(Command::Check { loaded, .. }) = shelf.type_in("check -p 3000") else { panic!("no check") };
    let plan = Plan(&loaded).to_string();
    let dir = shelf.current_dir();
    for line in [
        format!("Firebrick {} would serve {}", crate::VERSION, dir.join("config.ru").display()),
        "  environment   production (RACK_ENV)".to_owned(),
        format!("  configuration {}", dir.join("firebrick.toml").display()),
        "  listen        tcp://[::]:3000".to_owned(),
        "  workers       2 x 1:3 threads (auto: 2 CPUs by cgroup quota)".to_owned(),
        "  front         1 thread (auto: three quarters of 2 CPUs by cgroup quota)".to_owned(),
        "  port = 3000               --port".to_owned(),
        "  limits.max_body = \"10MB\"  firebrick.toml:2".to_owned(),
    ] {
        assert!(plan.lines().any(|known| known == line), "{line:?} is not in\n{plan}");
    }
}

#[test]
fn check_tries_the_app_and_fails_with_it() {
    let shelf = Shelf::new();
    let settings = shelf.settings("check");
    assert_eq!(try_app(&settings, None), Ok("The configuration is valid.".to_owned()));
    assert_eq!(try_app(&settings, Some(&|_| Ok("loaded".to_owned()))), Ok("loaded".to_owned()));
    assert_eq!(try_app(&settings, Some(&|_| Err("broken".to_owned()))), Err("broken".to_owned()));
    std::fs::remove_file(shelf.folder.path().join("config.ru")).expect("it was there");
    let missing = try_app(&shelf.settings("check"), Some(&|_| Ok("loaded".to_owned()))).expect_err("no app");
    assert!(missing.contains("there is no config.ru"), "{missing}");
}

#[test]
fn a_token_is_never_shown() {
    let mut shelf = Shelf::new();
    shelf.vars = vec![("FIREBRICK_CONTROL_TOKEN", "geheim-geheim-geheim")];
    let Ok(Command::Check { loaded, .. }) = shelf.type_in("check --control tcp://127.0.0.1:0") else {
        panic!("no check")
    };
    let plan = Plan(&loaded).to_string();
    assert!(!plan.contains("geheim") && plan.contains("control_token = (not shown)"), "{plan}");
    assert!(plan.contains("tcp://127.0.0.1:0"), "{plan}");
}

#[test]
fn an_open_port_without_a_good_token_is_refused() {
    let mut shelf = Shelf::new();
    for (token, words, refused) in [
        ("", "tcp://127.0.0.1:0", false),
        ("", "tcp://0.0.0.0:0", true),
        ("short", "tcp://0.0.0.0:0", true),
        ("0123456789abcdef", "tcp://0.0.0.0:0", false),
    ] {
        shelf.vars = vec![("FIREBRICK_CONTROL_TOKEN", token)];
        let tried = try_app(&shelf.settings(&format!("check --control {words}")), None);
        assert_eq!(tried.is_err(), refused, "{token:?} {words}: {tried:?}");
    }
}

#[test]
fn a_puma_rb_that_is_not_evaluated_yet_warns_of_nothing() {
    let shelf = Shelf::new();
    std::fs::create_dir(shelf.current_dir().join("config")).expect("a directory");
    std::fs::write(shelf.current_dir().join("config/puma.rb"), "workers 2").expect("config/puma.rb");
    let Ok(Command::Check { loaded, write: true, .. }) = shelf.type_in("check --write") else {
        panic!("no check")
    };
    let file = loaded.settings.puma_rb.expect("config/puma.rb");
    assert_eq!((file.shown.as_path(), loaded.puma), (Path::new("config/puma.rb"), None));
}

#[test]
fn pauses_are_checked_before_the_server_is_asked() {
    let shelf = Shelf::new();
    let Ok(Command::Pause { order, wait: true, .. }) =
        shelf.type_in("pause --for 2m --max 7 --paths /a,/b --paths /c --wait")
    else {
        panic!("a pause")
    };
    assert_eq!((order.time.as_deref(), order.max), (Some("2m"), Some(7)));
    assert_eq!(order.paths, ["/a", "/b", "/c"]);
    assert!(matches!(shelf.type_in("resume"), Ok(Command::Resume { .. })));
    for (words, expected) in [
        ("pause --for 1h", "--for 1h: expected a time such as 30s or 2m, from 1s to 10m"),
        ("pause --max 0", "--max 0: expected a number from 1 to 100000"),
        ("pause --max x", "--max x: expected a number"),
        ("pause --paths a", "--paths a: expected a path"),
    ] {
        let (error, code) = shelf.refused(words);
        assert!(error.starts_with(expected) && code == 2, "{words}: {error}");
    }
}

#[test]
fn maintenance_is_shown_switched_on_or_off() {
    let shelf = Shelf::new();
    std::fs::write(shelf.folder.path().join("page.html"), "<p>").expect("a page");
    let action = |words: &str| match shelf.type_in(words) {
        Ok(Command::Maintenance { action, .. }) => action,
        other => panic!("{words}: {other:?}"),
    };
    assert_eq!(action("maintenance"), MaintenanceAction::Status);
    assert_eq!(action("maintenance status ."), MaintenanceAction::Status);
    assert_eq!(action("maintenance off"), MaintenanceAction::Off);
    let on =
        "maintenance on . --page page.html --allow ::1 --allow 10.0.0.0/8 --allow-path /up --retry-after 10m";
    let MaintenanceAction::On(order) = action(on) else { panic!("on") };
    assert_eq!((order.page.as_deref(), order.retry_after.as_deref()), (Some("<p>"), Some("10m")));
    assert_eq!(order.allow, Some(vec!["::1".to_owned(), "10.0.0.0/8".to_owned()]));
    assert_eq!(order.allow_paths, Some(vec!["/up".to_owned()]));
    for (words, expected) in [
        ("maintenance on --page none.html", "none.html: No such file"),
        ("maintenance on --page page.html --message x", "--message is for the server's own page"),
        ("maintenance on --allow x", "--allow x: expected an address"),
        ("maintenance on --allow-path up", "--allow-path up: expected a path"),
        ("maintenance off --retry-after 1m", "--retry-after is for `firebrick maintenance on`"),
        ("maintenance --allow ::1", "--allow is for `firebrick maintenance on`"),
        ("maintenance open", "open"),
    ] {
        let (error, code) = shelf.refused(words);
        assert!(error.contains(expected) && code == 2, "{words}: {error}");
    }
}
