//! Response times of a shape under an open load, from measurements of a closed load.

use crate::cell::{Shape, Times};
use crate::model::Model;
use crate::queue::Queue;
use crate::service::Service;

/// Returns the response times of `shape` on `cores` at `rate` requests per second, if `most` is its highest
/// rate. `None` if it cannot handle `rate`, or if the model's lock time is unknown.
///
/// Requests wait for the scarcest resource: threads (each held for the whole request), or locks and cores (as
/// many servers as processes can run at once).
pub(crate) fn times(model: &Model, shape: Shape, cores: f64, rate: f64, most: f64) -> Option<Times> {
    if !(model.lock_known && rate > 0.0 && rate < most) {
        return None;
    }
    let alone = model.alone_ms();
    let running = model.lock_ms.max(model.cpu_ms);
    let threads = (shape.slots(), alone);
    // Processes run in parallel up to the number of cores; holding the lock idly needs no core.
    let at_once = if model.cpu_ms > 0.0 { cores * running / model.cpu_ms } else { f64::INFINITY };
    let processes = (f64::from(shape.processes).min(at_once).max(1.0) as u32, running);
    let use_of = |(servers, time): (u32, f64)| time / f64::from(servers);
    let tightest = if use_of(processes) > use_of(threads) { processes } else { threads };
    // The highest measured rate gives the actual service time.
    let service = (f64::from(tightest.0) * 1_000.0 / most).max(tightest.1);
    let whole = Service::new(alone - tightest.1 + service, model.cv);
    let queue = Queue::new(tightest.0, rate / 1_000.0, &Service::new(service, model.cv), 1.0)?.within(&whole);
    Some(Times {
        mean: queue.mean_response(),
        cv: model.cv,
        p50: queue.response_percentile(50.0),
        p95: queue.response_percentile(95.0),
        p99: queue.response_percentile(99.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    /// Returns an app on four cores, from two cells of a closed load of 30 users.
    fn app(wait: f64, lock: f64) -> Model {
        let cell = |threads: u32| {
            let demand = crate::closed::Demand { wait, lock, cpu: lock };
            let rate_per_s = crate::closed::throughput(demand, 1, threads, 4.0) * 1_000.0;
            let cpu_cores = Some(rate_per_s * lock / 1_000.0);
            Cell {
                processes: 1,
                threads,
                users: 30,
                rate_per_s,
                cpu_cores,
                cores: Some(4.0),
                ..Cell::default()
            }
        };
        Model::fit(&[cell(1), cell(10)]).unwrap()
    }

    fn mean(model: &Model, shape: Shape, rate: f64, most: f64) -> Option<f64> {
        times(model, shape, 4.0, rate, most).map(|times| times.mean)
    }

    #[test]
    fn at_low_load_the_response_time_is_the_service_time() {
        let waiting = app(95.0, 5.0);
        assert!((mean(&waiting, Shape::new(2, 10), 1.0, 190.0).unwrap() - 100.0).abs() < 12.0);
        let computing = app(1.0, 30.0);
        assert!((mean(&computing, Shape::new(2, 10), 1.0, 66.0).unwrap() - 31.0).abs() < 4.0);
    }

    #[test]
    fn a_busy_server_is_slower_and_an_overloaded_one_has_no_times() {
        let computing = app(1.0, 30.0);
        let at = |rate| mean(&computing, Shape::new(2, 10), rate, 66.0);
        assert!(at(60.0).unwrap() > 2.0 * at(10.0).unwrap());
        assert_eq!(at(66.0), None);
        assert_eq!(at(0.0), None);
        // If the app is CPU-bound, more threads do not help, but more processes do.
        let more = mean(&computing, Shape::new(4, 10), 60.0, 130.0).unwrap();
        assert!(more < at(60.0).unwrap() / 1.5);
    }
}
