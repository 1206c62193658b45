//! The saturation at which an autoscaler should hold a server: requests being served and waiting, divided by seats.

use crate::capacity::Capacity;
use crate::facts::{Size, TrafficFacts};

/// The smallest target; below it a request or two would change the number of instances.
const LEAST: f64 = 0.05;

/// Returns the saturation of an instance of `size` at its intended load: its capacity less the headroom, or
/// the rate that the objective allows, if that is less. A computing app is full with few of its seats taken,
/// a waiting app with nearly all. From 0.05 to 1.
pub fn saturation(facts: &TrafficFacts, size: &Size) -> f64 {
    let capacity = Capacity::of(facts, size);
    let spare = capacity.rate_per_s / (1.0 + facts.headroom);
    let within = facts.slo.and_then(|slo| capacity.rate_within(slo));
    let rate = within.map_or(spare, |within| within.min(spare));
    let seats = f64::from(size.seats());
    let present = capacity.queue(rate).map_or(seats, |queue| queue.present());
    (present / seats).clamp(LEAST, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slo::Slo;

    fn size(workers: u32, threads: u32) -> Size {
        Size { name: None, workers, threads, fibers: 0, cores: None, price: None }
    }

    #[test]
    fn an_app_that_waits_uses_its_seats() {
        let facts = TrafficFacts::new(10.0, 100.0);
        let many = saturation(&facts, &size(2, 50));
        // 1 / 1.3 of the seats; with a hundred seats hardly any request waits.
        assert!((0.769..0.78).contains(&many), "{many}");
        assert!(saturation(&facts, &size(1, 2)) > many, "requests wait where there are few seats");
    }

    #[test]
    fn an_app_that_computes_is_full_before_its_seats_are() {
        let facts = TrafficFacts { cpu_ms: Some(50.0), ..TrafficFacts::new(10.0, 100.0) };
        let found = saturation(&facts, &size(1, 20));
        assert!(found < 0.35, "{found}");
    }

    #[test]
    fn objectives_and_headroom_leave_room() {
        let facts = TrafficFacts::new(10.0, 100.0);
        let slo = Some(Slo { percentile: 95.0, under_ms: 330.0 });
        let free = saturation(&facts, &size(1, 1));
        assert!(saturation(&TrafficFacts { slo, ..facts.clone() }, &size(1, 1)) < free);
        assert!(saturation(&TrafficFacts { headroom: 1.0, ..facts.clone() }, &size(2, 50)) < 0.51);
        assert!((saturation(&TrafficFacts { headroom: 0.0, ..facts }, &size(1, 1)) - 1.0).abs() < 1e-9);
    }
}
