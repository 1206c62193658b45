//! How many instances, how busy they are, what happens when one is lost or many requests come at once, what it costs.
//!
//! Requests are spread evenly and at random over instances, each with a queue of its own: that is what routers do, and it
//! waits longer than one queue for all would.

use serde::{Deserialize, Serialize};

use crate::burst::{Burst, Front};
use crate::capacity::{Capacity, Limit};
use crate::explain;
use crate::facts::{Facts, MONTH_HOURS, Size};
use crate::slo::Slo;
use crate::steps::Step;
use crate::words::figure;

/// More instances than this are not looked for.
pub const MOST_INSTANCES: u32 = 1_000_000;

/// Instances needed, by what is asked of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Needed {
    /// So that queues do not grow without end.
    pub to_keep_up: u32,
    /// And the promise is kept; `None` when there is none, or no number of instances keeps it.
    pub for_slo: Option<u32>,
    /// With the head-room that was asked for.
    pub with_headroom: u32,
    /// All of these.
    pub in_all: u32,
    /// All of these with one of them lost.
    pub with_one_lost: u32,
}

/// How it goes at each of so many instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How many share the requests.
    pub instances: u32,
    /// Requests per second at each.
    pub rate_per_s: f64,
    /// How busy what is scarce is, 0 to 1; above 1 they cannot keep up.
    pub utilisation: f64,
    /// What becomes of requests; `None` when they cannot keep up.
    pub times: Option<Waits>,
}

/// Waiting and answering; milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Probability that a request waits.
    pub waits: f64,
    /// Mean wait of all.
    pub wait_mean_ms: f64,
    /// 95th percentile of waits.
    pub wait_p95_ms: f64,
    /// 99th.
    pub wait_p99_ms: f64,
    /// Mean time to the answer.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th.
    pub p99_ms: f64,
    /// The promised percentile, when it is none of these.
    pub slo_ms: Option<f64>,
    /// Requests waiting or being served, on average.
    pub present: f64,
}

/// What it costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// All instances.
    pub per_month: f64,
    /// One instance.
    pub instance_per_month: f64,
    /// At the average rate, or the busiest minute's when no other is known.
    pub per_million: f64,
    /// Whether that was the average rate.
    pub average_known: bool,
    /// Such as `$`.
    pub currency: String,
}

/// All that there is to say about one size of instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Which.
    pub size: Size,
    /// How many it says all this of.
    pub instances: u32,
    /// Whether that number was asked for, rather than found.
    pub instances_given: bool,
    /// What is scarce.
    pub limit: Limit,
    /// Requests that an instance can serve at once, as far as what is scarce goes.
    pub servers: u32,
    /// The most that one instance can take, per second.
    pub instance_rate_per_s: f64,
    /// The most that it can take and keep the promise; `None` without a promise, or when it never can.
    pub instance_rate_within_slo_per_s: Option<f64>,
    /// All instances' largest rate over the rate that comes.
    pub headroom_times: f64,
    /// The same within the promise.
    pub headroom_within_slo_times: Option<f64>,
    /// How many are needed.
    pub needed: Needed,
    /// Requests in the app at once, on average, in all instances (Little's law).
    pub in_the_app: f64,
    /// How it goes.
    pub load: Load,
    /// How it goes with an instance lost; `None` with one instance.
    pub one_lost: Option<Load>,
    /// Many requests at once, spread over the instances; figures of one of them.
    pub burst: Burst,
    /// What it costs; `None` without a price.
    pub cost: Option<Cost>,
    /// Whether the promise is kept by `instances`; `None` without one.
    pub keeps_slo: Option<bool>,
    /// How it was come by.
    pub steps: Vec<Step>,
}

/// Why there is no answer, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(pub String);

/// The answer for `size`, with as many instances as are needed or with `instances`.
///
/// # Errors
/// When a number makes no sense, or more than a million instances were needed.
pub fn answer(facts: &Facts, size: &Size, instances: Option<u32>) -> Result<Answer, Impossible> {
    check(facts, size)?;
    let capacity = Capacity::of(facts, size);
    let within_slo = facts.slo.and_then(|slo| capacity.rate_within(slo));
    let needed = needed(facts, &capacity, within_slo)?;
    let count = instances.unwrap_or(needed.in_all).max(1);
    let load = load(facts, &capacity, count);
    let all = f64::from(count);
    let mut answer = Answer {
        size: size.clone(),
        instances: count,
        instances_given: instances.is_some(),
        limit: capacity.limit,
        servers: capacity.servers,
        instance_rate_per_s: capacity.rate_per_s,
        instance_rate_within_slo_per_s: within_slo,
        headroom_times: capacity.rate_per_s * all / facts.rate_per_s,
        headroom_within_slo_times: within_slo.map(|rate| rate * all / facts.rate_per_s),
        needed,
        in_the_app: facts.rate_per_s * facts.response_ms / 1_000.0,
        load,
        one_lost: (count > 1).then(|| self::load(facts, &capacity, count - 1)),
        burst: burst(facts, size, &capacity, count),
        cost: cost(facts, size, count),
        keeps_slo: facts.slo.map(|slo| keeps(&load, slo)),
        steps: Vec::new(),
    };
    answer.steps = explain::steps(facts, &capacity, &answer);
    Ok(answer)
}

/// The answers for several sizes, cheapest first; those without a price come last, in their order.
///
/// # Errors
/// The first of [`answer`]'s.
pub fn compare(facts: &Facts, sizes: &[Size], instances: Option<u32>) -> Result<Vec<Answer>, Impossible> {
    let mut answers =
        sizes.iter().map(|size| answer(facts, size, instances)).collect::<Result<Vec<_>, _>>()?;
    // What breaks the promise is no bargain.
    let rank = |answer: &Answer| {
        let cost = answer.cost.as_ref().map_or(f64::INFINITY, |cost| cost.per_month);
        (answer.keeps_slo == Some(false) || answer.load.times.is_none(), cost)
    };
    answers.sort_by(|a, b| {
        let ((a_breaks, a_cost), (b_breaks, b_cost)) = (rank(a), rank(b));
        a_breaks.cmp(&b_breaks).then(a_cost.total_cmp(&b_cost))
    });
    Ok(answers)
}

fn check(facts: &Facts, size: &Size) -> Result<(), Impossible> {
    let positive = |value: f64, what: &str| match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(Impossible(format!("{what} has to be a number above 0, and is {value}"))),
    };
    positive(facts.rate_per_s, "the rate")?;
    positive(facts.response_ms, "the response time")?;
    for (value, what) in [
        (facts.cv, "the variation (cv)"),
        (facts.arrival_cv, "the variation of arrivals"),
        (facts.headroom, "the head-room"),
    ] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Impossible(format!("{what} has to be a number of at least 0, and is {value}")));
        }
    }
    if let Some(cpu) = facts.cpu_ms {
        positive(cpu, "the CPU time")?;
        if cpu > facts.response_ms {
            return Err(Impossible("the CPU time of a request is longer than the request: --cpu-time is a part of --response-time".to_owned()));
        }
    }
    if size.workers == 0 || size.threads == 0 {
        return Err(Impossible("an instance needs at least one worker with one thread".to_owned()));
    }
    Ok(())
}

fn needed(facts: &Facts, capacity: &Capacity, within_slo: Option<f64>) -> Result<Needed, Impossible> {
    let over = |rate: f64, each: f64| -> Result<u32, Impossible> {
        let count = (rate / each).ceil();
        if count > f64::from(MOST_INSTANCES) {
            return Err(Impossible(format!(
                "this would take more than a million instances ({}): is the unit of the rate or of the response time right?",
                figure(count)
            )));
        }
        Ok((count as u32).max(1))
    };
    // At a utilisation of 1 a queue grows, too.
    let exact = over(facts.rate_per_s, capacity.rate_per_s)?;
    let to_keep_up =
        if f64::from(exact) * capacity.rate_per_s <= facts.rate_per_s { exact + 1 } else { exact };
    let for_slo =
        within_slo.map(|each| over(facts.rate_per_s, each).map(|count| count.max(to_keep_up))).transpose()?;
    let with_headroom = over(facts.rate_per_s * (1.0 + facts.headroom), capacity.rate_per_s)?.max(to_keep_up);
    let in_all = for_slo.unwrap_or(0).max(with_headroom);
    Ok(Needed { to_keep_up, for_slo, with_headroom, in_all, with_one_lost: in_all + 1 })
}

fn load(facts: &Facts, capacity: &Capacity, instances: u32) -> Load {
    let rate_per_s = facts.rate_per_s / f64::from(instances);
    let special = facts.slo.map(|slo| slo.percentile).filter(|at| ![50.0, 95.0, 99.0].contains(at));
    let times = capacity.queue(rate_per_s).map(|queue| Waits {
        waits: queue.waits,
        wait_mean_ms: queue.mean_wait,
        wait_p95_ms: queue.wait_percentile(95.0),
        wait_p99_ms: queue.wait_percentile(99.0),
        mean_ms: queue.mean_response(),
        p50_ms: queue.response_percentile(50.0),
        p95_ms: queue.response_percentile(95.0),
        p99_ms: queue.response_percentile(99.0),
        slo_ms: special.map(|at| queue.response_percentile(at)),
        present: queue.present(),
    });
    Load { instances, rate_per_s, utilisation: rate_per_s / capacity.rate_per_s, times }
}

impl Waits {
    /// The time that `slo` is about.
    pub fn promised_ms(&self, slo: Slo) -> f64 {
        match slo.percentile {
            50.0 => self.p50_ms,
            95.0 => self.p95_ms,
            99.0 => self.p99_ms,
            _ => self.slo_ms.unwrap_or(self.p99_ms),
        }
    }
}

fn keeps(load: &Load, slo: Slo) -> bool {
    // The search for the largest rate ends within a millionth of the promise.
    load.times.is_some_and(|times| times.promised_ms(slo) <= slo.under_ms * 1.000_001)
}

fn burst(facts: &Facts, size: &Size, capacity: &Capacity, instances: u32) -> Burst {
    let front = Front {
        in_hand: Capacity::in_hand(size),
        capacity_per_s: capacity.rate_per_s,
        rate_per_s: facts.rate_per_s / f64::from(instances),
        response_ms: facts.response_ms,
        backlog: facts.backlog,
        router_timeout_ms: facts.router_timeout_ms,
    };
    Burst::of(facts.burst.div_ceil(u64::from(instances)), &front)
}

fn cost(facts: &Facts, size: &Size, instances: u32) -> Option<Cost> {
    let price = size.price.as_ref()?;
    let per_month = price.per_month * f64::from(instances);
    let rate = facts.average_rate_per_s.unwrap_or(facts.rate_per_s);
    Some(Cost {
        per_month,
        instance_per_month: price.per_month,
        per_million: per_month / (rate * MONTH_HOURS * 3_600.0) * 1e6,
        average_known: facts.average_rate_per_s.is_some(),
        currency: price.currency.clone(),
    })
}
