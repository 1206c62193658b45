//! The figures for programs: `{"kind": "firebrick tune", "version": 1, …}`; docs/tune.md describes it.

use planner::{Budget, Cell, Nature, Prediction, Recommendation};
use serde::Serialize;
use settings::Machine;

use crate::asked;
use crate::options::Options;
use crate::server::Kind;
use crate::verdict::Verdict;
use crate::work::Done;

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
    /// Firebrick's, looks included.
    cells: Vec<Cell>,
    /// Those of `cells`, by their place, that were short looks.
    looks: Vec<usize>,
    others: Vec<Other<'a>>,
    predictions: &'a [Prediction],
    nature: &'a Nature,
    recommendation: &'a Recommendation,
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
    server: Kind,
    version: &'a str,
    cells: Vec<&'a Cell>,
}

/// The whole document.
///
/// # Errors
/// Never for figures that were measured; serde's reason otherwise.
pub(crate) fn document(
    options: &Options,
    budget: &Budget,
    machine: &Machine,
    cpus_of_server: f64,
    versions: &[(Kind, String)],
    done: &Done,
    verdict: &Verdict,
) -> Result<String, String> {
    let ours: Vec<_> = done.measured.iter().filter(|one| one.server == Kind::Firebrick).collect();
    let others = versions.iter().filter(|(kind, _)| *kind != Kind::Firebrick).map(|(kind, version)| Other {
        server: *kind,
        version,
        cells: done.measured.iter().filter(|one| one.server == *kind).map(|one| &one.cell).collect(),
    });
    let document = Document {
        kind: "firebrick tune",
        version: 1,
        app: options.dir.display().to_string(),
        environment: &options.environment,
        load: asked::words(&options.asking),
        machine: MachineFacts {
            cores: machine.cores,
            cpus_of_server,
            memory_bytes: machine.memory_total,
            memory_limit_bytes: machine.memory_limit,
            processor: processor(),
            system: system(),
        },
        budget,
        seconds: done.seconds,
        stopped: done.stopped,
        looks: ours.iter().enumerate().filter(|(_, one)| one.look).map(|(at, _)| at).collect(),
        cells: ours.iter().map(|one| one.cell.clone()).collect(),
        others: others.collect(),
        predictions: &done.predictions,
        nature: &verdict.nature,
        recommendation: &verdict.recommendation,
        remarks: &verdict.remarks,
    };
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|error| format!("the figures cannot be written as JSON: {error}"))
}

/// The processor's name, where the kernel tells it.
pub(crate) fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The kernel and its release.
fn system() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}
