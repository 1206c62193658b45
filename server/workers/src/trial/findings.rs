//! Compares the requests of two releases to one route.

use super::odds::{EventCounts, combined, log_evidence};
use super::side::{RouteSide, TrialFigure};
use super::spread::Spread;

/// A question about a route, with the part of the allowed false alarms that it may use. The parts of all questions make 1.
#[derive(Debug, Clone, Copy)]
struct Question {
    figure: TrialFigure,
    quantile: f64,
    /// How much larger the figure may be, in steps of an eighth of an octave: 2 are 19 %, 3 are 30 %, 4 are 41 %, 5 are 54 %.
    margin: usize,
    part: f64,
}

/// The margin of allocations where workers serve several requests at a time: twice as many. Ruby counts them for the process, and a
/// request's part is that of the processor time, so it depends on the requests beside it, which are fewer in a new worker.
const DIVIDED: usize = 9;

/// The part of the failures.
const FAILURES: f64 = 0.4;

/// A new worker gets less load than the others, which hides little and invents nothing; but its processor caches are colder, so that the same
/// code takes more of the processor.
/// In the order in which a cause comes before its effects.
///
/// The slowest requests are asked for at several quantiles: a tail that only one request in 25 has hides behind the usual slow ones at p95, and
/// stands alone at p99.5, where the new release has few requests yet.
const QUESTIONS: [Question; 10] = [
    Question { figure: TrialFigure::Queries, quantile: 0.5, margin: 3, part: 0.05 },
    Question { figure: TrialFigure::Queries, quantile: 0.95, margin: 3, part: 0.05 },
    Question { figure: TrialFigure::Allocations, quantile: 0.5, margin: 2, part: 0.1 },
    Question { figure: TrialFigure::Cpu, quantile: 0.5, margin: 5, part: 0.1 },
    Question { figure: TrialFigure::Time, quantile: 0.5, margin: 2, part: 0.1 },
    Question { figure: TrialFigure::Time, quantile: 0.95, margin: 3, part: 0.06 },
    Question { figure: TrialFigure::Time, quantile: 0.98, margin: 2, part: 0.04 },
    Question { figure: TrialFigure::Time, quantile: 0.99, margin: 2, part: 0.04 },
    Question { figure: TrialFigure::Time, quantile: 0.995, margin: 3, part: 0.03 },
    Question { figure: TrialFigure::Time, quantile: 0.998, margin: 3, part: 0.03 },
];

/// The differences between the workers apart from their code.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Circumstances {
    /// Whether a worker serves several requests at a time, which divide the counts of their process.
    pub(super) divided: bool,
    /// How much longer requests of the new one wait for a processor, on average, in microseconds.
    pub(super) excess_us: f64,
}

impl Circumstances {
    /// Returns the excess at a quantile. Waits are about exponentially distributed; below the mean, the mean counts.
    fn excess_at(self, quantile: f64) -> f64 {
        self.excess_us * (-(1.0 - quantile).ln()).max(1.0)
    }
}

/// An answer to a question: how strongly it speaks against the new release.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrialFinding {
    /// The natural logarithm of the evidence, times the question's part.
    pub(super) log_evidence: f64,
    /// The finding as a sentence without its subject.
    pub(super) text: String,
}

/// Returns the finding about a route that speaks most against the new release, or, of those whose evidence is `alarm` or more (a logarithm), the
/// one that may be the cause of the others. `None` if one of the releases had no requests. `copies`: what two other workers have served before, one
/// request at a time.
pub(super) fn worst(
    new: &RouteSide,
    old: &RouteSide,
    copies: Option<(&RouteSide, &RouteSide)>,
    alarm: f64,
    circumstances: Circumstances,
) -> Option<TrialFinding> {
    if new.requests == 0 || old.requests == 0 {
        return None;
    }
    let both = |evidence: &dyn Fn(&RouteSide, &RouteSide, Circumstances) -> f64| {
        let here = evidence(new, old, circumstances);
        copies.map_or(here, |(new, old)| combined(here, evidence(new, old, Circumstances::default())))
    };
    let failures = (None, FAILURES.ln() + both(&|new, old, _| log_evidence(failed(new), failed(old))));
    let asked = |question: &'static Question| {
        let evidence = |new: &RouteSide, old: &RouteSide, of| question.log_evidence(new, old, of);
        (Some(question), question.part.ln() + both(&evidence))
    };
    let all: Vec<_> = std::iter::once(failures).chain(QUESTIONS.iter().map(asked)).collect();
    let strongest =
        |one: &&(Option<&Question>, f64), other: &&(Option<&Question>, f64)| one.1.total_cmp(&other.1);
    let figure_of = |(question, _): &(Option<&Question>, f64)| question.map(|question| question.figure);
    let first = all.iter().find(|(_, evidence)| *evidence >= alarm).map(figure_of);
    // Of the quantiles of a figure, the one that shows it best.
    let may_be_named = |finding: &&(_, f64)| first.is_none_or(|first| figure_of(finding) == first);
    let (question, log_evidence) = *all.iter().filter(may_be_named).max_by(strongest)?;
    let text = question.map_or_else(|| failing(new, old), |question| question.text(new, old));
    Some(TrialFinding { log_evidence, text })
}

fn failed(side: &RouteSide) -> EventCounts {
    EventCounts { events: side.failures, requests: side.requests }
}

fn failing(new: &RouteSide, old: &RouteSide) -> String {
    let percent = |side: &RouteSide| side.failures as f64 * 100.0 / side.requests.max(1) as f64;
    format!(
        "failed in {} of {} requests ({:.1} %; in the old code {:.1} %)",
        new.failures,
        new.requests,
        percent(new),
        percent(old)
    )
}

impl Question {
    fn log_evidence(&self, new: &RouteSide, old: &RouteSide, of: Circumstances) -> f64 {
        let (new, old) = (new.spread(self.figure), old.spread(self.figure));
        let margin =
            if of.divided && self.figure == TrialFigure::Allocations { DIVIDED } else { self.margin };
        let excess = if self.figure == TrialFigure::Time { of.excess_at(self.quantile) } else { 0.0 };
        let above = new.above(old, self.quantile, margin, excess);
        let counts = |spread: &Spread, events| EventCounts { events, requests: spread.total() };
        log_evidence(counts(new, above.new), counts(old, above.old))
    }

    fn text(&self, new: &RouteSide, old: &RouteSide) -> String {
        let value = |side: &RouteSide, quantile| side.spread(self.figure).quantile(quantile);
        // Where the slow requests begin beyond the quantile, the next one shows them.
        let of_figure = QUESTIONS.iter().filter(|question| question.figure == self.figure);
        let mut further = of_figure.map(|question| question.quantile).filter(|other| *other >= self.quantile);
        let shown = further.find(|quantile| value(new, *quantile) > value(old, *quantile));
        let quantile = shown.unwrap_or(self.quantile);
        // One digit of a fraction, where there is one: p99.5.
        let percentile = (quantile * 1000.0).round() / 10.0;
        let (new, old) = (value(new, quantile), value(old, quantile));
        let ms = |us: u32| f64::from(us) / 1e3;
        match self.figure {
            TrialFigure::Time => format!("p{percentile} is {:.1} ms, was {:.1} ms", ms(new), ms(old)),
            TrialFigure::Cpu => {
                format!("p{percentile} of its processor time is {:.1} ms, was {:.1} ms", ms(new), ms(old))
            }
            TrialFigure::Allocations => format!("allocates about {new} objects, before {old}"),
            TrialFigure::Queries => format!("makes {new} queries (p{percentile}), before {old}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{TrialSample, WARMING};

    const ALONE: Circumstances = Circumstances { divided: false, excess_us: 0.0 };

    fn side(count: u64, cold: bool, sample: impl Fn(u64) -> TrialSample) -> RouteSide {
        let mut side = RouteSide::default();
        (0..count + if cold { WARMING } else { 0 })
            .for_each(|n| side.add(&sample(n), if cold { WARMING } else { 0 }));
        side
    }

    fn sample(ms: u32) -> TrialSample {
        TrialSample {
            route: "a#b".into(),
            failed: false,
            app_us: ms * 1000,
            cpu_us: Some(ms * 500),
            allocations: Some(10_000),
            queries: Some(5),
        }
    }

    #[test]
    fn the_parts_make_one() {
        let all: f64 = FAILURES + QUESTIONS.iter().map(|question| question.part).sum::<f64>();
        assert!((all - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_figure_is_found_and_named() {
        let old = side(300, false, |n| sample(20 + (n % 3) as u32));
        let finding =
            |of: fn(u64) -> TrialSample| worst(&side(40, true, of), &old, None, 10.0, ALONE).unwrap();
        let good = finding(|n| sample(20 + (n % 3) as u32));
        assert!(good.log_evidence < 0.0, "{good:?}");
        let slow = finding(|n| TrialSample { cpu_us: Some(10_000), ..sample(32 + (n % 3) as u32) });
        assert!(
            slow.log_evidence > 10.0 && slow.text.starts_with("p50 is 3") && slow.text.contains("was 2"),
            "{slow:?}"
        );
        let tail = finding(|n| sample(if n % 5 == 0 { 80 } else { 20 }));
        assert!(tail.log_evidence > 5.0 && tail.text.starts_with('p'), "{tail:?}");
        let cpu = finding(|n| TrialSample { cpu_us: Some(18_000), ..sample(20 + (n % 3) as u32) });
        assert!(cpu.log_evidence > 10.0 && cpu.text.contains("processor time"), "{cpu:?}");
        let allocating =
            finding(|n| TrialSample { allocations: Some(20_000), ..sample(20 + (n % 3) as u32) });
        assert!(allocating.log_evidence > 10.0 && allocating.text.contains("objects"), "{allocating:?}");
        let asking = finding(|n| TrialSample { queries: Some(42), ..sample(20 + (n % 3) as u32) });
        assert!(
            asking.log_evidence > 10.0
                && asking.text.starts_with("makes 4")
                && asking.text.contains("before 5"),
            "{asking:?}"
        );
        let failing = finding(|n| TrialSample { failed: n % 8 == 0, ..sample(20 + (n % 3) as u32) });
        assert!(failing.log_evidence > 10.0, "{failing:?}");
        assert_eq!(failing.text, "failed in 7 of 56 requests (12.5 %; in the old code 0.0 %)");
    }

    /// At 5 % of the requests, one slow request in 25 is soon found, and one that the old code has as often is not.
    #[test]
    fn a_rare_tail_is_found_while_the_release_has_few_requests() {
        let tail = |every: u64| {
            move |n: u64| TrialSample {
                app_us: if n % every == 24 { 60_000 } else { 20_000 + (n * 7919 % 9_000) as u32 },
                ..sample(20)
            }
        };
        let evidence = |of_old: u64| {
            let old = side(3_000, false, tail(of_old));
            worst(&side(150, true, tail(25)), &old, None, 10.0, ALONE).unwrap()
        };
        let found = evidence(u64::MAX);
        assert!(found.log_evidence > 10.0 && found.text.starts_with("p98 is 6"), "{found:?}");
        assert!(evidence(25).log_evidence < 0.0);
    }

    #[test]
    fn a_divided_count_has_to_be_twice_as_large() {
        let of = |count, cold, objects| {
            side(count, cold, move |_| TrialSample { allocations: Some(objects), ..sample(20) })
        };
        let old = of(3_000, false, 9_700);
        let evidence = |objects, divided| {
            worst(&of(300, true, objects), &old, None, 10.0, Circumstances { divided, ..ALONE })
                .unwrap()
                .log_evidence
        };
        assert!(evidence(12_700, false) > 10.0 && evidence(12_700, true) < 0.0);
        assert!(evidence(18_000, true) < 0.0 && evidence(30_000, true) > 10.0);
    }

    #[test]
    fn waits_for_a_processor_are_not_the_releases() {
        let old = side(3_000, false, |n| sample(18 + (n % 3) as u32));
        let evidence = |ms: u32, excess_us: f64| {
            let new = side(60, true, |n| TrialSample { cpu_us: Some(9_500), ..sample(ms + (n % 3) as u32) });
            worst(&new, &old, None, 10.0, Circumstances { excess_us, ..ALONE }).unwrap().log_evidence
        };
        assert!(evidence(32, 0.0) > 10.0 && evidence(32, 14_000.0) < 0.0);
        assert!(evidence(60, 14_000.0) > 10.0, "it is slower by more than that");
    }

    #[test]
    fn cold_requests_and_less_of_anything_count_for_nothing() {
        let old = side(300, false, |_| sample(20));
        let cold = side(0, true, |_| sample(500));
        assert!(worst(&cold, &old, None, 9.0, ALONE).unwrap().log_evidence < 0.0);
        let better = TrialSample { cpu_us: Some(10), allocations: Some(1), queries: Some(0), ..sample(1) };
        let fast = side(100, true, |_| better.clone());
        assert!(worst(&fast, &old, None, 9.0, ALONE).unwrap().log_evidence < 0.0);
        assert_eq!(worst(&RouteSide::default(), &old, None, 9.0, ALONE), None);
        assert_eq!(worst(&cold, &RouteSide::default(), None, 9.0, ALONE), None);
    }
}
