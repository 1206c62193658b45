//! Certificates that the server obtains: what is ordered, judged together.

use super::{Facts, Taker};
use crate::error::Error;
use crate::given::{Certificate, Given, Written};
use crate::kind::Kind;
use crate::kind::names::Domains;
use crate::kind::texts::{Choice, Text};
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::table::acme::{
    ASK, CA, CHALLENGE, DIR, DIRECTORY, DNS_COMMAND, DOMAINS, EAB_HMAC, EAB_KID, EMAIL, ON_DEMAND, PER_HOUR,
    PROFILE, RETRY, STORAGE,
};
use crate::table::entry::About;
use crate::table::listen::PORT;
use crate::value::acme::{Acme, Challenge, DomainKind, ExternalAccount, LETS_ENCRYPT, OnDemand, Order};

/// The keys of `[[acme.certificates]]`.
const KEYS: [&str; 3] = ["domains", "profile", "challenge"];

/// What `[acme]` says.
pub(super) fn acme(taker: &Taker<'_>, given: &Given, facts: &Facts) -> Acme {
    let (profile, challenge) = (taker.take(&PROFILE).value, taker.take(&CHALLENGE).value);
    let domains = domains(taker);
    let mut certificates = Vec::new();
    if !domains.is_empty() {
        certificates.push(Order { domains, profile: profile.clone(), challenge });
    }
    for one in &given.certificates {
        certificates.extend(certificate(taker, one, profile.as_deref(), challenge));
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
    if !on && ask.origin != Origin::Default {
        taker.warn("acme.ask has no effect, because acme.on_demand is not set".to_owned());
    }
    let on_demand =
        ask.value.filter(|_| on).map(|ask| OnDemand { ask, per_hour, profile: profile.clone(), challenge });
    let acme = Acme {
        certificates,
        on_demand,
        directory: taker.take(&DIRECTORY).value,
        ca: taker.take(&CA).value,
        dir: taker.take(&DIR).value.unwrap_or_else(|| facts.state_dir.join("certs")),
        storage: taker.take(&STORAGE).value,
        email: taker.take(&EMAIL).value,
        eab,
        dns_command: taker.take(&DNS_COMMAND).value,
        retry: taker.take(&RETRY).value,
    };
    judge(taker, &acme);
    acme
}

/// The domains, unless they are meant for a proxy in front.
fn domains(taker: &Taker<'_>) -> Vec<String> {
    let taken = taker.take(&DOMAINS);
    let for_a_proxy = matches!(taken.origin, Origin::Env(_)) && matches!(taker.origin(&PORT), Origin::Env(_));
    if for_a_proxy {
        taker.warn(format!(
            "{} is left to the proxy that has set PORT; name the domain with --domain to obtain a certificate here",
            taken.origin
        ));
        return Vec::new();
    }
    taken.value
}

/// One table of `[[acme.certificates]]`.
fn certificate(
    taker: &Taker<'_>,
    given: &Certificate,
    profile: Option<&str>,
    challenge: Challenge,
) -> Option<Order> {
    let refuse = |key: &str, written: &Written, problem: String, nearest: Option<&str>| {
        let shown = format!("acme.certificates.{key} = {}", written.raw);
        let (origin, nearest) = (written.origin.clone(), nearest.map(str::to_owned));
        taker.refuse(Error { origin, written: shown, problem, nearest });
    };
    let mut order = Order { domains: Vec::new(), profile: profile.map(str::to_owned), challenge };
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

/// What cannot be obtained.
fn judge(taker: &Taker<'_>, acme: &Acme) {
    let about: &About = &DOMAINS.about;
    for order in &acme.certificates {
        for domain in &order.domains {
            let kind = DomainKind::of(domain);
            if kind == Some(DomainKind::Wildcard) && acme.dns_command.is_none() {
                taker.conflict(
                    about,
                    format!(
                        "{domain} is verified by a record of the DNS only (dns-01): set acme.dns_command to a command \
                         that changes records"
                    ),
                );
            }
            if kind == Some(DomainKind::Wildcard)
                && !matches!(order.challenge, Challenge::Auto | Challenge::Dns01)
            {
                taker.conflict(about, format!("{domain} needs the challenge dns-01, or auto"));
            }
            if kind == Some(DomainKind::Address) && acme.directory == LETS_ENCRYPT && order.profile.is_none()
            {
                taker.conflict(
                    about,
                    format!(
                        "{domain} is an IP address: Let's Encrypt wants acme.profile = \"shortlived\" for it"
                    ),
                );
            }
            if kind == Some(DomainKind::Address) && order.challenge == Challenge::Dns01 {
                taker.conflict(about, format!("{domain} is an IP address, which dns-01 cannot verify"));
            }
        }
        if order.challenge == Challenge::Dns01 && acme.dns_command.is_none() {
            taker.conflict(&CHALLENGE.about, "acme.dns_command has to be a command that changes records");
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for domain in acme.domains() {
        if seen.contains(&domain) {
            taker.conflict(about, format!("{domain} is in two certificates"));
        }
        seen.push(domain);
    }
}
