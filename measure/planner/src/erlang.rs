//! Erlang's formulas: the probability that all servers are busy.
//!
//! A. K. Erlang, "Solution of some problems in the theory of probabilities of significance in automatic telephone
//! exchanges" (1917). The recursion over the inverse of B needs no factorials, so it works for a million servers as
//! well as for one.

/// Erlang B: the probability that a request is lost if `servers` are offered `load` (in Erlang: rate x service time)
/// and requests do not wait. 1 without servers.
pub fn b(servers: u32, load: f64) -> f64 {
    if load <= 0.0 {
        return if servers == 0 { 1.0 } else { 0.0 };
    }
    // 1/B(0) = 1, 1/B(k) = 1 + k/load x 1/B(k-1); grows to infinity as B goes to 0.
    let inverse = (1..=servers).try_fold(1.0_f64, |inverse, k| {
        let next = 1.0 + f64::from(k) / load * inverse;
        next.is_finite().then_some(next)
    });
    inverse.map_or(0.0, |inverse| 1.0 / inverse)
}

/// Erlang C: the probability that a request waits if `servers` are offered `load` and all requests wait. 1 if the load
/// exceeds the servers.
pub fn c(servers: u32, load: f64) -> f64 {
    let use_of_each = load / f64::from(servers);
    // Not `>= 1` alone: no servers and no load gives NaN, and waits too.
    if use_of_each.is_nan() || use_of_each >= 1.0 {
        return 1.0;
    }
    let lost = b(servers, load);
    lost / (1.0 - use_of_each * (1.0 - lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, within: f64) {
        assert!((found - wanted).abs() <= within, "{found} is not {wanted}");
    }

    #[test]
    fn published_values_of_erlang_b() {
        // Tables of the Erlang loss formula (ITU-D SG 2/16 Teletraffic handbook, table 7.1 and text).
        near(b(6, 2.0), 0.0121, 0.00005);
        near(b(10, 8.0), 0.1217, 0.0001);
        near(b(1, 1.0), 0.5, 1e-12);
        near(b(2, 2.0), 0.4, 1e-12);
        assert_eq!((b(0, 3.0), b(0, 0.0), b(3, 0.0)), (1.0, 1.0, 0.0));
    }

    #[test]
    fn published_values_of_erlang_c() {
        // Teletraffic handbook: A = 8 Erlang, 10 servers. Gross & Harris: M/M/c with r = 2, c = 3 (p0 = 1/9, so 4/9).
        near(c(10, 8.0), 0.409, 0.0005);
        near(c(3, 2.0), 4.0 / 9.0, 1e-12);
        // M/M/1: as likely as the server is busy. M/M/2: 2ρ²/(1+ρ).
        for use_of_each in [0.01, 0.3, 0.5, 0.9, 0.999] {
            near(c(1, use_of_each), use_of_each, 1e-12);
            near(c(2, 2.0 * use_of_each), 2.0 * use_of_each.powi(2) / (1.0 + use_of_each), 1e-12);
        }
    }

    #[test]
    fn always_a_probability() {
        for servers in [1, 2, 100, 10_000, 1_000_000] {
            let mut before = 0.0;
            for use_of_each in [1e-9, 0.1, 0.5, 0.9, 0.99, 0.999, 0.999_999] {
                let waits = c(servers, f64::from(servers) * use_of_each);
                assert!((0.0..=1.0).contains(&waits) && waits >= before, "{servers} {use_of_each} {waits}");
                before = waits;
            }
        }
        assert_eq!((c(5, 5.0), c(5, 9.0), c(0, 1.0), c(0, 0.0)), (1.0, 1.0, 1.0, 1.0));
    }

    #[test]
    fn the_recursion_matches_the_definition() {
        for servers in 1..20_u32 {
            for load in [0.1, 1.0, 5.0, 18.0] {
                let term = |k: u32| (1..=k).map(|i| load / f64::from(i)).product::<f64>();
                let wanted = term(servers) / (0..=servers).map(term).sum::<f64>();
                near(b(servers, load), wanted, 1e-12);
            }
        }
    }
}
