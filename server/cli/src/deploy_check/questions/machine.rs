//! Memory, processors, descriptors and folders.

use super::super::facts::{DeployFacts, FolderPurpose, TemporaryFolder};
use super::super::finding::DeployFinding;
use super::{all_workers, bytes, counted, set, variable};

/// The memory that a worker is assumed to take if no setting says it: the default of `worker_memory_estimate`.
const ASSUMED: u64 = 256 << 20;

/// Whether the workers fit into memory.
pub(super) fn memory(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "memory";
    if facts.settings.app.is_none() {
        return Vec::new();
    }
    let workers = all_workers(&facts.settings);
    let (each, told) = (facts.worker_memory.unwrap_or(ASSUMED), facts.worker_memory.is_some());
    let needed = workers.saturating_mul(each);
    let assumed =
        if told { "" } else { " (that size is assumed: firebrick stats shows what they really take)" };
    let counts = format!("{} of {}", counted(workers, "worker"), bytes(each));
    let Some(memory) = facts.machine.memory() else {
        let text = format!("{counts}; the memory of this machine is unknown{assumed}");
        return vec![
            DeployFinding::green(QUESTION, text).with("workers", workers).with("worker_bytes", each),
        ];
    };
    let what = if facts.machine.memory_limit == Some(memory) {
        "the container's limit is"
    } else {
        "the machine has"
    };
    let text = format!("{counts} need {}, {what} {}{assumed}", bytes(needed), bytes(memory));
    let finding = if needed <= memory {
        DeployFinding::green(QUESTION, text)
    } else {
        let finding =
            if told { DeployFinding::red(QUESTION, text) } else { DeployFinding::yellow(QUESTION, text) };
        let others: u64 = facts.settings.pools.iter().map(|pool| u64::from(pool.workers)).sum();
        let fitting = (memory / each.max(1)).saturating_sub(others).max(1);
        finding.paste_line(set(facts, "workers", &fitting.to_string()))
    };
    vec![
        finding
            .with("workers", workers)
            .with("worker_bytes", each)
            .with("worker_bytes_assumed", !told)
            .with("memory_bytes", memory),
    ]
}

/// Whether the number of workers suits the processors.
pub(super) fn cpus(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "CPUs";
    if facts.settings.app.is_none() {
        return Vec::new();
    }
    let (settings, machine) = (&facts.settings, &facts.machine);
    let (workers, cpus) = (all_workers(settings), u64::from(machine.cpus()));
    let by = if machine.cpu_quota.is_some() { " (with the container's quota)" } else { "" };
    let text = format!("{} for {}{by}", counted(workers, "worker"), counted(cpus, "CPU"));
    let to_cpus = set(facts, "workers", &cpus.to_string());
    let finding =
        if facts.surroundings.kubernetes && machine.cpu_quota.is_none() && settings.workers_auto.is_some() {
            DeployFinding::yellow(
                QUESTION,
                format!("{text}: without a limit of CPU the pod starts a worker for each CPU of its node"),
            )
            .paste("container of the pod", "resources:\n  limits:\n    cpu: \"2\"")
        } else if workers > 2 * cpus {
            DeployFinding::yellow(QUESTION, format!("{text}: more than two for each")).paste_line(to_cpus)
        } else if settings.workers.max * 2 < machine.cpus()
            && settings.workers_auto.is_none()
            && settings.pools.is_empty()
        {
            DeployFinding::yellow(QUESTION, format!("{text}: a worker uses one at a time, so most are idle"))
                .paste_line(to_cpus)
        } else {
            DeployFinding::green(QUESTION, text)
        };
    let quota = machine.cpu_quota.map_or(serde_json::Value::Null, Into::into);
    vec![finding.with("workers", workers).with("cpus", cpus).with("quota", quota)]
}

/// Whether there are descriptors for all connections.
pub(super) fn descriptors(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "descriptors";
    /// Fewer connections than this are red.
    const FEW: u64 = 256;
    /// Listeners, logs, event loops of a front thread, and what the program has open anyway.
    const OWN: u64 = 16;
    let settings = &facts.settings;
    let wanted = settings.limits.max_connections as u64;
    let soft = facts.soft_open_files;
    let Some(hard) = facts.machine.open_files else {
        let text = format!("unlimited, for {} (limits.max_connections)", counted(wanted, "connection"));
        return vec![DeployFinding::green(QUESTION, text).with("max_connections", wanted)];
    };
    // Each worker has a link to each front thread.
    let links = if settings.app.is_some() { all_workers(settings) } else { 0 };
    let own = u64::from(settings.front_threads) * (links + OWN);
    let connections = net::descriptors::usable(hard).saturating_sub(own);
    let grouped = text::people::grouped;
    let raised = soft
        .filter(|soft| *soft < hard)
        .map(|soft| format!(" (the server raises the soft limit of {})", grouped(soft)));
    let text = format!(
        "{}{} leave {} of {} (limits.max_connections)",
        grouped(hard),
        raised.unwrap_or_default(),
        grouped(connections),
        counted(wanted, "connection")
    );
    let needed = (wanted + own + 1_024).next_power_of_two();
    let raise = |finding: DeployFinding| {
        finding
            .paste("[Service] of the systemd unit", format!("LimitNOFILE={needed}"))
            .paste("shell, before the server", format!("ulimit -Hn {needed}"))
    };
    let finding = if connections < FEW.min(wanted) {
        raise(DeployFinding::red(QUESTION, text))
    } else if connections < wanted {
        raise(DeployFinding::yellow(
            QUESTION,
            format!("{text}: beyond that, idle ones are closed for new ones"),
        ))
    } else {
        DeployFinding::green(QUESTION, text)
    };
    let soft = soft.map_or(serde_json::Value::Null, Into::into);
    vec![
        finding
            .with("hard", hard)
            .with("soft", soft)
            .with("connections", connections)
            .with("max_connections", wanted),
    ]
}

/// Whether large bodies have a place.
pub(super) fn temp_dir(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "temporary files";
    let settings = &facts.settings;
    let dir = settings.process.temp_dir.display().to_string();
    let TemporaryFolder { problem, in_memory, free } = &facts.temp;
    let body = settings.limits.max_body;
    let largest = body.unwrap_or(0).max(settings.limits.response_spool);
    let finding = if let Some(why) = problem {
        let finding =
            DeployFinding::red(QUESTION, format!("large uploads and responses stay in memory: {why}"));
        if facts.surroundings.kubernetes {
            finding
                .paste("pod", "volumes:\n  - name: tmp\n    emptyDir: {}")
                .paste("container of the pod", "volumeMounts:\n  - name: tmp\n    mountPath: /tmp")
        } else {
            finding.paste_line(variable("TMPDIR", "/var/tmp"))
        }
    } else if *in_memory {
        let remedy = if facts.surroundings.kubernetes {
            super::PasteLine {
                place: "pod".to_owned(),
                text: "volumes:\n  - name: tmp\n    emptyDir: {}".to_owned(),
            }
        } else {
            variable("TMPDIR", "/var/tmp")
        };
        DeployFinding::yellow(
            QUESTION,
            format!("{dir} is in memory (tmpfs): large bodies count against limits.memory"),
        )
        .paste_line(remedy)
    } else if let Some(free) = free.filter(|free| *free < largest) {
        let which =
            if body.is_some_and(|body| free < body) { "limits.max_body" } else { "limits.response_spool" };
        DeployFinding::yellow(
            QUESTION,
            format!("{dir} has {} free, less than one body of {} ({which})", bytes(free), bytes(largest)),
        )
        .paste_line(set(facts, which, &format!("\"{}\"", text::size::exact(fitting(free)))))
    } else {
        let room = free.map_or("free space unknown".to_owned(), |free| format!("{} free", bytes(free)));
        DeployFinding::green(QUESTION, format!("{dir}, on a disk, {room}"))
    };
    let free = free.map_or(serde_json::Value::Null, Into::into);
    let body = body.map_or(serde_json::Value::Null, Into::into);
    vec![
        finding
            .with("dir", dir)
            .with("free_bytes", free)
            .with("max_body", body)
            .with("response_spool", settings.limits.response_spool),
    ]
}

/// Returns half of the free bytes, in whole MiB and at least one.
fn fitting(free: u64) -> u64 {
    ((free / 2) >> 20).max(1) << 20
}

/// Whether the other folders can be written to.
pub(super) fn folders(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "folders";
    let mut findings = Vec::new();
    for folder in &facts.folders {
        let path = folder.path.display().to_string();
        let Some(why) = &folder.problem else { continue };
        let finding = match folder.purpose {
            FolderPurpose::ControlSocket => DeployFinding::yellow(
                QUESTION,
                format!("no control socket, so no firebrick stats, reload and stop: {why}"),
            )
            .paste_line(variable("XDG_RUNTIME_DIR", "/run/firebrick")),
            FolderPurpose::Pidfile => DeployFinding::red(QUESTION, format!("no pid file: {why}"))
                .paste_line(set(facts, "pidfile", "\"/run/firebrick/server.pid\"")),
            FolderPurpose::Certificates => DeployFinding::red(
                QUESTION,
                format!("certificates cannot be kept: {why}"),
            )
            .paste_line(set(facts, "acme.dir", "\"/var/lib/firebrick/certs\"")),
            FolderPurpose::RailsTemporary => {
                let finding = DeployFinding::yellow(QUESTION, format!("caches and sockets of Rails: {why}"));
                if facts.surroundings.kubernetes {
                    finding.paste(
                        "container of the pod",
                        format!("volumeMounts:\n  - name: tmp\n    mountPath: {path}"),
                    )
                } else {
                    finding.paste("shell", format!("chown -R \"$USER\" {path}"))
                }
            }
        };
        findings.push(finding.with("folder", path));
    }
    if let (true, Some(_)) = (findings.is_empty(), facts.folders.first()) {
        let paths: Vec<String> =
            facts.folders.iter().map(|folder| folder.path.display().to_string()).collect();
        findings.push(
            DeployFinding::green(QUESTION, format!("{} can be written", paths.join(", ")))
                .with("folders", paths),
        );
    }
    findings
}
