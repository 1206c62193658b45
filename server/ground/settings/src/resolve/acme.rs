//! Checks the certificates that the server obtains, all orders together.

use super::ResolveContext;
use crate::error::Error;
use crate::kind::ValueKind;
use crate::kind::names::Domains;
use crate::kind::texts::{Choice, Text};
use crate::nearest::nearest;
use crate::origin::ValueSource;
use crate::table::acme::{
    ASK, CA, CHALLENGE, DIR, DIRECTORY, DNS_COMMAND, DOMAINS, EAB_HMAC, EAB_KID, EMAIL, ON_DEMAND, PER_HOUR,
    PROFILE, RETRY, STAGING, STORAGE,
};
use crate::table::listen::PORT;
use crate::table::taker::Taker;
use crate::value::acme::{
    Acme, CertificateOrder, Challenge, DomainKind, ExternalAccount, LETS_ENCRYPT, LETS_ENCRYPT_STAGING,
    OnDemand,
};
use crate::written::{Table, Written, WrittenValues};

/// The keys of `[[acme.certificates]]`.
const KEYS: [&str; 3] = ["domains", "profile", "challenge"];

/// Reads `[acme]`.
pub(super) fn acme(taker: &Taker<'_>, given: &WrittenValues, facts: &ResolveContext) -> Acme {
    let (profile, challenge) = (taker.take(&PROFILE).value, taker.take(&CHALLENGE).value);
    let domains = domains(taker);
    let (mut certificates, mut places) = (Vec::new(), Vec::new());
    if !domains.is_empty() {
        certificates.push(CertificateOrder { domains, profile: profile.clone(), challenge });
        places.push(None);
    }
    for table in &given.orders {
        if let Some(order) = certificate(taker, table, profile.as_deref(), challenge) {
            certificates.push(order);
            places.push(Some(table));
        }
    }
    let (kid, hmac) = (taker.take(&EAB_KID).value, taker.take(&EAB_HMAC).value);
    let eab = match (kid, hmac) {
        (Some(kid), Some(hmac)) => Some(ExternalAccount { kid, hmac }),
        (None, None) => None,
        (Some(_), None) => {
            taker.conflict(&EAB_KID.about, "acme.eab_hmac is missing: the CA gives both");
            None
        }
        (None, Some(_)) => {
            taker.conflict(&EAB_HMAC.about, "acme.eab_kid is missing: the CA gives both");
            None
        }
    };
    let (on, ask, per_hour) = (taker.take(&ON_DEMAND).value, taker.take(&ASK), taker.take(&PER_HOUR).value);
    if on && ask.value.is_none() {
        taker.conflict(
            &ON_DEMAND.about,
            "acme.ask has to name a URL that decides which names are welcome: otherwise anybody could make this \
             server order certificates for any name",
        );
    }
    if !on && ask.origin != ValueSource::Default {
        taker.warn("acme.ask has no effect, because acme.on_demand is not set".to_owned());
    }
    let on_demand =
        ask.value.filter(|_| on).map(|ask| OnDemand { ask, per_hour, profile: profile.clone(), challenge });
    let directory = taker.take(&DIRECTORY).value;
    let acme = Acme {
        certificates,
        on_demand,
        staging: staging(taker, &directory),
        directory,
        ca: taker.take(&CA).value,
        dir: taker.take(&DIR).value.unwrap_or_else(|| facts.state_dir.join("certs")),
        storage: taker.take(&STORAGE).value,
        email: taker.take(&EMAIL).value,
        eab,
        dns_command: taker.take(&DNS_COMMAND).value,
        retry: taker.take(&RETRY).value,
    };
    judge(taker, &acme, &places);
    acme
}

/// Returns the directory that is tried first after a refused order.
fn staging(taker: &Taker<'_>, directory: &str) -> Option<String> {
    let Some(given) = taker.take(&STAGING).value else {
        return (directory == LETS_ENCRYPT).then(|| LETS_ENCRYPT_STAGING.to_owned());
    };
    if given.as_deref() == Some(directory) {
        taker.conflict(&STAGING.about, "it is acme.directory: give the CA's other directory, or off");
    }
    given
}

/// Returns the domains, unless they are meant for a proxy in front.
fn domains(taker: &Taker<'_>) -> Vec<String> {
    let taken = taker.take(&DOMAINS);
    let for_a_proxy =
        matches!(taken.origin, ValueSource::Env(_)) && matches!(taker.origin(&PORT), ValueSource::Env(_));
    if for_a_proxy {
        taker.warn(format!(
            "{} is ignored, because PORT suggests a TLS proxy in front; use --domain to obtain a certificate here",
            taken.origin
        ));
        return Vec::new();
    }
    taken.value
}

/// One table of `[[acme.certificates]]`.
fn certificate(
    taker: &Taker<'_>,
    given: &Table,
    profile: Option<&str>,
    challenge: Challenge,
) -> Option<CertificateOrder> {
    let refuse = |key: &str, written: &Written, problem: String, nearest: Option<&str>| {
        let shown = format!("acme.certificates.{key} = {}", written.raw);
        let (origin, nearest) = (written.origin.clone(), nearest.map(str::to_owned));
        taker.refuse(Error { origin, written: shown, problem, nearest });
    };
    let mut order = CertificateOrder { domains: Vec::new(), profile: profile.map(str::to_owned), challenge };
    for (key, written) in &given.keys {
        let wrong = match key.as_str() {
            "domains" => Domains
                .read(&written.raw)
                .map(|domains| order.domains = domains)
                .map_err(|mistake| (mistake.expected.unwrap_or_else(|| Domains.expected()), mistake.nearest)),
            "profile" => Text
                .read(&written.raw)
                .map(|profile| order.profile = Some(profile))
                .map_err(|mistake| (mistake.expected.unwrap_or_else(|| Text.expected()), mistake.nearest)),
            "challenge" => {
                let kind = Choice(Challenge::WORDS);
                kind.read(&written.raw)
                    .map(|challenge| order.challenge = challenge)
                    .map_err(|mistake| (mistake.expected.unwrap_or_else(|| kind.expected()), mistake.nearest))
            }
            _ => {
                refuse(key, written, "unknown key".to_owned(), nearest(key, KEYS));
                continue;
            }
        };
        if let Err((expected, nearest)) = wrong {
            refuse(key, written, format!("expected {expected}"), nearest.as_deref());
            return None;
        }
    }
    if order.domains.is_empty() {
        refuse("domains", &given.written, "expected the names of the certificate".to_owned(), None);
        return None;
    }
    Some(order)
}

/// Refuses orders that cannot succeed. An order comes from a table or from `acme.domains`.
fn judge(taker: &Taker<'_>, acme: &Acme, places: &[Option<&Table>]) {
    let mut seen: Vec<&str> = Vec::new();
    for (order, table) in acme.certificates.iter().zip(places) {
        let refuse = |key: &str, problem: String| {
            let about = if key == "challenge" { &CHALLENGE.about } else { &DOMAINS.about };
            let Some(table) = table else { return taker.conflict(about, problem) };
            // Options missing from the table were set above it.
            let written = table.keys.iter().find(|(known, _)| known == key).map(|(_, written)| written);
            let Some(written) = written else { return taker.conflict(about, problem) };
            taker.refuse(Error {
                origin: written.origin.clone(),
                written: format!("acme.certificates.{key} = {}", written.raw),
                problem,
                nearest: None,
            });
        };
        for domain in &order.domains {
            let kind = DomainKind::of(domain);
            if kind == Some(DomainKind::Wildcard) && acme.dns_command.is_none() {
                refuse(
                    "domains",
                    format!(
                        "{domain} is verified by a record of the DNS only (dns-01): set acme.dns_command to a command \
                         that changes records"
                    ),
                );
            }
            if kind == Some(DomainKind::Wildcard)
                && !matches!(order.challenge, Challenge::Auto | Challenge::Dns01)
            {
                refuse("domains", format!("{domain} needs the challenge dns-01, or auto"));
            }
            if kind == Some(DomainKind::Address) && acme.directory == LETS_ENCRYPT && order.profile.is_none()
            {
                refuse(
                    "domains",
                    format!(
                        "{domain} is an IP address: Let's Encrypt wants acme.profile = \"shortlived\" for it"
                    ),
                );
            }
            if kind == Some(DomainKind::Address) && order.challenge == Challenge::Dns01 {
                refuse("domains", format!("{domain} is an IP address, which dns-01 cannot verify"));
            }
            if seen.contains(&domain.as_str()) {
                refuse("domains", format!("{domain} is in two certificates"));
            }
            seen.push(domain);
        }
        if order.challenge == Challenge::Dns01 && acme.dns_command.is_none() {
            refuse("challenge", "acme.dns_command has to be a command that changes records".to_owned());
        }
    }
}
