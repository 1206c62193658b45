//! The handler and request of a step, readable by another thread without a lock.
//!
//! Why: while code cannot be stopped, its own thread cannot log, and an operator still has to find the code.
//!
//! Contract: only the VM's thread writes, before a step begins. A reader reads while that step runs, and
//! checks afterwards that the step is still running. If it is not, the read values are invalid.

use crate::plan::HandlerPlan;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most bytes of method and target that are kept: enough to find the request in an access log.
const MAX_TEXT: usize = 128;
const WORD: usize = size_of::<u64>();

/// Method and target of a request; both empty outside of requests.
pub(crate) type RequestLine<'a> = [&'a [u8]; 2];

/// The visible part of a request line, saved while the request waits.
#[derive(Default)]
pub(crate) struct SavedLine {
    text: Box<[u8]>,
    method: usize,
}

impl SavedLine {
    pub(crate) fn new([method, target]: RequestLine<'_>) -> SavedLine {
        let method = &method[..method.len().min(MAX_TEXT)];
        // One byte more than is shown, so that a longer target is recognized.
        let target = &target[..target.len().min(MAX_TEXT + 1)];
        SavedLine { text: [method, target].concat().into(), method: method.len() }
    }

    pub(crate) fn get(&self) -> RequestLine<'_> {
        self.text.split_at(self.method).into()
    }
}

/// The place of a step's code in the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Location {
    /// The number of the handler's source; `None` if unknown.
    pub(crate) source: Option<u32>,
    /// The number of the route; `None` outside of requests.
    pub(crate) route: Option<u32>,
}

/// The running code and its request.
pub(crate) struct Subject {
    plan: Arc<HandlerPlan>,
    /// The number plus one; 0 is none.
    source: AtomicU32,
    route: AtomicU32,
    /// Full lengths of method and target.
    lengths: [AtomicU32; 2],
    text: [AtomicU64; MAX_TEXT / WORD],
}

impl Subject {
    pub(crate) fn new(plan: Arc<HandlerPlan>) -> Subject {
        let text = std::array::from_fn(|_| AtomicU64::new(0));
        let [source, route, method, target] = [0; 4].map(AtomicU32::new);
        Subject { plan, source, route, lengths: [method, target], text }
    }

    /// Sets the subject of the next step.
    #[inline]
    pub(crate) fn set(&self, location: Location, line: RequestLine<'_>) {
        let number = |number: Option<u32>| number.map_or(0, |number| number.saturating_add(1));
        self.source.store(number(location.source), Ordering::Relaxed);
        self.route.store(number(location.route), Ordering::Relaxed);
        // Each part starts at a word, so that no bytes have to be shifted.
        let mut words = self.text.iter();
        for (length, part) in self.lengths.iter().zip(line) {
            length.store(u32::try_from(part.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
            let (whole, rest) = part.as_chunks::<WORD>();
            for (bytes, word) in whole.iter().zip(&mut words) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
            if !rest.is_empty()
                && let Some(word) = words.next()
            {
                let mut bytes = [0; WORD];
                bytes[..rest.len()].copy_from_slice(rest);
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
        }
    }

    /// Returns `GET /search?q=x: /srv/search.rb (route /search)`, as far as known. Log lines start with it.
    pub(crate) fn name(&self) -> String {
        let number = |number: &AtomicU32| (number.load(Ordering::Relaxed) as usize).checked_sub(1);
        let source = number(&self.source).and_then(|source| self.plan.sources.get(source));
        let route = number(&self.route).and_then(|route| self.plan.routes.get(route));
        let file = source.map_or_else(|| "a handler on mruby".to_owned(), crate::HandlerSource::name);
        let route = route.map_or_else(String::new, |route| format!(" (route {})", route.shown()));
        format!("{}{file}{route}", self.request_line())
    }

    fn request_line(&self) -> String {
        let [method, target] = self.lengths.each_ref().map(|length| length.load(Ordering::Relaxed) as usize);
        if method == 0 {
            return String::new();
        }
        let bytes: Vec<u8> =
            self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let begin = method.next_multiple_of(WORD).min(MAX_TEXT);
        let end = (begin + target).min(MAX_TEXT);
        let more = if begin + target > MAX_TEXT { "…" } else { "" };
        let (method, target) = (&bytes[..method.min(MAX_TEXT)], &bytes[begin..end]);
        format!("{} {}{more}: ", method.escape_ascii(), target.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandlerRoute, HandlerSource, RouteLimits};

    fn subject() -> Subject {
        let source = |file: &str| HandlerSource { file: file.into(), code: String::new() };
        let limits = Arc::new(RouteLimits::loosest(std::iter::empty()));
        let route =
            |path: &str| HandlerRoute { path: path.to_owned(), handlers: vec![0, 1], limits: limits.clone() };
        Subject::new(Arc::new(HandlerPlan {
            sources: vec![source("auth.rb"), source("api.rb")],
            routes: vec![route("/api"), route("")],
            heap: 1 << 20,
            temp_dir: std::env::temp_dir(),
        }))
    }

    #[test]
    fn a_step_is_named_as_far_as_it_is_known() {
        let subject = subject();
        assert_eq!(subject.name(), "a handler on mruby");
        let location = |source, route| Location { source, route };
        subject.set(location(Some(1), Some(0)), [b"GET", b"/api/\"a\xff?b"]);
        assert_eq!(subject.name(), r#"GET /api/\"a\xff?b: api.rb (route /api)"#);
        subject.set(location(Some(0), Some(1)), [b"PROPPATCH", b"/"]);
        assert_eq!(subject.name(), "PROPPATCH /: auth.rb (route /)");
        subject.set(location(Some(0), None), [b"", b""]);
        assert_eq!(subject.name(), "auth.rb");
        subject.set(location(Some(7), Some(7)), [b"", b""]);
        assert_eq!(subject.name(), "a handler on mruby");
    }

    #[test]
    fn a_long_target_is_cut() {
        let subject = subject();
        let room = MAX_TEXT - WORD;
        for length in [1, room - 1, room, room + 1, MAX_TEXT + 1, 1_000] {
            let target = "x".repeat(length);
            let saved = SavedLine::new([b"GET", target.as_bytes()]);
            for line in [[b"GET", target.as_bytes()], saved.get()] {
                subject.set(Location::default(), line);
                let shown = &target[..length.min(room)];
                let more = if length > room { "…" } else { "" };
                assert_eq!(subject.name(), format!("GET {shown}{more}: a handler on mruby"));
            }
        }
        subject.set(Location::default(), ["M".repeat(1_000).as_bytes(), b"/"]);
        assert_eq!(subject.name(), format!("{} …: a handler on mruby", "M".repeat(MAX_TEXT)));
    }
}
