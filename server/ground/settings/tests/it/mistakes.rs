//! Tests of messages for mistakes: all at once, each with its place, the expected form and the most similar name.

use crate::shared;

use proptest::prelude::*;
use settings::table::entries;
use shared::App;

/// Wrong values of every type with their messages.
const WRONG: &[(&str, &str, &str)] = &[
    ("environment", "''", "expected text on one line"),
    ("tag", "\"a\\nb\"", "expected text on one line"),
    ("pidfile", "7", "expected the path of a file"),
    ("temp_dir", "''", "expected the path of a directory"),
    ("quiet", "'maybe'", "expected true or false"),
    ("bind", "3000", "expected \"tcp://HOST:PORT\", \"unix://PATH\""),
    ("bind", "['3000']", "expected HOST:PORT; did you mean \"tcp://[::]:3000\"?"),
    ("bind", "'ssl://0.0.0.0:1'", "there is no certificate for ssl://0.0.0.0:1: add ?cert=FILE&key=FILE"),
    ("bind", "'unix:///a?mod=1'", "did you mean \"mode\"?"),
    (
        "bind",
        "'tcp://127.0.0.1:0?proxy_protocol=3'",
        "proxy_protocol=v1, proxy_protocol=v2 or proxy_protocol=any",
    ),
    ("port", "65536", "expected a whole number from 0 to 65535"),
    ("port", "'http'", "expected a whole number from 0 to 65535"),
    ("host", "'a b'", "expected an address or host name"),
    ("control", "''", "expected the path of a socket, \"tcp://HOST:PORT\", \"auto\" or \"off\""),
    ("control", "9293", "expected the path of a socket, \"tcp://HOST:PORT\""),
    ("control", "'localhost:9293'", "did you mean \"tcp://localhost:9293\"?"),
    ("control", "['tcp://h:1', 'tcp://h:1']", "tcp://h:1 is there twice"),
    ("control", "['off', '/run/a']", "\"off\" turns the Unix socket off"),
    ("acme.domains", "['localhost']", "expected a public name such as example.com: no CA issues"),
    ("acme.domains", "['https://a.test']", "expected a name without scheme and path"),
    ("acme.domains", "['bücher.example']", "in its ASCII form, which begins with xn--"),
    ("acme.domains", "['*.a.test']", "set acme.dns_command to a command that changes records"),
    ("acme.domains", "['192.0.2.1']", "Let's Encrypt wants acme.profile = \"shortlived\""),
    ("acme.directory", "'http://ca.test/dir'", "http:// is for this machine only"),
    ("acme.directory", "'ca.test'", "expected the URL of a CA's directory"),
    (
        "acme.staging",
        "'https://acme-v02.api.letsencrypt.org/directory'",
        "it is acme.directory: give the CA's other",
    ),
    ("acme.staging", "'nowhere'", "expected the URL of a CA's directory"),
    ("acme.challenge", "'dns'", "expected one of \"auto\", \"http-01\""),
    ("acme.challenge", "'http01'", "did you mean \"http-01\"?"),
    ("acme.eab_kid", "'kid'", "acme.eab_hmac is missing"),
    ("acme.eab_hmac", "'key'", "acme.eab_kid is missing"),
    ("acme.on_demand", "true", "acme.ask has to name a URL"),
    ("acme.ask", "'/ask'", "expected a URL such as"),
    ("acme.retry", "'0'", "expected a time such as"),
    ("acme.on_demand_per_hour", "0", "expected a whole number from 1"),
    ("control_token", "'two words'", "expected 1 to 256 characters of ASCII without blanks"),
    (
        "server_timing",
        "'allways'",
        "expected one of \"local\", \"always\", \"off\"; did you mean \"always\"?",
    ),
    ("workers", "0", "expected \"MIN:MAX\" or a number of workers, from 1 to 1024, or \"auto\""),
    ("workers", "'0:4'", "expected \"MIN:MAX\" or a number of workers, from 1 to 1024"),
    ("workers", "'2:2000'", "expected \"MIN:MAX\" or a number of workers, from 1 to 1024"),
    ("workers", "'x:4'", "expected \"MIN:MAX\" or a number of workers, from 1 to 1024"),
    ("workers", "'8:2'", "expected the minimum first, then the maximum; did you mean \"2:8\"?"),
    ("fiber_paths", "['events']", "expected a list of paths, each beginning with / such as \"/events\""),
    ("fiber_paths", "[]", "expected a list of paths"),
    ("fiber_paths", "['/a*']", "without * and query"),
    ("fiber_paths", "['/a?b']", "expected a list of paths"),
    ("fiber_paths", "['/a b']", "expected a list of paths"),
    ("fiber_paths", "7", "expected a list of paths"),
    ("rack.refork_after", "[0, 5]", "0 only at the end"),
    ("health.live_path", "'up?x'", "expected a request path without query"),
    ("limits.worker_memory", "'much'", "expected a size such as"),
    ("limits.max_requests", "-1", "expected a whole number"),
    ("limits.max_age", "'old'", "expected a time such as"),
    ("fiber_paths", "['/events']", "fibers is not set: set it to how many requests"),
    ("limits.predict_wait", "'never'", "expected true or false"),
    ("threads", "'5:1'", "expected the minimum first, then the maximum; did you mean \"1:5\"?"),
    ("threads", "513", "expected \"MIN:MAX\" or a number of threads, from 1 to 512"),
    (
        "slo",
        "'fast'",
        "expected \"p50 < TIME\", \"p95 < TIME\" or \"p99 < TIME\", such as \"p95 < 200ms\", or \"off\"",
    ),
    ("slo", "'p90 < 1s'", "expected p50, p95 or p99 before the <"),
    ("slo", "'p95 < 2h'", "expected a time from 1ms to 1h"),
    ("slo", "200", "expected \"p50 < TIME\""),
    ("shape.threads", "'8:2'", "expected the minimum first, then the maximum; did you mean \"2:8\"?"),
    ("shape.workers", "0", "expected \"MIN:MAX\" or a number of workers, from 1 to 1024, or \"auto\""),
    ("front_threads", "'many'", "expected a whole number from 1 to 256, or \"auto\""),
    ("worker_memory_estimate", "'1KiB'", "from 1MiB to 1TiB"),
    ("ruby", "true", "expected the path of a file"),
    ("rack.trusted_proxies", "['10.0.0.0/33']", "expected 0 to 32 bits behind the / of 10.0.0.0/33"),
    ("rack.trusted_proxies", "['none', 'unix']", "expected \"none\" to stand alone"),
    ("rack.trusted_proxies", "['local']", "expected a list of networks such as"),
    ("rack.allow_underscore_headers", "1", "expected true or false; did you mean \"true\"?"),
    ("rack.early_hints", "[]", "expected true or false"),
    ("rack.warmup", "['up']", "expected a list of request paths, each beginning with /"),
    ("rack.compact", "{}", "expected true or false"),
    ("rack.allocator", "true", "expected one of \"auto\", \"jemalloc\", \"system\""),
    ("rack.yjit", "true", "expected one of \"auto\", \"on\", \"off\""),
    (
        "rack.request_id_header",
        "'X Id'",
        "expected the name of a header such as \"X-Request-Id\", or \"off\"",
    ),
    (
        "reload.step",
        "0",
        "expected a number of workers from 1 to 1000, or a percentage of them such as \"25%\"",
    ),
    ("reload.step", "'101%'", "expected a number of workers"),
    ("files.public", "1979-05-27", "expected the path of a directory"),
    ("files.serve_public", "'no'", "expected \"auto\", \"always\" (or true) or \"off\" (or false)"),
    ("site.root", "'nowhere'", "expected a directory that exists"),
    ("site.root", "3", "expected the path of a directory"),
    ("site.static_json", "'nowhere.json'", "expected a file that exists"),
    ("site.watch", "'never'", "expected true or false"),
    ("site.open_files", "1", "expected a whole number from 16 to 1000000"),
    ("site.cache_memory", "'much'", "expected a size such as"),
    ("mruby.heap", "'1KiB'", "expected a size such as 65536, \"64KiB\" or \"10MB\", from 4MiB"),
    ("mruby.request_heap", "true", "expected a size such as"),
    ("mruby.step_time", "'soon'", "expected a time such as"),
    ("mruby.deadline", "'-1s'", "expected a time such as"),
    ("mruby.max_tasks", "0", "expected a whole number from 1"),
    ("mruby.max_body", "'all'", "expected a size such as"),
    ("mruby.reproxy", "'maybe'", "expected true or false"),
    ("log.access", "true", "expected the path of a file or \"off\" or \"-\""),
    ("log.format", "'jsn'", "expected one of \"combined\", \"common\", \"json\"; did you mean \"json\"?"),
    ("log.error", "''", "expected the path of a file or \"-\""),
    ("timeouts.header", "0", "expected a time such as 30, \"30s\", \"500ms\" or \"2m\", from 1ms to 24h"),
    ("timeouts.body_min_rate", "-1", "expected a whole number from 0 to 1000000000, or \"off\""),
    ("timeouts.body_grace", "'soon'", "expected a time such as"),
    ("timeouts.keep_alive", "'2d'", "expected a time such as"),
    ("timeouts.send", "'0s'", "expected a time such as"),
    ("timeouts.queue", "0.0", "expected a time such as"),
    ("timeouts.worker", "nan", "expected a time such as"),
    ("timeouts.worker_boot", "false", "expected a time such as"),
    ("timeouts.shutdown", "'25h'", "from 0 to 24h"),
    ("limits.max_header_bytes", "1023", "from 1KiB to 16MiB"),
    ("limits.max_headers", "0", "expected a whole number from 1 to 10000"),
    ("limits.max_uri", "'64KiB'", "must be less than limits.max_header_bytes, which is 64KiB"),
    (
        "limits.max_body",
        "'1Q'",
        "expected a size such as 65536, \"64KiB\" or \"10MB\", up to 1PiB, or \"off\"",
    ),
    ("limits.max_connections", "1.5", "expected a whole number from 1"),
    ("limits.max_requests_per_connection", "-1", "expected a whole number of at least 0, or \"off\""),
    ("limits.max_queue", "0", "expected a whole number from 1"),
    ("limits.body_memory", "'2GiB'", "from 1KiB to 1GiB"),
    ("limits.response_memory", "true", "expected a size such as"),
    ("limits.memory", "'1MiB'", "from 32MiB to 1PiB, or \"auto\""),
    ("limits.response_spool", "'-1'", "expected a size such as"),
    ("limits.max_response_header_bytes", "''", "from 1KiB to 16MiB"),
];

#[test]
fn each_wrong_value_is_named_with_its_line_and_what_was_expected() {
    for (key, value, expected) in WRONG {
        let mistakes = App::with(&format!("# first line\n{key} = {value}\n")).mistakes();
        assert!(mistakes.starts_with(&format!("firebrick.toml:2: {key} = ")), "{mistakes}");
        assert!(mistakes.contains(expected), "{mistakes}");
        assert_eq!(mistakes.lines().count(), 1, "{mistakes}");
    }
}

#[test]
fn every_key_refuses_a_value_of_no_type_and_names_what_it_takes() {
    for entry in entries().filter(|entry| entry.about().in_file) {
        let key = entry.about().key;
        let mistakes = App::with(&format!("{key} = 1979-05-27\n")).mistakes();
        let message = format!("firebrick.toml:1: {key} = a date: expected {}", entry.expected());
        assert_eq!(mistakes, message);
    }
}

#[test]
fn tables_of_certificates_are_named_with_their_line_and_key() {
    for (text, expected) in [
        (
            "[[tls.certificates]]\ncert = 'a.pem'\nkey = 'a.key'\n[[tls.certificates]]\ncert = 'b.pem'\n",
            "firebrick.toml:4: tls.certificates.key = a table: expected key, the path of a file",
        ),
        (
            "[[tls.certificates]]\ncert = 'a.pem'\nkey = 3\n",
            "firebrick.toml:3: tls.certificates.key = 3: expected the path of a file",
        ),
        (
            "[[tls.certificates]]\ncert = 'a.pem'\nkey = 'a.key'\nkeys = 'b'\n",
            "firebrick.toml:4: tls.certificates.keys = \"b\": unknown key; did you mean \"key\"?",
        ),
        (
            "[tls.certificates]\ncert = 'a.pem'\n",
            "firebrick.toml:1: tls.certificates = a table: expected tables: [[tls.certificates]]",
        ),
        (
            "[[tls.certificate]]\ncert = 'a.pem'\n",
            "firebrick.toml:1: tls.certificate: unknown key; did you mean \"tls.certificates\"?",
        ),
        (
            "[[acme.certificates]]\ndomains = ['a.test', '*.b.test']\n",
            "firebrick.toml:2: acme.certificates.domains = [\"a.test\", \"*.b.test\"]: *.b.test is verified by a record",
        ),
        (
            "[[acme.certificates]]\ndomains = ['a.test']\n[[acme.certificates]]\ndomains = ['a.test']\n",
            "firebrick.toml:4: acme.certificates.domains = [\"a.test\"]: a.test is in two certificates",
        ),
        (
            "[[acme.certificates]]\nchallenge = 'dns-01'\ndomains = ['a.test']\n",
            "firebrick.toml:2: acme.certificates.challenge = \"dns-01\": acme.dns_command has to be a command",
        ),
    ] {
        let mistakes = App::with(text).mistakes();
        assert!(mistakes.starts_with(expected), "{mistakes}\n{text}");
        assert_eq!(mistakes.lines().count(), 1, "{mistakes}");
    }
}

#[test]
fn sites_that_cannot_be_are_named_with_their_line() {
    for (line, expected) in [
        ("'http://a' = '.'", "expected a host name such as \"example.com\""),
        ("'a:80' = '.'", "expected a host name such as"),
        ("a = 1", "expected a directory, as text"),
        ("a = 'nowhere'", "expected a directory that exists"),
        ("a = '.'", "there is no static.json, _site/"),
    ] {
        let mistakes = App::with(&format!("[sites]\n{line}\n")).mistakes();
        assert!(mistakes.starts_with("firebrick.toml:2: sites."), "{mistakes}");
        assert!(mistakes.contains(expected), "{mistakes}");
    }
    assert!(App::with("sites = 1").mistakes().contains("expected a table: [sites]"));
}

#[test]
fn rules_of_sendfile_that_cannot_be_are_named_with_their_line_and_prefix() {
    let wrong = [
        ("'/a' = 'files'", "sendfile.\"/a\" = \"files\": expected a path that begins and ends with /"),
        ("'a/' = 'files'", "expected a path that begins and ends with /, such as \"/protected/\""),
        ("'/a/../b/' = 'files'", "without empty parts, . and .."),
        ("'/a//' = 'files'", "without empty parts, . and .."),
        ("'/a%20b/' = 'files'", "as it is after decoding: \"/my files/\", not \"/my%20files/\""),
        ("'/a?b/' = 'files'", "without a query"),
        ("'/a/' = 3", "sendfile.\"/a/\" = 3: expected a folder, such as \"/srv/files\" or \"storage\""),
        ("'/a/' = ''", "expected a folder"),
        ("'/a/' = ['b']", "expected a folder"),
        ("'/a/' = { folder = 'b' }", "sendfile.\"/a/\": expected a folder"),
    ];
    for (line, expected) in wrong {
        let mistakes = App::with(&format!("[sendfile]\n{line}\n")).mistakes();
        assert!(mistakes.starts_with("firebrick.toml:2: sendfile."), "{mistakes}");
        assert!(mistakes.contains(expected), "{line}: {mistakes}");
    }
    assert!(App::with("sendfile = 1").mistakes().contains("expected a table: [sendfile]"));
    assert!(App::with("[send_file]\n'/a/' = 'a'").mistakes().contains("did you mean \"sendfile\"?"));
}

#[test]
fn services_that_cannot_be_are_named_with_their_line_and_key() {
    let wrong = [
        ("jobs = 3", "services.jobs.command = 3: expected a command such as \"bin/jobs\", or a list"),
        ("jobs = 'a | b'", "commands run without a shell, so | has no effect: write [\"sh\", \"-c\""),
        ("jobs = 'QUEUE=a bin/jobs'", "variables go into env = {"),
        ("jobs = ''", "it is empty"),
        ("jobs = []", "expected a command such as"),
        ("'my jobs' = 'a'", "expected a name of letters, digits, - and _"),
        ("jobs = { env = { A = 'b' } }", "services.jobs: expected a command, such as jobs = \"bin/jobs\""),
        (
            "jobs = { comand = 'a', command = 'b' }",
            "services.jobs.comand = \"a\": unknown key; did you mean \"command\"?",
        ),
        ("jobs = { command = 'a', env = 'A=b' }", "services.jobs.env = \"A=b\": expected a table such as"),
        (
            "jobs = { command = 'a', env = { A = [1] } }",
            "services.jobs.env.A = [1]: expected a variable and its text",
        ),
        (
            "jobs = { command = 'a', restart = 'on-fail' }",
            "expected always, on-failure, never; did you mean \"on-failure\"?",
        ),
        ("jobs = { command = 'a', stop_signal = 'STOP' }", "expected TERM, INT, QUIT"),
        (
            "jobs = { command = 'a', stop_timeout = 'soon' }",
            "services.jobs.stop_timeout = \"soon\": expected a time such as",
        ),
        ("jobs = { command = 'a', environments = [] }", "expected an environment such as \"production\""),
        ("jobs = { command = 'a', prefix = 'never' }", "expected true or false"),
    ];
    for (line, expected) in wrong {
        let mistakes = App::with(&format!("[services]\n{line}\n")).mistakes();
        assert!(mistakes.starts_with("firebrick.toml:2: services."), "{mistakes}");
        assert!(mistakes.contains(expected), "{line}: {mistakes}");
    }
    assert!(App::with("services = 1").mistakes().contains("expected a table: [services]"));
    assert!(App::with("[service]\njobs = 'a'").mistakes().contains("did you mean \"services\"?"));
}

#[test]
fn pools_are_judged_key_by_key() {
    for (line, expected) in [
        ("slow = {}", "pools.slow: expected paths: a list of paths"),
        ("slow = []", "pools.slow.paths = : expected a list of paths, each beginning with /"),
        ("slow = { paths = ['slow'] }", "pools.slow.paths = [\"slow\"]: expected a list of paths"),
        ("slow = { paths = '/a', threads = '0' }", "pools.slow.threads = \"0\": expected"),
        (
            "slow = { paths = '/a', workers = 0 }",
            "pools.slow.workers = 0: expected a whole number from 1 to 1024",
        ),
        (
            "slow = { paths = '/a', fibers = 70000 }",
            "pools.slow.fibers = 70000: expected a whole number from 1 to",
        ),
        (
            "slow = { paths = '/a', threads = 2, fibers = 9 }",
            "pools.slow.fibers = 9: a pool has threads or fibers, and threads is set as well (firebrick.toml:2)",
        ),
        (
            "slow = { paths = '/a', worker = 2 }",
            "pools.slow.worker = 2: unknown key; did you mean \"workers\"?",
        ),
        (
            "slow = { paths = '/a', limits.max_queue = 0 }",
            "pools.slow.limits.max_queue = 0: expected a whole number",
        ),
        (
            "slow = { paths = '/a', timeouts.queue = '0' }",
            "pools.slow.timeouts.queue = \"0\": expected a time",
        ),
        (
            "default = '/a'",
            "pools.default = \"/a\": the pool of this name has all paths that no other pool has",
        ),
        ("'a b' = '/a'", "pools.a b = \"/a\": expected a name of letters, digits, - and _"),
        (
            "a = '/x'\nb = ['/y', '/x/']",
            "pools.b.paths = [\"/y\", \"/x/\"]: pools.a has the path \"/x\", too",
        ),
    ] {
        let mistakes = App::with(&format!("[pools]\n{line}\n")).mistakes();
        let line = if line.contains('\n') { 3 } else { 2 };
        assert!(mistakes.contains(&format!("firebrick.toml:{line}: {expected}")), "{mistakes}");
    }
    let many: String = (0..17).map(|number| format!("p{number} = '/{number}'\n")).collect();
    let mistakes = App::with(&format!("[pools]\n{many}")).mistakes();
    assert!(
        mistakes.contains("firebrick.toml:18: pools.p16 = \"/16\": there can be 16 pools or less"),
        "{mistakes}"
    );
    for (pool, expected) in [
        ("slow = '/b'", "pools.slow has the path \"/b\", too"),
        ("fibers = '/c'", "pools.fibers is the pool of this name"),
    ] {
        let mistakes =
            App::with(&format!("fibers = 5\nfiber_paths = ['/a', '/b']\npools.{pool}\n")).mistakes();
        assert!(
            mistakes.contains("firebrick.toml:2: fiber_paths") && mistakes.contains(expected),
            "{mistakes}"
        );
    }
}

#[test]
fn a_pool_is_as_the_default_where_it_says_nothing() {
    let text = "threads = '2:3'\nlimits.max_queue = 7\ntimeouts.worker = '9s'\n[pools]\nstreams = { paths = '/s', fibers = 50 }\n\
                slow = { paths = ['/a', '/b/'], workers = 2, limits.max_queue = 1, timeouts = { queue = '2s', worker = 'off' } }\n";
    let settings = App::with(text).loaded().settings;
    let [slow, streams] = settings.pools.as_slice() else { panic!("{:?}", settings.pools) };
    assert_eq!(slow.to_string(), "2 workers x 2:3 threads for /a, /b");
    assert_eq!((slow.max_queue, slow.queue.as_secs(), slow.worker), (1, 2, None));
    assert_eq!(streams.to_string(), "1 worker x 50 fibers for /s");
    let own = settings.default_pool();
    assert_eq!((streams.max_queue, streams.queue, streams.worker), (7, own.queue, own.worker));
    assert_eq!(own.worker.map(|time| time.as_secs()), Some(9));
}

#[test]
fn fiber_paths_are_a_pool_with_as_many_fibers_in_all_as_before() {
    for (workers, fibers, expected) in [
        ("1", 10, "1 worker x 10 fibers"),
        ("2", 10, "2 workers x 10 fibers"),
        ("4", 10, "2 workers x 20 fibers"),
        ("2:9", 10, "3 workers x 30 fibers"),
    ] {
        let text = format!("workers = '{workers}'\nfibers = {fibers}\nfiber_paths = ['/a', '/']\n");
        let settings = App::with(&text).var("RACK_ENV", "production").loaded().settings;
        assert_eq!((settings.fibers, settings.pools.len()), (0, 1));
        assert_eq!(settings.pools[0].to_string(), format!("{expected} for /a, /"), "{workers}");
    }
}

#[test]
fn classes_of_the_queue_are_judged_key_by_key() {
    for (line, expected) in [
        ("api = '/api'\nother = 'api'", "queue.classes.other.paths = \"api\": expected a list of paths"),
        ("'a b' = '/a'", "queue.classes.a b = \"/a\": expected a name of letters, digits, - and _"),
        ("api = { weight = 2 }", "expected paths, header, cookie or crawlers = true"),
        ("api = { crawlers = false }", "expected paths, header, cookie or crawlers = true"),
        (
            "api = { paths = '/', weight = 1001 }",
            "queue.classes.api.weight = 1001: expected a whole number from 0 to 1000; 0 is the last lane",
        ),
        ("api = { path = '/' }", "queue.classes.api.path = \"/\": unknown key; did you mean \"paths\"?"),
        (
            "api = { header = 'X Plan: a' }",
            "expected the name of a header, or name and value such as \"X-Plan: pro\"",
        ),
        (
            "api = { header = 'X-Plan:' }",
            "queue.classes.api.header = \"X-Plan:\": expected the name of a header",
        ),
        ("api = { header = 7 }", "queue.classes.api.header = 7: expected the name of a header"),
        (
            "api = { cookie = 'plan=' }",
            "expected the name of a cookie, or name and value such as \"plan=pro\"",
        ),
        ("api = { paths = '/', crawlers = 7 }", "queue.classes.api.crawlers = 7: expected true or false"),
        (
            "default = '/api'",
            "the class default has all requests that belong to no other class, and only a weight",
        ),
        ("default = { wait = 1 }", "queue.classes.default.wait = 1: unknown key"),
    ] {
        let mistakes = App::with(&format!("[queue.classes]\n{line}\n")).mistakes();
        assert!(mistakes.contains(expected), "{line}: {mistakes}");
        assert!(
            mistakes.starts_with("firebrick.toml:2: ") || mistakes.starts_with("firebrick.toml:3: "),
            "{mistakes}"
        );
    }
    let many: String = (0..17).map(|number| format!("c{number} = '/{number}'\n")).collect();
    let mistakes = App::with(&format!("[queue.classes]\n{many}")).mistakes();
    assert!(
        mistakes.contains("firebrick.toml:18: queue.classes.c16 = \"/16\": there can be 16 classes or less"),
        "{mistakes}"
    );
    assert!(App::with("queue = 1").mistakes().contains("expected a table: [queue]"));
    let mistakes = App::with("queue.classes = 1").mistakes();
    assert!(
        mistakes.contains("queue.classes = 1: expected a table for each class: [queue.classes.NAME]"),
        "{mistakes}"
    );
    let mistakes = App::with("queue.fair = 'ip'").mistakes();
    assert!(
        mistakes.contains("queue.fair = \"ip\": expected \"address\", \"off\", \"host\", a header"),
        "{mistakes}"
    );
    let mistakes = App::with("pools.slow = { paths = '/a', queue.fair = 'header' }").mistakes();
    assert!(mistakes.contains("pools.slow.queue.fair = \"header\": expected \"address\""), "{mistakes}");
}

#[test]
fn classes_of_the_queue_have_weights_and_conditions() {
    let text = "[queue]\nfair = 'header:X-Tenant'\n[queue.classes]\ndefault = { weight = 3 }\napi = ['/api/', '/v2']\n\
                paid = { header = 'X-Plan : pro', cookie = 'plan', weight = 9 }\nbots = { crawlers = true }\n\
                some = { crawlers = true, weight = 2 }\n[pools]\nslow = { paths = '/a', queue = { fair = 'off' } }\nother = '/b'\n";
    let settings = App::with(text).loaded().settings;
    let shown: Vec<String> = settings.queue.classes.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "api: weight 1, /api /v2",
            "paid: weight 9, header X-Plan: pro, cookie plan",
            "bots: last lane, crawlers",
            "some: weight 2, crawlers"
        ]
    );
    assert_eq!(settings.queue.default_weight, 3);
    let fair: Vec<String> = (0..3).map(|pool| settings.fair_of(pool).to_string()).collect();
    assert_eq!(fair, ["header:x-tenant", "off", "header:x-tenant"]);
    assert_eq!(App::with("").loaded().settings.fair_of(0).to_string(), "address");
}

#[test]
fn rate_limits_are_judged_key_by_key() {
    let wrong = [
        ("pages = 10", "rate_limits.pages.rate = 10: expected a number of requests"),
        ("pages = '10'", "such as \"100/s\", \"5/m\", \"1000/h\" or \"10/30s\""),
        ("pages = '0/s'", "expected a number of requests"),
        ("pages = { burst = 2 }", "rate is missing"),
        ("'my pages' = '1/s'", "expected a name of letters, digits, - and _"),
        ("pages = { rate = '1/s', burst = 0 }", "expected a whole number from 1 to 1000000"),
        (
            "pages = { rate = '1/s', path = '/' }",
            "rate_limits.pages.path = \"/\": unknown key; did you mean \"paths\"?",
        ),
        ("pages = { rate = '1/s', paths = 'login' }", "expected a list of paths, each beginning with /"),
        ("pages = { rate = '1/s', methods = ['post'] }", "expected a method such as \"POST\", in capitals"),
        ("pages = { rate = '1/s', key = 'ip' }", "expected \"address\", \"all\", or a header such as"),
        (
            "pages = { rate = '1/s', key = 'header:a b' }",
            "expected \"address\", \"all\", or a header such as",
        ),
        ("pages = { rate = '1/s', except = '10.0.0.0/33' }", "\"10.0.0.0/33\" is not one"),
        (
            "pages = { rate = '1/s', shared = true }",
            "it takes a Redis in which servers count together: shared.redis",
        ),
        ("pages = { rate = '1/s', dry_run = 1 }", "expected true or false"),
    ];
    for (line, expected) in wrong {
        let mistakes = App::with(&format!("[rate_limits]\n{line}\n")).mistakes();
        assert!(mistakes.starts_with("firebrick.toml:2: rate_limits."), "{mistakes}");
        assert!(mistakes.contains(expected), "{line}: {mistakes}");
    }
    assert!(App::with("rate_limits = 1").mistakes().contains("expected a table: [rate_limits]"));
    assert!(App::with("[rate_limit]\na = '1/s'").mistakes().contains("did you mean \"rate_limits\"?"));
    let url = App::with("[shared]\nredis = 'localhost:6379'").mistakes();
    assert!(url.contains("expected a URL such as \"redis://127.0.0.1:6379/0\""), "{url}");
}

#[test]
fn what_the_file_says_is_quoted_as_it_stands_there() {
    for (line, said) in [
        ("limits.max_uri = 1e300", "limits.max_uri = 1e300: expected a size such as"),
        ("limits.max_uri = 1_000_000_000_000", "limits.max_uri = 1_000_000_000_000: expected a size"),
        ("limits.max_headers = 0x0", "limits.max_headers = 0x0: expected a whole number"),
        ("port = '70000'", "port = \"70000\": expected a whole number from 0 to 65535"),
        ("limits.max_headers = '1,5'", "limits.max_headers = \"1,5\": expected 1.5 or 15: 1,5 may be either"),
        (
            "timeouts.queue = '1:30'",
            "\"1:30\": expected a time such as \"1m30s\" or \"1h30m\": 1:30 may be either",
        ),
        ("timeouts.queue = '1M'", "\"1M\": expected a time such as \"1m\" for minutes or \"1d\" for days"),
        ("hsts = '1y'", "hsts = \"1y\": expected a time in days, such as \"365d\""),
        ("limits.max_connections = '10m'", "\"10m\": expected a whole number from 1 to"),
        ("limits.max_connections = '10m'", "did you mean \"10M\"?"),
        ("rate_limits.pages = '10s'", "did you mean \"10/s\"?"),
        (
            "canonical_host = 'https://a.example/x'",
            "expected a host without scheme and path; did you mean \"a.example\"?",
        ),
        (
            "canonical_host = 'a b'",
            "canonical_host = \"a b\": expected a host name such as \"www.example.com\"",
        ),
    ] {
        let mistakes = App::with(line).mistakes();
        assert!(mistakes.contains(said), "{line}: {mistakes}");
    }
    let settings = App::with("limits.max_body = 1e3\ntimeouts.queue = '1m30s'").loaded().settings;
    let queue = std::time::Duration::from_secs(90);
    assert_eq!((settings.limits.max_body, settings.timeouts.queue), (Some(1000), queue));
    let warned = |line: &str| App::with(line).loaded().warnings.concat();
    let said = "hsts = \"365\" from firebrick.toml:1 is 365 seconds; days are written \"365d\"";
    assert_eq!(warned("hsts = '365'"), said);
    assert!(warned("hsts = 30").contains("\"30d\""));
    for clear in ["hsts = '365d'", "hsts = 31536000", "hsts = 'max-age=300'", "hsts = 0", "hsts = 'off'"] {
        assert_eq!(warned(clear), "", "{clear}");
    }
}

#[test]
fn the_file_flags_and_variables_have_one_grammar() {
    let file = "port = '3000'\nquiet = 'on'\nlimits.max_body = '50m'\nlimits.body_memory = '512Ki'\n\
                timeouts.queue = '1m 30s'\nlimits.max_connections = '10k'\nhsts = '52w'\nrate_limits.a = '10r/s'\n";
    let settings = App::with(file).loaded().settings;
    assert_eq!((settings.limits.max_body, settings.limits.body_memory), (Some(50 << 20), 512 << 10));
    assert_eq!((settings.timeouts.queue.as_secs(), settings.limits.max_connections), (90, 10_000));
    assert_eq!(settings.rate_limits[0].rate.count, 10);
    let typed = App::new().flag("--max-body", "1e3").var("PORT", "4000").flag("--queue-timeout", "1 min");
    let settings = typed.loaded().settings;
    assert_eq!((settings.limits.max_body, settings.timeouts.queue.as_secs()), (Some(1_000), 60));
}

#[test]
fn flags_and_variables_are_named_as_typed() {
    assert_eq!(
        App::new().flag("--max-body", "1 Q").mistakes(),
        "--max-body 1 Q: expected a size such as 65536, \"64KiB\" or \"10MB\", up to 1PiB, or \"off\""
    );
    assert_eq!(
        App::new().var("WEB_CONCURRENCY", "lots").mistakes(),
        "WEB_CONCURRENCY=lots: expected \"MIN:MAX\" or a number of workers, from 1 to 1024, or \"auto\""
    );
    assert!(App::new().flag("--port", "").mistakes().starts_with("--port \"\": expected"));
    assert!(
        App::new().var("RAILS_MAX_THREADS", "1:2").mistakes().starts_with("RAILS_MAX_THREADS=1:2: expected")
    );
    let crossed = App::new().var("RAILS_MAX_THREADS", "2").var("RAILS_MIN_THREADS", "3").mistakes();
    assert_eq!(crossed, "RAILS_MAX_THREADS=2: is less than RAILS_MIN_THREADS=3");
}

#[test]
fn secrets_are_not_shown() {
    for (file, flag, variable) in [
        ("control_token = 'not for you'", "--control-token", "FIREBRICK_CONTROL_TOKEN"),
        ("acme.storage = 'not for you'", "--acme-storage", "FIREBRICK_ACME_STORAGE"),
    ] {
        let mistakes = [
            App::with(file).mistakes(),
            App::new().flag(flag, "not for you").mistakes(),
            App::new().var(variable, "not for you").mistakes(),
        ];
        for mistake in mistakes {
            assert!(mistake.contains("(not shown)") && !mistake.contains("for you"), "{mistake}");
        }
    }
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    for (text, mistake) in [
        ("worker = 1", "worker: unknown key; did you mean \"workers\"?"),
        ("max_body = 1", "max_body: unknown key; did you mean \"limits.max_body\"?"),
        ("persistent_timeout = 1", "persistent_timeout: unknown key; did you mean \"timeouts.keep_alive\"?"),
        (
            "[timeouts]\nkeepalive = 1",
            "timeouts.keepalive: unknown key; did you mean \"timeouts.keep_alive\"?",
        ),
        ("[limits]\nmax-body = 1", "limits.max-body: unknown key; did you mean \"limits.max_body\"?"),
        ("[limits]\nworkers = 1", "limits.workers: unknown key; did you mean \"workers\"?"),
        ("[limit]\nx = 1", "[limit]: unknown table; did you mean \"limits\"?"),
        ("log = 'json'", "log = \"json\": expected a table: [log]"),
        ("xyzzy = 1", "xyzzy: unknown key"),
        ("config = 'x'", "config: can only be given on the command line, with --config"),
        ("\"a\\nb\" = 1", "a\\nb: unknown key"),
    ] {
        let line = text.lines().count();
        let line = if text.starts_with("[limit]") { 1 } else { line };
        assert_eq!(App::with(text).mistakes(), format!("firebrick.toml:{line}: {mistake}"));
    }
}

#[test]
fn all_mistakes_are_reported_together_in_order() {
    let text = "worker = 1\n\n[limits]\nmax_body = 'x'\nmax_headers = 0\n";
    let app = App::with(text).var("WEB_CONCURRENCY", "x").flag("--port", "x").flag("DIR", ".");
    let mistakes = app.mistakes();
    let places: Vec<&str> = mistakes.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        places,
        ["--port x", "WEB_CONCURRENCY=x", "firebrick.toml:1", "firebrick.toml:4", "firebrick.toml:5"]
    );
}

#[test]
fn a_value_that_loses_is_still_a_mistake_in_the_file() {
    assert!(App::with("workers = 'x'").flag("--workers", "1").mistakes().starts_with("firebrick.toml:1:"));
    assert_eq!(
        App::new().var("WEB_CONCURRENCY", "x").flag("--workers", "1").loaded().settings.workers.max,
        1
    );
}

#[test]
fn what_cannot_be_together_is_refused() {
    for (text, mistake) in [
        ("bind = ['h:1', 'tcp://h:1']", "tcp://h:1 is there twice"),
        ("bind = ['h:1', 'h:2']\nport = 1\nhost = 'h'", "tcp://h:1 is there twice"),
        ("health.live_path = '/up'\nhealth.ready_path = '/up'", "health.live_path is the same path"),
        ("bind = '/run/a'\ncontrol = '/run/a'", "control = \"/run/a\": bind uses the same path"),
        ("pidfile = '/run/a'\nlog.access = '/run/a'", "log.access = \"/run/a\": pidfile uses the same path"),
        (
            "limits.max_uri = 2048\nlimits.max_header_bytes = 2048",
            "must be less than limits.max_header_bytes",
        ),
        (
            "limits.memory = '64MiB'\ncache.memory = '40MiB'",
            "firebrick.toml:2: cache.memory = \"40MiB\": more than half of limits.memory, which is 64MiB: lower cache.memory, or give \
             limits.memory at least 80MiB",
        ),
        (
            "limits.memory = '32MiB'\nlimits.response_memory = '5MiB'",
            "limits.response_memory = \"5MiB\": more than an eighth of limits.memory, which is 32MiB: a few clients would use all of it; \
             lower it, or give limits.memory at least 40MiB",
        ),
    ] {
        let mistakes = App::with(text).mistakes();
        assert!(mistakes.contains(mistake), "{mistakes}");
    }
    let long = format!("bind = '/{}'", "a".repeat(107));
    assert!(App::with(&long).mistakes().contains("may have at most"));
    let shared = App::with("log.access = 'all.log'\nlog.error = 'all.log'").loaded();
    assert_eq!(shared.warnings, Vec::<String>::new());
}

#[test]
fn what_is_not_toml_is_shown_with_its_line() {
    let mistakes = App::with("workers = 1\nthreads = \n").mistakes();
    assert!(mistakes.starts_with("firebrick.toml:2: threads =: this is not TOML: "), "{mistakes}");
    let twice = App::with("workers = 1\nworkers = 2\n").mistakes();
    assert!(twice.starts_with("firebrick.toml:2: workers = 2: this is not TOML: "), "{twice}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let named = |name: &str| App::new().flag("--config", name).mistakes();
    assert_eq!(named("none.toml"), "--config none.toml: there is no such file");
    assert_eq!(named("."), "--config .: expected a file, this is a directory");
    assert_eq!(named("config/puma.rb"), "--config config/puma.rb: there is no such file");
    let app = App::new();
    app.write("firebrick.toml", b"tag = '\xff'");
    assert!(app.mistakes().contains("firebrick.toml: expected text in UTF-8"));
}

#[test]
fn what_is_served_must_be_there() {
    let named = |name: &str| App::new().flag("DIR", name).mistakes();
    assert_eq!(named("nowhere"), "DIR nowhere: expected a directory or a rackup file (.ru) that exists");
    assert_eq!(
        named("chekc"),
        "DIR chekc: expected a directory or a rackup file (.ru) that exists; did you mean \"check\"?"
    );
    for (word, command) in
        [("start", "serve"), ("restart", "reload"), ("phased-restart", "reload"), ("halt", "stop")]
    {
        assert!(named(word).ends_with(&format!("did you mean \"{command}\"?")), "{word}");
    }
    let app = App::new();
    app.write("Gemfile", "");
    assert!(app.flag("DIR", "Gemfile").mistakes().contains("a file whose name ends in .ru"));
}

fn toml_like() -> impl Strategy<Value = String> {
    let keys: Vec<&str> =
        entries().map(|entry| entry.about().key).chain(["x", "limits", "[log]", "[[rack]]"]).collect();
    let value =
        "(-?[0-9]{1,20}|'[^'\n]{0,12}'|true|inf|nan|\\[.{0,8}\\]|\\{.{0,8}\\}|[0-9.:a-z-]{0,12}|.{0,6})";
    let line = (prop::sample::select(keys), value).prop_map(|(key, value)| format!("{key} = {value}"));
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        if let Err(errors) = App::with(&text).load() {
            prop_assert!(!errors.0.is_empty());
        }
    }

    #[test]
    fn no_likely_text_panics_and_each_mistake_is_one_line(text in toml_like()) {
        if let Err(errors) = App::with(&text).load() {
            prop_assert!(!errors.0.is_empty());
            prop_assert_eq!(errors.to_string().lines().count(), errors.0.len());
        }
    }

    #[test]
    fn no_word_panics(word in any::<String>()) {
        let raw = settings::Raw::Word(word);
        for entry in entries() {
            let _ = entry.check(&raw).is_ok();
        }
    }
}
