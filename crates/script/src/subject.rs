//! What a step is about, told to another thread without a lock: which handler, and the request's method and target.
//!
//! Why: when code cannot be stopped, its own thread says nothing any more, and an operator still has to find it.
//!
//! Contract: only the VM's thread writes, before a step begins. Who reads does so while that step runs, and asks afterwards whether
//! it still did; if not, what was read is nothing.

use crate::plan::Plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of method and target that are kept: enough to find the request in an access log.
const TEXT: usize = 128;
const WORD: usize = size_of::<u64>();

/// Method and target of a request; both empty outside of requests.
pub(crate) type Asked<'a> = [&'a [u8]; 2];

/// As much of them as is shown, for the time that the request waits.
#[derive(Default)]
pub(crate) struct Kept {
    text: Box<[u8]>,
    method: usize,
}

impl Kept {
    pub(crate) fn new([method, target]: Asked<'_>) -> Kept {
        let method = &method[..method.len().min(TEXT)];
        // One more than is shown, so that it is seen that there is more.
        let target = &target[..target.len().min(TEXT + 1)];
        Kept { text: [method, target].concat().into(), method: method.len() }
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        self.text.split_at(self.method).into()
    }
}

/// Where a step is in the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Number of the handler's source; `None` when nobody knows whose code it is.
    pub(crate) source: Option<u32>,
    /// Number of the route; `None` outside of requests.
    pub(crate) route: Option<u32>,
}

/// Whose code runs, and for which request.
pub(crate) struct Subject {
    plan: Arc<Plan>,
    /// One more than the number; 0 is none.
    source: AtomicU32,
    route: AtomicU32,
    /// Of method and target, of which less may be kept.
    lengths: [AtomicU32; 2],
    text: [AtomicU64; TEXT / WORD],
}

impl Subject {
    pub(crate) fn new(plan: Arc<Plan>) -> Subject {
        let text = std::array::from_fn(|_| AtomicU64::new(0));
        let [source, route, method, target] = [0; 4].map(AtomicU32::new);
        Subject { plan, source, route, lengths: [method, target], text }
    }

    /// Says what the next step is about.
    #[inline]
    pub(crate) fn tell(&self, spot: Spot, asked: Asked<'_>) {
        let number = |number: Option<u32>| number.map_or(0, |number| number.saturating_add(1));
        self.source.store(number(spot.source), Ordering::Relaxed);
        self.route.store(number(spot.route), Ordering::Relaxed);
        // Each part begins with a word, so that none has to be shifted.
        let mut words = self.text.iter();
        for (length, part) in self.lengths.iter().zip(asked) {
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

    /// `GET /search?q=x: /srv/search.rb (route /search)`, as far as it is known; how log lines begin.
    pub(crate) fn name(&self) -> String {
        let number = |number: &AtomicU32| (number.load(Ordering::Relaxed) as usize).checked_sub(1);
        let source = number(&self.source).and_then(|source| self.plan.sources.get(source));
        let route = number(&self.route).and_then(|route| self.plan.routes.get(route));
        let file = source.map_or_else(|| "a handler on mruby".to_owned(), crate::Source::name);
        let route = route.map_or_else(String::new, |route| format!(" (route {})", route.shown()));
        format!("{}{file}{route}", self.asked())
    }

    fn asked(&self) -> String {
        let [method, target] = self.lengths.each_ref().map(|length| length.load(Ordering::Relaxed) as usize);
        if method == 0 {
            return String::new();
        }
        let bytes: Vec<u8> =
            self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let begin = method.next_multiple_of(WORD).min(TEXT);
        let end = (begin + target).min(TEXT);
        let more = if begin + target > TEXT { "…" } else { "" };
        let (method, target) = (&bytes[..method.min(TEXT)], &bytes[begin..end]);
        format!("{} {}{more}: ", method.escape_ascii(), target.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Route, Source};

    fn subject() -> Subject {
        let source = |file: &str| Source { file: file.into(), code: String::new() };
        let limits = Arc::new(Limits::loosest(std::iter::empty()));
        let route =
            |path: &str| Route { path: path.to_owned(), handlers: vec![0, 1], limits: limits.clone() };
        Subject::new(Arc::new(Plan {
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
        let spot = |source, route| Spot { source, route };
        subject.tell(spot(Some(1), Some(0)), [b"GET", b"/api/\"a\xff?b"]);
        assert_eq!(subject.name(), r#"GET /api/\"a\xff?b: api.rb (route /api)"#);
        subject.tell(spot(Some(0), Some(1)), [b"PROPPATCH", b"/"]);
        assert_eq!(subject.name(), "PROPPATCH /: auth.rb (route /)");
        subject.tell(spot(Some(0), None), [b"", b""]);
        assert_eq!(subject.name(), "auth.rb");
        subject.tell(spot(Some(7), Some(7)), [b"", b""]);
        assert_eq!(subject.name(), "a handler on mruby");
    }

    #[test]
    fn a_long_target_is_cut() {
        let subject = subject();
        let room = TEXT - WORD;
        for length in [1, room - 1, room, room + 1, TEXT + 1, 1_000] {
            let target = "x".repeat(length);
            let kept = Kept::new([b"GET", target.as_bytes()]);
            for asked in [[b"GET", target.as_bytes()], kept.asked()] {
                subject.tell(Spot::default(), asked);
                let shown = &target[..length.min(room)];
                let more = if length > room { "…" } else { "" };
                assert_eq!(subject.name(), format!("GET {shown}{more}: a handler on mruby"));
            }
        }
        subject.tell(Spot::default(), ["M".repeat(1_000).as_bytes(), b"/"]);
        assert_eq!(subject.name(), format!("{} …: a handler on mruby", "M".repeat(TEXT)));
    }
}
