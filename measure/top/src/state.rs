//! The state of the screen: the last view, the curve of recent samples, and the user's choices. Pure: samples and keys go in, actions come out.

use crate::options::{LONGEST, SHORTEST};
use crate::view::{Sample, View};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use stats::{InFlight, RequestPhase, WorkerSnapshot};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of samples kept for the curve: as many as the widest screens have columns.
const REMEMBERED: usize = 400;
/// The tolerance when comparing the ages of a request in two samples.
const SAME_START: Duration = Duration::from_millis(500);

/// The action that a key requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Nothing,
    Quit,
    /// Return to the previous screen, or quit.
    Back,
    Suspend,
    Redraw,
    Interval(Duration),
    /// Fetch the backtrace of this request.
    Backtrace(InFlight),
}

/// The sort order of the workers.
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Overlay {
    Nothing,
    Help,
    /// The figures of the routes.
    Routes,
    /// The backtrace of a request.
    Trace {
        request: InFlight,
        found: Backtrace,
        scroll: usize,
    },
}

/// The backtrace of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Backtrace {
    /// Not received yet.
    Pending,
    /// Innermost call first.
    Lines(Vec<String>),
    /// Not available, for this reason.
    Unavailable(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CurvePoint {
    pub(crate) rate: f64,
    pub(crate) p95: f64,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: Option<View>,
    /// Newest last.
    pub(crate) curve: VecDeque<CurvePoint>,
    pub(crate) interval: Duration,
    pub(crate) paused: bool,
    pub(crate) sort: Sort,
    pub(crate) overlay: Overlay,
    /// The index of the selected request.
    pub(crate) selected: usize,
    /// The time since when the server does not respond, and the reason.
    pub(crate) unreachable: Option<(Instant, String)>,
    /// The time when a different server instance was detected.
    pub(crate) restarted: Option<Instant>,
    last: Option<Sample>,
}

impl State {
    pub(crate) fn new(interval: Duration) -> State {
        State {
            view: None,
            curve: VecDeque::new(),
            interval,
            paused: false,
            sort: Sort::Index,
            overlay: Overlay::Nothing,
            selected: 0,
            unreachable: None,
            restarted: None,
            last: None,
        }
    }

    /// Processes a sample, or the error of a query.
    pub(crate) fn sampled(&mut self, sample: Result<Sample, (Instant, String)>) {
        match sample {
            Ok(sample) => self.record(sample),
            Err((at, why)) => {
                let since = self.unreachable.as_ref().map_or(at, |(since, _)| *since);
                self.unreachable = Some((since, why));
            }
        }
    }

    fn record(&mut self, sample: Sample) {
        let view = View::new(sample.clone(), self.last.as_ref());
        if let Some(last) = &self.last
            && (last.server.pid, last.server.started_at) != (sample.server.pid, sample.server.started_at)
        {
            self.restarted = Some(sample.at);
            self.curve.clear();
        }
        if let Some(between) = &view.between {
            if self.curve.len() == REMEMBERED {
                self.curve.pop_front();
            }
            let rate = between.per_second(between.requests.total);
            self.curve.push_back(CurvePoint { rate, p95: between.total_ms.p95 });
        }
        self.unreachable = None;
        self.last = Some(sample);
        if !self.paused {
            self.follow_selection(&view);
            self.view = Some(view);
        }
    }

    /// Keeps the selection on its request rather than on its line.
    fn follow_selection(&mut self, next: &View) {
        let requests = &next.sample.requests;
        let selected = self.selected_request().and_then(|chosen| {
            let passed = next.sample.at.saturating_duration_since(self.view.as_ref()?.sample.at);
            requests.iter().position(|request| is_same(chosen, request, passed))
        });
        self.selected = selected.unwrap_or(self.selected).min(requests.len().saturating_sub(1));
    }

    pub(crate) fn selected_request(&self) -> Option<&InFlight> {
        self.view.as_ref()?.sample.requests.get(self.selected)
    }

    /// Processes the response to an [`Action::Backtrace`], unless the overlay was closed.
    pub(crate) fn show_backtrace(
        &mut self,
        wanted: &InFlight,
        response: Result<Vec<InFlight>, String>,
        passed: Duration,
    ) {
        if let Overlay::Trace { request, found, .. } = &mut self.overlay
            && request == wanted
        {
            *found = match response {
                Err(why) => Backtrace::Unavailable(why),
                Ok(all) => match all.into_iter().find(|one| is_same(wanted, one, passed)) {
                    None => Backtrace::Unavailable("The request has finished.".to_owned()),
                    Some(InFlight { backtrace: Some(lines), .. }) if !lines.is_empty() => {
                        Backtrace::Lines(lines)
                    }
                    Some(_) => Backtrace::Unavailable(
                        "The worker did not respond in time: its threads cannot get the GVL.".to_owned(),
                    ),
                },
            };
        }
    }

    pub(crate) fn key_pressed(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            KeyCode::Char('l') if control => return Action::Redraw,
            _ if control => return Action::Nothing,
            KeyCode::Char('q') => return Action::Quit,
            _ => {}
        }
        if self.overlay != Overlay::Nothing {
            self.key_in_overlay(key.code)
        } else {
            self.key_on_screen(key.code)
        }
    }

    fn key_in_overlay(&mut self, key: KeyCode) -> Action {
        if let Overlay::Trace { found: Backtrace::Lines(lines), scroll, .. } = &mut self.overlay {
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
                return Action::Nothing;
            }
        }
        match (key, &self.overlay) {
            // Refresh.
            (KeyCode::Enter, Overlay::Trace { request, .. }) => {
                let request = request.clone();
                self.open_backtrace(request)
            }
            _ => {
                self.overlay = Overlay::Nothing;
                Action::Nothing
            }
        }
    }

    fn key_on_screen(&mut self, key: KeyCode) -> Action {
        let last = self.view.as_ref().map_or(0, |view| view.sample.requests.len().saturating_sub(1));
        match key {
            KeyCode::Esc => return Action::Back,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('?') | KeyCode::Char('h') | KeyCode::F(1) => self.overlay = Overlay::Help,
            KeyCode::Char('r') => self.overlay = Overlay::Routes,
            KeyCode::Char('+') | KeyCode::Char('=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Enter => {
                if let Some(request) = self.selected_request().cloned() {
                    return self.open_backtrace(request);
                }
            }
            _ => {}
        }
        Action::Nothing
    }

    fn open_backtrace(&mut self, request: InFlight) -> Action {
        let queued = request.state == RequestPhase::Queued;
        let found = if queued {
            Backtrace::Unavailable("Queued: no worker thread has started it yet.".to_owned())
        } else {
            Backtrace::Pending
        };
        self.overlay = Overlay::Trace { request: request.clone(), found, scroll: 0 };
        if queued { Action::Nothing } else { Action::Backtrace(request) }
    }

    fn change_interval(&mut self, longer: bool) -> Action {
        const STEPS_MS: [u64; 9] = [200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000];
        let steps = STEPS_MS.map(Duration::from_millis);
        let next = if longer {
            steps.into_iter().find(|step| *step > self.interval)
        } else {
            steps.into_iter().rev().find(|step| *step < self.interval)
        };
        self.interval = next.unwrap_or(self.interval).clamp(SHORTEST, LONGEST);
        Action::Interval(self.interval)
    }
}

/// Returns the workers in the selected order, busiest first.
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

/// Returns whether two samples show the same request. A request has no id, but a path, a worker thread and a start time.
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

    fn press(state: &mut State, code: KeyCode) -> Action {
        state.key_pressed(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_that_quit() {
        assert_eq!(press(&mut state(), KeyCode::Char('q')), Action::Quit);
        assert_eq!(press(&mut state(), KeyCode::Esc), Action::Back);
        let with_control =
            |code| state().key_pressed(KeyEvent::new(KeyCode::Char(code), KeyModifiers::CONTROL));
        assert_eq!(
            (with_control('c'), with_control('z'), with_control('x')),
            (Action::Quit, Action::Suspend, Action::Nothing)
        );
        let mut helped = state();
        press(&mut helped, KeyCode::Char('?'));
        assert_eq!(helped.overlay, Overlay::Help);
        assert_eq!(press(&mut helped, KeyCode::Esc), Action::Nothing);
        assert_eq!(helped.overlay, Overlay::Nothing);
    }

    #[test]
    fn the_selection_stays_in_range_and_on_its_request() {
        let mut state = state();
        press(&mut state, KeyCode::Up);
        assert_eq!(state.selected, 0);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected_request().map(|request| request.path.as_str()), Some("/reports/2026"));
        // A slower request appears above it, two seconds later.
        let mut sample = state.view.as_ref().unwrap().sample.clone();
        sample.at += Duration::from_secs(2);
        sample.requests.iter_mut().for_each(|request| request.age_ms += 2_000.0);
        sample.requests.insert(0, request("/slower", 60_000.0, Some(1)));
        state.sampled(Ok(sample.clone()));
        assert_eq!((state.selected, state.selected_request().unwrap().path.as_str()), (2, "/reports/2026"));
        sample.requests.clear();
        sample.at += Duration::from_secs(2);
        state.sampled(Ok(sample));
        assert_eq!((state.selected, state.selected_request()), (0, None));
        assert_eq!(press(&mut state, KeyCode::Enter), Action::Nothing);
    }

    #[test]
    fn enter_fetches_the_backtrace() {
        let mut state = state();
        let Action::Backtrace(wanted) = press(&mut state, KeyCode::Enter) else { panic!("no action") };
        assert!(matches!(&state.overlay, Overlay::Trace { found: Backtrace::Pending, .. }));
        let mut response = InFlight { age_ms: wanted.age_ms + 300.0, ..wanted.clone() };
        response.backtrace = Some(vec!["app.rb:3:in `sleep'".to_owned()]);
        state.show_backtrace(&request("/other", 1.0, Some(0)), Ok(vec![response.clone()]), Duration::ZERO);
        assert!(
            matches!(&state.overlay, Overlay::Trace { found: Backtrace::Pending, .. }),
            "the response for another request is ignored"
        );
        state.show_backtrace(&wanted, Ok(vec![response]), Duration::from_millis(300));
        let Overlay::Trace { found: Backtrace::Lines(lines), .. } = &state.overlay else {
            panic!("{:?}", state.overlay)
        };
        assert_eq!(lines, &["app.rb:3:in `sleep'"]);
        for _ in 0..3 {
            press(&mut state, KeyCode::Down);
        }
        assert!(matches!(&state.overlay, Overlay::Trace { scroll: 0, .. }), "there is only one line");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.overlay, Overlay::Nothing);
    }

    #[test]
    fn a_missing_backtrace_is_explained() {
        let why = |response: Result<Vec<InFlight>, String>| {
            let mut state = state();
            let Action::Backtrace(wanted) = press(&mut state, KeyCode::Enter) else { panic!("no action") };
            state.show_backtrace(&wanted, response, Duration::ZERO);
            let Overlay::Trace { found: Backtrace::Unavailable(why), .. } = state.overlay else {
                panic!("{:?}", state.overlay)
            };
            why
        };
        assert_eq!(why(Ok(Vec::new())), "The request has finished.");
        assert!(
            why(Ok(vec![request("/slow?", 12_300.0, Some(0))])).starts_with("The worker did not respond")
        );
        assert!(
            why(Ok(vec![request("/slow?", 5.0, Some(0))])).contains("finished"),
            "a later request to the same path"
        );
        assert_eq!(why(Err("gone".to_owned())), "gone");
        let mut queued = state();
        queued.selected = 2;
        assert_eq!(press(&mut queued, KeyCode::Enter), Action::Nothing);
        assert!(
            matches!(&queued.overlay, Overlay::Trace { found: Backtrace::Unavailable(why), .. } if why.starts_with("Queued"))
        );
    }

    #[test]
    fn intervals_change_in_steps() {
        let mut state = state();
        let mut seen = Vec::new();
        for key in ['+', '+', '-', '-', '-', '-', '-'] {
            let Action::Interval(interval) = press(&mut state, KeyCode::Char(key)) else { panic!("{key}") };
            seen.push(interval.as_millis());
        }
        assert_eq!(seen, [2_000, 5_000, 2_000, 1_000, 500, 200, 200]);
    }

    #[test]
    fn pausing_stops_the_screen_but_not_the_curve() {
        let mut state = state();
        let sample = state.view.as_ref().unwrap().sample.clone();
        state.sampled(Ok(sample.clone()));
        press(&mut state, KeyCode::Char('p'));
        let later = Sample { at: sample.at + Duration::from_secs(1), requests: Vec::new(), ..sample };
        state.sampled(Ok(later));
        assert_eq!(state.view.as_ref().unwrap().sample.requests.len(), 3);
        assert_eq!(state.curve.len(), 1);
    }

    #[test]
    fn an_unreachable_and_a_restarted_server() {
        let mut state = state();
        let sample = state.view.as_ref().unwrap().sample.clone();
        state.sampled(Ok(sample.clone()));
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        state.sampled(Err((first, "nothing listens".to_owned())));
        state.sampled(Err((second, "still nothing".to_owned())));
        assert_eq!(state.unreachable, Some((first, "still nothing".to_owned())));
        let mut new = Sample { at: second, ..sample };
        new.server.pid += 1;
        state.sampled(Ok(new));
        assert_eq!((state.unreachable.as_ref(), state.restarted, state.curve.len()), (None, Some(second), 0));
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
