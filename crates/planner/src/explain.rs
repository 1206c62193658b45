//! The steps of an answer, with numbers filled in.

use crate::capacity::{Capacity, Limit};
use crate::facts::Facts;
use crate::sizing::Answer;
use crate::steps::Step;
use crate::words::{figure, millis, percent, whole};

const LITTLE: &str = "Little (1961), L = λW";
const ERLANG: &str = "Erlang C (1917)";
const ALLEN: &str = "Allen and Cunneen (Allen 1990)";

/// How `answer` was come by.
pub(crate) fn steps(facts: &Facts, capacity: &Capacity, answer: &Answer) -> Vec<Step> {
    let mut steps = vec![in_the_app(facts, answer), instance_rate(capacity), to_keep_up(facts, answer)];
    steps.push(with_headroom(facts, answer));
    steps.extend(within_slo(facts, answer));
    steps.push(utilisation(capacity, answer));
    steps.extend(waiting(facts, capacity, answer));
    steps.extend(burst(facts, answer));
    steps.extend(cost(facts, answer));
    steps
}

fn per_s(rate: f64) -> String {
    format!("{}/s", figure(rate))
}

fn in_the_app(facts: &Facts, answer: &Answer) -> Step {
    let filled = format!("{} x {}", per_s(facts.rate_per_s), millis(facts.response_ms));
    Step::new("requests in the app at once", "L = λ x S", filled, figure(answer.in_the_app), LITTLE)
}

fn instance_rate(capacity: &Capacity) -> Step {
    let formula = match capacity.limit {
        Limit::Threads => "μ = workers x threads / S",
        Limit::Workers => "μ = workers / CPU time",
        Limit::Cores => "μ = cores / CPU time",
    };
    let filled = format!("{} / {}", capacity.servers, millis(capacity.busy_ms));
    Step::new(
        "most that one instance can take",
        formula,
        filled,
        per_s(capacity.rate_per_s),
        "utilisation law (Denning and Buzen 1978)",
    )
}

fn to_keep_up(facts: &Facts, answer: &Answer) -> Step {
    let filled = format!("{} / {}", per_s(facts.rate_per_s), per_s(answer.instance_rate_per_s));
    let exact = facts.rate_per_s / answer.instance_rate_per_s;
    let result = format!("{}, so {}", figure(exact), answer.needed.to_keep_up);
    Step::new("instances to keep up", "n > λ / μ", filled, result, "stability: ρ < 1")
}

fn with_headroom(facts: &Facts, answer: &Answer) -> Step {
    let filled = format!(
        "{} x {} / {}",
        per_s(facts.rate_per_s),
        figure(1.0 + facts.headroom),
        per_s(answer.instance_rate_per_s)
    );
    let exact = facts.rate_per_s * (1.0 + facts.headroom) / answer.instance_rate_per_s;
    let result = format!("{}, so {}", figure(exact), answer.needed.with_headroom);
    Step::new("instances with head-room", "n ≥ λ x (1 + head-room) / μ", filled, result, "what is asked for")
}

fn within_slo(facts: &Facts, answer: &Answer) -> Option<Step> {
    let (slo, each) = (facts.slo?, answer.instance_rate_within_slo_per_s?);
    let filled = format!(
        "{slo} holds up to {} an instance; {} / {}",
        per_s(each),
        per_s(facts.rate_per_s),
        per_s(each)
    );
    let result = format!("{}, so {}", figure(facts.rate_per_s / each), answer.needed.for_slo?);
    Some(Step::new(
        "instances for the promise",
        "n ≥ λ / largest λ with P(T > t) ≤ 1 - p",
        filled,
        result,
        "response times as below",
    ))
}

fn utilisation(capacity: &Capacity, answer: &Answer) -> Step {
    let load = &answer.load;
    let filled = format!("{} x {} / {}", per_s(load.rate_per_s), millis(capacity.busy_ms), capacity.servers);
    Step::new(
        "utilisation of each instance",
        "ρ = λ x S / c",
        filled,
        percent(load.utilisation),
        "utilisation law",
    )
}

fn waiting(facts: &Facts, capacity: &Capacity, answer: &Answer) -> Vec<Step> {
    let Some(times) = &answer.load.times else { return Vec::new() };
    let offered = answer.load.rate_per_s * capacity.busy_ms / 1_000.0;
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
            "99 % wait no longer than",
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
        "95 % are answered within",
        "P(W + S > t) = 5 %",
        filled,
        millis(times.p95_ms),
        "convolution of wait and service",
    ));
    steps
}

fn burst(facts: &Facts, answer: &Answer) -> Vec<Step> {
    let burst = &answer.burst;
    let (each, in_hand) = (
        1_000.0 / answer.instance_rate_per_s,
        u64::from(answer.size.workers) * u64::from(answer.size.threads),
    );
    let filled = format!("({} - {in_hand}) x {}", whole(burst.requests), millis(each));
    let mut steps = vec![Step::new(
        "wait of the last of a burst",
        "(N - in hand) / μ",
        filled,
        millis(burst.last_wait_ms),
        "fluid queue: one place each 1/μ",
    )];
    if let Some(drained) = burst.drained_ms {
        let filled = format!(
            "{} / ({} - {})",
            whole(burst.requests),
            per_s(answer.instance_rate_per_s),
            per_s(facts.rate_per_s / f64::from(answer.instances))
        );
        steps.push(Step::new(
            "until the burst is forgotten",
            "N / (μ - λ)",
            filled,
            millis(drained),
            "fluid queue",
        ));
    }
    steps
}

fn cost(facts: &Facts, answer: &Answer) -> Option<Step> {
    let cost = answer.cost.as_ref()?;
    let rate = facts.average_rate_per_s.unwrap_or(facts.rate_per_s);
    let filled = format!(
        "{} x {} / ({} x 3,600 s x 730 h) x 1,000,000",
        answer.instances,
        figure(cost.instance_per_month),
        per_s(rate)
    );
    Some(Step::new(
        "cost of a million requests",
        "n x price / (λ x month) x 10⁶",
        filled,
        format!("{}{}", cost.currency, figure(cost.per_million)),
        "730 hours are a month",
    ))
}
