//! The best result as values for the Helm chart (deploy/chart).

use std::fmt::Write;

use planner::format::{figure, millis};
use planner::scaling::saturation;
use planner::sizing::Sizing;

use crate::options::Inputs;

/// The smallest number of pods: one pod may be replaced or lost, and one alone would mean an outage.
const FEWEST: u32 = 2;
/// Memory is given in steps of 64 MiB, as one and a half times the measured memory.
const STEP: u64 = 64 << 20;

/// Returns a YAML document. Unknown values are left out, and a comment says so.
pub(crate) fn values(inputs: &Inputs, best: &Sizing) -> String {
    let size = &best.size;
    let replicas = best.instances.max(FEWEST);
    let mut out = format!(
        "# Values for Firebrick's chart, from `firebrick plan`: {} requests per second of {} each,\n# on pods of {} workers with {} threads, with {} % headroom. A pod handles {} requests per second.\n",
        figure(inputs.facts.rate_per_s),
        millis(inputs.facts.response_ms),
        size.workers,
        size.threads,
        figure(inputs.facts.headroom * 100.0),
        figure(best.instance_rate_per_s),
    );
    if best.load.times.is_none() {
        let _ = writeln!(out, "# NOT ENOUGH: {} pods would be needed.", best.needed.in_all);
    } else if best.keeps_slo == Some(false) {
        out.push_str("# NOT ENOUGH: the objective is not met.\n");
    }
    for note in &inputs.notes {
        let _ = writeln!(out, "# Note: {}", note.replace('\n', " "));
    }
    let _ = write!(
        out,
        "replicas: {replicas}\nserver:\n  workers: {}\n  threads: {}\n",
        size.workers, size.threads
    );
    if size.fibers > 0 {
        let _ = writeln!(out, "args: [--fibers, \"{}\"]", size.fibers);
    }
    resources(inputs, best, &mut out);
    let _ = write!(
        out,
        "autoscaling:\n  # hpa or keda; see docs/kubernetes.md for what they need.\n  kind: none\n  minReplicas: {}\n  maxReplicas: {}\n  saturation: {:.2}\n",
        fewest(inputs, best, replicas),
        replicas.saturating_mul(2),
        saturation(&inputs.facts, size),
    );
    out
}

fn resources(inputs: &Inputs, best: &Sizing, out: &mut String) {
    let cores = best.size.cores.unwrap_or_else(|| f64::from(best.size.workers));
    let cpu = format!("\"{}m\"", (cores * 1_000.0).ceil());
    let Some(memory) = &inputs.memory else {
        let _ = write!(
            out,
            "# Memory was not measured, so the chart's default counts: give --from a running server.\nresources:\n  requests:\n    cpu: {cpu}\n  limits:\n    cpu: {cpu}\n",
        );
        return;
    };
    let measured = memory.value.of(best.size.workers);
    let wanted = (measured + measured / 2).div_ceil(STEP) * (STEP >> 20);
    let _ = write!(
        out,
        "# Memory: {} MiB, from {}, and a half more.\nresources:\n  requests:\n    cpu: {cpu}\n    memory: {wanted}Mi\n  limits:\n    cpu: {cpu}\n    memory: {wanted}Mi\n",
        measured >> 20,
        memory.from,
    );
}

/// Returns as many pods as the average rate needs, if it is known.
fn fewest(inputs: &Inputs, best: &Sizing, replicas: u32) -> u32 {
    let Some(average) = inputs.facts.average_rate_per_s else { return replicas };
    let share = average / inputs.facts.rate_per_s;
    ((f64::from(replicas) * share).ceil() as u32).clamp(FEWEST, replicas.max(best.instances))
}
