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

/// What is worth keeping of a request's method and target while it waits: as much as is shown, and that there was more.
pub(crate) fn kept(asked: &[&[u8]]) -> Box<[u8]> {
    asked.iter().flat_map(|part| part.iter().copied()).take(TEXT + 1).collect()
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
    /// Of the whole text, of which less may be kept.
    length: AtomicU32,
    text: [AtomicU64; TEXT / WORD],
}

impl Subject {
    pub(crate) fn new(plan: Arc<Plan>) -> Subject {
        let text = std::array::from_fn(|_| AtomicU64::new(0));
        let [source, route, length] = [0; 3].map(AtomicU32::new);
        Subject { plan, source, route, length, text }
    }

    /// Says what the next step is about; `asked` are the parts of a text.
    #[inline]
    pub(crate) fn tell(&self, spot: Spot, asked: &[&[u8]]) {
        let number = |number: Option<u32>| number.map_or(0, |number| number.saturating_add(1));
        self.source.store(number(spot.source), Ordering::Relaxed);
        self.route.store(number(spot.route), Ordering::Relaxed);
        let (mut bytes, mut length) = ([0; TEXT], 0);
        for part in asked {
            let room = &mut bytes[length.min(TEXT)..];
            let kept = part.len().min(room.len());
            room[..kept].copy_from_slice(&part[..kept]);
            length += part.len();
        }
        self.length.store(u32::try_from(length).unwrap_or(u32::MAX), Ordering::Relaxed);
        let words = bytes[..length.min(TEXT).next_multiple_of(WORD)].as_chunks::<WORD>().0;
        for (word, bytes) in self.text.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
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
        let length = self.length.load(Ordering::Relaxed) as usize;
        if length == 0 {
            return String::new();
        }
        let mut bytes: Vec<u8> =
            self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        bytes.truncate(length);
        let more = if length > TEXT { "…" } else { "" };
        format!("{}{more}: ", bytes.escape_ascii())
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
        subject.tell(spot(Some(1), Some(0)), &[b"GET", b" ", b"/api/\"a\xff?b"]);
        assert_eq!(subject.name(), r#"GET /api/\"a\xff?b: api.rb (route /api)"#);
        subject.tell(spot(Some(0), Some(1)), &[b"PUT /"]);
        assert_eq!(subject.name(), "PUT /: auth.rb (route /)");
        subject.tell(spot(Some(0), None), &[]);
        assert_eq!(subject.name(), "auth.rb");
        subject.tell(spot(Some(7), Some(7)), &[]);
        assert_eq!(subject.name(), "a handler on mruby");
    }

    #[test]
    fn a_long_target_is_cut() {
        let subject = subject();
        for length in [TEXT - 5, TEXT - 4, TEXT - 3, TEXT + 1, 1_000] {
            let target = "x".repeat(length);
            subject.tell(Spot::default(), &[b"GET", b" ", target.as_bytes()]);
            let name = subject.name();
            let (asked, _) = name.split_once(": ").unwrap();
            let whole = format!("GET {target}");
            if whole.len() <= TEXT {
                assert_eq!(asked, whole);
            } else {
                assert_eq!(asked, format!("{}…", &whole[..TEXT]));
            }
        }
    }
}
