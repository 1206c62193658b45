//! The number of instances, their utilisation, the effect of a lost instance or a burst, and the cost.
//!
//! Requests are distributed evenly and randomly over instances, each with its own queue, as routers do.
//! Response times are longer than with one shared queue.

use serde::{Deserialize, Serialize};

use crate::burst::{Burst, Instance};
use crate::capacity::{Capacity, Resource};
use crate::facts::{MONTH_HOURS, Size, TrafficFacts};
use crate::format::figure;
use crate::slo::Slo;
use crate::steps::Step;

/// The most instances considered.
pub const MOST_INSTANCES: u32 = 1_000_000;

/// The number of instances that each requirement needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InstancesNeeded {
    /// For stable queues.
    pub to_keep_up: u32,
    /// To meet the objective; `None` if there is none, or if no number of instances meets it.
    pub for_slo: Option<u32>,
    /// With the requested headroom.
    pub with_headroom: u32,
    /// For all requirements.
    pub in_all: u32,
    /// For all requirements with one instance lost.
    pub with_one_lost: u32,
}

/// The state of each of a number of instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Number of instances that share the requests.
    pub instances: u32,
    /// Requests per second per instance.
    pub rate_per_s: f64,
    /// Utilisation of the limiting resource, 0 to 1; above 1 it is overloaded.
    pub utilisation: f64,
    /// Waiting and response times; `None` if overloaded.
    pub times: Option<ResponseTimes>,
}

/// Waiting and response times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Probability that a request waits.
    pub waits: f64,
    /// Mean wait over all requests.
    pub wait_mean_ms: f64,
    /// 95th percentile of the wait.
    pub wait_p95_ms: f64,
    /// 99th percentile of the wait.
    pub wait_p99_ms: f64,
    pub mean_ms: f64,
    /// Median response time.
    pub p50_ms: f64,
    /// 95th percentile of the response time.
    pub p95_ms: f64,
    /// 99th percentile of the response time.
    pub p99_ms: f64,
    /// The objective's percentile, if it is not one of these.
    pub slo_ms: Option<f64>,
    /// Mean number of requests waiting or in service.
    pub present: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The cost of all instances.
    pub per_month: f64,
    /// The cost of one instance.
    pub instance_per_month: f64,
    /// The cost per million requests, at the average rate, or at the busiest minute's if the average is unknown.
    pub per_million: f64,
    /// Whether the average rate is known.
    pub average_known: bool,
    /// Currency sign, such as `$`.
    pub currency: String,
}

/// The result for one size of instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sizing {
    pub size: Size,
    pub instances: u32,
    /// Whether the number of instances was given, rather than computed.
    pub instances_given: bool,
    pub limit: Resource,
    /// Requests that an instance can serve at once, as far as the limiting resource allows.
    pub servers: u32,
    /// Throughput of one instance per second.
    pub instance_rate_per_s: f64,
    /// Throughput of one instance that meets the objective; `None` without an objective, or if it is never met.
    pub instance_rate_within_slo_per_s: Option<f64>,
    /// Throughput of all instances relative to the request rate.
    pub headroom_times: f64,
    /// The same relation within the objective.
    pub headroom_within_slo_times: Option<f64>,
    pub needed: InstancesNeeded,
    /// Mean number of requests in the app, in all instances (Little's law).
    pub in_the_app: f64,
    pub load: Load,
    /// The same load with one instance lost; `None` with one instance.
    pub one_lost: Option<Load>,
    /// A burst spread over the instances; values are per instance.
    pub burst: Burst,
    /// `None` without a price.
    pub cost: Option<Cost>,
    /// Whether `instances` meet the objective; `None` without an objective.
    pub keeps_slo: Option<bool>,
    pub steps: Vec<Step>,
}

/// The reason why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizingError(pub String);

/// Returns the result for `size` without the steps, and the capacity of an instance.
pub(crate) fn computed(
    facts: &TrafficFacts,
    size: &Size,
    instances: Option<u32>,
) -> Result<(Sizing, Capacity), SizingError> {
    check(facts, size)?;
    let capacity = Capacity::of(facts, size);
    let within_slo = facts.slo.and_then(|slo| capacity.rate_within(slo));
    let needed = needed(facts, &capacity, within_slo)?;
    let count = instances.unwrap_or(needed.in_all).max(1);
    let load = load(facts, &capacity, count);
    let all = f64::from(count);
    let sizing = Sizing {
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
    Ok((sizing, capacity))
}

fn check(facts: &TrafficFacts, size: &Size) -> Result<(), SizingError> {
    let positive = |value: f64, what: &str| match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(SizingError(format!("{what} must be a number above 0, found {value}"))),
    };
    positive(facts.rate_per_s, "the rate")?;
    positive(facts.response_ms, "the response time")?;
    for (value, what) in [
        (facts.cv, "the variation (cv)"),
        (facts.arrival_cv, "the variation of arrivals"),
        (facts.headroom, "the headroom"),
    ] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(SizingError(format!("{what} must be at least 0, found {value}")));
        }
    }
    if let Some(cpu) = facts.cpu_ms {
        positive(cpu, "the CPU time")?;
        if cpu > facts.response_ms {
            return Err(SizingError(
                "the CPU time of a request exceeds its response time: --cpu-time is part of --response-time"
                    .to_owned(),
            ));
        }
    }
    if size.fibers > 0 && facts.cpu_ms.is_none() {
        return Err(SizingError(
            "with fibers the CPU time of a request decides, since the fibers of a worker share one core: give --cpu-time 3ms (`firebrick stats --json` has it as app_cpu_ms)"
                .to_owned(),
        ));
    }
    if size.workers == 0 || size.threads == 0 {
        return Err(SizingError("an instance needs at least one worker and one thread".to_owned()));
    }
    Ok(())
}

fn needed(
    facts: &TrafficFacts,
    capacity: &Capacity,
    within_slo: Option<f64>,
) -> Result<InstancesNeeded, SizingError> {
    let over = |rate: f64, each: f64| -> Result<u32, SizingError> {
        let count = (rate / each).ceil();
        if count > f64::from(MOST_INSTANCES) {
            return Err(SizingError(format!(
                "this would need more than a million instances ({}): check the units of the rate and the response time",
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
    Ok(InstancesNeeded { to_keep_up, for_slo, with_headroom, in_all, with_one_lost: in_all + 1 })
}

fn load(facts: &TrafficFacts, capacity: &Capacity, instances: u32) -> Load {
    let rate_per_s = facts.rate_per_s / f64::from(instances);
    let special = facts.slo.map(|slo| slo.percentile).filter(|at| ![50.0, 95.0, 99.0].contains(at));
    let times = capacity.queue(rate_per_s).map(|queue| ResponseTimes {
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

impl ResponseTimes {
    /// Returns the time that `slo` limits.
    pub fn slo_time_ms(&self, slo: Slo) -> f64 {
        match slo.percentile {
            50.0 => self.p50_ms,
            95.0 => self.p95_ms,
            99.0 => self.p99_ms,
            _ => self.slo_ms.unwrap_or(self.p99_ms),
        }
    }
}

fn keeps(load: &Load, slo: Slo) -> bool {
    // The search for the highest rate ends within a millionth of the objective.
    load.times.is_some_and(|times| times.slo_time_ms(slo) <= slo.under_ms * 1.000_001)
}

fn burst(facts: &TrafficFacts, size: &Size, capacity: &Capacity, instances: u32) -> Burst {
    let instance = Instance {
        in_hand: size.seats().into(),
        capacity_per_s: capacity.rate_per_s,
        rate_per_s: facts.rate_per_s / f64::from(instances),
        response_ms: facts.response_ms,
        backlog: facts.backlog,
        router_timeout_ms: facts.router_timeout_ms,
    };
    Burst::of(facts.burst.div_ceil(u64::from(instances)), &instance)
}

fn cost(facts: &TrafficFacts, size: &Size, instances: u32) -> Option<Cost> {
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
