//! The bill of an app: its costs divided among its routes, at the present load and at twice that, and what each piece of advice saves of it.
//!
//! Costs are divided by the time in the app: a request holds a thread meanwhile, which no other request can use.

use serde::Serialize;

use crate::explain::size_up;
use crate::facts::{MONTH_HOURS, TrafficFacts};
use crate::sizing::{Sizing, SizingError};

/// The part of an app that a route takes. Both are parts of all, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteShare {
    pub route: String,
    /// Of the time in the app.
    pub time: f64,
    /// Of the requests to the app.
    pub requests: f64,
}

/// A piece of advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Improvement {
    /// A sentence.
    pub text: String,
    /// The part of the time in the app that it saves at most, from 0 to 1.
    pub frees: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bill {
    /// Instances for the load, and for twice the load.
    pub instances: u32,
    pub instances_at_twice: u32,
    /// Their price for a month; `None` without a price of a machine.
    pub per_month: Option<f64>,
    pub per_month_at_twice: Option<f64>,
    /// The routes, the dearest first.
    pub routes: Vec<RouteCost>,
    /// In the order of the advice.
    pub savings: Vec<Saving>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteCost {
    pub route: String,
    /// The route's part of the costs, from 0 to 1.
    pub share: f64,
    /// Money; `None` without a price.
    pub per_month: Option<f64>,
    pub per_thousand: Option<f64>,
    pub per_month_at_twice: Option<f64>,
}

/// The most that a piece of advice saves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Saving {
    pub text: String,
    /// The part of the costs, from 0 to 1.
    pub share: f64,
    /// Money; `None` without a price.
    pub per_month: Option<f64>,
    /// Instances for the load, and for twice the load, once it is followed.
    pub instances: u32,
    pub instances_at_twice: u32,
}

/// Returns the bill. `now`: the result for the present load.
///
/// # Errors
/// Those of [`size_up`].
pub fn bill(
    facts: &TrafficFacts,
    now: &Sizing,
    routes: &[RouteShare],
    advice: &[Improvement],
) -> Result<Bill, SizingError> {
    let twice = size_up(&at_twice(facts), &now.size, None)?;
    let cost = |sizing: &Sizing| sizing.cost.as_ref().map(|cost| cost.per_month);
    let (per_month, per_month_at_twice) = (cost(now), cost(&twice));
    let a_month = facts.average_rate_per_s.unwrap_or(facts.rate_per_s) * MONTH_HOURS * 3_600.0;
    let route = |one: &RouteShare| RouteCost {
        route: one.route.clone(),
        share: one.time,
        per_month: per_month.map(|money| money * one.time),
        per_thousand: per_month
            .filter(|_| one.requests > 0.0)
            .map(|money| 1e3 * money * one.time / (a_month * one.requests)),
        per_month_at_twice: per_month_at_twice.map(|money| money * one.time),
    };
    let mut routes: Vec<RouteCost> = routes.iter().filter(|one| one.time > 0.0).map(route).collect();
    routes.sort_by(|one, two| two.share.total_cmp(&one.share).then_with(|| one.route.cmp(&two.route)));
    let saving = |one: &Improvement| {
        let shorter = shortened(facts, one.frees);
        Ok(Saving {
            text: one.text.clone(),
            share: one.frees,
            per_month: per_month.map(|money| money * one.frees),
            instances: size_up(&shorter, &now.size, None)?.instances.min(now.instances),
            instances_at_twice: size_up(&at_twice(&shorter), &now.size, None)?.instances,
        })
    };
    Ok(Bill {
        instances: now.instances,
        instances_at_twice: twice.instances,
        per_month,
        per_month_at_twice,
        routes,
        savings: advice.iter().map(saving).collect::<Result<_, _>>()?,
    })
}

fn at_twice(facts: &TrafficFacts) -> TrafficFacts {
    TrafficFacts {
        rate_per_s: 2.0 * facts.rate_per_s,
        average_rate_per_s: facts.average_rate_per_s.map(|rate| 2.0 * rate),
        ..facts.clone()
    }
}

/// Returns the facts of requests without this part of their time. Some time is left, so that there is a result.
fn shortened(facts: &TrafficFacts, frees: f64) -> TrafficFacts {
    let left = (1.0 - frees).max(0.01);
    TrafficFacts {
        response_ms: left * facts.response_ms,
        cpu_ms: facts.cpu_ms.map(|ms| left * ms),
        ..facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Price, Size};
    use proptest::prelude::*;

    fn size(price: Option<f64>) -> Size {
        let price = price.map(|per_month| Price { per_month, currency: "€".to_owned() });
        Size { name: None, workers: 2, threads: 5, fibers: 0, cores: None, price }
    }

    fn share(route: &str, time: f64, requests: f64) -> RouteShare {
        RouteShare { route: route.to_owned(), time, requests }
    }

    #[test]
    fn costs_are_divided_by_time() {
        let facts = TrafficFacts { average_rate_per_s: Some(10.0), ..TrafficFacts::new(50.0, 100.0) };
        let now = size_up(&facts, &size(Some(100.0)), None).unwrap();
        let advice = [Improvement { text: "less".to_owned(), frees: 0.5 }];
        let found = bill(&facts, &now, &[share("b", 0.2, 0.9), share("a", 0.8, 0.1)], &advice).unwrap();
        let all = found.per_month.unwrap();
        assert_eq!(all, 100.0 * f64::from(now.instances));
        assert_eq!(found.routes[0].route, "a");
        assert_eq!(found.routes[0].per_month, Some(0.8 * all));
        let requests = 10.0 * MONTH_HOURS * 3_600.0 * 0.1;
        assert!((found.routes[0].per_thousand.unwrap() - 1e3 * 0.8 * all / requests).abs() < 1e-9);
        assert!(found.instances_at_twice > found.instances, "{found:?}");
        assert_eq!(found.savings[0].per_month, Some(0.5 * all));
        assert!(found.savings[0].instances_at_twice < found.instances_at_twice, "{found:?}");
        let free = bill(&facts, &size_up(&facts, &size(None), None).unwrap(), &[share("a", 1.0, 1.0)], &[]);
        assert_eq!(free.unwrap().routes[0].per_month, None);
    }

    proptest! {
        #[test]
        fn routes_share_all_and_advice_never_costs(
            times in proptest::collection::vec(0.01f64..1.0, 1..6), rate in 0.1f64..500.0, ms in 1f64..500.0,
            frees in 0f64..1.0,
        ) {
            let (facts, sum) = (TrafficFacts::new(rate, ms), times.iter().sum::<f64>());
            let now = size_up(&facts, &size(Some(7.0)), None).unwrap();
            let count = times.len() as f64;
            let routes: Vec<RouteShare> = times.iter().map(|time| share("r", time / sum, 1.0 / count)).collect();
            let advice = [Improvement { text: String::new(), frees }];
            let found = bill(&facts, &now, &routes, &advice).unwrap();
            let all: f64 = found.routes.iter().filter_map(|route| route.per_month).sum();
            prop_assert!((all - found.per_month.unwrap()).abs() < 1e-6 * all);
            prop_assert!(found.routes.windows(2).all(|two| two[0].share >= two[1].share));
            prop_assert!(found.savings[0].instances <= found.instances);
            prop_assert!(found.savings[0].instances_at_twice <= found.instances_at_twice);
        }
    }
}
