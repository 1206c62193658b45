//! The app's environment, its secrets, its Ruby.

use settings::{Allocator, Yjit};

use super::super::facts::{DeployFacts, MasterKey, RailsFacts};
use super::super::finding::DeployFinding;
use super::{set, variable};

/// Whether the app runs in production.
pub(super) fn environment(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "environment";
    if facts.settings.app.is_none() {
        return Vec::new();
    }
    let found = &facts.environment;
    let name = found.name.as_str();
    let to_production = |finding: DeployFinding| {
        let own = if facts.rails.is_some() { "RAILS_ENV" } else { "RACK_ENV" };
        finding.with("environment", name).paste_line(variable(own, "production"))
    };
    let mut findings = vec![match &found.origin {
        None => to_production(DeployFinding::yellow(
            QUESTION,
            "none is set, so all questions are about production; without one the server starts in development",
        )),
        Some(origin) if name == "development" => to_production(
            DeployFinding::red(
                QUESTION,
                format!("development ({origin}): one worker, no time-outs, backtraces on error pages"),
            )
            .with("origin", origin.as_str()),
        ),
        Some(origin) if name == "test" => to_production(
            DeployFinding::yellow(QUESTION, format!("test ({origin})")).with("origin", origin.as_str()),
        ),
        Some(origin) => DeployFinding::green(QUESTION, format!("{name} ({origin})"))
            .with("environment", name)
            .with("origin", origin.as_str()),
    }];
    findings.extend(found.contradicting.iter().map(|(variable_name, value)| {
        DeployFinding::yellow(
            QUESTION,
            format!("{variable_name} is {value}, but the server uses {name}: parts of the app may differ"),
        )
        .with("variable", *variable_name)
        .with("value", value.as_str())
        .paste_line(variable(variable_name, name))
    }));
    findings
}

/// Whether a Rails app finds its secrets. Their values are not read.
pub(super) fn secrets(facts: &DeployFacts) -> Vec<DeployFinding> {
    // In these environments Rails generates a secret.
    let generated = ["development", "test"].contains(&facts.environment.name.as_str());
    match &facts.rails {
        Some(rails) if !generated => rails_secrets(rails),
        _ => Vec::new(),
    }
}

fn rails_secrets(rails: &RailsFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "secrets";
    /// AES-128-GCM, in hexadecimal digits.
    const KEY: usize = 32;
    if rails.dummy_secret {
        return vec![
            DeployFinding::red(
                QUESTION,
                "SECRET_KEY_BASE_DUMMY is set: it is for builds, and each process has another secret",
            )
            .with("variable", "SECRET_KEY_BASE_DUMMY")
            .paste("environment", "SECRET_KEY_BASE_DUMMY="),
        ];
    }
    let Some(credentials) = &rails.credentials else {
        let make = "export SECRET_KEY_BASE=\"$(bin/rails secret)\"";
        return vec![match (rails.secret_key_base, rails.secrets_yml) {
            (true, _) => {
                DeployFinding::green(QUESTION, "SECRET_KEY_BASE is set").with("variable", "SECRET_KEY_BASE")
            }
            (false, true) => DeployFinding::yellow(
                QUESTION,
                "SECRET_KEY_BASE is not set; only config/secrets.yml could have a secret",
            )
            .with("file", "config/secrets.yml")
            .paste("shell", make),
            (false, false) => DeployFinding::red(
                QUESTION,
                "SECRET_KEY_BASE is not set, and there is no config/credentials.yml.enc",
            )
            .with("variable", "SECRET_KEY_BASE")
            .paste("shell", make),
        }];
    };
    let file = credentials.display().to_string();
    let key_file = match file.strip_suffix(".yml.enc") {
        Some("config/credentials") | None => "config/master.key".to_owned(),
        Some(of_environment) => format!("{of_environment}.key"),
    };
    let set_key = format!("export RAILS_MASTER_KEY=\"$(cat {key_file})\"  # where the file exists");
    let without = |why: String| {
        let (text, known) = (format!("{file} cannot be read: {why}"), rails.secret_key_base);
        let finding =
            if known { DeployFinding::yellow(QUESTION, text) } else { DeployFinding::red(QUESTION, text) };
        finding.with("credentials", file.as_str()).paste("shell", set_key.as_str())
    };
    vec![match &rails.key {
        MasterKey::Missing => without("there is neither RAILS_MASTER_KEY nor a key file".to_owned()),
        MasterKey::Unreadable { file, why } => {
            let shown = file.display().to_string();
            without(format!("{shown}: {why}"))
                .paste("shell", format!("chown \"$USER\" {shown} && chmod 600 {shown}"))
        }
        MasterKey::Present { place, characters, .. } if *characters != KEY => {
            without(format!("{place} has {characters} characters, a key has {KEY}"))
                .with("characters", *characters)
        }
        MasterKey::Present { place, open: true, .. } => {
            DeployFinding::yellow(QUESTION, format!("every user of this machine can read {place}"))
                .with("credentials", file.as_str())
                .with("key", place.as_str())
                .paste("shell", format!("chmod 600 {place}"))
        }
        MasterKey::Present { place, .. } => {
            DeployFinding::green(QUESTION, format!("{file} with the key of {place}"))
                .with("credentials", file.as_str())
                .with("key", place.as_str())
        }
    }]
}

/// Whether Ruby can be started, and compiles.
pub(super) fn ruby(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "ruby";
    /// The server turns YJIT on from this version on.
    const YJIT_SINCE: (u32, u32) = (3, 3);
    let program = facts.settings.rack.ruby.display().to_string();
    let answer = match &facts.ruby {
        None => return Vec::new(),
        Some(Err(why)) => {
            return vec![
                DeployFinding::red(QUESTION, format!("{program} does not answer: {why}"))
                    .with("program", program.as_str())
                    .paste_line(set(facts, "ruby", "\"/path/to/ruby\"")),
            ];
        }
        Some(Ok(answer)) => answer,
    };
    let named = format!("{} {}", answer.engine, answer.version);
    let recent = minor(&answer.version) >= YJIT_SINCE;
    let off = facts.settings.rack.yjit == Yjit::Off && !answer.yjit_by_itself;
    let finding =
        if answer.has_yjit && recent && off {
            DeployFinding::yellow(QUESTION, format!("{named} has YJIT, and rack.yjit is off"))
                .paste_line(set(facts, "rack.yjit", "\"auto\""))
        } else if facts.settings.rack.yjit == Yjit::On && !answer.has_yjit {
            DeployFinding::yellow(QUESTION, format!("rack.yjit is on, but {named} was built without YJIT"))
                .paste_line(set(facts, "rack.yjit", "\"auto\""))
        } else {
            DeployFinding::green(QUESTION, named.clone())
        };
    vec![finding.with("ruby", named).with("yjit", answer.has_yjit)]
}

fn minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Which allocator Ruby's processes use.
pub(super) fn allocator(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "allocator";
    /// The number of arenas that the server sets with glibc. More threads than this make no more of them.
    const ARENAS: u32 = 2;
    if facts.settings.app.is_none() || !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let wanted = facts.settings.rack.allocator;
    let threads = u64::from(facts.settings.threads.max);
    let arenas = facts.arenas.as_deref().map(|text| text.trim().parse::<u32>().unwrap_or(0));
    let finding = match (&facts.jemalloc, wanted, arenas) {
        (None, Allocator::Jemalloc, _) => DeployFinding::yellow(
            QUESTION,
            "rack.allocator is jemalloc, but libjemalloc.so.2 is not installed",
        )
        .with("library", "libjemalloc.so.2")
        .paste("shell", "apt-get install --no-install-recommends libjemalloc2"),
        (Some(path), Allocator::Jemalloc, _) | (Some(path), Allocator::Auto, None) => {
            let path = path.display().to_string();
            DeployFinding::green(QUESTION, format!("jemalloc ({path})")).with("library", path)
        }
        // glibc reads 0 as no limit, which is eight arenas for each CPU.
        (_, _, Some(number)) if (number == 0 || number > ARENAS) && threads > u64::from(ARENAS) => {
            let shown = facts.arenas.as_deref().unwrap_or_default();
            DeployFinding::yellow(
                QUESTION,
                format!("MALLOC_ARENA_MAX is {shown}, with {threads} threads: arenas keep memory that they do not use"),
            )
            .with("arenas", number)
            .with("threads", threads)
            .paste_line(variable("MALLOC_ARENA_MAX", "2"))
        }
        (_, _, number) => {
            let number = number.unwrap_or(ARENAS);
            DeployFinding::green(QUESTION, format!("the C library's, with at most {number} arenas"))
                .with("arenas", number)
        }
    };
    vec![finding]
}
