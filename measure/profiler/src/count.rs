//! Adds up the samples: by state, by method, by line.

use profile::{Profile, StackFrame, State};
use std::collections::{HashMap, HashSet};

/// Microseconds by state.
pub(crate) type ByState = [u64; State::ALL.len()];

/// The time spent in a method or on a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Time {
    /// On top of the stack, functions in C that it had called included.
    pub(crate) own: ByState,
    /// Anywhere in the stack.
    pub(crate) total: u64,
    /// The functions in C that it had called, by state.
    native: HashMap<(State, u32), u64>,
}

impl Time {
    pub(crate) fn own(&self) -> u64 {
        self.own.iter().sum()
    }

    /// Returns the state in which it spent most of its own time.
    pub(crate) fn state(&self) -> State {
        let most = State::ALL.into_iter().zip(self.own).max_by_key(|(_, us)| *us);
        most.map_or(State::Runs, |(state, _)| state)
    }

    /// Returns the function in C that took most of its own time in a state, if that is at least half of it.
    pub(crate) fn native<'p>(&self, profile: &'p Profile, state: State) -> Option<&'p str> {
        let of_state = self.native.iter().filter(|((of, _), _)| *of == state);
        let ((_, frame), us) = of_state.max_by_key(|((_, frame), us)| (**us, std::cmp::Reverse(*frame)))?;
        (*us * 2 >= self.own[state as usize]).then(|| profile.frames[*frame as usize].name.as_str())
    }
}

/// The sums of all samples.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) all: u64,
    pub(crate) states: ByState,
    /// By frame.
    pub(crate) methods: HashMap<u32, Time>,
    /// By frame and line.
    pub(crate) lines: HashMap<(u32, u32), Time>,
    /// Time for which no stack is known.
    pub(crate) unknown: u64,
}

impl Sums {
    pub(crate) fn of(profile: &Profile) -> Sums {
        let mut sums = Sums::default();
        for sample in &profile.samples {
            let (state, us) = (sample.state as usize, sample.us);
            sums.all += us;
            sums.states[state] += us;
            if sample.stack.is_none() {
                sums.unknown += us;
            }
            let (mut seen, mut seen_lines) = (HashSet::new(), HashSet::new());
            let (mut native, mut is_own, mut at) = (None, true, sample.stack);
            while let Some(stack) = at.and_then(|at| profile.stacks.get(at as usize)) {
                at = stack.parent;
                if is_native(&profile.frames[stack.frame as usize]) {
                    // The outermost of those on top is what Ruby has called.
                    native = native.filter(|_| !is_own).or(Some(stack.frame));
                    continue;
                }
                let (method, line) = (stack.frame, (stack.frame, stack.line));
                let (by_method, by_line) =
                    (sums.methods.entry(method).or_default(), sums.lines.entry(line).or_default());
                if std::mem::take(&mut is_own) {
                    for time in [&mut *by_method, &mut *by_line] {
                        time.own[state] += us;
                        if let Some(native) = native {
                            *time.native.entry((sample.state, native)).or_default() += us;
                        }
                    }
                }
                by_method.total += if seen.insert(method) { us } else { 0 };
                by_line.total += if seen_lines.insert(line) { us } else { 0 };
            }
        }
        sums
    }

    /// Returns the methods, those with the most time of their own first.
    pub(crate) fn hottest_methods(&self) -> Vec<(u32, &Time)> {
        sorted(self.methods.iter().map(|(frame, time)| (*frame, time)), Time::own)
    }

    /// Returns the lines, those with the most time of their own first.
    pub(crate) fn hottest_lines(&self) -> Vec<((u32, u32), &Time)> {
        sorted(self.lines.iter().map(|(line, time)| (*line, time)), Time::own)
    }

    /// Returns the lines with time of their own in a state, those with the most first.
    pub(crate) fn hottest_in(&self, state: State) -> Vec<((u32, u32), &Time)> {
        let own = move |time: &Time| time.own[state as usize];
        sorted(self.lines.iter().map(|(line, time)| (*line, time)), own)
    }
}

fn sorted<'t, K: Ord + Copy>(
    all: impl Iterator<Item = (K, &'t Time)>,
    own: impl Fn(&Time) -> u64,
) -> Vec<(K, &'t Time)> {
    let mut all: Vec<(K, &Time)> = all.filter(|(_, time)| own(time) > 0).collect();
    all.sort_by_key(|(key, time)| (std::cmp::Reverse(own(time)), *key));
    all
}

/// Returns whether the frame is a function in C.
pub(crate) fn is_native(frame: &StackFrame) -> bool {
    frame.file.is_none()
}
