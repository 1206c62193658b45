//! The profile of an app as sentences.

use crate::cell::Cell;
use crate::format::{count, figure, memory, millis, percent};
use crate::memory::Memory;
use crate::profile::{self, AppKind, Crash, Profile};
use crate::usl::Usl;

/// Returns the profile of the app behind these cells, with its sentences.
pub fn profile(cells: &[Cell]) -> Profile {
    let found = profile::measured(cells);
    Profile { words: sentences(&found), ..found }
}

/// Returns the sentences, most important first.
fn sentences(found: &Profile) -> Vec<String> {
    let mut words = vec![kind(found)];
    words.extend(found.leak.map(|leak| {
        let each = memory(leak.bytes_per_request);
        format!("It leaks: each request leaks {each}, and memory doubles after {} requests. Fix the leak first; until then, restart workers in time.", figure(leak.doubles_after as f64))
    }));
    words.extend(found.crash.as_ref().map(crash));
    words.extend(found.threads_bring.map(|bring| match bring.times {
        times if times < 1.15 => {
            format!("Threads do not help: {} do {} times the work of one.", bring.threads, figure(times))
        }
        times => {
            format!("Threads help: {} per process do {} times the work of one.", bring.threads, figure(times))
        }
    }));
    words.extend(found.lock_wait.filter(|share| *share > 0.05).map(|share| {
        format!(
            "Up to {} of the time in the app is spent waiting for the process's lock (GVL).",
            percent(share)
        )
    }));
    words.extend(found.memory.as_ref().and_then(memory_parts));
    words.extend(found.threads_law.as_ref().and_then(|found| law(found, "thread", "threads")));
    words.extend(found.processes_law.as_ref().and_then(|found| law(found, "process", "processes")));
    words
}

fn kind(found: &Profile) -> String {
    let Some(model) = found.model.as_ref().filter(|_| found.kind != AppKind::Unknown) else {
        return "Not enough measurements for a profile: measure at least one thread and several threads of one process, with a fixed number of concurrent requests.".to_owned();
    };
    let alone = millis(model.alone_ms());
    let (waits, runs, holds) = (percent(found.waiting), percent(found.running), percent(found.holding));
    match found.kind {
        AppKind::Waiting => format!(
            "It waits: of the {alone} of a request, {waits} are spent waiting for something outside (database, network, sleep) and {runs} running. It needs threads."
        ),
        AppKind::Computing if model.lock_ms < 0.5 * model.cpu_ms => format!(
            "It computes, and releases the lock (GVL) meanwhile: {runs} of the {alone} of a request are CPU time. Both threads and processes help, up to the number of cores."
        ),
        AppKind::Computing => format!(
            "It computes: {runs} of the {alone} of a request are CPU time in Ruby, which only one thread of a process can use at a time. Processes help, up to the number of cores."
        ),
        AppKind::LockHog => format!(
            "It holds the lock (GVL) without computing for {holds} of the {alone} of a request, which blocks the rest of its process: probably C code that waits without releasing the lock. Processes help, threads do not."
        ),
        AppKind::Mixed | AppKind::Unknown => format!(
            "It waits and computes: of the {alone} of a request, it waits for {waits} and runs for {runs}. It needs processes for the cores, and some threads in each for the waits."
        ),
    }
}

fn crash(found: &Crash) -> String {
    let error = found.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output");
    let shapes: Vec<String> = found.shapes.iter().take(5).map(ToString::to_string).collect();
    match (found.from_processes, found.from_threads) {
        (Some(from), _) => format!(
            "It does not run with {} or more: \"{error}\".",
            count(from.into(), "process", "processes")
        ),
        (_, Some(from)) => {
            format!("It does not run with {} or more: \"{error}\".", count(from.into(), "thread", "threads"))
        }
        _ => format!("It did not run with {}: \"{error}\".", shapes.join(", ")),
    }
}

/// Says where throughput stops growing, and how certain that is.
fn law(found: &Usl, one: &str, many: &str) -> Option<String> {
    let knee = found.knee()?;
    let at = count(knee.into(), one, many);
    let beyond = f64::from(knee) > found.reach;
    let stops = if beyond {
        format!("would stop growing at about {at}, more than measured")
    } else {
        format!("stops growing at about {at}")
    };
    let sure = match found.knee_bounds {
        Some((low, high)) => format!("{low} to {high} with any one measurement left out"),
        None => "a rough estimate from few measurements".to_owned(),
    };
    let explained = percent(found.fit);
    Some(format!(
        "Throughput {stops} ({sure}; Universal Scalability Law, which explains {explained} of the variance)."
    ))
}

/// Returns the known parts of base, processes and threads as text.
fn memory_parts(of: &Memory) -> Option<String> {
    let parts = [
        (of.base_bytes, "base"),
        (of.per_process_bytes, "per process"),
        (of.per_thread_bytes, "per thread in use"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(bytes, _)| *bytes >= 1_024.0)
        .map(|(bytes, what)| format!("{} {what}", memory(*bytes)))
        .collect();
    (!parts.is_empty()).then(|| format!("Memory: {}.", parts.join(", ")))
}
