//! Maps calls to values of options, and to the table that `firebrick check` prints.

use std::fmt;
use std::path::PathBuf;

use super::{Call, Class, Method, Value};
use crate::error::Error;
use crate::given::Written;
use crate::origin::Origin;
use crate::raw::Raw;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The call sets these options: keys and values.
    Sets(Vec<(&'static str, String)>),
    /// A later call of the same method, on this line, wins.
    Overruled(usize),
    /// The description of the method from the table, or a more exact one of this call.
    Is(Class, String),
    /// A method that a plugin added.
    Plugins,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Sets(set) => {
                let set: Vec<String> = set.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                write!(
                    f,
                    "{}",
                    if set.is_empty() { "nothing is left of it".to_owned() } else { set.join(", ") }
                )
            }
            Outcome::Overruled(line) => write!(f, "overruled by line {line}"),
            Outcome::Is(class, text) => write!(f, "{}: {text}", class.name()),
            Outcome::Plugins => write!(f, "read: the setting of a plugin"),
        }
    }
}

/// A call and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The call as in the file.
    pub call: String,
    /// File and line.
    pub place: (PathBuf, usize),
    pub outcome: Outcome,
    /// Whether a condition decides that the call is made, or with which value.
    pub conditional: bool,
}

impl Row {
    /// Returns a line with the reason why the call does nothing, or `None` if it does something.
    pub fn note(&self) -> Option<String> {
        let Outcome::Is(Class::Ignored, why) = &self.outcome else { return None };
        Some(format!("{}:{}: {} is ignored: {why}", self.place.0.display(), self.place.1, self.call))
    }
}

/// A `puma.rb` translated into this server's settings.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Values of options, one per key.
    pub(crate) values: Vec<(&'static str, Written)>,
    /// One row per call, in their order.
    pub rows: Vec<Row>,
    pub(crate) rackup: Option<(String, Origin)>,
    pub(crate) directory: Option<(String, Origin)>,
    /// Whether the file itself defines the app.
    pub(crate) is_app: bool,
    /// Calls that are not supported but must not be ignored.
    pub(crate) errors: Vec<Error>,
}

/// Translates the calls.
pub fn map(calls: &[Call]) -> Mapped {
    let mut mapping = Mapping { calls, ..Mapping::default() };
    for (index, call) in calls.iter().enumerate() {
        let outcome = mapping.one(index, call);
        let place = (call.file.clone(), call.line);
        mapping.mapped.rows.push(Row {
            call: call.to_string(),
            place,
            outcome,
            conditional: call.conditional,
        });
    }
    mapping.finish()
}

#[derive(Default)]
struct Mapping<'a> {
    calls: &'a [Call],
    mapped: Mapped,
    /// Addresses; those from `port` with their host and port.
    binds: Vec<Address>,
    /// The default host that `port` uses.
    default_host: Option<String>,
    proxy_protocol: Option<String>,
    /// Addresses and a token of the control server.
    control: Vec<(String, Origin)>,
    requests_are_logged: bool,
}

struct Address {
    text: String,
    /// The port and host of an address from `port`; without a host, the default applies.
    port: Option<(Raw, Option<String>)>,
    origin: Origin,
    row: usize,
}

impl Mapping<'_> {
    fn one(&mut self, index: usize, call: &Call) -> Outcome {
        let Some(method) = Method::find(&call.method) else { return Outcome::Plugins };
        let plain = || Outcome::Is(method.class, method.text.to_owned());
        // These calls add up.
        let adds_up = ["port", "bind", "ssl_bind", "activate_control_app", "stdout_redirect"];
        if method.class == Class::Mapped
            && !adds_up.contains(&method.name)
            && let Some(later) = self.calls[index + 1..]
                .iter()
                .find(|later| method.names().any(|name| name == later.method))
                .filter(|_| method.name != "rackup")
        {
            return Outcome::Overruled(later.line);
        }
        let seconds = |place: usize| call.argument(place).map(raw);
        match method.name {
            "port" => self.port(index, call),
            "bind" => self.address(index, call, call.argument(0).map(text).unwrap_or_default(), None),
            "ssl_bind" => self.ssl_bind(index, call),
            "clear_binds!" => {
                self.binds.clear();
                plain()
            }
            "set_default_host" => {
                self.default_host = call.argument(0).map(text);
                plain()
            }
            "set_remote_address" => self.remote_address(call, plain),
            "workers" => self.set(call, "workers", workers(call.argument(0))),
            "threads" => self.set(call, "threads", threads(call)),
            "environment" | "pidfile" | "tag" => {
                let value = call.argument(0).map(|value| Raw::Word(text(value)));
                self.set_if(call, method.name_of_option(), value, plain)
            }
            "rackup" => {
                // The first call wins.
                if self.mapped.rackup.is_none() {
                    self.mapped.rackup = call.argument(0).map(|value| (text(value), origin(call)));
                }
                plain()
            }
            "directory" => {
                self.mapped.directory = call.argument(0).map(|value| (text(value), origin(call)));
                plain()
            }
            "app" => {
                self.mapped.is_app = true;
                plain()
            }
            "log_requests" | "quiet" => {
                let on = truthy(call, true) == (method.name == "log_requests");
                self.requests_are_logged = on;
                self.set(call, "log.access", Raw::Word(if on { "-" } else { "off" }.to_owned()))
            }
            "stdout_redirect" => self.redirect(call, plain),
            "early_hints" => self.set(call, "rack.early_hints", Raw::Switch(truthy(call, true))),
            "worker_timeout" => self.set_if(call, "timeouts.worker", seconds(0), plain),
            "worker_boot_timeout" => self.set_if(call, "timeouts.worker_boot", seconds(0), plain),
            "worker_shutdown_timeout" => self.set_if(call, "timeouts.shutdown", seconds(0), plain),
            "force_shutdown_after" => match call.argument(0) {
                None => plain(),
                Some(Value::Symbol(word)) if word == "forever" => plain(),
                Some(Value::Symbol(word)) if word == "immediately" => {
                    self.set(call, "timeouts.shutdown", Raw::Integer(0))
                }
                Some(value) => self.set(call, "timeouts.shutdown", raw(value)),
            },
            "persistent_timeout" => self.set_if(call, "timeouts.keep_alive", seconds(0), plain),
            "enable_keep_alives" if truthy(call, true) => plain(),
            "enable_keep_alives" => self.set(call, "timeouts.keep_alive", Raw::Integer(0)),
            "first_data_timeout" => self.set_if(call, "timeouts.header", seconds(0), plain),
            "max_keep_alive" => {
                let most = call.argument(0).map(whole);
                self.set_if(call, "limits.max_requests_per_connection", most, plain)
            }
            "http_content_length_limit" => {
                self.set_if(call, "limits.max_body", call.argument(0).map(whole), plain)
            }
            "allow_underscore_headers" => {
                self.set(call, "rack.allow_underscore_headers", Raw::Switch(truthy(call, true)))
            }
            "activate_control_app" => self.control(call, plain),
            "fork_worker" => {
                let after = call.argument(0).map_or(Raw::Integer(1000), raw);
                self.set(call, "rack.refork_after", after)
            }
            "out_of_band" => {
                self.value(call, "rack.out_of_band_gc", Raw::Switch(true));
                plain()
            }
            "plugin" if call.argument(0).map(text).as_deref() == Some("tmp_restart") => Outcome::Is(
                Class::Always,
                "touching tmp/restart.txt reloads the app, with and without the plugin".to_owned(),
            ),
            "preload_app!" if !truthy(call, true) => Outcome::Is(
                Class::Ignored,
                "workers are always forked from a template that has loaded the app; a reload replaces it all the same"
                    .to_owned(),
            ),
            "custom_logger" => plain(),
            _ => plain(),
        }
    }

    /// Sets the key and returns the outcome.
    fn set(&mut self, call: &Call, key: &'static str, raw: Raw) -> Outcome {
        let shown = raw.to_string();
        self.value(call, key, raw);
        Outcome::Sets(vec![(key, shown)])
    }

    fn set_if(
        &mut self,
        call: &Call,
        key: &'static str,
        raw: Option<Raw>,
        plain: impl Fn() -> Outcome,
    ) -> Outcome {
        match raw {
            Some(raw) => self.set(call, key, raw),
            None => plain(),
        }
    }

    /// Sets a value. The last value of a key wins, whichever method sets it.
    fn value(&mut self, call: &Call, key: &'static str, raw: Raw) {
        self.mapped.values.retain(|(known, _)| *known != key);
        self.mapped.values.push((key, Written { raw, origin: origin(call) }));
    }

    fn refuse(&mut self, call: &Call, problem: &str) {
        let (origin, written) = (origin(call), call.to_string());
        self.mapped.errors.push(Error { origin, written, problem: problem.to_owned(), nearest: None });
    }

    fn port(&mut self, index: usize, call: &Call) -> Outcome {
        let Some(port) = call.argument(0) else {
            self.refuse(call, "expected a port");
            return Outcome::Sets(Vec::new());
        };
        let host = call.argument(1).map(text).or_else(|| self.default_host.clone());
        let host = host.map(|host| host.trim_matches(['[', ']']).to_owned());
        let at = host.clone().unwrap_or_else(|| "::".to_owned());
        let at = if at.contains(':') { format!("[{at}]") } else { at };
        self.address(index, call, format!("tcp://{at}:{}", text(port)), Some((raw(port), host)))
    }

    fn address(
        &mut self,
        row: usize,
        call: &Call,
        text: String,
        port: Option<(Raw, Option<String>)>,
    ) -> Outcome {
        let origin = origin(call);
        let text = without(&text, &["low_latency"]);
        let text = if text.starts_with("ssl://") { self.development(call, text) } else { text };
        if !self.binds.iter().any(|known| known.text == text) {
            self.binds.push(Address { text, port, origin, row });
        }
        // The outcome is filled in when all addresses are known.
        Outcome::Sets(Vec::new())
    }

    fn ssl_bind(&mut self, index: usize, call: &Call) -> Outcome {
        let argument = |place| call.argument(place).map(text).unwrap_or_default();
        let (host, port) = (argument(0), argument(1));
        let mut options = Vec::new();
        for name in ["cert", "key", "ca", "key_password_command"] {
            options.extend(call.option(name).map(|value| format!("{name}={}", escaped(&text(value)))));
        }
        for name in ["cert_pem", "key_pem", "keystore", "truststore"] {
            // The reader of addresses reports why these are not supported.
            options.extend(call.option(name).map(|_| format!("{name}=given")));
        }
        for name in ["verify_mode", "verification_flags", "ssl_cipher_filter", "ssl_ciphersuites", "backlog"]
        {
            options.extend(call.option(name).map(|value| format!("{name}={}", text(value))));
        }
        for name in ["no_tlsv1", "no_tlsv1_1"] {
            options.extend(
                call.option(name).filter(|on| **on == Value::Bool(true)).map(|_| format!("{name}=true")),
            );
        }
        let question = if options.is_empty() { "" } else { "?" };
        self.address(index, call, format!("ssl://{host}:{port}{question}{}", options.join("&")), None)
    }

    /// Turns `https` on for a loopback address without its own certificate. Returns the address.
    fn development(&mut self, call: &Call, address: String) -> String {
        let (place, options) = address.split_once('?').unwrap_or((&address, ""));
        let host = place.trim_start_matches("ssl://").rsplit_once(':').map_or("", |(host, _)| host);
        let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&host) || host.ends_with(".localhost");
        let own = options.split('&').any(|option| option.starts_with("cert"));
        if is_local && !own {
            self.value(call, "https", Raw::Switch(true));
        }
        address
    }

    fn remote_address(&mut self, call: &Call, plain: impl Fn() -> Outcome) -> Outcome {
        if let Some(version) = call.option("proxy_protocol").map(text) {
            self.proxy_protocol = Some(version.clone());
            return Outcome::Is(Class::Mapped, format!("`?proxy_protocol={version}` of each TCP address"));
        }
        match call.argument(0) {
            None => plain(),
            Some(Value::Symbol(word)) if word == "socket" => {
                Outcome::Is(Class::Always, "REMOTE_ADDR is the address of the peer".to_owned())
            }
            _ => Outcome::Is(Class::Request, "sets REMOTE_ADDR".to_owned()),
        }
    }

    fn redirect(&mut self, call: &Call, plain: impl Fn() -> Outcome) -> Outcome {
        let mut set = Vec::new();
        if let Some(path) = call.argument(1).map(text) {
            set.push(("log.error", path.clone()));
            self.value(call, "log.error", Raw::Word(path));
        }
        let mut logged =
            self.calls.iter().filter(|call| ["log_requests", "quiet"].contains(&call.method.as_str()));
        let logged =
            logged.next_back().is_some_and(|last| truthy(last, true) == (last.method == "log_requests"));
        if let Some(path) = call.argument(0).map(text).filter(|_| logged) {
            set.push(("log.access", path));
        }
        if set.is_empty() { plain() } else { Outcome::Sets(set) }
    }

    fn control(&mut self, call: &Call, plain: impl Fn() -> Outcome) -> Outcome {
        let mut set = Vec::new();
        if let Some(url) = call.argument(0).filter(|value| !matches!(value, Value::Map(_))).map(text)
            && url != "auto"
        {
            // The URL's options, such as umask, do not exist here.
            let url = url.split('?').next().unwrap_or_default().to_owned();
            set.push(("control", url.clone()));
            self.control.push((url, origin(call)));
        }
        if let Some(token) = call.option("auth_token").map(text) {
            self.value(call, "control_token", Raw::Word(token));
            set.push(("control_token", "(not shown)".to_owned()));
        }
        if set.is_empty() { plain() } else { Outcome::Sets(set) }
    }

    fn finish(mut self) -> Mapped {
        self.listen();
        self.redirected_log();
        if let Some((_, first)) = self.control.first() {
            // `auto` stays in the list, so that commands find the server.
            let unix =
                self.control.iter().any(|(url, _)| !url.starts_with("tcp:") && !url.starts_with("http:"));
            let auto = unix.then(|| "auto".to_owned()).into_iter();
            let parts = auto.chain(self.control.iter().map(|(url, _)| url.clone())).map(Raw::Text).collect();
            self.mapped.values.push(("control", Written { raw: Raw::List(parts), origin: first.clone() }));
        }
        self.mapped
    }

    /// Sets the addresses. A single `port` stays a port, so that a flag or variable can override it.
    fn listen(&mut self) {
        let proxied = self.proxy_protocol.take();
        if let ([Address { port: Some((port, host)), origin, row, .. }], None) =
            (self.binds.as_slice(), &proxied)
        {
            let mut set = vec![("port", port.to_string())];
            self.mapped.values.push(("port", Written { raw: port.clone(), origin: origin.clone() }));
            if let Some(host) = host {
                set.push(("host", host.clone()));
                let raw = Raw::Word(host.clone());
                self.mapped.values.push(("host", Written { raw, origin: origin.clone() }));
            }
            self.mapped.rows[*row].outcome = Outcome::Sets(set);
            return;
        }
        let with_option = |address: &Address| match &proxied {
            Some(version) if !address.text.starts_with("unix") => {
                let sign = if address.text.contains('?') { '&' } else { '?' };
                format!("{}{sign}proxy_protocol={version}", address.text)
            }
            _ => address.text.clone(),
        };
        let mut parts = Vec::new();
        for address in &self.binds {
            let text = with_option(address);
            self.mapped.rows[address.row].outcome = Outcome::Sets(vec![("bind", text.clone())]);
            parts.push(Raw::Text(text));
        }
        if let Some(first) = self.binds.first() {
            let origin = first.origin.clone();
            self.mapped.values.push(("bind", Written { raw: Raw::List(parts), origin }));
        } else if let Some(version) = proxied {
            let raw = Raw::List(vec![Raw::Text(format!("tcp://[::]:9292?proxy_protocol={version}"))]);
            let call = self.calls.iter().find(|call| call.method == "set_remote_address");
            let origin = call.map_or(Origin::Default, origin);
            self.mapped.values.push(("bind", Written { raw, origin }));
        }
    }

    /// Sends the access log, if it is on, to the file of standard output.
    fn redirected_log(&mut self) {
        let mut redirects = self.calls.iter().filter(|call| call.method == "stdout_redirect");
        let Some((call, path)) =
            redirects.next_back().and_then(|call| Some((call, call.argument(0).map(text)?)))
        else {
            return;
        };
        if self.requests_are_logged {
            self.value(call, "log.access", Raw::Word(path));
        }
    }
}

impl Method {
    /// Returns the option with the method's name.
    fn name_of_option(&self) -> &'static str {
        self.name
    }
}

fn origin(call: &Call) -> Origin {
    Origin::Puma { path: call.file.clone(), line: call.line, call: call.to_string().into() }
}

/// Returns the value as it would be written in `firebrick.toml`.
fn raw(value: &Value) -> Raw {
    match value {
        Value::Nil => Raw::Other("nil"),
        Value::Bool(on) => Raw::Switch(*on),
        Value::Integer(number) => Raw::Integer(*number),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => Raw::Integer(*number as i64),
        Value::Float(number) => Raw::Float(*number),
        Value::Text(text) | Value::Symbol(text) => Raw::Word(text.clone()),
        Value::List(parts) => Raw::List(parts.iter().map(raw).collect()),
        Value::Map(_) => Raw::Other("a Hash"),
        Value::Object(_) => Raw::Other("an object"),
    }
}

/// Does the same for a number without a bound: infinity becomes 0, which means off.
fn whole(value: &Value) -> Raw {
    match value {
        Value::Float(number) if number.is_infinite() => Raw::Integer(0),
        value => raw(value),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Symbol(text) => text.clone(),
        Value::Nil => String::new(),
        Value::List(parts) => parts.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn truthy(call: &Call, default: bool) -> bool {
    match call.arguments.first() {
        None => default,
        Some(value) => !matches!(value, Value::Nil | Value::Bool(false)),
    }
}

/// Returns the number of workers. 0, nil and negative numbers are Puma's single mode, with one serving process. Puma truncates fractions.
fn workers(value: Option<&Value>) -> Raw {
    let number = match value {
        None => Some(0.0),
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Float(number)) => Some(*number),
        Some(Value::Text(text)) if text.trim().is_empty() => Some(0.0),
        Some(Value::Text(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    match (number.filter(|number| number.is_finite()), value) {
        // A number beyond the limit is refused in its written form.
        (Some(number), _) if number < 1e6 => Raw::Integer((number as i64).max(1)),
        (_, Some(Value::Text(text))) => Raw::Word(text.trim().to_owned()),
        (_, Some(value)) => raw(value),
        (_, None) => Raw::Integer(1),
    }
}

/// Returns the range of threads. Puma can start threads from 0 on; here there is always at least one.
fn threads(call: &Call) -> Raw {
    let text = |place: usize| match call.argument(place) {
        Some(Value::Float(number)) => Some((*number as i64).to_string()),
        other => other.map(|value| text(value).trim().to_owned()),
    };
    let least = text(0).unwrap_or_default();
    let most = text(1).unwrap_or_else(|| least.clone());
    let least = if least == "0" { "1".to_owned() } else { least };
    Raw::Word(format!("{least}:{most}"))
}

/// Removes options without a meaning here from an address.
fn without(address: &str, names: &[&str]) -> String {
    let Some((place, options)) = address.split_once('?') else { return address.to_owned() };
    let kept = |option: &&str| !names.contains(&option.split('=').next().unwrap_or_default());
    let kept: Vec<&str> = options.split('&').filter(kept).collect();
    if kept.is_empty() { place.to_owned() } else { format!("{place}?{}", kept.join("&")) }
}

/// Escapes a path for the value of an option.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('&', "%26").replace('?', "%3F").replace('#', "%23")
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
