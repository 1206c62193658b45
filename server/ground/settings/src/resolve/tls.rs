//! TLS: files that belong together, and client certificates that can be verified.

use text::digits;

use std::path::PathBuf;

use super::ResolveContext;
use crate::error::Error;
use crate::kind::texts::Path;
use crate::kind::{Completion, ValueKind};
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::settings::Tls;
use crate::table::listen::BIND;
use crate::table::taker::Taker;
use crate::table::tls::{
    CERT, CLIENT_CA, KEY, MIN_VERSION, STRICT_NAMES, TICKET_SECRET, TICKET_SECRET_FILE, VERIFY,
};
use crate::value::bind::Bind;
use crate::value::tls::{CertificateFiles, Verify};
use crate::written::{Table, Written, WrittenValues};

/// Warns of a small number of `hsts` without a unit. It counts seconds, as in the header field; the user may
/// have meant days.
pub(super) fn warn_of_seconds(taker: &Taker<'_>) {
    let Some(written) = taker.written(&crate::table::tls::hsts).first() else { return };
    let seconds = match &written.raw {
        Raw::Integer(number) => u64::try_from(*number).ok(),
        raw => raw.text().and_then(|text| digits(text.split([';', ',']).next().unwrap_or_default())),
    };
    if let Some(seconds) = seconds.filter(|seconds| (1..86_400).contains(seconds)) {
        let raw = &written.raw;
        taker.warn(format!(
            "hsts = {raw} from {} is {seconds} seconds; days are written \"{seconds}d\"",
            written.origin
        ));
    }
}

/// Reads `[tls]` and checks it against the addresses.
pub(super) fn tls(
    taker: &Taker<'_>,
    given: &WrittenValues,
    facts: &ResolveContext,
    binds: &[Bind],
    development: bool,
    obtains_certificates: bool,
) -> Tls {
    let (certs, keys) = (taker.take(&CERT).value, taker.take(&KEY).value);
    if certs.len() != keys.len() {
        let problem = format!(
            "tls.cert and tls.key belong together, one key for each certificate: there are {} and {}",
            certs.len(),
            keys.len()
        );
        taker.conflict(if certs.is_empty() { &KEY.about } else { &CERT.about }, problem);
    }
    let mut certificates: Vec<CertificateFiles> =
        certs.into_iter().zip(keys).map(|(cert, key)| CertificateFiles { cert, key }).collect();
    for table in &given.files {
        certificates.extend(files(taker, table));
    }
    let (client_ca, verify) = (taker.take(&CLIENT_CA).value, taker.take(&VERIFY).value);
    if verify != Verify::Off && client_ca.is_none() {
        taker.conflict(&VERIFY.about, "tls.client_ca has to name the authorities that are accepted");
    }
    for bind in binds {
        let Some(tls) = bind.tls() else { continue };
        if tls.files.is_none() && certificates.is_empty() && !development && !obtains_certificates {
            taker.conflict(
                &BIND.about,
                format!(
                    "there is no certificate for {bind}: add ?cert=FILE&key=FILE, give tls.cert and tls.key, or name a domain \
                     with --domain to obtain one; --https makes them for localhost"
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
    let by_default = file.origin == crate::origin::ValueSource::Default;
    let file = if by_default { Some(facts.state_dir.join("tickets.secret")) } else { file.value };
    let ticket_secret_file = file.filter(|_| ticket_secret.is_none());
    Tls {
        development,
        certificates,
        client_ca,
        verify,
        strict_names: taker.take(&STRICT_NAMES).value,
        min_version: taker.take(&MIN_VERSION).value,
        ticket_secret,
        ticket_secret_file,
    }
}

/// One table of `[[tls.certificates]]`.
fn files(taker: &Taker<'_>, table: &Table) -> Option<CertificateFiles> {
    const KEYS: [&str; 2] = ["cert", "key"];
    let refuse = |key: &str, written: &Written, problem: String, near: Option<&str>| {
        let shown = format!("tls.certificates.{key} = {}", written.raw);
        let (origin, nearest) = (written.origin.clone(), near.map(str::to_owned));
        taker.refuse(Error { origin, written: shown, problem, nearest });
    };
    let mut found: [Option<PathBuf>; 2] = [None, None];
    let mut wrong = false;
    for (key, written) in &table.keys {
        let Some(place) = KEYS.iter().position(|known| known == key) else {
            refuse(key, written, "unknown key".to_owned(), nearest(key, KEYS));
            continue;
        };
        let kind = Path(Completion::File);
        match kind.read(&written.raw) {
            Ok(path) => found[place] = Some(taker.anchor(&kind, path, &written.origin)),
            Err(mistake) => {
                wrong = true;
                let expected = mistake.expected.unwrap_or_else(|| kind.expected());
                refuse(key, written, format!("expected {expected}"), mistake.nearest.as_deref());
            }
        }
    }
    match found {
        [Some(cert), Some(key)] => Some(CertificateFiles { cert, key }),
        [cert, _] => {
            let missing = if cert.is_none() { "cert" } else { "key" };
            if !wrong {
                let problem =
                    format!("expected {missing}, the path of a file: certificate and key belong together");
                refuse(missing, &table.written, problem, None);
            }
            None
        }
    }
}
