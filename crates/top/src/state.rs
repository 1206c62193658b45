//! What the screen is at: the last view, the curve of the last looks, and what keys have chosen. Pure: looks and keys go in,
//! what to do about them comes out.

use crate::options::{LONGEST, SHORTEST};
use crate::view::{Look, View};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use stats::{InFlight, Phase, WorkerSnapshot};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that the curve remembers: as many as the widest screens have columns.
const REMEMBERED: usize = 400;
/// Ages of one request, told in two looks, may differ by this much more than the time between them.
const SAME_START: Duration = Duration::from_millis(500);

/// What a key asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wish {
    Nothing,
    Quit,
    Suspend,
    Redraw,
    /// Ask from now on in this interval.
    Interval(Duration),
    /// Ask where this request is in the app.
    Backtrace(InFlight),
}

/// In which order workers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Index,
    Busy,
    Requests,
    Cpu,
    Memory,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Index => "number",
            Sort::Busy => "busy",
            Sort::Requests => "req/s",
            Sort::Cpu => "CPU",
            Sort::Memory => "memory",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Index => Sort::Busy,
            Sort::Busy => Sort::Requests,
            Sort::Requests => Sort::Cpu,
            Sort::Cpu => Sort::Memory,
            Sort::Memory => Sort::Index,
        }
    }
}

/// What lies over the screen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Over {
    Nothing,
    Help,
    /// Where a request is in the app.
    Trace {
        request: InFlight,
        found: Found,
        scroll: usize,
    },
}

/// What became of asking where a request is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// The answer is still to come.
    Asking,
    /// Innermost call first.
    Lines(Vec<String>),
    /// There is none, for this reason.
    Not(String),
}

/// One point of the curves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Past {
    pub(crate) rate: f64,
    pub(crate) p95: f64,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: Option<View>,
    /// Newest last.
    pub(crate) past: VecDeque<Past>,
    pub(crate) interval: Duration,
    pub(crate) paused: bool,
    pub(crate) sort: Sort,
    pub(crate) over: Over,
    /// Index of the selected request.
    pub(crate) selected: usize,
    /// Since when the server does not answer, and why.
    pub(crate) gone: Option<(Instant, String)>,
    /// When another server was found in the place of the one before.
    pub(crate) anew: Option<Instant>,
    last: Option<Look>,
}

impl State {
    pub(crate) fn new(interval: Duration) -> State {
        State {
            view: None,
            past: VecDeque::new(),
            interval,
            paused: false,
            sort: Sort::Index,
            over: Over::Nothing,
            selected: 0,
            gone: None,
            anew: None,
            last: None,
        }
    }

    /// Takes in a look at the server, or why there is none.
    pub(crate) fn looked(&mut self, look: Result<Look, (Instant, String)>) {
        match look {
            Ok(look) => self.saw(look),
            Err((at, why)) => {
                let since = self.gone.as_ref().map_or(at, |(since, _)| *since);
                self.gone = Some((since, why));
            }
        }
    }

    fn saw(&mut self, look: Look) {
        let view = View::new(look.clone(), self.last.as_ref());
        if let Some(last) = &self.last
            && (last.server.pid, last.server.started_at) != (look.server.pid, look.server.started_at)
        {
            self.anew = Some(look.at);
            self.past.clear();
        }
        if let Some(between) = &view.between {
            if self.past.len() == REMEMBERED {
                self.past.pop_front();
            }
            let rate = between.per_second(between.requests.total);
            self.past.push_back(Past { rate, p95: between.total_ms.p95 });
        }
        self.gone = None;
        self.last = Some(look);
        if !self.paused {
            self.follow_selection(&view);
            self.view = Some(view);
        }
    }

    /// The selection stays with its request, not with its line.
    fn follow_selection(&mut self, next: &View) {
        let requests = &next.look.requests;
        let selected = self.selected_request().and_then(|chosen| {
            let passed = next.look.at.saturating_duration_since(self.view.as_ref()?.look.at);
            requests.iter().position(|request| is_same(chosen, request, passed))
        });
        self.selected = selected.unwrap_or(self.selected).min(requests.len().saturating_sub(1));
    }

    pub(crate) fn selected_request(&self) -> Option<&InFlight> {
        self.view.as_ref()?.look.requests.get(self.selected)
    }

    /// Takes in the answer to a [`Wish::Backtrace`], unless nobody waits for it any more.
    pub(crate) fn traced(
        &mut self,
        asked: &InFlight,
        answer: Result<Vec<InFlight>, String>,
        passed: Duration,
    ) {
        if let Over::Trace { request, found, .. } = &mut self.over
            && request == asked
        {
            *found = match answer {
                Err(why) => Found::Not(why),
                Ok(all) => match all.into_iter().find(|one| is_same(asked, one, passed)) {
                    None => Found::Not("The request is over.".to_owned()),
                    Some(InFlight { backtrace: Some(lines), .. }) if !lines.is_empty() => Found::Lines(lines),
                    Some(_) => Found::Not(
                        "The worker could not tell in time: its threads do not get to Ruby's lock."
                            .to_owned(),
                    ),
                },
            };
        }
    }

    /// Takes in a key.
    pub(crate) fn pressed(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('z') if control => return Wish::Suspend,
            KeyCode::Char('l') if control => return Wish::Redraw,
            _ if control => return Wish::Nothing,
            KeyCode::Char('q') => return Wish::Quit,
            _ => {}
        }
        if self.over != Over::Nothing { self.pressed_over(key.code) } else { self.pressed_below(key.code) }
    }

    fn pressed_over(&mut self, key: KeyCode) -> Wish {
        if let Over::Trace { found: Found::Lines(lines), scroll, .. } = &mut self.over {
            let last = lines.len().saturating_sub(1);
            let moved = match key {
                KeyCode::Up => Some(scroll.saturating_sub(1)),
                KeyCode::Down => Some(*scroll + 1),
                KeyCode::PageUp => Some(scroll.saturating_sub(10)),
                KeyCode::PageDown => Some(*scroll + 10),
                KeyCode::Home => Some(0),
                KeyCode::End => Some(last),
                _ => None,
            };
            if let Some(to) = moved {
                *scroll = to.min(last);
                return Wish::Nothing;
            }
        }
        match (key, &self.over) {
            // Again: where is it now?
            (KeyCode::Enter, Over::Trace { request, .. }) => {
                let request = request.clone();
                self.ask_for(request)
            }
            _ => {
                self.over = Over::Nothing;
                Wish::Nothing
            }
        }
    }

    fn pressed_below(&mut self, key: KeyCode) -> Wish {
        let last = self.view.as_ref().map_or(0, |view| view.look.requests.len().saturating_sub(1));
        match key {
            KeyCode::Esc => return Wish::Quit,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('?') | KeyCode::Char('h') | KeyCode::F(1) => self.over = Over::Help,
            KeyCode::Char('+') | KeyCode::Char('=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Enter => {
                if let Some(request) = self.selected_request().cloned() {
                    return self.ask_for(request);
                }
            }
            _ => {}
        }
        Wish::Nothing
    }

    fn ask_for(&mut self, request: InFlight) -> Wish {
        let queued = request.state == Phase::Queued;
        let found = if queued {
            Found::Not("It waits: no thread of a worker has taken it up yet.".to_owned())
        } else {
            Found::Asking
        };
        self.over = Over::Trace { request: request.clone(), found, scroll: 0 };
        if queued { Wish::Nothing } else { Wish::Backtrace(request) }
    }

    fn change_interval(&mut self, longer: bool) -> Wish {
        const STEPS_MS: [u64; 9] = [200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000];
        let steps = STEPS_MS.map(Duration::from_millis);
        let next = if longer {
            steps.into_iter().find(|step| *step > self.interval)
        } else {
            steps.into_iter().rev().find(|step| *step < self.interval)
        };
        self.interval = next.unwrap_or(self.interval).clamp(SHORTEST, LONGEST);
        Wish::Interval(self.interval)
    }
}

/// The workers of a view in the order that is wanted, busiest first.
pub(crate) fn sorted(view: &View, sort: Sort) -> Vec<&WorkerSnapshot> {
    let mut workers: Vec<&WorkerSnapshot> = view.server().workers.iter().collect();
    let did = |worker: &WorkerSnapshot| view.did(worker).copied().unwrap_or_default();
    match sort {
        Sort::Index => workers.sort_by_key(|worker| worker.index),
        Sort::Busy => workers.sort_by_key(|worker| Reverse((worker.busy_threads, worker.waiting))),
        Sort::Requests => workers.sort_by_key(|worker| Reverse(did(worker).requests)),
        Sort::Cpu => workers.sort_by(|one, other| did(other).cpus.total_cmp(&did(one).cpus)),
        Sort::Memory => workers.sort_by_key(|worker| Reverse(worker.pss_bytes)),
    }
    workers
}

/// Whether two looks tell of the same request. It has no number, but a path, a place and a beginning.
fn is_same(earlier: &InFlight, later: &InFlight, passed: Duration) -> bool {
    let begun_together = ((later.age_ms - earlier.age_ms) - passed.as_secs_f64() * 1e3).abs()
        <= SAME_START.as_secs_f64() * 1e3;
    let seated = earlier.thread.is_none() || (earlier.pid, earlier.thread) == (later.pid, later.thread);
    earlier.path == later.path && earlier.method == later.method && seated && begun_together
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{request, view};

    fn state() -> State {
        let mut state = State::new(Duration::from_secs(1));
        state.view = Some(view(3));
        state
    }

    fn press(state: &mut State, code: KeyCode) -> Wish {
        state.pressed(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_that_end_it() {
        for key in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut state(), key), Wish::Quit);
        }
        let with_control = |code| state().pressed(KeyEvent::new(KeyCode::Char(code), KeyModifiers::CONTROL));
        assert_eq!(
            (with_control('c'), with_control('z'), with_control('x')),
            (Wish::Quit, Wish::Suspend, Wish::Nothing)
        );
        let mut helped = state();
        press(&mut helped, KeyCode::Char('?'));
        assert_eq!(helped.over, Over::Help);
        assert_eq!(press(&mut helped, KeyCode::Esc), Wish::Nothing);
        assert_eq!(helped.over, Over::Nothing);
    }

    #[test]
    fn the_selection_stays_inside_and_with_its_request() {
        let mut state = state();
        press(&mut state, KeyCode::Up);
        assert_eq!(state.selected, 0);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected_request().map(|request| request.path.as_str()), Some("/reports/2026"));
        // A slower one has come above it, two seconds later.
        let mut look = state.view.as_ref().unwrap().look.clone();
        look.at += Duration::from_secs(2);
        look.requests.iter_mut().for_each(|request| request.age_ms += 2_000.0);
        look.requests.insert(0, request("/slower", 60_000.0, Some(1)));
        state.looked(Ok(look.clone()));
        assert_eq!((state.selected, state.selected_request().unwrap().path.as_str()), (2, "/reports/2026"));
        look.requests.clear();
        look.at += Duration::from_secs(2);
        state.looked(Ok(look));
        assert_eq!((state.selected, state.selected_request()), (0, None));
        assert_eq!(press(&mut state, KeyCode::Enter), Wish::Nothing);
    }

    #[test]
    fn enter_asks_where_a_request_is() {
        let mut state = state();
        let Wish::Backtrace(asked) = press(&mut state, KeyCode::Enter) else { panic!("nothing asked") };
        assert!(matches!(&state.over, Over::Trace { found: Found::Asking, .. }));
        let mut answer = InFlight { age_ms: asked.age_ms + 300.0, ..asked.clone() };
        answer.backtrace = Some(vec!["app.rb:3:in `sleep'".to_owned()]);
        state.traced(&request("/other", 1.0, Some(0)), Ok(vec![answer.clone()]), Duration::ZERO);
        assert!(
            matches!(&state.over, Over::Trace { found: Found::Asking, .. }),
            "another answer does not count"
        );
        state.traced(&asked, Ok(vec![answer]), Duration::from_millis(300));
        let Over::Trace { found: Found::Lines(lines), .. } = &state.over else { panic!("{:?}", state.over) };
        assert_eq!(lines, &["app.rb:3:in `sleep'"]);
        for _ in 0..3 {
            press(&mut state, KeyCode::Down);
        }
        assert!(matches!(&state.over, Over::Trace { scroll: 0, .. }), "there is only one line");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.over, Over::Nothing);
    }

    #[test]
    fn a_request_without_lines_says_why() {
        let why = |answer: Result<Vec<InFlight>, String>| {
            let mut state = state();
            let Wish::Backtrace(asked) = press(&mut state, KeyCode::Enter) else { panic!("nothing asked") };
            state.traced(&asked, answer, Duration::ZERO);
            let Over::Trace { found: Found::Not(why), .. } = state.over else { panic!("{:?}", state.over) };
            why
        };
        assert_eq!(why(Ok(Vec::new())), "The request is over.");
        assert!(why(Ok(vec![request("/slow?", 12_300.0, Some(0))])).starts_with("The worker could not tell"));
        assert!(
            why(Ok(vec![request("/slow?", 5.0, Some(0))])).contains("over"),
            "a later request to the same path"
        );
        assert_eq!(why(Err("gone".to_owned())), "gone");
        let mut queued = state();
        queued.selected = 2;
        assert_eq!(press(&mut queued, KeyCode::Enter), Wish::Nothing);
        assert!(
            matches!(&queued.over, Over::Trace { found: Found::Not(why), .. } if why.starts_with("It waits"))
        );
    }

    #[test]
    fn intervals_go_in_steps() {
        let mut state = state();
        let mut seen = Vec::new();
        for key in ['+', '+', '-', '-', '-', '-', '-'] {
            let Wish::Interval(interval) = press(&mut state, KeyCode::Char(key)) else { panic!("{key}") };
            seen.push(interval.as_millis());
        }
        assert_eq!(seen, [2_000, 5_000, 2_000, 1_000, 500, 200, 200]);
    }

    #[test]
    fn a_pause_holds_the_screen_but_not_the_curve() {
        let mut state = state();
        let look = state.view.as_ref().unwrap().look.clone();
        state.looked(Ok(look.clone()));
        press(&mut state, KeyCode::Char('p'));
        let later = Look { at: look.at + Duration::from_secs(1), requests: Vec::new(), ..look };
        state.looked(Ok(later));
        assert_eq!(state.view.as_ref().unwrap().look.requests.len(), 3);
        assert_eq!(state.past.len(), 1);
    }

    #[test]
    fn a_server_that_is_gone_and_one_that_is_new() {
        let mut state = state();
        let look = state.view.as_ref().unwrap().look.clone();
        state.looked(Ok(look.clone()));
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        state.looked(Err((first, "nothing listens".to_owned())));
        state.looked(Err((second, "still nothing".to_owned())));
        assert_eq!(state.gone, Some((first, "still nothing".to_owned())));
        let mut new = Look { at: second, ..look };
        new.server.pid += 1;
        state.looked(Ok(new));
        assert_eq!((state.gone.as_ref(), state.anew, state.past.len()), (None, Some(second), 0));
        assert!(state.view.unwrap().between.is_none());
    }

    #[test]
    fn workers_are_sorted_busiest_first() {
        let view = view(3);
        let order = |sort| sorted(&view, sort).iter().map(|worker| worker.index).collect::<Vec<_>>();
        assert_eq!(order(Sort::Index), [0, 1, 2]);
        assert_eq!(order(Sort::Busy), [2, 1, 0]);
        assert_eq!(order(Sort::Requests), [0, 1, 2]);
        assert_eq!(order(Sort::Cpu), [0, 1, 2]);
        assert_eq!(order(Sort::Memory), [2, 1, 0]);
        assert_eq!((0..5).fold(Sort::Index, |sort, _| sort.next()), Sort::Index);
    }
}
