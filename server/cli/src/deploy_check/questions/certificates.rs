//! Certificates, their names, and where these names lead.

use std::time::Duration;

use settings::Bind;

use super::super::facts::{DeployFacts, EXPIRES_SOON, LookedUpName, LookedUpNames};
use super::super::finding::DeployFinding;

/// Whether the certificates can be served, and obtained.
pub(super) fn certificates(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "certificates";
    let settings = &facts.settings;
    let encrypted = settings.binds.iter().any(|bind| bind.tls().is_some());
    let mut findings = Vec::new();
    if settings.tls.development && encrypted {
        findings.push(
            DeployFinding::red(QUESTION, "https = true makes certificates that only this machine trusts")
                .with("https", true)
                .paste("command line", "firebrick --no-https --domain example.com"),
        );
    }
    findings.extend(facts.certificates.iter().filter_map(|one| {
        let names = if one.names.is_empty() { one.storage.clone() } else { one.names.join(", ") };
        let finding = if let Some(why) = &one.error {
            let finding = DeployFinding::red(QUESTION, format!("{}: {why}", one.storage));
            if one.directory.is_empty() {
                finding.paste("shell", format!("openssl x509 -noout -subject -dates -in {}", one.storage))
            } else {
                finding.paste("shell", "firebrick certs")
            }
        } else {
            let until = one.not_after?;
            let left = until.duration_since(facts.now).unwrap_or(Duration::ZERO);
            // The server renews those that it obtains.
            let [soon, later] = if one.directory.is_empty() { EXPIRES_SOON } else { [Duration::ZERO; 2] };
            let text = match left {
                Duration::ZERO => format!("{names}: expired"),
                left => format!("{names}: for {} more", text::people::span(left)),
            };
            if left.is_zero() || left < soon {
                renewed(DeployFinding::red(QUESTION, text), &one.storage)
            } else if left < later {
                renewed(DeployFinding::yellow(QUESTION, text), &one.storage)
            } else {
                DeployFinding::green(QUESTION, text)
            }
            .with("seconds_left", left.as_secs())
        };
        Some(finding.with("names", one.names.clone()).with("file", one.storage.as_str()))
    }));
    findings.extend(uncovered(facts));
    findings.extend(challenges(facts));
    findings
}

fn renewed(finding: DeployFinding, file: &str) -> DeployFinding {
    finding.paste("shell", format!("openssl x509 -noout -enddate -in {file}  # after you have replaced it"))
}

/// The names that the settings mention and no certificate in a file covers.
fn uncovered(facts: &DeployFacts) -> Option<DeployFinding> {
    let settings = &facts.settings;
    if settings.acme.is_on() || facts.certificates.is_empty() || settings.tls.development {
        return None;
    }
    let covered =
        |name: &str| facts.certificates.iter().any(|one| one.names.iter().any(|of| covers(of, name)));
    let hosts = settings.sites.hosts.iter().map(|host| host.host.as_str());
    let missing: Vec<&str> = settings
        .https
        .canonical_host
        .as_deref()
        .into_iter()
        .chain(hosts)
        .filter(|name| !covered(name))
        .collect();
    let first = *missing.first()?;
    Some(
        DeployFinding::red("certificates", format!("no certificate is for {}", missing.join(", ")))
            .with("missing", missing.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
            .paste("command line", format!("firebrick --domain {first}")),
    )
}

/// Whether a name of a certificate covers a host: a wildcard stands for one label (RFC 9525).
fn covers(of: &str, name: &str) -> bool {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    match of.strip_prefix("*.") {
        Some(below) => name.split_once('.').is_some_and(|(_, rest)| same(rest, below)) || same(of, name),
        None => same(of, name),
    }
}

/// Whether a public CA can reach the server.
fn challenges(facts: &DeployFacts) -> Option<DeployFinding> {
    let (settings, acme) = (&facts.settings, &facts.settings.acme);
    if !acme.is_on() || acme.dns_command.is_some() {
        return None;
    }
    let ports: Vec<u16> = settings
        .binds
        .iter()
        .filter_map(|bind| match bind {
            Bind::Tcp { port, .. } => Some(*port),
            _ => None,
        })
        .collect();
    let public = ports.iter().any(|port| [80, 443].contains(port));
    let finding = if public {
        DeployFinding::green(
            "certificates",
            format!("obtained from {}, which connects to port 80 or 443", acme.directory),
        )
    } else {
        DeployFinding::yellow(
            "certificates",
            "a public CA connects to port 80 or 443, and the server listens on neither",
        )
        .paste("command line", "firebrick --bind tcp://[::]:80 --bind ssl://[::]:443")
    };
    Some(finding.with("directory", acme.directory.as_str()).with("ports", ports))
}

/// Whether the host names lead to this machine.
pub(super) fn names(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "host names";
    match &facts.names {
        LookedUpNames::Skipped => {
            vec![DeployFinding::green(QUESTION, "not looked up (--offline)").with("offline", true)]
        }
        LookedUpNames::Done(names) => names.iter().map(|one| name(one, facts)).collect(),
    }
}

fn name(one: &LookedUpName, facts: &DeployFacts) -> DeployFinding {
    const QUESTION: &str = "host names";
    let LookedUpName { name, key, addresses } = one;
    let look = format!("dig +short {name} A {name} AAAA");
    let ordered = facts.settings.acme.domains().any(|domain| domain == name.as_str());
    let finding = match addresses {
        Err(why) => {
            let text = format!("{name} ({key}) leads nowhere: {why}");
            let finding = if ordered {
                DeployFinding::red(QUESTION, text)
            } else {
                DeployFinding::yellow(QUESTION, text)
            };
            finding.paste("shell", look)
        }
        Ok(found) => {
            let shown: Vec<String> = found.iter().map(|(address, _)| address.to_string()).collect();
            let text = format!("{name} ({key}) leads to {}", shown.join(", "));
            let finding = if found.iter().any(|(_, own)| *own) || facts.surroundings.is_proxied() {
                DeployFinding::green(QUESTION, text)
            } else {
                // A machine behind NAT or a balancer does not have its public address.
                DeployFinding::yellow(
                    QUESTION,
                    format!("{text}, no address of this machine: right only behind NAT, or with --behind"),
                )
                .paste("shell", look)
            };
            finding.with("addresses", shown)
        }
    };
    finding.with("name", name.as_str())
}
