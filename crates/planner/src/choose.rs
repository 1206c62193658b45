//! The choice among shapes that fit a budget, and the words for it.

use crate::recommend::{Budget, Choice, Recommendation, Rejected, RunnerUp};
use crate::words::{figure, memory, millis, times};

/// Rates that differ by less are equal.
const NOISE: f64 = 0.03;
/// Reserve over the wanted rate.
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

fn best<'a>(fits: &'a [Choice], budget: &Budget) -> Option<&'a Choice> {
    let fastest = fits.iter().map(|choice| choice.rate_per_s).fold(0.0, f64::max);
    // With a wanted rate all that serve it are equal: with a reserve, when there are such.
    let enough = match budget.rate_per_s {
        Some(wanted) => (wanted * RESERVE).min(fastest),
        None => fastest * (1.0 - NOISE),
    };
    let equals = fits.iter().filter(|choice| choice.rate_per_s >= enough);
    equals.min_by(|a, b| weight(a).total_cmp(&weight(b)).then(b.rate_per_s.total_cmp(&a.rate_per_s)))
}

/// Less is better: memory, where it is known, in steps of 3 %; then threads.
fn weight(choice: &Choice) -> f64 {
    let memory = if choice.pss_bytes > 0.0 { (choice.pss_bytes.ln() / 0.03).round() } else { 0.0 };
    memory + f64::from(choice.shape.slots()) * 1e-6
}

fn reasons(fits: &[Choice], best: &Choice, budget: &Budget) -> Vec<String> {
    let mut reasons = Vec::new();
    let rate = figure(best.rate_per_s);
    match budget.rate_per_s {
        Some(wanted) if best.rate_per_s >= wanted * RESERVE => reasons.push(format!(
            "It can take {rate} requests per second, {} times what is wanted, and of those that can it needs least.",
            figure(best.rate_per_s / wanted)
        )),
        Some(wanted) => reasons.push(format!(
            "It can take {rate} requests per second, which is little more than the {} that are wanted; no shape within the budget has more reserve.",
            figure(wanted)
        )),
        None if fits.len() == 1 => reasons.push(format!("It is the only one within the budget: {rate} requests per second.")),
        None => {
            let fastest = fits.iter().max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s)).filter(|one| one.shape != best.shape);
            reasons.push(match fastest {
                None => format!("No other within the budget does more: {rate} requests per second."),
                Some(other) => format!(
                    "It does {rate} requests per second; {} does {}, which is no difference that a measurement can tell, and needs more.",
                    other.shape,
                    figure(other.rate_per_s)
                ),
            });
        }
    }
    if best.pss_bytes > 0.0 {
        let there =
            budget.memory_bytes.map(|there| format!(" of the {} that are there", memory(there as f64)));
        reasons.push(format!("It needs {}{}.", memory(best.pss_bytes), there.unwrap_or_default()));
    }
    if let Some(slo) = budget.slo {
        let time = crate::recommend::percentile(&best.latency_ms, slo.percentile);
        reasons.push(match time > 0.0 {
            true => format!("Its p{} is {}, the promise is {slo}.", slo.percentile, millis(time)),
            false => format!("Whether it keeps {slo} is not known: no response times were measured."),
        });
    }
    if !best.measured {
        reasons.push(
            "It was not measured but predicted from other shapes: measure it before you rely on it."
                .to_owned(),
        );
    }
    reasons
}

/// Of those that nobody beats in both rate and memory: the nearest that needs less, the nearest that does more; else the
/// next best.
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

/// "2x10 costs a fifth of the memory of 10x10 and takes 2 s more for 600 requests".
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
    let said = millis(more.abs() * 1_000.0);
    let asked = figure(requests);
    match one.rate_per_s / best.rate_per_s {
        ratio if (ratio - 1.0).abs() < NOISE => format!("is as fast as {}", best.shape),
        _ if more > 0.0 => format!("takes {said} more for {asked} requests"),
        _ => format!("takes {said} less for {asked} requests"),
    }
}

fn rates(one: &Choice, best: &Choice) -> String {
    match one.rate_per_s / best.rate_per_s {
        ratio if (ratio - 1.0).abs() < NOISE => format!("is as fast as {}", best.shape),
        ratio => format!("does {} the requests per second of {}", times(ratio), best.shape),
    }
}

fn nothing_fits(rejected: &[Rejected]) -> Vec<String> {
    let mut reasons = vec![match rejected.len() {
        0 => "There is nothing to choose from: no shape was measured.".to_owned(),
        _ => "No shape fits the budget:".to_owned(),
    }];
    reasons.extend(rejected.iter().take(5).map(|one| format!("{} {}", one.shape, one.why)));
    if !rejected.is_empty() {
        reasons.push("Give more of what is short, ask for less, or use more machines (`firebrick plan` says how many).".to_owned());
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
    fn the_issues_own_words() {
        let words = compared(&choice(2, 10, 600.0 / 4.8, 20.0), &choice(10, 10, 600.0 / 2.8, 100.0));
        assert_eq!(words, "2x10 needs a fifth of the memory of 10x10 and takes 2 s more for 600 requests");
        let words = compared(&choice(10, 10, 200.0, 0.0), &choice(2, 10, 100.0, 0.0));
        assert_eq!(words, "10x10 takes 3 s less for 600 requests");
    }

    #[test]
    fn equal_rates_go_by_memory_then_by_threads() {
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
    fn nothing_is_said_to_be_nothing() {
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
