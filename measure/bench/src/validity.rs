//! Remarks on the validity of a measurement: whether the server or the load generator was the bottleneck.

use report::Unit;

use crate::description::Traffic;
use crate::document::Document;
use crate::figures::{Figures, per_second};

/// From this share of busy time on, the load generator cannot keep its schedule.
pub(crate) const BUSY: f64 = 0.9;
/// An open model whose 99th percentile from due time exceeds that from send time by this factor did not keep the rate.
const LATE: f64 = 1.5;

/// Returns remarks that affect the trust in the results, as sentences without the final period.
pub(crate) fn remarks(document: &Document) -> Vec<String> {
    let (description, outcome) = (&document.description, &document.outcome);
    let missing = document.incomplete.iter();
    let mut remarks: Vec<String> =
        missing.map(|why| format!("the results are incomplete, because {why}")).collect();
    if outcome.busy >= BUSY {
        let busy = Unit::Fraction.show(outcome.busy);
        remarks.push(format!(
            "the load generator was the bottleneck ({busy} of {} {} busy), the server can do more: use more threads (-t), more processes (--workers), or several machines and --merge",
            description.generator(),
            if description.workers > 1 || description.threads == 1 { "was" } else { "were" }
        ));
    }
    if matches!(description.traffic, Traffic::Open { .. } | Traffic::Replay { .. })
        && outcome.errors.unsent == 0
        && outcome.crowded > 0
    {
        let (due, sent) = (Figures::of(&outcome.latency), Figures::of(&outcome.service));
        if sent.p99 > 0.0 && due.p99 > sent.p99 * LATE && due.p99 > sent.p99 + 1.0 {
            remarks.push(format!(
                "requests waited because all {} connections were in use: the server was slower than the rate, or -c is too small",
                description.connections
            ));
        }
    }
    if outcome.errors.unsent > 0 {
        // A generator without time for its own schedule proves nothing about the server.
        let slow = if outcome.busy >= BUSY { "the load generator" } else { "the server" };
        remarks.push(format!(
            "{} requests were due but never sent: {slow} did not keep up with the rate ({} successful responses)",
            Unit::Count.show(outcome.errors.unsent as f64),
            Unit::PerSecond.show(per_second(outcome.ok, outcome.seconds))
        ));
    }
    let redirects: u64 =
        outcome.statuses.range(300..400).filter(|(status, _)| **status != 304).map(|(_, count)| count).sum();
    if redirects > 0 && redirects == outcome.statuses.values().sum::<u64>() {
        remarks.push(
            "all responses were redirects, which bench counts and does not follow: measure the URL that they lead to"
                .to_owned(),
        );
    }
    if outcome.ok > 0 && outcome.ok < 100 {
        remarks.push(format!(
            "only {} responses: the high percentiles are single requests",
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
    fn a_normal_run_has_no_remarks() {
        assert_eq!(remarks(&document()), Vec::<String>::new());
    }

    #[test]
    fn limits_of_the_load_generator_are_remarked() {
        let mut busy = document();
        busy.outcome.busy = 0.97;
        assert!(remarks(&busy)[0].contains("97 % of its one thread was busy"), "{:?}", remarks(&busy));
        busy.description.workers = 4;
        busy.incomplete.push("worker 2 of 4 was killed by signal 9".to_owned());
        let found = remarks(&busy);
        assert_eq!(found[0], "the results are incomplete, because worker 2 of 4 was killed by signal 9");
        assert!(found[1].contains("97 % of the busiest of its 4 processes was busy"), "{found:?}");
        let mut late = document();
        late.description.traffic = Traffic::Open { rate: "5/s".to_owned(), random: false };
        late.outcome.service = histogram([1_000; 1_000]);
        // Late for another reason, such as a new connection.
        assert_eq!(remarks(&late), Vec::<String>::new());
        late.outcome.crowded = 1;
        assert!(remarks(&late)[0].contains("all 10 connections were in use"));
        late.outcome.errors.unsent = 7;
        assert!(remarks(&late)[0].contains("7 requests were due but never sent: the server did not keep up"));
        late.outcome.busy = 0.97;
        assert!(remarks(&late)[1].contains("never sent: the load generator did not keep up"));
        let mut moved = document();
        moved.outcome.statuses = [(301, 9), (302, 1)].into();
        assert!(remarks(&moved)[0].contains("all responses were redirects"));
        for other in [200, 304] {
            moved.outcome.statuses.insert(other, 1);
            assert_eq!(remarks(&moved), Vec::<String>::new());
            moved.outcome.statuses.remove(&other);
        }
        let mut few = document();
        few.outcome.ok = 3;
        assert!(remarks(&few)[0].contains("only 3 responses"));
    }
}
