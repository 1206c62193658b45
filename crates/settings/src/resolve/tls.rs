//! Encryption: files that belong together, and client certificates that can be checked.

use super::{Facts, Taker};
use crate::settings::Tls;
use crate::table::listen::BIND;
use crate::table::tls::{
    CERT, CLIENT_CA, KEY, MIN_VERSION, STRICT_NAMES, TICKET_SECRET, TICKET_SECRET_FILE, VERIFY,
};
use crate::value::bind::Bind;
use crate::value::tls::{CertificateFiles, Verify};

/// What `[tls]` says, judged together with the addresses.
pub(super) fn tls(taker: &Taker<'_>, facts: &Facts, binds: &[Bind], obtains_certificates: bool) -> Tls {
    let (certs, keys) = (taker.take(&CERT).value, taker.take(&KEY).value);
    if certs.len() != keys.len() {
        let problem = format!(
            "tls.cert and tls.key belong together, one key for each certificate: there are {} and {}",
            certs.len(),
            keys.len()
        );
        taker.conflict(if certs.is_empty() { &KEY.about } else { &CERT.about }, problem);
    }
    let certificates: Vec<CertificateFiles> =
        certs.into_iter().zip(keys).map(|(cert, key)| CertificateFiles { cert, key }).collect();
    let (client_ca, verify) = (taker.take(&CLIENT_CA).value, taker.take(&VERIFY).value);
    if verify != Verify::Off && client_ca.is_none() {
        taker.conflict(&VERIFY.about, "tls.client_ca has to name the authorities that are accepted");
    }
    for bind in binds {
        let Some(tls) = bind.tls() else { continue };
        if tls.files.is_none() && certificates.is_empty() && !obtains_certificates {
            taker.conflict(
                &BIND.about,
                format!(
                    "there is no certificate for {bind}: add ?cert=FILE&key=FILE, give tls.cert and tls.key, or name a domain \
                     with --domain to obtain one"
                ),
            );
        }
        match tls.verify.unwrap_or(verify) {
            Verify::Off if tls.ca.is_some() => taker.conflict(
                &BIND.about,
                format!(
                    "ca= of {bind} is not used: add verify_mode=peer (optional) or verify_mode=force_peer"
                ),
            ),
            Verify::Optional | Verify::Required if tls.ca.is_none() && client_ca.is_none() => taker.conflict(
                &BIND.about,
                format!("verify_mode of {bind} needs ca=FILE: the authorities that are accepted"),
            ),
            _ => {}
        }
    }
    let ticket_secret = taker.take(&TICKET_SECRET).value;
    let file = taker.take(&TICKET_SECRET_FILE);
    let by_default = file.origin == crate::origin::Origin::Default;
    let file = if by_default { Some(facts.state_dir.join("tickets.secret")) } else { file.value };
    let ticket_secret_file = file.filter(|_| ticket_secret.is_none());
    Tls {
        certificates,
        client_ca,
        verify,
        strict_names: taker.take(&STRICT_NAMES).value,
        min_version: taker.take(&MIN_VERSION).value,
        ticket_secret,
        ticket_secret_file,
    }
}
