//! A profile as text for the terminal.

use crate::count::{Sums, Time};
use profile::{Profile, State};
use std::cmp::Reverse;
use std::fmt::Write;
use text::people::{decimals, figure, grouped};

/// The rows of a table.
const ROWS: usize = 10;
/// The lines that are named for each state.
const OF_STATE: usize = 3;

/// Returns the summary. With `before`, the change of each share.
pub(crate) fn render(profile: &Profile, before: Option<&Profile>) -> String {
    let sums = Sums::of(profile);
    let before = before.map(|before| (before, Sums::of(before)));
    let mut out = headline(profile, &sums);
    states(&mut out, profile, &sums, before.as_ref().map(|(_, sums)| sums));
    methods(&mut out, profile, &sums, before.as_ref());
    lines(&mut out, profile, &sums);
    out
}

/// Returns the first lines: how much was seen, and what is missing.
pub(crate) fn headline(profile: &Profile, sums: &Sums) -> String {
    let requests: u64 = profile.workers.iter().map(|worker| worker.requests).sum();
    let what = if profile.clock == "cpu" { "processor time" } else { "time" };
    let mut out = format!(
        "{} s of {what} in requests, in {} s with {} samples a second; {}, {} requests\n",
        decimals(sums.all as f64 / 1e6, 2),
        figure(profile.seconds),
        profile.hz,
        match profile.workers.len() {
            1 => "1 worker".to_owned(),
            count => format!("{count} workers"),
        },
        grouped(requests),
    );
    for note in notes(profile, sums) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{note}");
    }
    out
}

/// Returns what a reader must know about the profile.
pub(crate) fn notes(profile: &Profile, sums: &Sums) -> Vec<String> {
    let mut notes = Vec::new();
    for worker in profile.workers.iter().filter(|worker| !worker.lacks.is_empty()) {
        notes.push(format!(
            "worker {} (pid {}) takes no profiles: {}",
            worker.worker, worker.pid, worker.lacks
        ));
    }
    let incomplete = profile.workers.iter().filter(|worker| !worker.complete);
    let pids: Vec<String> =
        incomplete.map(|worker| format!("{} (pid {})", worker.worker, worker.pid)).collect();
    if !pids.is_empty() {
        notes.push(format!(
            "not complete, because the worker has ended or did not answer: worker {}",
            pids.join(", ")
        ));
    }
    if profile.workers.iter().any(|worker| worker.truncated) {
        notes.push("a limit was reached: some stacks are cut off, or samples left out".to_owned());
    }
    let (ticks, late) =
        profile.workers.iter().fold((0, 0), |(ticks, late), one| (ticks + one.ticks, late + one.late));
    if late * 20 > ticks + late {
        notes.push(format!(
            "{} % of the samples were late, because the machine was busy",
            figure(100.0 * late as f64 / (ticks + late) as f64)
        ));
    }
    if sums.unknown * 20 > sums.all {
        let share = percent(sums.unknown, sums.all);
        notes.push(format!(
            "{share} of the time has no stack: its requests had ended before Ruby could be asked"
        ));
    }
    notes
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{} %", decimals(100.0 * part as f64 / whole.max(1) as f64, 1))
}

/// Writes the states with their hottest lines, the longest first.
fn states(out: &mut String, profile: &Profile, sums: &Sums, before: Option<&Sums>) {
    out.push('\n');
    let mut longest_first = State::ALL;
    longest_first.sort_by_key(|state| Reverse(sums.states[*state as usize]));
    for state in longest_first {
        let us = sums.states[state as usize];
        let was = before.map(|before| before.states[state as usize]);
        if us == 0 && was.unwrap_or(0) == 0 {
            continue;
        }
        let change = before.zip(was).map(|(before, was)| change((us, sums.all), (was, before.all)));
        let _ = writeln!(out, "{:>7} {}{}", percent(us, sums.all), state.name(), change.unwrap_or_default());
        for ((frame, line), time) in sums.hottest_in(state).into_iter().take(OF_STATE) {
            let own = time.own[state as usize];
            if own * 200 < sums.all {
                break;
            }
            let _ = writeln!(
                out,
                "        {:>7} {}",
                percent(own, sums.all),
                place(profile, frame, Some(line), time.native(profile, state))
            );
        }
    }
}

/// Returns the change of a share, in percentage points.
fn change((us, all): (u64, u64), (was, all_before): (u64, u64)) -> String {
    let share = |us: u64, all: u64| 100.0 * us as f64 / all.max(1) as f64;
    format!(" ({:+.1})", share(us, all) - share(was, all_before))
}

/// Returns a method with its place, and the function in C that it was in.
fn place(profile: &Profile, frame: u32, line: Option<u32>, native: Option<&str>) -> String {
    let frame = &profile.frames[frame as usize];
    let file = frame.file.as_deref().unwrap_or_default();
    let at = line.filter(|line| *line > 0).map(|line| format!(":{line}")).unwrap_or_default();
    let native = native.map(|name| format!(" in {name}")).unwrap_or_default();
    format!("{}  {file}{at}{native}", frame.name)
}

fn methods(out: &mut String, profile: &Profile, sums: &Sums, before: Option<&(&Profile, Sums)>) {
    out.push_str("\n   self   total  state              method\n");
    for (frame, time) in sums.hottest_methods().into_iter().take(ROWS) {
        let change = before.map(|(other, sums_before)| {
            let name = &profile.frames[frame as usize];
            let at = other.frames.iter().position(|one| one == name);
            let was = at.and_then(|at| sums_before.methods.get(&(at as u32))).map_or(0, Time::own);
            change((time.own(), sums.all), (was, sums_before.all))
        });
        let _ = writeln!(
            out,
            "{:>7} {:>7}  {:<18} {}{}",
            percent(time.own(), sums.all),
            percent(time.total, sums.all),
            time.state().name(),
            place(profile, frame, None, time.native(profile, time.state())),
            change.unwrap_or_default(),
        );
    }
}

fn lines(out: &mut String, profile: &Profile, sums: &Sums) {
    out.push_str("\n   self   total  state              line\n");
    for ((frame, line), time) in sums.hottest_lines().into_iter().take(ROWS) {
        let own = &profile.frames[frame as usize];
        let native = time.native(profile, time.state()).map(|name| format!(" in {name}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{:>7} {:>7}  {:<18} {}:{line} {}{native}",
            percent(time.own(), sums.all),
            percent(time.total, sums.all),
            time.state().name(),
            own.file.as_deref().unwrap_or_default(),
            own.name,
        );
    }
}
