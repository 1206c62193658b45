//! Keeps recent requests of each route. The template of a new release repeats them before it forks workers (`reload.warm`).
//!
//! Why: the first request of a route after a reload takes two to five times as long as the others, because it loads code and fills caches. All
//! workers share the code and caches of the template.
//!
//! Contract:
//! 1. Only GET requests without a body that the app has answered with 2xx, 3xx or 304 within [`SLOWEST`] are kept: safe methods (RFC 9110, 9.2.1) with
//!    ordinary responses.
//! 2. Nothing of a client is kept but the target and the fields of [`FIELDS`]. A request whose path or query has a secret ([`text::secret`])
//!    is not kept. A request without cookies and credentials is preferred: the app answers it in the same way without them.
//! 3. At most [`MOST_ROUTES`] routes with [`EACH`] targets each are kept, each of at most [`LONGEST`] bytes. They count as requests in the memory
//!    budget. [`RecentRequests::of_release`] returns at most [`MOST_BYTES`], frequent routes first.
//! 4. Requests that the statistics do not choose as examples of their route cost nothing.
//! 5. The program before an upgrade hands them over in a file ([`RecentRequests::handed_over`]), for the first template of the new one. A file of a
//!    program with another form of the `boot` message, or a damaged one, is ignored.

use handler::path::Path;
use handler::{Ending, Request};
use net::memory::{MemoryClass, Reserved};
use settings::Settings;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use text::route::Buffer;
use text::secret;
use workers::spawner::WarmUp;

const MOST_ROUTES: usize = 200;
/// The newest targets of a route.
const EACH: usize = 3;
/// The longest request that is kept, in bytes.
const LONGEST: usize = 2 << 10;
/// The most that a template gets, in bytes.
const MOST_BYTES: usize = 128 << 10;
/// The time for repeating them, if no setting names one.
const USUAL: Duration = Duration::from_secs(5);
/// The same for an app that YJIT compiles: each of its methods after 30 calls. At half load Redmine's p99 after a reload was 1.5 times that of
/// before with 5 s, and 1.06 times with 40 s.
const COMPILED: Duration = Duration::from_secs(40);
/// Responses that take longer are streams, or would use up the time of a reload.
const SLOWEST: Duration = Duration::from_secs(2);

/// The largest file of an upgrade, in bytes: each request has its target twice, and a few digits.
const LARGEST_FILE: usize = MOST_ROUTES * EACH * (2 * LONGEST + 64);

/// The fields that are repeated: those by which apps choose between forms of the same page.
const FIELDS: [&[u8]; 6] =
    [b"accept", b"accept-encoding", b"accept-language", b"turbo-frame", b"user-agent", b"x-requested-with"];

/// A request in the form of the `boot` message (`docs/internals/processes.md`).
#[derive(Debug)]
struct Kept {
    /// Path and query.
    target: Box<[u8]>,
    /// Whether it had neither cookies nor credentials.
    is_anonymous: bool,
    message: Box<[u8]>,
    _reserved: Reserved,
}

#[derive(Debug, Default)]
struct Route {
    /// The number of examples that the route has had, a measure of how often it is requested.
    seen: u64,
    /// The newest last.
    kept: VecDeque<Kept>,
}

/// The requests of all front threads.
#[derive(Debug, Default)]
pub(crate) struct RecentRequests(Mutex<HashMap<Box<str>, Route>>);

impl RecentRequests {
    /// Keeps a request that has ended, if it may be repeated. `name`: the app's name for its route.
    #[cold]
    pub(crate) fn offer(&self, ending: &Ending<'_>, name: Option<&str>) {
        let Some(request) = ending.request.filter(|request| may_be_repeated(ending, request)) else { return };
        let mut buffer = Buffer::default();
        let name = name.unwrap_or_else(|| buffer.of_request(request.method(), request.path()));
        let target = target(request);
        let Some(message) = message(name, request, &target) else { return };
        let field = |name: &str| request.fields.get(name).is_some();
        let kept = Kept::new(&target, !field("cookie") && !field("authorization"), &message);
        let mut routes = self.routes();
        if !routes.contains_key(name) && routes.len() >= MOST_ROUTES {
            let rarest = routes.iter().min_by_key(|(_, route)| route.seen).map(|(name, _)| name.clone());
            rarest.map(|name| routes.remove(&name));
        }
        match routes.get_mut(name) {
            Some(route) => route.add(kept),
            None => routes.entry(name.into()).or_default().add(kept),
        }
    }

    /// Returns the requests that the template of a release with these settings repeats, and for how long.
    pub(crate) fn of_release(&self, settings: &Settings) -> WarmUp {
        let reload = &settings.reload;
        let (limit, compiled) = reload.warm.map_or((USUAL, COMPILED), |given| (given, given));
        let mut warm_up = WarmUp {
            limit,
            compiled,
            boot: settings.timeouts.worker_boot,
            anyway: !reload.warm_paths.is_empty(),
            requests: Vec::new(),
        };
        if reload.warm == Some(Duration::ZERO) || settings.process.environment == "development" {
            return warm_up;
        }
        let routes = self.routes();
        let mut frequent: Vec<&Route> = routes.values().collect();
        frequent.sort_by_key(|route| std::cmp::Reverse(route.seen));
        let chosen = |kept: &&Kept| is_chosen(&kept.target, &reload.warm_paths);
        let mut left = MOST_BYTES;
        for kept in frequent.iter().flat_map(|route| route.kept.iter().filter(chosen)) {
            let Some(rest) = left.checked_sub(kept.message.len()) else { break };
            left = rest;
            warm_up.requests.push(kept.message.to_vec());
        }
        warm_up
    }

    /// Returns a file in memory with all requests, for the program that takes over. `None` if there are none.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(crate) fn handed_over(&self) -> io::Result<Option<File>> {
        let bytes = self.encode();
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut file = sys::file::in_memory("firebrick recent requests")?;
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(Some(file))
    }

    /// Takes over the requests that the old program has handed over.
    ///
    /// # Errors
    /// The file cannot be read, or the old program writes another form. Nothing is taken over.
    pub(crate) fn inherit(&self, file: File) -> io::Result<()> {
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE as u64 + 1).read_to_end(&mut bytes)?;
        let routes = decode(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the old program writes them in another form")
        })?;
        *self.routes() = routes;
        Ok(())
    }

    /// Writes NUL between all parts: the form, then for each request the times that its route was seen, whether it is anonymous, its target, its
    /// message. None of them has a NUL. Older requests of a route come first.
    fn encode(&self) -> Vec<u8> {
        let routes = self.routes();
        let mut parts = Vec::new();
        for route in routes.values() {
            for kept in &route.kept {
                let anonymous: &[u8] = if kept.is_anonymous { b"1" } else { b"0" };
                parts.push(route.seen.to_string().into_bytes());
                parts.extend([anonymous, &kept.target, &kept.message].map(<[u8]>::to_vec));
            }
        }
        if parts.is_empty() {
            return Vec::new();
        }
        parts.insert(0, form().into_bytes());
        parts.join(&0)
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<Box<str>, Route>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first part of the file of an upgrade: the messages are those of this version of the wire.
fn form() -> String {
    format!("recent requests {}", wire::VERSION)
}

/// Reads the file of an upgrade. `None` if it has another form, or more than this program keeps.
fn decode(bytes: &[u8]) -> Option<HashMap<Box<str>, Route>> {
    let mut parts = bytes.split(|&byte| byte == 0);
    if bytes.len() > LARGEST_FILE || parts.next()? != form().as_bytes() {
        return None;
    }
    let mut routes: HashMap<Box<str>, Route> = HashMap::new();
    while let Some(seen) = parts.next() {
        let (anonymous, target, message) = (parts.next()?, parts.next()?, parts.next()?);
        let name = std::str::from_utf8(message.split(|&byte| byte == b'\n').next()?).ok()?;
        let seen = std::str::from_utf8(seen).ok()?.parse().ok()?;
        let is_anonymous = match anonymous {
            b"0" => false,
            b"1" => true,
            _ => return None,
        };
        if !target.starts_with(b"/") || message.len() > LONGEST || target.len() > message.len() {
            return None;
        }
        let route = routes.entry(name.into()).or_default();
        route.seen = seen;
        route.kept.push_back(Kept::new(target, is_anonymous, message));
        if route.kept.len() > EACH || routes.len() > MOST_ROUTES {
            return None;
        }
    }
    Some(routes)
}

impl Kept {
    fn new(target: &[u8], is_anonymous: bool, message: &[u8]) -> Kept {
        Kept {
            target: target.into(),
            is_anonymous,
            message: message.into(),
            _reserved: Reserved::new(MemoryClass::Requests, (message.len() + target.len()) as u64),
        }
    }
}

impl Route {
    fn add(&mut self, new: Kept) {
        self.seen += 1;
        if !new.is_anonymous && self.kept.iter().any(|kept| kept.is_anonymous) {
            return;
        }
        self.kept.retain(|kept| kept.target != new.target && (kept.is_anonymous || !new.is_anonymous));
        if self.kept.len() >= EACH {
            self.kept.pop_front();
        }
        self.kept.push_back(new);
    }
}

fn may_be_repeated(ending: &Ending<'_>, request: &Request) -> bool {
    let field = |name: &str| request.fields.get(name).is_some();
    ending.trace.worker.get() != 0
        && matches!(ending.status, 200..400)
        && !ending.hijacked
        && !ending.broken
        && ending.failure.is_none()
        && request.method() == b"GET"
        && ending.ended.saturating_duration_since(ending.started) <= SLOWEST
        && !["range", "upgrade", "content-length", "transfer-encoding"].into_iter().any(field)
}

/// Returns whether the path is one of these or below one; without any, each is.
fn is_chosen(target: &[u8], prefixes: &[String]) -> bool {
    let path = Path::new(target.split(|&byte| byte == b'?').next().unwrap_or_default());
    prefixes.is_empty() || prefixes.iter().any(|prefix| path.below(prefix.as_bytes()).is_some())
}

/// Returns path and query, also of an absolute target.
fn target(request: &Request) -> Vec<u8> {
    match request.query() {
        b"" => request.path().to_vec(),
        query => [request.path(), query].join(&b'?'),
    }
}

/// Writes the lines of a request: the route, the scheme, the authority, the target, then a line for each field. `None` if it has a secret, is too long,
/// or cannot be written in lines.
fn message(route: &str, request: &Request, target: &[u8]) -> Option<Vec<u8>> {
    if !request.path().starts_with(b"/") || secret::is_in_target(request.path(), request.query()) {
        return None;
    }
    let mut lines: Vec<&[u8]> = vec![route.as_bytes(), if request.https { b"https" } else { b"http" }];
    let authority = request.authority.slice(request.fields.text());
    lines.extend([authority, target]);
    let fields: Vec<Vec<u8>> = request
        .fields
        .iter()
        .filter(|(name, _)| FIELDS.iter().any(|one| name.eq_ignore_ascii_case(one)))
        .map(|(name, value)| [name, value].join(&b": "[..]))
        .collect();
    lines.extend(fields.iter().map(Vec::as_slice));
    let is_line = |line: &&[u8]| !line.iter().any(|byte| matches!(byte, 0 | b'\n'));
    let bytes = lines.iter().map(|line| line.len() + 1).sum::<usize>();
    (lines.iter().all(is_line) && bytes <= LONGEST).then(|| lines.join(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::{peer, request, request_to};
    use handler::{Failure, Trace};
    use proptest::prelude::*;
    use std::time::Instant;

    struct Ended {
        status: u16,
        worker: u16,
        took: Duration,
        broken: bool,
        failed: bool,
        hijacked: bool,
    }

    const GOOD: Ended =
        Ended { status: 200, worker: 1, took: Duration::ZERO, broken: false, failed: false, hijacked: false };

    fn offer(recent: &RecentRequests, request: &Request, ended: &Ended, name: Option<&str>) {
        let (trace, peer, started) = (Trace::default(), peer(), Instant::now());
        trace.worker.set(ended.worker);
        let failure = ended.failed.then(|| Failure::busy("no seat"));
        recent.offer(
            &Ending {
                request: Some(request),
                failure: failure.as_ref(),
                peer: &peer,
                trace: &trace,
                status: ended.status,
                body_bytes: 0,
                started,
                ended: started + ended.took,
                broken: ended.broken,
                hijacked: ended.hijacked,
            },
            name,
        );
    }

    fn texts(recent: &RecentRequests) -> Vec<String> {
        let mut all: Vec<String> = recent
            .routes()
            .values()
            .flat_map(|route| {
                route.kept.iter().map(|kept| String::from_utf8_lossy(&kept.message).into_owned())
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_request_is_kept_with_what_the_page_depends_on_and_nothing_of_its_client() {
        let fields = [
            ("Accept-Language", "de"),
            ("Cookie", "session=1"),
            ("Authorization", "Basic x"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("If-None-Match", "\"1\""),
        ];
        let recent = RecentRequests::default();
        offer(&recent, &request("GET", "/posts/1?page=2", &fields), &GOOD, Some("posts#show"));
        offer(&recent, &request("GET", "/plain/7", &[]), &GOOD, None);
        assert_eq!(
            texts(&recent),
            [
                "GET /plain/:id\nhttp\nexample.org\n/plain/7",
                "posts#show\nhttp\nexample.org\n/posts/1?page=2\nAccept-Language: de"
            ]
        );
    }

    #[test]
    fn only_what_may_be_repeated_is_kept() {
        let recent = RecentRequests::default();
        let keep = |method: &str, target: &str, fields: &[(&str, &str)], ended: &Ended| {
            offer(&recent, &request(method, target, fields), ended, None);
            !recent.routes().drain().collect::<Vec<_>>().is_empty()
        };
        assert!(keep("GET", "/", &[], &GOOD));
        assert!(keep("GET", "/", &[], &Ended { status: 304, ..GOOD }));
        for method in ["POST", "HEAD", "DELETE", "get"] {
            assert!(!keep(method, "/", &[], &GOOD), "{method}");
        }
        for status in [0, 101, 400, 404, 500] {
            assert!(!keep("GET", "/", &[], &Ended { status, ..GOOD }), "{status}");
        }
        for field in ["Range", "Upgrade", "Content-Length", "Transfer-Encoding"] {
            assert!(!keep("GET", "/", &[(field, "1")], &GOOD), "{field}");
        }
        for target in ["/reset?token=abc", "/password_resets/k3j5h2g5", "*"] {
            assert!(!keep("GET", target, &[], &GOOD), "{target}");
        }
        assert!(!keep("GET", &format!("/{}", "a".repeat(LONGEST)), &[], &GOOD));
        assert!(!keep("GET", "/", &[], &Ended { took: SLOWEST * 2, ..GOOD }));
        assert!(!keep("GET", "/", &[], &Ended { worker: 0, ..GOOD }), "a file");
        assert!(!keep("GET", "/", &[], &Ended { broken: true, ..GOOD }));
        assert!(!keep("GET", "/", &[], &Ended { failed: true, ..GOOD }));
        assert!(!keep("GET", "/", &[], &Ended { hijacked: true, ..GOOD }));
    }

    #[test]
    fn a_route_keeps_its_newest_targets_and_prefers_those_without_cookies() {
        let recent = RecentRequests::default();
        let cookie = [("Cookie", "a=b")];
        for number in 1..=5 {
            offer(&recent, &request("GET", &format!("/posts/{number}"), &cookie), &GOOD, None);
        }
        let targets = || -> Vec<String> {
            texts(&recent).iter().map(|text| text.split('\n').nth(3).unwrap().to_owned()).collect()
        };
        assert_eq!(targets(), ["/posts/3", "/posts/4", "/posts/5"]);
        offer(&recent, &request("GET", "/posts/9", &[]), &GOOD, None);
        assert_eq!(targets(), ["/posts/9"]);
        offer(&recent, &request("GET", "/posts/5", &cookie), &GOOD, None);
        offer(&recent, &request("GET", "/posts/9", &[]), &GOOD, None);
        assert_eq!(targets(), ["/posts/9"]);
    }

    #[test]
    fn the_number_of_routes_is_bounded_and_frequent_ones_stay() {
        let recent = RecentRequests::default();
        (0..3).for_each(|_| offer(&recent, &request("GET", "/often", &[]), &GOOD, None));
        for number in 0..2 * MOST_ROUTES {
            offer(&recent, &request("GET", "/x", &[]), &GOOD, Some(&format!("route{number}")));
        }
        let texts = texts(&recent);
        assert_eq!(texts.len(), MOST_ROUTES);
        assert!(texts.iter().any(|text| text.contains("/often")));
    }

    #[test]
    fn a_release_gets_what_its_settings_allow() {
        let recent = RecentRequests::default();
        for path in ["/a/1", "/b", "/ab"] {
            offer(&recent, &request("GET", path, &[]), &GOOD, None);
        }
        let mut settings = Settings::defaults(std::path::Path::new("/app"));
        settings.process.environment = "production".to_owned();
        settings.reload.warm = Some(Duration::from_secs(3));
        let given = recent.of_release(&settings);
        assert_eq!((given.requests.len(), given.limit, given.anyway), (3, Duration::from_secs(3), false));
        settings.reload.warm = None;
        let given = recent.of_release(&settings);
        assert_eq!((given.limit, given.compiled), (USUAL, COMPILED));
        settings.reload.warm_paths = vec!["/a".to_owned()];
        let given = recent.of_release(&settings);
        assert_eq!((given.requests.len(), given.anyway), (1, true));
        settings.process.environment = "development".to_owned();
        assert!(recent.of_release(&settings).requests.is_empty());
        settings.process.environment = "production".to_owned();
        settings.reload.warm = Some(Duration::ZERO);
        assert!(recent.of_release(&settings).requests.is_empty());
    }

    #[test]
    fn the_next_program_gets_all_of_them() {
        let recent = RecentRequests::default();
        assert!(recent.handed_over().unwrap().is_none());
        let cookie = [("Cookie", "a=b")];
        (0..5).for_each(|number| offer(&recent, &request("GET", &format!("/a/{number}"), &[]), &GOOD, None));
        offer(&recent, &request("GET", "/b?c=d", &cookie), &GOOD, Some("b#show"));
        let new = RecentRequests::default();
        new.inherit(recent.handed_over().unwrap().unwrap()).unwrap();
        assert_eq!(texts(&new), texts(&recent));
        // The counts and marks that decide about the next requests travel, too.
        for both in [&recent, &new] {
            offer(both, &request("GET", "/a/4", &cookie), &GOOD, None);
            offer(both, &request("GET", "/b?c=d", &[]), &GOOD, Some("b#show"));
            offer(both, &request("GET", "/b?c=e", &cookie), &GOOD, Some("b#show"));
        }
        assert_eq!(new.encode().len(), recent.encode().len());
        assert_eq!(texts(&new), texts(&recent));
    }

    #[test]
    fn a_file_of_another_program_is_ignored() {
        let recent = RecentRequests::default();
        offer(&recent, &request("GET", "/a", &[]), &GOOD, None);
        let good = String::from_utf8(recent.encode()).unwrap();
        assert!(decode(good.as_bytes()).is_some());
        let other = good.replacen(&wire::VERSION.to_string(), "999", 1);
        let many = good.clone() + &["", "1", "1", "/a", "GET /a\nhttp\nh\n/a"].join("\0").repeat(EACH + 1);
        let wrong = [
            String::new(),
            other,
            good.replace(&["", "1", "1", ""].join("\0"), &["", "1", "2", ""].join("\0")),
            good.replace("\0/a", "\0a"),
            format!("{good}\0"),
            [&good, "1"].join("\0"),
            many,
        ];
        for text in wrong {
            assert!(decode(text.as_bytes()).is_none(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_file_are_read_or_ignored(
            parts in prop::collection::vec("(1|0|/|/a|GET /a\nhttp\nh\n/a|[a-z/\n]{0,9})", 0..20),
        ) {
            let bytes = [vec![form()], parts].concat().join("\0");
            if let Some(routes) = decode(bytes.as_bytes()) {
                let again = RecentRequests(Mutex::new(routes));
                prop_assert!(again.encode().is_empty() || decode(&again.encode()).is_some());
            }
        }

        /// The template splits the message at line feeds, and the `boot` message at NUL.
        #[test]
        fn lines_are_lines(
            target in prop::collection::vec(any::<u8>(), 0..40),
            host in prop::collection::vec(any::<u8>(), 0..10),
            value in "[ -~\\n]{0,20}",
        ) {
            let target = [b"/".as_slice(), &target].concat();
            let recent = RecentRequests::default();
            let request = request_to(&host, b"GET", &target, &[("User-Agent", &value), ("Cookie", "c")]);
            offer(&recent, &request, &GOOD, Some("route"));
            for kept in recent.routes().values().flat_map(|route| route.kept.iter()) {
                prop_assert!(kept.message.len() <= LONGEST && !kept.message.contains(&0));
                let lines: Vec<&[u8]> = kept.message.split(|&byte| byte == b'\n').collect();
                prop_assert_eq!(lines.len(), 5);
                prop_assert_eq!(lines[3], &*kept.target);
            }
        }
    }
}
