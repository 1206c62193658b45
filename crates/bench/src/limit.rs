//! Whether it was the server that was measured, or the one who measured.

use report::Unit;

use crate::document::Document;
use crate::figures::{Figures, per_second};
use crate::told::Traffic;

/// From here on the load generator has no time left to be punctual.
const BUSY: f64 = 0.9;
/// An open model that is late by more than this at the 99th percentile did not send at the rate it should have.
const LATE: f64 = 1.5;

/// What has to be known before the figures are believed. Sentences without their ends.
pub(crate) fn remarks(document: &Document) -> Vec<String> {
    let (told, outcome) = (&document.plan, &document.outcome);
    let mut remarks = Vec::new();
    if outcome.busy >= BUSY {
        let busy = Unit::Fraction.show(outcome.busy);
        remarks.push(format!(
            "the load generator was the limit ({busy} of its {} busy): the server can do more; use -t with more threads, or several machines and --merge",
            if told.threads == 1 { "one thread was".to_owned() } else { format!("{} threads were", told.threads) }
        ));
    }
    if matches!(told.traffic, Traffic::Open { .. } | Traffic::Replay { .. }) && outcome.errors.unsent == 0 {
        let (due, sent) = (Figures::of(&outcome.latency), Figures::of(&outcome.service));
        if sent.p99 > 0.0 && due.p99 > sent.p99 * LATE && due.p99 > sent.p99 + 1.0 {
            remarks.push(format!(
                "requests waited to be sent because all {} connections were taken: the server was slower than the rate, or -c is too small for it",
                told.connections
            ));
        }
    }
    if outcome.errors.unsent > 0 {
        remarks.push(format!(
            "{} requests were due and never sent: the server did not keep up with the rate ({} of right answers)",
            Unit::Count.show(outcome.errors.unsent as f64),
            Unit::PerSecond.show(per_second(outcome.ok, outcome.seconds))
        ));
    }
    if outcome.ok > 0 && outcome.ok < 100 {
        remarks.push(format!(
            "{} answers are few: the high percentiles are single requests",
            Unit::Count.show(outcome.ok as f64)
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{document, histogram};

    #[test]
    fn a_calm_run_has_nothing_to_say() {
        assert_eq!(remarks(&document()), Vec::<String>::new());
    }

    #[test]
    fn limits_of_the_measurer_are_told() {
        let mut busy = document();
        busy.outcome.busy = 0.97;
        assert!(remarks(&busy)[0].contains("97 % of its one thread was busy"), "{:?}", remarks(&busy));
        let mut late = document();
        late.plan.traffic = Traffic::Open { rate: "5/s".to_owned(), random: false };
        late.outcome.service = histogram([1_000; 1_000]);
        assert!(remarks(&late)[0].contains("all 10 connections were taken"));
        late.outcome.errors.unsent = 7;
        assert!(remarks(&late)[0].contains("7 requests were due and never sent"));
        let mut few = document();
        few.outcome.ok = 3;
        assert!(remarks(&few)[0].contains("3 answers are few"));
    }
}
