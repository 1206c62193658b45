//! The closed queueing network behind a table of processes x threads: requests that wait outside Ruby, and processes
//! with one lock each.
//!
//! A fixed number of requests is in the app. Each waits for something outside, then needs its process's lock.
//! The number of busy processes when j requests want to run depends on how the requests are spread (the front
//! spreads them evenly, so it is hypergeometric); together they cannot use more than all cores. That gives
//! one station with a speed that depends on j, and the network has a product form ("machine repairman", e.g.
//! Gross & Harris 2.7), which holds for any distribution of the waits.

/// Service demands of a request in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    /// Waiting outside Ruby.
    pub wait: f64,
    /// Holding the lock (GVL).
    pub lock: f64,
    /// On a CPU, with or without the lock.
    pub cpu: f64,
}

/// Returns the requests per millisecond that `processes` complete with `present` requests in the app on `cores`.
pub(crate) fn throughput(demand: Demand, processes: u32, present: u32, cores: f64) -> f64 {
    if present == 0 {
        return 0.0;
    }
    let n = f64::from(present);
    let locked_cpu = demand.cpu.min(demand.lock);
    let outside = demand.wait + (demand.cpu - locked_cpu);
    let by_cores = if demand.cpu > 0.0 { cores / demand.cpu } else { f64::INFINITY };
    if demand.lock <= 0.0 {
        return (n / outside).min(by_cores);
    }
    let at_most = if locked_cpu > 0.0 { cores * demand.lock / locked_cpu } else { f64::INFINITY };
    let speeds: Vec<f64> = busy(processes, present).map(|busy| busy.min(at_most) / demand.lock).collect();
    let Some(last) = speeds.last() else { return 0.0 };
    if outside <= 0.0 {
        return last.min(by_cores);
    }
    // p(j) ∝ outside^(n-j) / (n-j)! / (speed 1 … speed j), as logarithms: from one j to the next (n-j+1) /
    // outside / speed j.
    let mut weights = Vec::with_capacity(speeds.len() + 1);
    let mut weight = 0.0;
    weights.push(weight);
    for (j, speed) in speeds.iter().enumerate() {
        weight += ((n - j as f64) / outside / speed).ln();
        weights.push(weight);
    }
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = weights.into_iter().map(|weight| (weight - largest).exp()).collect();
    let all: f64 = weights.iter().sum();
    let done: f64 = weights[1..].iter().zip(&speeds).map(|(weight, speed)| weight * speed).sum();
    (done / all).min(by_cores)
}

/// Returns the expected number of processes with something to run when 1, 2 … `present` of the evenly spread
/// requests want to run.
fn busy(processes: u32, present: u32) -> impl Iterator<Item = f64> {
    let n = f64::from(present);
    let used = f64::from(processes.min(present));
    let each = n / used;
    let mut none_in_one = 1.0;
    (0..present).map(move |j| {
        let j = f64::from(j);
        none_in_one *= ((n - each - j) / (n - j)).max(0.0);
        used * (1.0 - none_in_one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{found} is not {wanted}");
    }

    #[test]
    fn waiting_scales_with_threads() {
        let demand = Demand { wait: 100.0, lock: 0.0, cpu: 0.0 };
        near(throughput(demand, 2, 20, 1.0), 0.2);
    }

    #[test]
    fn pure_ruby_scales_with_processes_up_to_the_cores() {
        let demand = Demand { wait: 0.0, lock: 10.0, cpu: 10.0 };
        near(throughput(demand, 1, 30, 4.0), 0.1);
        near(throughput(demand, 3, 30, 4.0), 0.3);
        near(throughput(demand, 9, 30, 4.0), 0.4);
        near(throughput(demand, 9, 2, 4.0), 0.2);
        let idle = Demand { cpu: 0.0, ..demand };
        near(throughput(idle, 9, 30, 1.0), 0.9);
    }

    #[test]
    fn one_process_is_the_machine_repairman() {
        // Mean value analysis of one queue and a delay, customer by customer (Reiser and Lavenberg 1980).
        let demand = Demand { wait: 80.0, lock: 10.0, cpu: 10.0 };
        let (mut length, mut rate) = (0.0, 0.0);
        for n in 1..=25 {
            let at_queue = 10.0 * (1.0 + length);
            rate = f64::from(n) / (80.0 + at_queue);
            length = rate * at_queue;
            near(throughput(demand, 1, n, 8.0), rate);
        }
        assert!(rate < 0.1 && rate > 0.099);
    }

    #[test]
    fn cpu_outside_the_lock_uses_many_cores() {
        let demand = Demand { wait: 0.0, lock: 1.0, cpu: 10.0 };
        near(throughput(demand, 1, 30, 4.0), 0.4);
    }

    proptest! {
        #[test]
        fn throughput_respects_all_limits(wait in 0.0..200.0, lock in 0.001..100.0, cpu in 0.0..100.0, processes in 1..40_u32, present in 1..400_u32) {
            let demand = Demand { wait, lock, cpu };
            let rate = throughput(demand, processes, present, 2.0);
            let total = wait + lock.max(cpu);
            prop_assert!(rate > 0.0 && rate <= f64::from(present) / total * 1.000_001);
            prop_assert!(rate <= f64::from(processes) / lock * 1.000_001);
            prop_assert!(cpu == 0.0 || rate <= 2.0 / cpu * 1.000_001);
            prop_assert!(throughput(demand, processes + 1, present, 2.0) >= rate * 0.999_999);
        }
    }
}
