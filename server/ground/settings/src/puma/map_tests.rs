use super::*;
use crate::puma::{METHODS, PumaValue, left_out, toml};
use crate::written::WrittenValues;
use proptest::prelude::*;
use std::path::Path;

fn call(line: usize, method: &str, arguments: &[PumaValue]) -> Call {
    let file = "config/puma.rb".into();
    Call {
        file,
        line,
        method: method.into(),
        arguments: arguments.to_vec(),
        block: false,
        conditional: false,
    }
}

fn s(text: &str) -> PumaValue {
    PumaValue::Text(text.into())
}

fn i(number: i64) -> PumaValue {
    PumaValue::Integer(number)
}

fn options(pairs: &[(&str, PumaValue)]) -> PumaValue {
    PumaValue::Map(
        pairs.iter().map(|(key, value)| (PumaValue::Symbol((*key).into()), value.clone())).collect(),
    )
}

/// Returns the values as `firebrick.toml` would have them.
fn values(calls: &[Call]) -> Vec<(&'static str, String)> {
    let mut values: Vec<_> =
        map(calls).values.iter().map(|(key, written)| (*key, written.raw.to_string())).collect();
    values.sort();
    values
}

fn one(method: &str, arguments: &[PumaValue]) -> Vec<(&'static str, String)> {
    values(&[call(1, method, arguments)])
}

#[test]
fn settings_have_their_keys() {
    assert_eq!(one("port", &[s("3000")]), [("port", "3000".into())]);
    assert_eq!(one("port", &[i(3000), s("::1")]), [("host", "::1".into()), ("port", "3000".into())]);
    for (given, workers) in [
        (i(0), "1"),
        (i(-1), "1"),
        (s(" 0 "), "1"),
        (s(""), "1"),
        (s("-2"), "1"),
        (s("1.5"), "1"),
        (s("3 "), "3"),
        (PumaValue::Float(1.5), "1"),
        (PumaValue::Float(2.9), "2"),
        (s("many"), "many"),
        (i(5_000_000), "5000000"),
    ] {
        assert_eq!(one("workers", std::slice::from_ref(&given)), [("workers", workers.into())], "{given:?}");
    }
    assert_eq!(one("workers", &[PumaValue::Symbol("auto".into())]), [("workers", "auto".into())]);
    assert_eq!(one("workers", &[PumaValue::Nil]), [("workers", "1".into())]);
    assert_eq!(one("threads", &[i(0), i(16)]), [("threads", "1:16".into())]);
    assert_eq!(one("threads", &[s("5")]), [("threads", "5:5".into())]);
    assert_eq!(one("worker_timeout", &[i(3600)]), [("timeouts.worker", "3600".into())]);
    assert_eq!(one("fork_worker", &[]), [("rack.refork_after", "1000".into())]);
    assert_eq!(one("enable_keep_alives", &[PumaValue::Bool(false)]), [("timeouts.keep_alive", "0".into())]);
    assert_eq!(one("enable_keep_alives", &[]), []);
    let most = "limits.max_requests_per_connection";
    assert_eq!(one("max_keep_alive", &[PumaValue::Float(f64::INFINITY)]), [(most, "0".into())]);
    assert_eq!(one("max_fast_inline", &[i(10)]), [(most, "10".into())]);
    assert_eq!(one("force_shutdown_after", &[PumaValue::Symbol("forever".into())]), []);
    assert_eq!(
        one("force_shutdown_after", &[PumaValue::Symbol("immediately".into())]),
        [("timeouts.shutdown", "0".into())]
    );
    assert_eq!(one("http_content_length_limit", &[PumaValue::Nil]), []);
    assert_eq!(one("quiet", &[]), [("log.access", "off".into())]);
}

#[test]
fn addresses_add_up() {
    let calls = [
        call(1, "port", &[i(3000)]),
        call(2, "bind", &[s("unix:///run/app.sock?umask=0111")]),
        call(
            3,
            "ssl_bind",
            &[
                s("0.0.0.0"),
                s("9443"),
                options(&[
                    ("cert", s("a&b.pem")),
                    ("key", s("k.pem")),
                    ("reuse", PumaValue::Bool(true)),
                    ("verify_mode", s("none")),
                ]),
            ],
        ),
        call(4, "bind", &[s("tcp://127.0.0.1:3001?low_latency=true")]),
    ];
    let bind = "[\"tcp://[::]:3000\", \"unix:///run/app.sock?umask=0111\", \
                \"ssl://0.0.0.0:9443?cert=a%26b.pem&key=k.pem&verify_mode=none\", \"tcp://127.0.0.1:3001\"]";
    assert_eq!(values(&calls), [("bind", bind.to_owned())]);
    let cleared =
        [call(1, "port", &[i(1)]), call(2, "clear_binds!", &[]), call(3, "bind", &[s("tcp://h:2")])];
    assert_eq!(values(&cleared), [("bind", "[\"tcp://h:2\"]".to_owned())]);
}

#[test]
fn a_local_address_without_a_certificate_is_for_development() {
    let bind = ("bind", "[\"ssl://localhost:9292\"]".to_owned());
    assert_eq!(one("ssl_bind", &[s("localhost"), s("9292")]), [bind.clone(), ("https", "true".into())]);
    assert_eq!(one("bind", &[s("ssl://localhost:9292")]), [bind, ("https", "true".into())]);
    assert_eq!(one("bind", &[s("ssl://0.0.0.0:1")]).len(), 1);
}

#[test]
fn proxy_headers_are_an_option_of_addresses() {
    let proxied =
        call(1, "set_remote_address", &[options(&[("proxy_protocol", PumaValue::Symbol("v1".into()))])]);
    let bind = |text: &str| vec![("bind", format!("[{text:?}]"))];
    assert_eq!(values(&[proxied.clone(), call(2, "port", &[i(1)])]), bind("tcp://[::]:1?proxy_protocol=v1"));
    assert_eq!(values(&[proxied]), bind("tcp://[::]:9292?proxy_protocol=v1"));
}

#[test]
fn the_control_app_is_beside_the_socket_that_commands_use() {
    let token = options(&[("auth_token", s("12345"))]);
    let control = ("control", "[\"tcp://127.0.0.1:9293\"]".to_owned());
    let token = one("activate_control_app", &[s("tcp://127.0.0.1:9293"), token]);
    assert_eq!(token, [control, ("control_token", "12345".into())]);
    let unix = one("activate_control_app", &[s("unix:///run/c.sock?umask=0077")]);
    assert_eq!(unix, [("control", "[\"auto\", \"unix:///run/c.sock\"]".to_owned())]);
    assert_eq!(one("activate_control_app", &[]), []);
    assert_eq!(
        one("activate_control_app", &[s("auto"), options(&[("no_token", PumaValue::Bool(true))])]),
        []
    );
}

#[test]
fn the_last_call_counts_and_the_first_rackup() {
    let calls = [
        call(1, "workers", &[i(2)]),
        call(2, "workers", &[i(3)]),
        call(3, "rackup", &[s("a.ru")]),
        call(4, "rackup", &[s("b.ru")]),
    ];
    let mapped = map(&calls);
    assert_eq!(mapped.rows[0].outcome, CallOutcome::Overruled(2));
    assert_eq!(mapped.rows[1].outcome, CallOutcome::Sets(vec![("workers", "3".into())]));
    assert_eq!(mapped.rackup.map(|(file, _)| file).as_deref(), Some("a.ru"));
}

#[test]
fn requests_are_logged_where_standard_output_goes() {
    let redirect = call(1, "stdout_redirect", &[s("log/out.log"), s("log/err.log"), PumaValue::Bool(true)]);
    assert_eq!(values(std::slice::from_ref(&redirect)), [("log.error", "log/err.log".into())]);
    let logged = [redirect, call(2, "log_requests", &[])];
    assert_eq!(values(&logged), [("log.access", "log/out.log".into()), ("log.error", "log/err.log".into())]);
}

#[test]
fn a_plugins_own_method_has_a_row() {
    let mapped = map(&[call(1, "solid_queue_mode", &[PumaValue::Symbol("async".into())])]);
    assert_eq!(
        (&mapped.rows[0].outcome, mapped.rows[0].call.as_str()),
        (&CallOutcome::Plugins, "solid_queue_mode :async")
    );
}

#[test]
fn what_is_written_as_toml_says_the_same() {
    let calls = [
        call(1, "port", &[i(3000)]),
        call(2, "threads", &[i(1), i(5)]),
        call(3, "tag", &[s("quo\"te\\ ü")]),
        call(4, "bind", &[s("unix:///run/a.sock")]),
        call(5, "worker_timeout", &[i(30)]),
        call(6, "prune_bundler", &[]),
        call(7, "before_fork", &[]),
        call(8, "early_hints", &[]),
        // Its table is also that of early_hints, which comes elsewhere in the order of options.
        call(9, "log_requests", &[]),
        call(10, "allow_underscore_headers", &[]),
    ];
    let mapped = map(&calls);
    let text = toml(&mapped, Path::new("config/puma.rb"));
    let mut given = WrittenValues::default();
    let errors =
        crate::file::read(Path::new("firebrick.toml"), &text, &mut given, &crate::testing::Fake::new(&[]));
    assert_eq!(errors, [], "{text}");
    for (key, written) in &mapped.values {
        let read = given.written(key).first().unwrap_or_else(|| panic!("{key} is not in\n{text}"));
        let entry = crate::table::entries().find(|entry| entry.about().key == *key).unwrap();
        assert_eq!(entry.check(&read.raw), Ok(()), "{key}");
        let plain = |raw: &Raw| raw.text().map_or_else(|| raw.to_string(), str::to_owned);
        assert_eq!(plain(&read.raw), plain(&written.raw), "{key}");
    }
    let unlike = map(&[
        call(1, "workers", &[i(2)]),
        Call { conditional: true, ..call(2, "worker_timeout", &[i(3600)]) },
        call(3, "port", &[i(3000)]),
        Call { conditional: true, ..call(4, "bind", &[s("unix:///a")]) },
    ]);
    let careful = toml(&unlike, Path::new("config/puma.rb"));
    for (line, there) in [
        ("workers = 2  # config/puma.rb:1", true),
        ("# worker = 3600  # config/puma.rb:2", true),
        ("# bind = [\"tcp://[::]:3000\", \"unix:///a\"]  # config/puma.rb:3", true),
        ("worker = 3600  # config/puma.rb:2", false),
    ] {
        assert_eq!(careful.lines().any(|known| known == line), there, "{line}\n{careful}");
    }
    assert_eq!((left_out(&unlike), left_out(&mapped)), (2, 0));
    for line in ["#   prune_bundler: ", "#   before_fork: ", "(config/puma.rb:7)"] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

fn value() -> impl Strategy<Value = PumaValue> {
    let leaf = prop_oneof![
        Just(PumaValue::Nil),
        any::<bool>().prop_map(PumaValue::Bool),
        any::<i64>().prop_map(PumaValue::Integer),
        any::<f64>().prop_map(PumaValue::Float),
        ".{0,12}".prop_map(PumaValue::Text),
        "[a-z0-9_]{0,8}".prop_map(PumaValue::Symbol),
        Just(PumaValue::Object("Object".into())),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(PumaValue::List),
            proptest::collection::vec(("[a-z_]{1,8}".prop_map(PumaValue::Symbol), inner), 0..3)
                .prop_map(PumaValue::Map),
        ]
    })
}

fn any_call() -> impl Strategy<Value = Call> {
    let names: Vec<&'static str> = METHODS.iter().flat_map(|method| method.names()).chain(["own"]).collect();
    (proptest::sample::select(names), proptest::collection::vec(value(), 0..3), 1..99_usize)
        .prop_map(|(method, arguments, line)| call(line, method, &arguments))
}

proptest! {
    #[test]
    fn each_call_has_a_row_and_each_key_a_value(calls in proptest::collection::vec(any_call(), 0..12)) {
        let mapped = map(&calls);
        prop_assert_eq!(mapped.rows.len(), calls.len());
        for (index, (key, _)) in mapped.values.iter().enumerate() {
            let about = crate::table::entries().map(|entry| entry.about()).find(|about| about.key == *key);
            prop_assert!(about.is_some_and(|about| about.in_file), "{}", key);
            prop_assert!(mapped.values[..index].iter().all(|(known, _)| known != key), "{} twice", key);
        }
    }

    #[test]
    fn whatever_it_says_is_written_as_toml(calls in proptest::collection::vec(any_call(), 0..12)) {
        let text = toml(&map(&calls), Path::new("config/puma.rb"));
        let mut given = WrittenValues::default();
        let errors = crate::file::read(Path::new("firebrick.toml"), &text, &mut given, &crate::testing::Fake::new(&[]));
        prop_assert!(errors.is_empty(), "{:?}\n{}", errors, text);
    }
}
