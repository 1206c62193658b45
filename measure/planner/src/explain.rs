//! Sizing with its steps: the formulas, with the numbers filled in.

use crate::capacity::{Capacity, Resource};
use crate::facts::{Size, TrafficFacts};
use crate::format::{figure, millis, percent, whole};
use crate::sizing::{self, Sizing, SizingError};
use crate::steps::Step;

const LITTLE: &str = "Little (1961), L = λW";
const ERLANG: &str = "Erlang C (1917)";
const ALLEN: &str = "Allen and Cunneen (Allen 1990)";

/// Returns the result for `size`, with as many instances as needed or with `instances`.
///
/// # Errors
/// A number is invalid, or more than a million instances would be needed.
pub fn size_up(facts: &TrafficFacts, size: &Size, instances: Option<u32>) -> Result<Sizing, SizingError> {
    let (sizing, capacity) = sizing::computed(facts, size, instances)?;
    Ok(Sizing { steps: steps(facts, &capacity, &sizing), ..sizing })
}

/// Returns the results for several sizes, cheapest first; sizes without a price come last, in the given order.
///
/// # Errors
/// The first error of [`size_up`].
pub fn compare(
    facts: &TrafficFacts,
    sizes: &[Size],
    instances: Option<u32>,
) -> Result<Vec<Sizing>, SizingError> {
    let mut sizings =
        sizes.iter().map(|size| size_up(facts, size, instances)).collect::<Result<Vec<_>, _>>()?;
    // Sizes that miss the objective come after those that meet it.
    let rank = |sizing: &Sizing| {
        let cost = sizing.cost.as_ref().map_or(f64::INFINITY, |cost| cost.per_month);
        (sizing.keeps_slo == Some(false) || sizing.load.times.is_none(), cost)
    };
    sizings.sort_by(|a, b| {
        let ((a_breaks, a_cost), (b_breaks, b_cost)) = (rank(a), rank(b));
        a_breaks.cmp(&b_breaks).then(a_cost.total_cmp(&b_cost))
    });
    Ok(sizings)
}

/// Returns the steps of the calculation of `sizing`.
fn steps(facts: &TrafficFacts, capacity: &Capacity, sizing: &Sizing) -> Vec<Step> {
    let mut steps =
        vec![in_the_app(facts, sizing), instance_rate(sizing, capacity), to_keep_up(facts, sizing)];
    steps.push(with_headroom(facts, sizing));
    steps.extend(within_slo(facts, sizing));
    steps.push(utilisation(capacity, sizing));
    steps.extend(waiting(facts, capacity, sizing));
    steps.extend(burst(facts, sizing));
    steps.extend(cost(facts, sizing));
    steps
}

fn per_s(rate: f64) -> String {
    format!("{}/s", figure(rate))
}

fn in_the_app(facts: &TrafficFacts, sizing: &Sizing) -> Step {
    let filled = format!("{} x {}", per_s(facts.rate_per_s), millis(facts.response_ms));
    Step::new("requests in the app at once", "L = λ x S", filled, figure(sizing.in_the_app), LITTLE)
}

fn instance_rate(sizing: &Sizing, capacity: &Capacity) -> Step {
    let formula = match capacity.limit {
        Resource::Threads if sizing.size.fibers > 0 => "μ = workers x threads x fibers / S",
        Resource::Threads => "μ = workers x threads / S",
        Resource::Workers => "μ = workers / CPU time",
        Resource::Cores => "μ = cores / CPU time",
    };
    let filled = format!("{} / {}", capacity.servers, millis(capacity.busy_ms));
    Step::new(
        "throughput of one instance",
        formula,
        filled,
        per_s(capacity.rate_per_s),
        "utilisation law (Denning and Buzen 1978)",
    )
}

fn to_keep_up(facts: &TrafficFacts, sizing: &Sizing) -> Step {
    let filled = format!("{} / {}", per_s(facts.rate_per_s), per_s(sizing.instance_rate_per_s));
    let exact = facts.rate_per_s / sizing.instance_rate_per_s;
    let result = format!("{}, so {}", figure(exact), sizing.needed.to_keep_up);
    Step::new("instances to keep up", "n > λ / μ", filled, result, "stability: ρ < 1")
}

fn with_headroom(facts: &TrafficFacts, sizing: &Sizing) -> Step {
    let filled = format!(
        "{} x {} / {}",
        per_s(facts.rate_per_s),
        figure(1.0 + facts.headroom),
        per_s(sizing.instance_rate_per_s)
    );
    let exact = facts.rate_per_s * (1.0 + facts.headroom) / sizing.instance_rate_per_s;
    let result = format!("{}, so {}", figure(exact), sizing.needed.with_headroom);
    Step::new("instances with headroom", "n ≥ λ x (1 + headroom) / μ", filled, result, "as requested")
}

fn within_slo(facts: &TrafficFacts, sizing: &Sizing) -> Option<Step> {
    let (slo, each) = (facts.slo?, sizing.instance_rate_within_slo_per_s?);
    let filled = format!(
        "{slo} holds up to {} per instance; {} / {}",
        per_s(each),
        per_s(facts.rate_per_s),
        per_s(each)
    );
    let result = format!("{}, so {}", figure(facts.rate_per_s / each), sizing.needed.for_slo?);
    Some(Step::new(
        "instances for the objective",
        "n ≥ λ / largest λ with P(T > t) ≤ 1 - p",
        filled,
        result,
        "response times as below",
    ))
}

fn utilisation(capacity: &Capacity, sizing: &Sizing) -> Step {
    let load = &sizing.load;
    let filled = format!("{} x {} / {}", per_s(load.rate_per_s), millis(capacity.busy_ms), capacity.servers);
    Step::new(
        "utilisation of each instance",
        "ρ = λ x S / c",
        filled,
        percent(load.utilisation),
        "utilisation law",
    )
}

fn waiting(facts: &TrafficFacts, capacity: &Capacity, sizing: &Sizing) -> Vec<Step> {
    let Some(times) = &sizing.load.times else { return Vec::new() };
    let offered = sizing.load.rate_per_s * capacity.busy_ms / 1_000.0;
    let c = capacity.servers;
    let busy = millis(capacity.busy_ms);
    let mean = format!(
        "{} x {busy} / ({c} - {}) x ({}² + {}²)/2",
        percent(times.waits),
        figure(offered),
        figure(facts.arrival_cv),
        figure(facts.cv)
    );
    let mut steps = vec![
        Step::new(
            "probability that a request waits",
            "C(c, A) = B / (1 - ρ(1 - B))",
            format!("C({c}, {})", figure(offered)),
            percent(times.waits),
            ERLANG,
        ),
        Step::new(
            "mean wait",
            "W = C x S / (c - A) x (ca² + cs²)/2",
            mean,
            millis(times.wait_mean_ms),
            ALLEN,
        ),
    ];
    if times.waits > 0.01 {
        let scale = times.wait_mean_ms / times.waits;
        let filled = format!("{} x ln({} / 1 %), if that is above 0", millis(scale), percent(times.waits));
        steps.push(Step::new(
            "99th percentile of the wait",
            "W99 = W / C x ln(C / 0.01)",
            filled,
            millis(times.wait_p99_ms),
            "exponential tail; exact for M/M/c",
        ));
    }
    let whole = millis(capacity.whole_ms);
    let filled = format!("{} + {whole}", millis(times.wait_mean_ms));
    steps.push(Step::new("mean response time", "T = W + S", filled, millis(times.mean_ms), "sum of means"));
    let filled = format!("S gamma distributed with mean {whole}, cv {}", figure(facts.cv));
    steps.push(Step::new(
        "95th percentile of the response time",
        "P(W + S > t) = 5 %",
        filled,
        millis(times.p95_ms),
        "convolution of wait and service",
    ));
    steps
}

fn burst(facts: &TrafficFacts, sizing: &Sizing) -> Vec<Step> {
    let burst = &sizing.burst;
    let (each, in_hand) = (1_000.0 / sizing.instance_rate_per_s, sizing.size.seats());
    let filled = format!("({} - {in_hand}) x {}", whole(burst.requests), millis(each));
    let mut steps = vec![Step::new(
        "wait of the last request of a burst",
        "(N - in hand) / μ",
        filled,
        millis(burst.last_wait_ms),
        "fluid queue: one request every 1/μ",
    )];
    if let Some(drained) = burst.drained_ms {
        let filled = format!(
            "{} / ({} - {})",
            whole(burst.requests),
            per_s(sizing.instance_rate_per_s),
            per_s(facts.rate_per_s / f64::from(sizing.instances))
        );
        steps.push(Step::new(
            "until the burst is worked off",
            "N / (μ - λ)",
            filled,
            millis(drained),
            "fluid queue",
        ));
    }
    steps
}

fn cost(facts: &TrafficFacts, sizing: &Sizing) -> Option<Step> {
    let cost = sizing.cost.as_ref()?;
    let rate = facts.average_rate_per_s.unwrap_or(facts.rate_per_s);
    let filled = format!(
        "{} x {} / ({} x 3,600 s x 730 h) x 1,000,000",
        sizing.instances,
        figure(cost.instance_per_month),
        per_s(rate)
    );
    Some(Step::new(
        "cost per million requests",
        "n x price / (λ x month) x 10⁶",
        filled,
        format!("{}{}", cost.currency, figure(cost.per_million)),
        "730 hours per month",
    ))
}
