//! Splits the latency at a percentile into parts: the mean of the server's timings for responses of similar latency.

use load::outcome::{Band, Stages};

/// The parts of a latency, in milliseconds; they add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    pub total: f64,
    /// Waiting to be sent, because the load generator had no free connection.
    pub unsent: f64,
    /// Waiting for a worker.
    pub queue: f64,
    /// Waiting for the GVL; `None` if the server did not report it.
    pub gvl: Option<f64>,
    /// In the app, without `gvl`.
    pub app: f64,
    /// The rest: network, reading, writing.
    pub network: f64,
}

/// The share of responses on each side of a rank that are averaged: enough to reduce noise, few enough to be
/// specific to this percentile.
const AROUND: f64 = 0.005;
/// The GVL part is shown if more than this share of the responses reported it.
const MOST: f64 = 0.5;

/// Splits the latency `total_ms` at `percentile`.
pub(crate) fn split(stages: &Stages, percentile: f64, total_ms: f64) -> Option<Split> {
    let sum = around(&stages.bands, percentile / 100.0)?;
    if sum.latency == 0 {
        return None;
    }
    // A band is wider than the percentile, so its sums are scaled to the exact latency.
    let scale = total_ms / sum.latency as f64;
    let part = |us: u64| us as f64 * scale;
    let gvl = (sum.gvl.1 as f64 > sum.count as f64 * MOST).then(|| {
        let mean = sum.gvl.0 as f64 / sum.gvl.1 as f64;
        (mean * sum.count as f64 * scale).min(part(sum.app))
    });
    let (unsent, queue, app) = (part(sum.unsent), part(sum.queue), part(sum.app));
    // Two clocks are involved, so the server's times may slightly exceed the client's.
    let known = unsent + queue + app;
    let shrink = if known > total_ms { total_ms / known } else { 1.0 };
    let (unsent, queue, app, gvl) =
        (unsent * shrink, queue * shrink, app * shrink, gvl.map(|gvl| gvl * shrink));
    let network = (total_ms - unsent - queue - app).max(0.0);
    Some(Split { total: total_ms, unsent, queue, gvl, app: app - gvl.unwrap_or(0.0), network })
}

/// Returns the sum of the bands whose ranks lie around `share`; at least the band that contains `share`.
fn around(bands: &[Band], share: f64) -> Option<Band> {
    let count: u64 = bands.iter().map(|band| band.count).sum();
    if count == 0 {
        return None;
    }
    let rank = |share: f64| share.clamp(0.0, 1.0) * count as f64;
    let (from, at, to) = (rank(share - AROUND), rank(share), rank(share + AROUND));
    let mut sum = Band::default();
    let mut before = 0.0;
    for band in bands.iter().filter(|band| band.count > 0) {
        let upto = before + band.count as f64;
        let holds = (before < at || before == 0.0) && at <= upto;
        if holds || (before >= from && upto <= to) {
            add(&mut sum, band);
        }
        before = upto;
    }
    (sum.count > 0).then_some(sum)
}

fn add(sum: &mut Band, band: &Band) {
    sum.upto_us = band.upto_us;
    sum.count += band.count;
    sum.latency += band.latency;
    sum.unsent += band.unsent;
    sum.queue += band.queue;
    sum.app += band.app;
    sum.cpu = (sum.cpu.0 + band.cpu.0, sum.cpu.1 + band.cpu.1);
    sum.gvl = (sum.gvl.0 + band.gvl.0, sum.gvl.1 + band.gvl.1);
}

impl Split {
    /// Returns the nonzero parts with their names, in chronological order.
    pub fn parts(&self) -> Vec<(&'static str, f64)> {
        let all = [
            ("waiting to be sent", Some(self.unsent)),
            ("queue", Some(self.queue)),
            ("waiting for the GVL", self.gvl),
            ("app", Some(self.app)),
            ("network and sending", Some(self.network)),
        ];
        all.into_iter().filter_map(|(name, ms)| ms.filter(|ms| *ms > 0.0).map(|ms| (name, ms))).collect()
    }

    /// Returns a sentence such as `412 ms = 301 queue + 64 waiting for the GVL + 40 app + 7 network and
    /// sending`, rounded so that the sum is exact.
    pub fn sentence(&self) -> String {
        let (one, unit) = unit(self.total);
        let digits = digits(self.total / one);
        let step = 10f64.powi(-digits);
        let round = |ms: f64| (ms / one / step).round() as i64;
        let mut parts: Vec<(&str, i64)> =
            self.parts().into_iter().map(|(name, ms)| (name, round(ms))).collect();
        let total = round(self.total);
        let off = total - parts.iter().map(|(_, part)| part).sum::<i64>();
        if let Some(largest) = parts.iter_mut().max_by_key(|(_, part)| *part) {
            largest.1 += off;
        }
        let show = |steps: i64| format!("{:.*}", usize::try_from(digits).unwrap_or(0), steps as f64 * step);
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, part)| *part > 0)
            .map(|(name, part)| format!("{} {name}", show(*part)))
            .collect();
        format!("{} {unit} = {}", show(total), parts.join(" + "))
    }
}

fn unit(ms: f64) -> (f64, &'static str) {
    match ms {
        ms if ms >= 1_000.0 => (1_000.0, "s"),
        ms if ms >= 1.0 => (1.0, "ms"),
        _ => (1e-3, "µs"),
    }
}

/// Returns the decimals for three significant digits.
fn digits(value: f64) -> i32 {
    match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn band(upto_us: u64, count: u64, queue: u64, app: u64, gvl: u64) -> Band {
        Band {
            upto_us,
            count,
            latency: upto_us * count,
            queue: queue * count,
            app: app * count,
            gvl: (gvl * count, count),
            ..Band::default()
        }
    }

    #[test]
    fn a_percentile_is_split_by_the_responses_around_it() {
        let bands = vec![band(50_000, 985, 0, 40_000, 1_000), band(412_000, 15, 301_000, 104_000, 64_000)];
        let stages = Stages { reported: 1000, bands };
        let p99 = split(&stages, 99.0, 412.0).unwrap();
        assert_eq!(
            p99.sentence(),
            "412 ms = 301 queue + 64 waiting for the GVL + 40 app + 7 network and sending"
        );
        let p50 = split(&stages, 50.0, 50.0).unwrap();
        assert_eq!(p50.sentence(), "50.0 ms = 1.0 waiting for the GVL + 39.0 app + 10.0 network and sending");
        assert_eq!(split(&stages, 100.0, 412.0), Some(p99));
        assert_eq!(split(&Stages::default(), 99.0, 1.0), None);
    }

    #[test]
    fn a_server_that_does_not_report_the_gvl() {
        let mut one = band(900, 10, 100, 500, 0);
        one.gvl = (0, 0);
        let found = split(&Stages { reported: 10, bands: vec![one] }, 99.0, 0.9).unwrap();
        assert_eq!(found.gvl, None);
        assert_eq!(found.sentence(), "900 µs = 100 queue + 500 app + 300 network and sending");
    }

    proptest! {
        #[test]
        fn parts_add_up(
            rows in proptest::collection::vec((1u64..1_000_000, 1u64..50, 0u64..600_000, 0u64..600_000, 0u64..600_000), 1..20),
            percentile in 0.0f64..100.0,
        ) {
            let mut upto = 0;
            let bands: Vec<Band> = rows
                .iter()
                .map(|(step, count, queue, app, gvl)| { upto += step; band(upto, *count, *queue, *app, *gvl) })
                .collect();
            let total = upto as f64 / 1e3;
            let found = split(&Stages { reported: 1, bands }, percentile, total).unwrap();
            let sum: f64 = found.parts().iter().map(|(_, ms)| ms).sum();
            prop_assert!((sum - total).abs() < 1e-6 * total, "{} {}", sum, total);
            let text = found.sentence();
            let numbers: Vec<f64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
            prop_assert!((numbers[0] - numbers[1..].iter().sum::<f64>()).abs() < 0.006, "{}", text);
        }
    }
}
