//! The results for programs: `{"kind": "firebrick tune", "version": 1, …}`; described in docs/tune.md.

use planner::{Budget, Cell, Prediction, Profile, Recommendation};
use serde::Serialize;
use settings::Machine;

use crate::fibers::FiberReport;
use crate::options::Options;
use crate::results::Results;
use crate::server::ServerKind;
use crate::verdict::Verdict;
use crate::workload;

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: u32,
    app: String,
    environment: &'a str,
    load: String,
    machine: MachineFacts,
    budget: &'a Budget,
    seconds: f64,
    stopped: bool,
    /// Firebrick's cells, including short looks.
    cells: Vec<Cell>,
    /// The indices of the short looks in `cells`.
    looks: Vec<usize>,
    others: Vec<Other<'a>>,
    predictions: &'a [Prediction],
    #[serde(rename = "nature")]
    profile: &'a Profile,
    recommendation: &'a Recommendation,
    fibers: &'a FiberReport,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct MachineFacts {
    cores: u32,
    cpus_of_server: f64,
    memory_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    processor: Option<String>,
    system: String,
}

#[derive(Serialize)]
struct Other<'a> {
    server: ServerKind,
    version: &'a str,
    cells: Vec<&'a Cell>,
}

/// Returns the JSON document.
///
/// # Errors
/// Serialization fails.
pub(crate) fn document(
    options: &Options,
    budget: &Budget,
    machine: &Machine,
    cpus_of_server: f64,
    versions: &[(ServerKind, String)],
    done: &Results,
    verdict: &Verdict,
) -> Result<String, String> {
    let ours: Vec<_> = done.measured.iter().filter(|one| one.server == ServerKind::Firebrick).collect();
    let others =
        versions.iter().filter(|(kind, _)| *kind != ServerKind::Firebrick).map(|(kind, version)| Other {
            server: *kind,
            version,
            cells: done.measured.iter().filter(|one| one.server == *kind).map(|one| &one.cell).collect(),
        });
    let document = Document {
        kind: "firebrick tune",
        version: 1,
        app: options.dir.display().to_string(),
        environment: &options.environment,
        load: workload::words(&options.load),
        machine: MachineFacts {
            cores: machine.cores,
            cpus_of_server,
            memory_bytes: machine.memory_total,
            memory_limit_bytes: machine.memory_limit,
            processor: sys::machine::processor(),
            system: sys::machine::kernel(),
        },
        budget,
        seconds: done.seconds,
        stopped: done.stopped,
        looks: ours.iter().enumerate().filter(|(_, one)| one.look).map(|(at, _)| at).collect(),
        cells: ours.iter().map(|one| one.cell.clone()).collect(),
        others: others.collect(),
        predictions: &done.predictions,
        profile: &verdict.profile,
        recommendation: &verdict.recommendation,
        fibers: &verdict.fibers,
        remarks: &verdict.remarks,
    };
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|error| format!("cannot write the results as JSON: {error}"))
}
