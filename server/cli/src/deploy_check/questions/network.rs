//! Addresses, the proxy in front, early hints.

use front::AddressTrial;
use settings::Bind;

use super::super::facts::DeployFacts;
use super::super::finding::DeployFinding;
use super::super::platform::{ProxyInFront, is_local, only_local};
use super::set;

/// Whether the addresses are free, allowed, and those that the platform connects to.
pub(super) fn addresses(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "addresses";
    let mut findings: Vec<DeployFinding> =
        facts.addresses.iter().filter_map(|(bind, trial)| address(bind, trial, facts)).collect();
    let ports: Vec<u16> = facts.addresses.iter().filter_map(|(bind, _)| port(bind)).collect();
    let names: Vec<String> = facts.addresses.iter().map(|(bind, _)| bind.to_string()).collect();
    let shown = names.join(", ");
    let around = &facts.surroundings;
    if let Some(wanted) = facts.port_variable.filter(|wanted| !ports.contains(wanted)) {
        let text = format!("PORT is {wanted}, but the server listens on {shown}");
        let finding = match around.routed_by {
            Some(platform) => DeployFinding::red(
                QUESTION,
                format!("{text}: the platform ({platform} is set) connects to PORT"),
            ),
            None => DeployFinding::yellow(QUESTION, text),
        };
        findings.push(
            finding
                .with("PORT", wanted)
                .with("addresses", names.clone())
                .paste("command line", "firebrick --bind \"tcp://[::]:$PORT\""),
        );
    }
    let binds: Vec<Bind> = facts.addresses.iter().map(|(bind, _)| bind.clone()).collect();
    let remote = around.routed_by.is_some() || around.kubernetes || around.proxy == ProxyInFront::Alb;
    if remote && only_local(&binds) {
        let port = ports.first().copied().unwrap_or(9292);
        findings.push(
            DeployFinding::red(
                QUESTION,
                format!("{shown}: {} connects from another machine", around.proxy.name()),
            )
            .with("addresses", names.clone())
            .paste("command line", format!("firebrick --bind \"tcp://[::]:{port}\"")),
        );
    }
    if findings.is_empty() {
        findings.push(DeployFinding::green(QUESTION, shown).with("addresses", names));
    }
    findings
}

fn address(bind: &Bind, trial: &Result<AddressTrial, String>, facts: &DeployFacts) -> Option<DeployFinding> {
    const QUESTION: &str = "addresses";
    /// The name of this program's processes.
    const OURS: &str = "(firebrick";
    let name = bind.to_string();
    let finding = match trial {
        Ok(AddressTrial::Free) => return None,
        // The server that is to be replaced.
        Ok(AddressTrial::InUse(Some(holder))) if holder.contains(OURS) => return None,
        Ok(AddressTrial::InUse(Some(holder))) => {
            DeployFinding::red(QUESTION, format!("{name} is in use by {holder}"))
                .with("holder", holder.as_str())
        }
        Ok(AddressTrial::InUse(None)) => {
            DeployFinding::yellow(QUESTION, format!("{name} is in use; root would see by whom"))
        }
        Err(why) => DeployFinding::red(QUESTION, why.clone()),
    };
    let finding = match port(bind) {
        Some(port) if trial.is_err() && port < 1024 => finding
            .paste("shell", format!("sudo setcap cap_net_bind_service=+ep {}", facts.program.display())),
        Some(port) if trial.is_ok() => finding.paste("shell", format!("sudo ss -ltnp 'sport = :{port}'")),
        _ => finding.paste("command line", "firebrick --bind \"tcp://[::]:9292\""),
    };
    Some(finding.with("address", name))
}

fn port(bind: &Bind) -> Option<u16> {
    match bind {
        Bind::Tcp { port, .. } => Some(*port),
        Bind::Unix { .. } | Bind::Systemd { .. } => None,
    }
}

/// Whether the proxy in front is believed.
pub(super) fn proxy(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "proxy";
    let (around, settings) = (&facts.surroundings, &facts.settings);
    let (name, because) = (around.proxy.name(), &around.because);
    let trusted = &settings.rack.trusted_proxies;
    if !around.is_proxied() {
        let text = format!("{name} in front ({because}); --behind says otherwise");
        return vec![DeployFinding::green(QUESTION, text).with("behind", around.proxy.word())];
    }
    let believes_nobody = trusted.networks.is_empty() && !trusted.unix;
    // With the PROXY protocol the address does not come from a header field.
    let by_unix = settings.binds.iter().any(|bind| matches!(bind, Bind::Unix { .. }));
    let by_port = settings.binds.iter().any(|bind| matches!(bind, Bind::Tcp { .. }));
    let loopback = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let local_port = settings.binds.iter().any(|bind| is_local(bind) && matches!(bind, Bind::Tcp { .. }));
    let peer =
        around.proxy.peer().or_else(|| (only_local(&settings.binds) && local_port).then_some(loopback));
    let strange = peer.filter(|peer| by_port && !trusted.trusts(Some(*peer)));
    let wrong = "every client has the proxy's address, and https:// is not known";
    let finding = if believes_nobody {
        let redirects =
            if settings.https.https_only == Some(true) { ", so https_only redirects for ever" } else { "" };
        DeployFinding::red(QUESTION, format!("{name} ({because}) is not trusted: {wrong}{redirects}"))
            .paste_line(set(
                facts,
                "rack.trusted_proxies",
                "\"127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,unix\"",
            ))
    } else if by_unix && !trusted.unix {
        DeployFinding::red(QUESTION, format!("clients of the Unix socket are not trusted: {wrong}"))
            .paste_line(set(facts, "rack.trusted_proxies", "\"127.0.0.0/8,::1,unix\""))
    } else if let Some(peer) = strange {
        let finding = if around.proxy == ProxyInFront::Cloudflare {
            DeployFinding::yellow(QUESTION, format!("{name} connects from public addresses such as {peer}, which are not trusted: {wrong}"))
                .paste(
                    "command line",
                    "firebrick --trusted-proxies \"$(curl -s https://www.cloudflare.com/ips-v4 https://www.cloudflare.com/ips-v6 | paste -sd, -)\"",
                )
        } else {
            DeployFinding::red(QUESTION, format!("{name} ({because}) connects from addresses such as {peer}, which are not trusted: {wrong}"))
                .paste_line(set(facts, "rack.trusted_proxies", "\"127.0.0.0/8,::1,10.0.0.0/8,unix\""))
        };
        finding.with("peer", peer.to_string())
    } else {
        DeployFinding::green(QUESTION, format!("{name} ({because}), trusted by rack.trusted_proxies"))
    };
    let networks: Vec<String> = trusted.networks.iter().map(ToString::to_string).collect();
    vec![
        finding
            .with("behind", around.proxy.word())
            .with("trusted_networks", networks)
            .with("trusted_unix", trusted.unix),
    ]
}

/// Whether the proxy passes 103 responses.
pub(super) fn early_hints(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "early hints";
    /// nginx passes 103 from this version on (`early_hints`).
    const NGINX: (u32, u32, u32) = (1, 29, 0);
    if facts.settings.app.is_none() {
        return Vec::new();
    }
    let on = facts.settings.rack.early_hints;
    let around = &facts.surroundings;
    let finding = if !on {
        DeployFinding::green(QUESTION, "off")
    } else if !around.is_proxied() {
        DeployFinding::green(QUESTION, format!("on, with {} in front", around.proxy.name()))
    } else {
        let off = set(facts, "rack.early_hints", "false");
        match (around.proxy, facts.nginx) {
            (ProxyInFront::Nginx, Some(version)) => {
                let shown = format!("nginx {}.{}.{}", version.0, version.1, version.2);
                if version >= NGINX {
                    DeployFinding::green(QUESTION, format!("on, and {shown} passes 103 responses"))
                } else {
                    DeployFinding::red(
                        QUESTION,
                        format!("on, but {shown} waits for ever at a 103 response (before 1.29)"),
                    )
                    .paste_line(off)
                }
                .with("nginx", shown)
            }
            (ProxyInFront::Nginx | ProxyInFront::Kubernetes, _) => DeployFinding::yellow(
                QUESTION,
                format!("on, and {} before nginx 1.29 waits for ever at a 103 response", around.proxy.name()),
            )
            .paste_line(off),
            _ => DeployFinding::yellow(
                QUESTION,
                format!("on, but {} does not pass 103 responses for certain", around.proxy.name()),
            )
            .paste_line(off),
        }
    };
    vec![finding.with("early_hints", on).with("behind", around.proxy.word())]
}
