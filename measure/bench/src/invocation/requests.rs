//! The requests: from URLs on the command line, a URL file, or an access log.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use load::inputs::access_log::{Recording, access_log};
use load::inputs::journey_file::journey_file;
use load::inputs::recorded::{RecordedRequests, is_recorded, recorded};
use load::inputs::urls_file::{self, Resolver, content_type};
use load::inputs::{self, ParsedUrl};
use load::journey::Journey;
use load::recorded::Recorded;
use load::scenario::{Origin, Request};

use super::flags::Flags;

pub(super) struct Requests {
    /// Never empty.
    pub requests: Vec<Request>,
    /// The URLs for display, parallel to `requests`.
    pub shown: Vec<String>,
    /// The Unix socket to which all requests go, if any.
    pub unix: Option<PathBuf>,
    /// Send times, if they come from a log.
    pub arrivals: Option<Vec<(Duration, usize)>>,
    pub remarks: Vec<String>,
    /// The steps of a journey, parallel to `requests`.
    pub journey: Option<Arc<Journey>>,
    /// The responses to the requests when they were recorded.
    pub recorded: Option<Arc<Recorded>>,
    /// Each request is sent once, without the times of the recording.
    pub once: bool,
}

/// Flags that apply to every request.
struct Common {
    method: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Bytes>,
    content_type: Option<String>,
}

pub(super) fn read(flags: &mut Flags<'_>) -> Option<Requests> {
    let common = common(flags);
    flags.needs("speed", "replay", "it sets the speed of a replay");
    flags.needs("replay-unsafe", "replay", "it applies to the requests of a log");
    flags.not_with("replay", &["urls", "method", "body", "body-file"], "the log defines the requests");
    let typed: Vec<(String, ParsedUrl)> = flags
        .texts("url")
        .map(|text| inputs::url(text).map(|target| (text.to_owned(), target)))
        .filter_map(|read| read.map_err(|why| flags.mistake(why)).ok())
        .collect();
    if flags.given("replay") {
        return replay(flags, &common, &typed);
    }
    if flags.given("journey") {
        return journey(flags, &common, &typed);
    }
    let listed = listed(flags);
    if typed.is_empty() && listed.is_empty() {
        if !flags.given("url") && !flags.given("urls") {
            flags.mistake(
                "no URL: expected one such as http://localhost:9292/, or a file of URLs with -f urls.txt",
            );
        }
        return None;
    }
    together(flags, &common, typed, listed)
}

/// Returns a GET of each URL with the fields of the command line, for connections that are held.
pub(super) fn to_hold(flags: &mut Flags<'_>, typed: Vec<(String, ParsedUrl)>) -> Option<Requests> {
    let common = common(flags);
    together(flags, &common, typed, Vec::new())
}

fn together(
    flags: &mut Flags<'_>,
    common: &Common,
    typed: Vec<(String, ParsedUrl)>,
    listed: Vec<urls_file::Line>,
) -> Option<Requests> {
    let unix =
        one_socket(flags, typed.iter().map(|(_, target)| target).chain(listed.iter().map(|line| &line.url)))?;
    let (mut requests, mut shown) = (Vec::new(), Vec::new());
    for (text, target) in typed {
        requests.push(common.request(&target, None, None, 1));
        shown.push(without_password(text, &target));
    }
    for line in listed {
        requests.push(common.request(&line.url, line.method.as_deref(), line.body.as_ref(), line.weight));
        shown.push(written(&line.url));
    }
    Some(Requests {
        requests,
        shown,
        unix,
        arrivals: None,
        remarks: Vec::new(),
        journey: None,
        recorded: None,
        once: false,
    })
}

/// Returns a URL for reports: they are passed on, and the password in it is not.
fn without_password(text: String, target: &ParsedUrl) -> String {
    if target.user.is_none() {
        return text;
    }
    let end = text.find("://").map_or(0, |at| at + 3);
    let authority = text[end..].find(['/', '?', '#']).map_or(text.len(), |at| end + at);
    let at = text[..authority].rfind('@').unwrap_or(end);
    match text[end..at].split_once(':') {
        Some((name, _)) => format!("{}{name}:…{}", &text[..end], &text[at..]),
        None => text,
    }
}

/// Returns the complete URL.
pub(crate) fn written(target: &ParsedUrl) -> String {
    match &target.unix {
        Some(socket) => format!("unix:{}:{}", socket.display(), target.target),
        None => format!("{}{}", origin(&target.origin), target.target),
    }
}

fn origin(origin: &Origin) -> String {
    let host = if origin.host.contains(':') {
        format!("[{}]", origin.host.replace('%', "%25"))
    } else {
        origin.host.clone()
    };
    let usual = if origin.tls { 443 } else { 80 };
    let port = if origin.port == usual { String::new() } else { format!(":{}", origin.port) };
    format!("http{}://{host}{port}", if origin.tls { "s" } else { "" })
}

/// Returns the socket to which all requests go; a run can use only one.
fn one_socket<'a>(
    flags: &mut Flags<'_>,
    targets: impl Iterator<Item = &'a ParsedUrl>,
) -> Option<Option<PathBuf>> {
    let mut sockets: Vec<Option<PathBuf>> = targets.map(|target| target.unix.clone()).collect();
    sockets.dedup();
    match &sockets[..] {
        [one] => Some(one.clone()),
        _ => {
            flags.mistake("a run can use only one Unix socket: expected the same unix:PATH in all URLs");
            None
        }
    }
}

impl Common {
    fn request(
        &self,
        target: &ParsedUrl,
        method: Option<&str>,
        body: Option<&(Bytes, &'static str)>,
        weight: u32,
    ) -> Request {
        let body_bytes =
            body.map(|(bytes, _)| bytes.clone()).or_else(|| self.body.clone()).unwrap_or_default();
        let usual = if body.is_some() || self.body.is_some() { "POST" } else { "GET" };
        let mut headers = self.headers.clone();
        let has = |headers: &[(String, String)], name: &str| {
            headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name))
        };
        if (body.is_some() || self.body.is_some()) && !has(&headers, "content-type") {
            let kind = self.content_type.clone().or_else(|| body.map(|(_, kind)| (*kind).to_owned()));
            headers.push(("Content-Type".to_owned(), kind.unwrap_or_else(|| content_type("").to_owned())));
        }
        if let Some((name, password)) = target.user.as_ref().filter(|_| !has(&headers, "authorization")) {
            headers.push(basic(name, password));
        }
        Request {
            origin: target.origin.clone(),
            method: method
                .map(str::to_owned)
                .or_else(|| self.method.clone())
                .unwrap_or_else(|| usual.to_owned()),
            target: target.target.clone(),
            headers,
            body: body_bytes,
            weight,
        }
    }
}

fn basic(name: &str, password: &str) -> (String, String) {
    ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
}

fn common(flags: &mut Flags<'_>) -> Common {
    let method = flags.value("method", method);
    let mut headers = flags.each("header", header);
    let cookies: Vec<String> = flags.each("cookie", cookie);
    if !cookies.is_empty() {
        headers.push(("Cookie".to_owned(), cookies.join("; ")));
    }
    if let Some((name, password)) = flags.value("user", user) {
        headers.push(basic(&name, &password));
    }
    let file = flags.text("body-file");
    let body = match flags.value("body-file", |file| whole(file).map(Bytes::from)) {
        None => flags.text("body").map(|text| Bytes::copy_from_slice(text.as_bytes())),
        read => read,
    };
    let kind = flags.value("content-type", |text| header_value(text).map(str::to_owned));
    let content_type = kind.or_else(|| file.map(|file| content_type(file).to_owned()));
    if flags.given("content-type")
        && !flags.given("body")
        && !flags.given("body-file")
        && !flags.given("urls")
    {
        flags.mistake("--content-type requires --body or --body-file");
    }
    Common { method, headers, body, content_type }
}

fn method(text: &str) -> Result<String, String> {
    match text {
        "CONNECT" => Err("CONNECT opens a tunnel, which cannot be measured".to_owned()),
        _ if !text::is_token(text.as_bytes()) => {
            Err(format!("{text:?} is not a method: expected one such as POST"))
        }
        _ if text.bytes().all(|byte| byte.is_ascii_lowercase()) => Ok(text.to_ascii_uppercase()),
        _ => Ok(text.to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("{text:?} is not a header field: expected 'Name: value'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim();
    if !text::is_token(name.as_bytes()) {
        return Err(wrong());
    }
    if ["connection", "transfer-encoding", "content-length"].contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is set by the load generator: use --no-keep-alive or --body instead"));
    }
    Ok((name.to_owned(), header_value(value.trim())?.to_owned()))
}

fn header_value(text: &str) -> Result<&str, String> {
    let control = text.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
    if control { Err(format!("{text:?} contains control characters")) } else { Ok(text) }
}

fn cookie(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.trim().is_empty() => Ok(header_value(text.trim())?.to_owned()),
        _ => Err(format!("{text:?} is not a cookie: expected NAME=VALUE")),
    }
}

fn user(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once(':').ok_or_else(|| "expected NAME:PASSWORD, with a colon".to_owned())?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Returns the contents of a file; `-` is standard input.
pub(super) fn whole(file: &str) -> Result<Vec<u8>, String> {
    if file == "-" {
        if crate::workers::part().is_some() {
            return Err("standard input: each process of --workers reads it: expected a file name".to_owned());
        }
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(|why| format!("standard input: {why}"))?;
        return Ok(bytes);
    }
    fs::read(file).map_err(|why| format!("{file}: {why}"))
}

fn listed(flags: &mut Flags<'_>) -> Vec<urls_file::Line> {
    let Some(name) = flags.text("urls") else {
        return Vec::new();
    };
    let text = match whole(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Ok(text) => text,
        Err(why) => {
            flags.mistake(format!("--urls: {why}"));
            return Vec::new();
        }
    };
    // Relative file names are resolved against the working directory, as siege does, else against the folder
    // of the URL file.
    let beside = Path::new(name).parent().map(Path::to_owned).unwrap_or_default();
    let mut file = |wanted: &str| whole(wanted).or_else(|why| fs::read(beside.join(wanted)).map_err(|_| why));
    let mut resolver = Resolver { file: &mut file, variable: &|name| std::env::var(name).ok() };
    urls_file::urls_file(name, &text, &mut resolver).unwrap_or_else(|mistakes| {
        mistakes.into_iter().for_each(|mistake| flags.mistake(mistake));
        Vec::new()
    })
}

fn replay(flags: &mut Flags<'_>, common: &Common, typed: &[(String, ParsedUrl)]) -> Option<Requests> {
    let at_once = flags.text("speed") == Some("max");
    let speed = if at_once { 1.0 } else { flags.value("speed", speed).unwrap_or(1.0) };
    let server = match typed {
        [(_, server)] => Some(server),
        [] if flags.given("url") => None,
        _ => {
            flags.mistake("--replay requires exactly one URL, such as http://localhost:9292");
            None
        }
    };
    if server.is_some_and(|server| server.target != "/") {
        flags.mistake("with --replay the paths come from the log: expected a URL without a path, such as http://localhost:9292");
    }
    let all = flags.is_set("replay-unsafe");
    let recording = match flags.value("replay", |name| recording(name, all))? {
        Replayed::Recorded(recorded) => {
            return server.map(|server| of_recording(flags, common, server, recorded, (speed, at_once)));
        }
        Replayed::Log(recording) => recording,
    };
    flags.not_with("rate", &["replay"], "the rate determines when requests are sent, and the log does");
    if at_once {
        flags.mistake("--speed max needs a file of `firebrick record`: expected a factor, such as 2x");
    }
    let server = server?;
    let requests: Vec<Request> = recording
        .requests
        .iter()
        .map(|logged| {
            let target = ParsedUrl { target: logged.target.clone(), ..server.clone() };
            common.request(&target, Some(&logged.method), None, 1)
        })
        .collect();
    let shown = recording
        .requests
        .iter()
        .map(|logged| written(&ParsedUrl { target: logged.target.clone(), ..server.clone() }));
    Some(Requests {
        shown: shown.collect(),
        unix: server.unix.clone(),
        remarks: remarks(&recording),
        arrivals: Some(
            recording.arrivals.into_iter().map(|(at, which)| (at.div_f64(speed), which)).collect(),
        ),
        requests,
        journey: None,
        recorded: None,
        once: false,
    })
}

fn journey(flags: &mut Flags<'_>, common: &Common, typed: &[(String, ParsedUrl)]) -> Option<Requests> {
    const FILE: &str = "the file describes the requests";
    flags.not_with(
        "journey",
        &["urls", "replay", "method", "body", "body-file", "content-type", "order"],
        FILE,
    );
    flags.not_with(
        "journey",
        &["expect-length", "expect-sha256", "expect-body"],
        "the file says what each step expects",
    );
    flags.not_with("journey", &["think"], "each step of the file has its own pause");
    flags.not_with(
        "journey",
        &["find"],
        "a search counts requests, which a journey sends only after each other",
    );
    flags.not_with("journey", &["pipeline", "streams"], "a user waits for each response");
    if flags.given("journey") && flags.text("http").is_some_and(|version| !version.starts_with('1')) {
        flags.mistake("--journey needs HTTP/1.1");
    }
    let server = match typed {
        [(_, server)] => Some(server),
        _ => {
            flags.mistake("--journey requires exactly one URL, such as http://localhost:9292");
            None
        }
    };
    if server.is_some_and(|server| server.target != "/") {
        flags.mistake("with --journey the paths come from the file: expected a URL without a path, such as http://localhost:9292");
    }
    let name = flags.text("journey").unwrap_or_default();
    let text = flags
        .value("journey", |name| whole(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))?;
    let journey = match journey_file(if name == "-" { "standard input" } else { name }, &text) {
        Ok(journey) => journey,
        Err(mistakes) => {
            mistakes.into_iter().for_each(|mistake| flags.mistake(mistake));
            return None;
        }
    };
    let server = server?;
    let requests = journey.steps.iter().map(|step| common.request(server, Some(&step.method), None, 1));
    Some(Requests {
        requests: requests.collect(),
        shown: vec![written(server)],
        unix: server.unix.clone(),
        arrivals: None,
        remarks: Vec::new(),
        journey: Some(Arc::new(journey)),
        recorded: None,
        once: false,
    })
}

/// A file for `--replay`.
enum Replayed {
    Log(Recording),
    Recorded(RecordedRequests),
}

/// Returns the requests of a recording, each once, with its own fields and body. Fields of the command line replace those of
/// the same name.
fn of_recording(
    flags: &mut Flags<'_>,
    common: &Common,
    server: &ParsedUrl,
    found: RecordedRequests,
    (speed, at_once): (f64, bool),
) -> Requests {
    flags.not_with(
        "replay",
        &["expect-status", "expect-length", "expect-sha256", "expect-body"],
        "responses are compared with the recorded ones",
    );
    flags.not_with("replay", &["requests", "cookies", "content-type"], "the recording defines the requests");
    let remarks = recorded_remarks(&found);
    let once = at_once || flags.given("rate");
    if flags.given("rate") && flags.given("speed") {
        flags.mistake("--speed cannot be used with --rate: the rate determines when requests are sent");
    }
    let requests: Vec<Request> = found
        .requests
        .into_iter()
        .map(|recorded| {
            let target = ParsedUrl { target: recorded.target, ..server.clone() };
            let mut request = common.request(&target, Some(&recorded.method), None, 1);
            let given = std::mem::take(&mut request.headers);
            let is_given = |name: &str| given.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
            request.headers = recorded.fields.into_iter().filter(|(name, _)| !is_given(name)).collect();
            request.headers.extend(given);
            request.body = recorded.body;
            request
        })
        .collect();
    let times = found.times.into_iter().zip(0..).map(|(at, which)| (at.div_f64(speed), which));
    Requests {
        shown: vec![written(server)],
        unix: server.unix.clone(),
        arrivals: (!once).then(|| times.collect()),
        remarks,
        journey: None,
        recorded: Some(Arc::new(found.recorded)),
        once,
        requests,
    }
}

fn recorded_remarks(found: &RecordedRequests) -> Vec<String> {
    let all = [
        (
            found.unsafe_ones,
            "were left out because their methods are unsafe (such as POST); --replay-unsafe sends them, with their bodies",
        ),
        (found.cut, "were left out because their bodies were not recorded whole (firebrick record --body)"),
        (found.without_response, "were left out because they had no complete response, or became tunnels"),
        (found.unreadable, "could not be read"),
        (
            found.masked,
            "were recorded with secrets, such as cookies, which are not sent: -b and -H give others",
        ),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} requests of the recording {what}")).collect()
}

fn recording(name: &str, all: bool) -> Result<Replayed, String> {
    let mut log: Box<dyn BufRead> = match name {
        "-" => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::new(fs::File::open(name).map_err(|why| format!("{name}: {why}"))?)),
    };
    let name = if name == "-" { "standard input" } else { name };
    let beginning = log.fill_buf().map_err(|why| format!("{name}: {why}"))?;
    if is_recorded(beginning) {
        return recorded(name, &mut *log, all).map(Replayed::Recorded);
    }
    access_log(name, &mut *log, all).map(Replayed::Log)
}

fn speed(text: &str) -> Result<f64, String> {
    let digits = text.trim().trim_end_matches(['x', 'X']);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let found = if plain { digits.parse().ok() } else { None };
    found
        .filter(|speed| (0.001..=100_000.0).contains(speed))
        .ok_or_else(|| format!("{text:?} is not a factor: expected 2x, 0.5x or 10"))
}

fn remarks(recording: &Recording) -> Vec<String> {
    let mut remarks = Vec::new();
    if recording.skipped > 0 {
        remarks.push(format!(
            "{} requests of the log were skipped because their methods are unsafe (such as POST); --replay-unsafe sends them, without bodies",
            recording.skipped
        ));
    }
    if recording.unreadable > 0 {
        remarks.push(format!(
            "{} lines of the log could not be parsed, such as {}",
            recording.unreadable,
            recording.unreadable_first.join("; ")
        ));
    }
    if recording.coarse {
        remarks.push(
            "the log has times in whole seconds: requests were spread evenly over each second".to_owned(),
        );
    }
    remarks
}
