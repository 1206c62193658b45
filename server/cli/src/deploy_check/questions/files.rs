//! Public files, assets, logs of the app.

use super::super::facts::{AssetPipeline, DeployFacts};
use super::super::finding::DeployFinding;
use super::{counted, set};

/// Whether the server or the app serves the files of `public/`, and whether assets are compiled.
pub(super) fn public(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "public files";
    if facts.settings.app.is_none() || facts.settings.sites.main.is_some() {
        return Vec::new();
    }
    let entries = facts.public_entries.unwrap_or(0);
    let mut findings: Vec<DeployFinding> = facts
        .rails
        .iter()
        .filter_map(|rails| {
            let pipeline = rails.pipeline.as_ref()?;
            assets(pipeline, rails.sources, &facts.environment.name)
        })
        .collect();
    let leaves = facts.rails.as_ref().is_some_and(|rails| rails.leaves_files_to_the_server);
    findings.push(match &facts.settings.files.public {
        None if leaves => {
            DeployFinding::yellow(
                QUESTION,
                "neither the server (files.serve_public is off) nor the app (RAILS_SERVE_STATIC_FILES is not set) serves public/",
            )
            .paste_line(set(facts, "files.public", "\"auto\""))
        }
        None => DeployFinding::green(QUESTION, "files.serve_public is off: the app serves its files itself"),
        Some(_) if entries == 0 => DeployFinding::green(QUESTION, "there are none"),
        Some(_) if leaves => DeployFinding::green(
            QUESTION,
            format!("{} in public/: the server serves them, because RAILS_SERVE_STATIC_FILES is not set", entries_text(entries)),
        ),
        Some(_) => DeployFinding::green(
            QUESTION,
            format!("{} in public/: the app's middleware decides, firebrick check shows how", entries_text(entries)),
        ),
    }.with("entries", entries));
    findings
}

fn assets(pipeline: &AssetPipeline, sources: usize, environment: &str) -> Option<DeployFinding> {
    const QUESTION: &str = "assets";
    let AssetPipeline { name, output, has_files, manifest } = pipeline;
    if sources == 0 || environment == "development" || environment == "test" {
        return None;
    }
    let finding = match (has_files, manifest) {
        (_, true) => DeployFinding::green(QUESTION, format!("compiled by {name} into {output}")),
        (true, false) => DeployFinding::red(
            QUESTION,
            format!("{output} has files but no manifest of {name}: was a file with a dot left out?"),
        ),
        (false, false) => DeployFinding::red(
            QUESTION,
            format!(
                "{output} is empty: {name} has compiled none of {}",
                counted(sources as u64, "source file")
            ),
        ),
    };
    let finding = finding.with("pipeline", *name).with("output", *output).with("sources", sources);
    if *manifest {
        return Some(finding);
    }
    Some(finding.paste(
        "shell",
        format!("RAILS_ENV={environment} SECRET_KEY_BASE_DUMMY=1 bundle exec rails assets:precompile"),
    ))
}

/// Whether the log of a Rails app leaves its container.
pub(super) fn logs(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "log of the app";
    let Some(rails) = &facts.rails else { return Vec::new() };
    let around = &facts.surroundings;
    let platform = around.routed_by.or(around.kubernetes.then_some("KUBERNETES_SERVICE_HOST"));
    let file = format!("log/{}.log", facts.environment.name);
    if !rails.logs_to_a_file {
        return Vec::new();
    }
    vec![match platform {
        Some(platform) => DeployFinding::yellow(
            QUESTION,
            format!("{file} in the container, lost with it ({platform} is set, RAILS_LOG_TO_STDOUT is not)"),
        )
        .with("file", file)
        .with("platform", platform)
        .paste("environment", "RAILS_LOG_TO_STDOUT=1"),
        None => DeployFinding::green(QUESTION, format!("{file}, because RAILS_LOG_TO_STDOUT is not set"))
            .with("file", file),
    }]
}

/// Files and folders, not counting those below.
fn entries_text(number: usize) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}
