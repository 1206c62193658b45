//! Collects the settings of a `puma.rb`, call by call. Methods that are more than a plain value have a function here.

use super::{Call, CallDescription, CallEffect, CallOutcome, PumaValue};
use crate::error::Error;
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::written::Written;

/// A `puma.rb` translated into this server's settings.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Values of options, one per key.
    pub(crate) values: Vec<(&'static str, Written)>,
    /// One row per call, in their order.
    pub rows: Vec<CallDescription>,
    pub(crate) rackup: Option<(String, ValueSource)>,
    pub(crate) directory: Option<(String, ValueSource)>,
    /// Whether the file itself defines the app.
    pub(crate) is_app: bool,
    /// Calls that are not supported but must not be ignored.
    pub(crate) errors: Vec<Error>,
}

#[derive(Default)]
pub(super) struct Mapping<'a> {
    pub(super) calls: &'a [Call],
    /// The row of the current call.
    pub(super) row: usize,
    pub(super) mapped: Mapped,
    /// Addresses; those from `port` with their host and port.
    binds: Vec<Address>,
    /// The default host that `port` uses.
    default_host: Option<String>,
    proxy_protocol: Option<String>,
    /// The address that stands for the sockets of systemd.
    activated: Option<(String, ValueSource)>,
    /// Addresses and a token of the control server.
    control: Vec<(String, ValueSource)>,
    requests_are_logged: bool,
}

struct Address {
    text: String,
    /// The port and host of an address from `port`; without a host, the default applies.
    port: Option<(Raw, Option<String>)>,
    origin: ValueSource,
    row: usize,
}

impl<'a> Mapping<'a> {
    pub(super) fn new(calls: &'a [Call]) -> Mapping<'a> {
        Mapping { calls, ..Mapping::default() }
    }
}

impl Mapping<'_> {
    pub(super) fn bind(&mut self, call: &Call) -> Option<CallOutcome> {
        self.address(call, call.argument(0).map(text).unwrap_or_default(), None)
    }

    pub(super) fn clear_binds(&mut self, _call: &Call) -> Option<CallOutcome> {
        self.binds.clear();
        None
    }

    pub(super) fn set_default_host(&mut self, call: &Call) -> Option<CallOutcome> {
        self.default_host = call.argument(0).map(text);
        None
    }

    pub(super) fn workers(&mut self, call: &Call) -> Option<CallOutcome> {
        Some(self.set(call, "workers", workers(call.argument(0))))
    }

    pub(super) fn threads(&mut self, call: &Call) -> Option<CallOutcome> {
        Some(self.set(call, "threads", threads(call)))
    }

    /// The first call wins.
    pub(super) fn rackup(&mut self, call: &Call) -> Option<CallOutcome> {
        if self.mapped.rackup.is_none() {
            self.mapped.rackup = call.argument(0).map(|value| (text(value), origin(call)));
        }
        None
    }

    pub(super) fn directory(&mut self, call: &Call) -> Option<CallOutcome> {
        self.mapped.directory = call.argument(0).map(|value| (text(value), origin(call)));
        None
    }

    pub(super) fn app(&mut self, _call: &Call) -> Option<CallOutcome> {
        self.mapped.is_app = true;
        None
    }

    pub(super) fn logging(&mut self, call: &Call) -> Option<CallOutcome> {
        let on = is_logging(call);
        self.requests_are_logged = on;
        Some(self.set(call, "log.access", Raw::Word(if on { "-" } else { "off" }.to_owned())))
    }

    pub(super) fn force_shutdown(&mut self, call: &Call) -> Option<CallOutcome> {
        let within = match call.argument(0)? {
            PumaValue::Symbol(word) if word == "forever" => return None,
            PumaValue::Symbol(word) if word == "immediately" => Raw::Integer(0),
            value => raw(value),
        };
        Some(self.set(call, "timeouts.shutdown", within))
    }

    /// Writes the number in octal digits, as people do.
    pub(super) fn state_permission(&mut self, call: &Call) -> Option<CallOutcome> {
        let bits = match call.argument(0)? {
            PumaValue::Integer(bits) => Raw::Word(format!("{bits:04o}")),
            other => raw(other),
        };
        Some(self.set(call, "state_permission", bits))
    }

    pub(super) fn keep_alives(&mut self, call: &Call) -> Option<CallOutcome> {
        (!truthy(call, true)).then(|| self.set(call, "timeouts.keep_alive", Raw::Integer(0)))
    }

    pub(super) fn fork_worker(&mut self, call: &Call) -> Option<CallOutcome> {
        let after = call.argument(0).map_or(Raw::Integer(1000), raw);
        Some(self.set(call, "rack.refork_after", after))
    }

    pub(super) fn out_of_band(&mut self, call: &Call) -> Option<CallOutcome> {
        self.value(call, "rack.out_of_band_gc", Raw::Switch(true));
        None
    }

    pub(super) fn plugin(&mut self, call: &Call) -> Option<CallOutcome> {
        (call.argument(0).map(text).as_deref() == Some("tmp_restart")).then(|| {
            let text = "touching tmp/restart.txt reloads the app, with and without the plugin";
            CallOutcome::Is(CallEffect::Always, text.to_owned())
        })
    }

    pub(super) fn preload(&mut self, call: &Call) -> Option<CallOutcome> {
        (!truthy(call, true)).then(|| {
            let text = "workers are always forked from a template that has loaded the app; a reload replaces it all the same";
            CallOutcome::Is(CallEffect::Ignored, text.to_owned())
        })
    }

    /// Sets the key and returns the outcome.
    pub(super) fn set(&mut self, call: &Call, key: &'static str, raw: Raw) -> CallOutcome {
        let shown = raw.to_string();
        self.value(call, key, raw);
        CallOutcome::Sets(vec![(key, shown)])
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

    pub(super) fn port(&mut self, call: &Call) -> Option<CallOutcome> {
        let Some(port) = call.argument(0) else {
            self.refuse(call, "expected a port");
            return Some(CallOutcome::Sets(Vec::new()));
        };
        let host = call.argument(1).map(text).or_else(|| self.default_host.clone());
        let host = host.map(|host| host.trim_matches(['[', ']']).to_owned());
        let at = host.clone().unwrap_or_else(|| "::".to_owned());
        let at = if at.contains(':') { format!("[{at}]") } else { at };
        self.address(call, format!("tcp://{at}:{}", text(port)), Some((raw(port), host)))
    }

    pub(super) fn activated(&mut self, call: &Call) -> Option<CallOutcome> {
        if !truthy(call, true) {
            self.activated = None;
            return Some(CallOutcome::Sets(Vec::new()));
        }
        let only = call.argument(0).map(text).is_some_and(|word| word == "only");
        let text = format!("systemd?{}=true", if only { "only" } else { "optional" });
        self.activated = Some((text.clone(), origin(call)));
        Some(CallOutcome::Sets(vec![("bind", text)]))
    }

    fn address(
        &mut self,
        call: &Call,
        text: String,
        port: Option<(Raw, Option<String>)>,
    ) -> Option<CallOutcome> {
        let origin = origin(call);
        let text = without(&text, &["low_latency"]);
        let text = if text.starts_with("ssl://") { self.development(call, text) } else { text };
        if !self.binds.iter().any(|known| known.text == text) {
            self.binds.push(Address { text, port, origin, row: self.row });
        }
        // The outcome is filled in when all addresses are known.
        Some(CallOutcome::Sets(Vec::new()))
    }

    pub(super) fn ssl_bind(&mut self, call: &Call) -> Option<CallOutcome> {
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
                call.option(name).filter(|on| **on == PumaValue::Bool(true)).map(|_| format!("{name}=true")),
            );
        }
        let question = if options.is_empty() { "" } else { "?" };
        self.address(call, format!("ssl://{host}:{port}{question}{}", options.join("&")), None)
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

    pub(super) fn remote_address(&mut self, call: &Call) -> Option<CallOutcome> {
        if let Some(version) = call.option("proxy_protocol").map(text) {
            self.proxy_protocol = Some(version.clone());
            return Some(CallOutcome::Is(
                CallEffect::Mapped,
                format!("`?proxy_protocol={version}` of each TCP address"),
            ));
        }
        Some(match call.argument(0)? {
            PumaValue::Symbol(word) if word == "socket" => {
                CallOutcome::Is(CallEffect::Always, "REMOTE_ADDR is the address of the peer".to_owned())
            }
            _ => CallOutcome::Is(CallEffect::Request, "sets REMOTE_ADDR".to_owned()),
        })
    }

    pub(super) fn redirect(&mut self, call: &Call) -> Option<CallOutcome> {
        let mut set = Vec::new();
        if let Some(path) = call.argument(1).map(text) {
            set.push(("log.error", path.clone()));
            self.value(call, "log.error", Raw::Word(path));
        }
        let mut logged =
            self.calls.iter().filter(|call| ["log_requests", "quiet"].contains(&call.method.as_str()));
        let logged = logged.next_back().is_some_and(is_logging);
        if let Some(path) = call.argument(0).map(text).filter(|_| logged) {
            set.push(("log.access", path));
        }
        (!set.is_empty()).then_some(CallOutcome::Sets(set))
    }

    pub(super) fn control(&mut self, call: &Call) -> Option<CallOutcome> {
        let mut set = Vec::new();
        if let Some(url) = call.argument(0).filter(|value| !matches!(value, PumaValue::Map(_))).map(text)
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
        (!set.is_empty()).then_some(CallOutcome::Sets(set))
    }

    pub(super) fn finish(mut self) -> Mapped {
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
            self.mapped.rows[*row].outcome = CallOutcome::Sets(set);
            if let Some((text, origin)) = self.activated.take() {
                let raw = Raw::List(vec![Raw::Text(text)]);
                self.mapped.values.push(("bind", Written { raw, origin }));
            }
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
            self.mapped.rows[address.row].outcome = CallOutcome::Sets(vec![("bind", text.clone())]);
            parts.push(Raw::Text(text));
        }
        let activated = self.activated.take();
        parts.extend(activated.iter().map(|(text, _)| Raw::Text(text.clone())));
        let first = self.binds.first().map(|first| &first.origin);
        if let Some(origin) = first
            .or(activated.as_ref().map(|(_, origin)| origin))
            .filter(|_| proxied.is_none() || !self.binds.is_empty())
        {
            let origin = origin.clone();
            self.mapped.values.push(("bind", Written { raw: Raw::List(parts), origin }));
        } else if let Some(version) = proxied {
            let raw = Raw::List(vec![Raw::Text(format!("tcp://[::]:9292?proxy_protocol={version}"))]);
            let call = self.calls.iter().find(|call| call.method == "set_remote_address");
            let origin = call.map_or(ValueSource::Default, origin);
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

/// Returns whether `log_requests` or `quiet` leaves the log on.
fn is_logging(call: &Call) -> bool {
    truthy(call, true) == (call.method == "log_requests")
}

fn origin(call: &Call) -> ValueSource {
    ValueSource::Puma { path: call.file.clone(), line: call.line, call: call.to_string().into() }
}

/// Returns the value as it would be written in `firebrick.toml`.
pub(super) fn raw(value: &PumaValue) -> Raw {
    match value {
        PumaValue::Nil => Raw::Other("nil"),
        PumaValue::Bool(on) => Raw::Switch(*on),
        PumaValue::Integer(number) => Raw::Integer(*number),
        PumaValue::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Raw::Integer(*number as i64)
        }
        PumaValue::Float(number) => Raw::Float(*number),
        PumaValue::Text(text) | PumaValue::Symbol(text) => Raw::Word(text.clone()),
        PumaValue::List(parts) => Raw::List(parts.iter().map(raw).collect()),
        PumaValue::Map(_) => Raw::Other("a Hash"),
        PumaValue::Object(_) => Raw::Other("an object"),
    }
}

/// Does the same for a number without a bound: infinity becomes 0, which means off.
pub(super) fn whole(value: &PumaValue) -> Raw {
    match value {
        PumaValue::Float(number) if number.is_infinite() => Raw::Integer(0),
        value => raw(value),
    }
}

pub(super) fn text(value: &PumaValue) -> String {
    match value {
        PumaValue::Text(text) | PumaValue::Symbol(text) => text.clone(),
        PumaValue::Nil => String::new(),
        PumaValue::List(parts) => parts.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

pub(super) fn truthy(call: &Call, default: bool) -> bool {
    match call.arguments.first() {
        None => default,
        Some(value) => !matches!(value, PumaValue::Nil | PumaValue::Bool(false)),
    }
}

/// Returns the number of workers. 0, nil and negative numbers are Puma's single mode, with one serving
/// process. Puma truncates fractions.
fn workers(value: Option<&PumaValue>) -> Raw {
    let number = match value {
        None => Some(0.0),
        Some(PumaValue::Integer(number)) => Some(*number as f64),
        Some(PumaValue::Float(number)) => Some(*number),
        Some(PumaValue::Text(text)) if text.trim().is_empty() => Some(0.0),
        Some(PumaValue::Text(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    match (number.filter(|number| number.is_finite()), value) {
        // A number beyond the limit is refused in its written form.
        (Some(number), _) if number < 1e6 => Raw::Integer((number as i64).max(1)),
        (_, Some(PumaValue::Text(text))) => Raw::Word(text.trim().to_owned()),
        (_, Some(value)) => raw(value),
        (_, None) => Raw::Integer(1),
    }
}

/// Returns the range of threads. Puma can start threads from 0 on; here there is always at least one.
fn threads(call: &Call) -> Raw {
    let text = |place: usize| match call.argument(place) {
        Some(PumaValue::Float(number)) => Some((*number as i64).to_string()),
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
