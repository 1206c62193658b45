//! `firebrick certs`: shows the state of all certificates, from a running server, or from the directory and
//! files in the settings.

use crate::record::StoredNote;
use crate::shared::{span, time, when};
use crate::store::{Folder, Item, id_of};
use settings::{Acme, Settings};
use stats::{CertificateSnapshot, ServedCertificate};
use std::fmt::Write;
use std::time::SystemTime;
use tls::Certificate;
use trust::Secret;

/// Returns the certificates stored in the directory, and those that are configured but not stored.
///
/// # Errors
/// The certificates are in Redis, or the directory cannot be read. The text is a sentence.
pub fn stored(acme: &Acme) -> Result<Vec<CertificateSnapshot>, String> {
    if acme.storage.is_some() {
        return Err("certificates are in Redis (acme.storage): only a running server shows them".to_owned());
    }
    let folder = Folder::new(&acme.dir, &acme.directory);
    let mut ids = folder.ids();
    for order in &acme.certificates {
        let id = id_of(&order.domains);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids.iter().map(|id| read(acme, &folder, id)).collect()
}

/// Returns the certificates in files that the settings name, for all addresses. A file that cannot be used
/// comes with the reason.
pub fn in_files(settings: &Settings) -> Vec<CertificateSnapshot> {
    let own = settings.binds.iter().filter_map(|bind| bind.tls()?.files.as_ref());
    let mut seen = Vec::new();
    for files in settings.tls.certificates.iter().chain(own) {
        if !seen.contains(&files) {
            seen.push(files);
        }
    }
    let read = |files: &settings::CertificateFiles| {
        let storage = files.cert.display().to_string();
        match tls::read_pair(files) {
            Ok(certificate) => {
                let facts = certificate.facts();
                CertificateSnapshot {
                    names: facts.names.clone(),
                    issuer: Some(facts.issuer.clone()),
                    not_before: Some(facts.not_before),
                    not_after: Some(facts.not_after),
                    storage,
                    ..CertificateSnapshot::default()
                }
            }
            Err(why) => CertificateSnapshot { error: Some(why), storage, ..CertificateSnapshot::default() },
        }
    };
    seen.into_iter().map(read).collect()
}

/// Returns the certificates that a running server has read from files.
pub fn served_from_files(served: &[ServedCertificate]) -> Vec<CertificateSnapshot> {
    let from_files = served.iter().filter(|one| one.source == "files");
    let as_it_is = |one: &ServedCertificate| CertificateSnapshot {
        names: one.names.clone(),
        issuer: Some(one.issuer.clone()),
        not_before: Some(one.not_before),
        not_after: Some(one.not_after),
        storage: one.file.clone().unwrap_or_default(),
        ..CertificateSnapshot::default()
    };
    from_files.map(as_it_is).collect()
}

fn read(acme: &Acme, folder: &Folder, id: &str) -> Result<CertificateSnapshot, String> {
    use crate::store::CertificateStore;
    let note =
        folder.read(&Item::Note(id.to_owned())).ok().flatten().and_then(|bytes| StoredNote::parse(&bytes));
    let wanted = acme.certificates.iter().find(|order| id_of(&order.domains) == id);
    let mut state = CertificateSnapshot {
        names: wanted.map(|order| order.domains.clone()).unwrap_or_default(),
        directory: acme.directory.clone(),
        storage: folder.describe(),
        on_demand: wanted.is_none(),
        ..CertificateSnapshot::default()
    };
    if let Some(note) = note {
        state.names = note.names;
        state.next_order = Some(time(note.next_order));
        (state.failures, state.error) = (note.failures, note.error);
    }
    let Some(bytes) = folder.read(&Item::Certificate(id.to_owned())).map_err(|error| error.0)? else {
        return Ok(state);
    };
    let bytes = Secret::from(bytes);
    match Certificate::from_pem(&bytes, &bytes) {
        Ok(certificate) => {
            let facts = certificate.facts();
            state.names.clone_from(&facts.names);
            state.issuer = Some(facts.issuer.clone());
            (state.not_before, state.not_after) = (Some(facts.not_before), Some(facts.not_after));
        }
        Err(why) => {
            state.error = Some(format!("the stored certificate is broken ({why}): it will be ordered anew"))
        }
    }
    Ok(state)
}

/// Formats the certificates for people.
pub fn table(certificates: &[CertificateSnapshot], now: SystemTime) -> String {
    let mut text = String::new();
    for (place, one) in certificates.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        let names = if one.names.is_empty() { "(unknown names)".to_owned() } else { one.names.join(", ") };
        line(&mut text, 0, &names, one.state(now));
        let until = |at: Option<SystemTime>| at.map(|at| when(crate::shared::moment(at)));
        line(&mut text, 2, "issuer", one.issuer.as_deref().unwrap_or("none yet"));
        if let (Some(from), Some(to)) = (until(one.not_before), until(one.not_after)) {
            line(&mut text, 2, "from", &from);
            line(&mut text, 2, "until", &to);
        }
        if one.directory.is_empty() {
            // The operator renews certificates in files.
            one.error.iter().for_each(|error| line(&mut text, 2, "error", error));
            line(&mut text, 2, "file", &one.storage);
            line(&mut text, 2, "renewal", "not here: replace the file, it is read again at once");
            continue;
        }
        line(&mut text, 2, "next order", &next(one, now));
        if let Some(error) = &one.error {
            line(&mut text, 2, "last error", error);
            line(&mut text, 2, "failures", &one.failures.to_string());
        }
        line(&mut text, 2, "CA", &one.directory);
        line(&mut text, 2, "storage", &one.storage);
        if one.on_demand {
            line(&mut text, 2, "ordered", "on demand");
        }
    }
    text
}

fn line(text: &mut String, indent: usize, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ =
        if indent == 0 { writeln!(text, "{name}: {value}") } else { writeln!(text, "  {name:<10}  {value}") };
}

fn next(one: &CertificateSnapshot, now: SystemTime) -> String {
    match one.next_order.map(|at| (at, at.duration_since(now))) {
        None => "when the server runs".to_owned(),
        Some((at, Ok(left))) => {
            let left = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            format!("{} (in {})", when(crate::shared::moment(at)), span(left))
        }
        Some((_, Err(_))) => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn people_see_what_is_wrong() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let one = CertificateSnapshot {
            names: vec!["a.test".to_owned(), "www.a.test".to_owned()],
            error: Some("the CA is away".to_owned()),
            failures: 2,
            next_order: Some(at(7_200)),
            directory: "https://ca.test/dir".to_owned(),
            ..CertificateSnapshot::default()
        };
        let text = table(&[one], at(0));
        for part in
            ["a.test, www.a.test: missing", "none yet", "1970-01-01 02:00 UTC (in 2 h)", "the CA is away"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
