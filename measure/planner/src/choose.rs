//! The choice among the shapes that fit a budget, and its explanation.

use crate::choice::{Budget, Choice, NOISE, Recommendation, Rejected, RunnerUp};
use crate::format::{figure, memory, millis, times};

/// Reserve over the required rate.
const RESERVE: f64 = 1.2;

pub(crate) fn among(fits: Vec<Choice>, rejected: Vec<Rejected>, budget: &Budget) -> Recommendation {
    let Some(best) = best(&fits, budget).cloned() else {
        let reasons = nothing_fits(&rejected);
        return Recommendation { best: None, reasons, runners_up: Vec::new(), rejected };
    };
    let runners_up = runners_up(&fits, &best);
    let reasons = reasons(&fits, &best, budget);
    Recommendation { best: Some(best), reasons, runners_up, rejected }
}

/// Returns the best choice; one with fibers only if it gains enough over the best one without.
fn best<'a>(fits: &'a [Choice], budget: &Budget) -> Option<&'a Choice> {
    let best = best_of(fits.iter(), budget)?;
    let threads = best_of(fits.iter().filter(|choice| choice.shape.fibers == 0), budget);
    Some(threads.filter(|threads| best.shape.fibers > 0 && !best.gains_over(threads, budget)).unwrap_or(best))
}

pub(crate) fn best_of<'a>(
    fits: impl Iterator<Item = &'a Choice> + Clone,
    budget: &Budget,
) -> Option<&'a Choice> {
    let fastest = fits.clone().map(|choice| choice.rate_per_s).fold(0.0, f64::max);
    // With a required rate, all choices that reach it (with reserve, if possible) count as equal.
    let enough = match budget.rate_per_s {
        Some(wanted) => (wanted * RESERVE).min(fastest),
        None => fastest * (1.0 - NOISE),
    };
    let equals = fits.filter(|choice| choice.rate_per_s >= enough);
    equals.min_by(|a, b| weight(a).total_cmp(&weight(b)).then(b.rate_per_s.total_cmp(&a.rate_per_s)))
}

/// Returns the weight of a choice; less is better. Memory counts first, if known, in steps of 3 %; then threads.
fn weight(choice: &Choice) -> f64 {
    let memory = if choice.pss_bytes > 0.0 { (choice.pss_bytes.ln() / 0.03).round() } else { 0.0 };
    memory + f64::from(choice.shape.slots()) * 1e-6
}

fn reasons(fits: &[Choice], best: &Choice, budget: &Budget) -> Vec<String> {
    let mut reasons = Vec::new();
    let rate = figure(best.rate_per_s);
    match budget.rate_per_s {
        Some(wanted) if best.rate_per_s >= wanted * RESERVE => reasons.push(format!(
            "It handles {rate} requests per second, {} times what is required, with the least memory.",
            figure(best.rate_per_s / wanted)
        )),
        Some(wanted) => reasons.push(format!(
            "It handles {rate} requests per second, little more than the required {}; no shape within the budget has more reserve.",
            figure(wanted)
        )),
        None if fits.len() == 1 => reasons.push(format!("It is the only shape within the budget: {rate} requests per second.")),
        None => {
            let fastest = fits.iter().max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s)).filter(|one| one.shape != best.shape);
            reasons.push(match fastest {
                None => format!("No other shape within the budget is faster: {rate} requests per second."),
                Some(other) => format!(
                    "It handles {rate} requests per second; {} handles {}, which is not a significant difference{}.",
                    other.shape,
                    figure(other.rate_per_s),
                    if weight(other) > weight(best) { ", and needs more memory" } else { "" }
                ),
            });
        }
    }
    if best.pss_bytes > 0.0 {
        let available =
            budget.memory_bytes.map(|available| format!(" of the {} available", memory(available as f64)));
        reasons.push(format!("It needs {}{}.", memory(best.pss_bytes), available.unwrap_or_default()));
    }
    if let Some(slo) = budget.slo {
        let time = best.latency_ms.percentile(slo.percentile);
        reasons.push(match time > 0.0 {
            true => format!("Its p{} is {}, the objective is {slo}.", slo.percentile, millis(time)),
            false => format!("Whether it meets {slo} is unknown: no response times were measured."),
        });
    }
    if !best.measured {
        reasons.push(
            "It was predicted from other shapes, not measured: measure it before relying on it.".to_owned(),
        );
    }
    reasons
}

/// Returns alternatives on the frontier of rate and memory: the nearest with less memory and the nearest with
/// a higher rate; else the next best.
fn runners_up(fits: &[Choice], best: &Choice) -> Vec<RunnerUp> {
    let others: Vec<&Choice> = fits.iter().filter(|one| one.shape != best.shape).collect();
    let beaten = |one: &Choice| {
        fits.iter().any(|other| {
            other.shape != one.shape && other.rate_per_s >= one.rate_per_s && other.pss_bytes < one.pss_bytes
        })
    };
    let loss = |one: &Choice| {
        (best.rate_per_s / one.rate_per_s).max(1.0).ln()
            + (one.pss_bytes.max(1.0) / best.pss_bytes.max(1.0)).max(1.0).ln()
    };
    let frontier = others.iter().copied().filter(|one| !beaten(one));
    let lighter = frontier
        .clone()
        .filter(|one| one.pss_bytes < best.pss_bytes * 0.95 && one.rate_per_s > best.rate_per_s * 0.2);
    let faster = frontier.filter(|one| one.rate_per_s > best.rate_per_s * (1.0 + NOISE));
    let nearest =
        |of: &mut dyn Iterator<Item = &'_ Choice>| of.min_by(|a, b| loss(a).total_cmp(&loss(b))).cloned();
    let mut found: Vec<Choice> =
        [nearest(&mut { lighter }), nearest(&mut { faster })].into_iter().flatten().collect();
    let mut rest: Vec<&Choice> = others.clone();
    rest.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    for one in rest {
        if found.len() < 2 && found.iter().all(|other| other.shape != one.shape) {
            found.push(one.clone());
        }
    }
    found.into_iter().map(|choice| RunnerUp { words: compared(&choice, best), choice }).collect()
}

/// Such as "2x10 needs a fifth of the memory of 10x10 and takes 2 s more for 600 requests".
pub(crate) fn compared(one: &Choice, best: &Choice) -> String {
    let ratio = one.pss_bytes / best.pss_bytes;
    let known = one.pss_bytes > 0.0 && best.pss_bytes > 0.0;
    let memory = known.then(|| match ratio {
        ratio if (0.95..=1.05).contains(&ratio) => format!("needs about as much memory as {}", best.shape),
        ratio => format!("needs {} the memory of {}", times(ratio), best.shape),
    });
    let speed = match one.requests.min(best.requests) {
        0 => rates(one, best),
        requests => seconds(one, best, requests as f64),
    };
    match memory {
        Some(memory) => format!("{} {memory} and {speed}", one.shape),
        None => format!("{} {speed}", one.shape),
    }
}

fn seconds(one: &Choice, best: &Choice, requests: f64) -> String {
    let more = requests / one.rate_per_s - requests / best.rate_per_s;
    let time = millis(more.abs() * 1_000.0);
    let count = figure(requests);
    match one.rate_per_s / best.rate_per_s {
        ratio if (ratio - 1.0).abs() < NOISE => format!("is as fast as {}", best.shape),
        _ if more > 0.0 => format!("takes {time} more for {count} requests"),
        _ => format!("takes {time} less for {count} requests"),
    }
}

fn rates(one: &Choice, best: &Choice) -> String {
    match one.rate_per_s / best.rate_per_s {
        ratio if (ratio - 1.0).abs() < NOISE => format!("is as fast as {}", best.shape),
        ratio => format!("handles {} the requests per second of {}", times(ratio), best.shape),
    }
}

fn nothing_fits(rejected: &[Rejected]) -> Vec<String> {
    let mut reasons = vec![match rejected.len() {
        0 => "No shape was measured.".to_owned(),
        _ => "No shape fits the budget:".to_owned(),
    }];
    reasons.extend(rejected.iter().take(5).map(|one| format!("{} {}", one.shape, one.why)));
    if !rejected.is_empty() {
        reasons.push("Increase the budget, lower the requirements, or use more machines (`firebrick plan` computes how many).".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Shape, Times};

    fn choice(processes: u32, threads: u32, rate_per_s: f64, mib: f64) -> Choice {
        let latency_ms = Times { mean: 100.0, cv: 0.5, p50: 90.0, p95: 200.0, p99: 250.0 };
        let shape = Shape::new(processes, threads);
        Choice {
            shape,
            measured: true,
            rate_per_s,
            latency_ms,
            pss_bytes: mib * 1_048_576.0,
            requests: 600,
            spread: 0.0,
        }
    }

    #[test]
    fn comparisons_of_two_shapes() {
        let words = compared(&choice(2, 10, 600.0 / 4.8, 20.0), &choice(10, 10, 600.0 / 2.8, 100.0));
        assert_eq!(words, "2x10 needs a fifth of the memory of 10x10 and takes 2 s more for 600 requests");
        let words = compared(&choice(10, 10, 200.0, 0.0), &choice(2, 10, 100.0, 0.0));
        assert_eq!(words, "10x10 takes 3 s less for 600 requests");
    }

    #[test]
    fn equal_rates_are_ordered_by_memory_then_threads() {
        let fits = vec![
            choice(10, 10, 101.0, 100.0),
            choice(2, 10, 100.0, 20.0),
            choice(2, 5, 99.0, 20.1),
            choice(1, 1, 50.0, 10.0),
        ];
        let found = among(fits.clone(), Vec::new(), &Budget::default());
        assert_eq!(found.best.unwrap().shape, Shape::new(2, 5));
        assert_eq!(found.runners_up.len(), 2);
        let wanted = Budget { rate_per_s: Some(40.0), ..Budget::default() };
        assert_eq!(among(fits, Vec::new(), &wanted).best.unwrap().shape, Shape::new(1, 1));
    }

    #[test]
    fn reasons_are_given_if_nothing_fits() {
        let found = among(
            Vec::new(),
            vec![Rejected { shape: Shape::new(1, 1), why: "is too slow".to_owned() }],
            &Budget::default(),
        );
        assert!(
            found.best.is_none() && found.reasons.iter().any(|words| words == "1x1 is too slow"),
            "{found:?}"
        );
        assert!(!among(Vec::new(), Vec::new(), &Budget::default()).reasons.is_empty());
    }
}
