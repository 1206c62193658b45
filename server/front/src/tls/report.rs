//! The reports about certificates in `check`, `explain`, the log and statistics.

use super::Encryption;
use ::tls::{CertificateFacts, CertificateSource};
use settings::Settings;
use std::sync::PoisonError;
use std::time::SystemTime;

/// Formats a certificate on one line: names, issuer, expiry.
pub(super) fn line(facts: &CertificateFacts) -> String {
    const SHOWN: usize = 4;
    let mut names = facts.names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if facts.names.len() > SHOWN {
        names.push_str(&format!(" and {} more", facts.names.len() - SHOWN));
    }
    if names.is_empty() {
        names = format!("no host ({})", facts.subject);
    }
    let issuer = if facts.self_signed { "self-signed".to_owned() } else { format!("by {}", facts.issuer) };
    let until = jiff::Timestamp::try_from(facts.not_after)
        .map(|time| time.strftime("%Y-%m-%d %H:%M UTC").to_string());
    format!("for {names}, {issuer}, until {}", until.unwrap_or_default())
}

/// Reads all files once and returns the report. `None` without TLS.
///
/// # Errors
/// A file cannot be used. The text names it.
pub(crate) fn check(settings: &Settings) -> Result<Option<String>, String> {
    let used = settings.binds.iter().any(|bind| bind.tls().is_some());
    if !used && settings.tls.certificates.is_empty() {
        return Ok(None);
    }
    let settings = &Settings {
        // A check must not create anything.
        tls: settings::Tls { ticket_secret_file: None, ..settings.tls.clone() },
        shared: settings::Shared { redis: None, ..settings.shared.clone() },
        ..settings.clone()
    };
    let encryption = Encryption::read(settings)?;
    let mut lines = vec!["TLS 1.2 and 1.3 with certificates:".to_owned()];
    if settings.tls.min_version == settings::TlsVersion::V1_3 {
        lines[0] = "TLS 1.3 with certificates:".to_owned();
    }
    lines.extend(encryption.all().iter().map(|(_, facts)| format!("  {}", line(facts))));
    if settings.tls.development {
        lines.push(format!(
            "  for {}, by this user's authority of development, made as needed",
            certs::local::COVERED
        ));
    }
    if lines.len() == 1 {
        lines[0] = "TLS: there is no certificate yet.".to_owned();
    }
    lines.extend(encryption.warnings.iter().map(|warning| format!("warning: {warning}")));
    Ok(Some(lines.join("\n")))
}

/// Returns the certificates in force, for statistics.
pub(crate) fn certificates(encryption: &Encryption) -> Vec<stats::ServedCertificate> {
    let all = encryption.all();
    all.into_iter()
        .map(|(source, facts)| stats::ServedCertificate {
            source: source.to_owned(),
            file: encryption.file_of(&facts),
            names: facts.names.clone(),
            issuer: facts.issuer.clone(),
            serial: facts.serial.clone(),
            fingerprint_sha256: facts.fingerprint_text(),
            not_before: facts.not_before,
            not_after: facts.not_after,
            expired: SystemTime::now() > facts.not_after,
        })
        .collect()
}

impl Encryption {
    /// Returns the file that a certificate in force was read from.
    fn file_of(&self, facts: &CertificateFacts) -> Option<String> {
        let is_it = |pair: &::tls::Pair| pair.current().facts().fingerprint == facts.fingerprint;
        let name = |pair: &::tls::Pair| is_it(pair).then(|| pair.files().cert.display().to_string());
        let shared = self.pairs().iter().find_map(name);
        shared.or_else(|| {
            let own = self.addresses.iter().filter_map(|address| address.own.as_ref());
            own.map(|(_, pair)| pair.lock().unwrap_or_else(PoisonError::into_inner))
                .find_map(|pair| name(&pair))
        })
    }

    /// Returns all certificates in force, each with its source.
    fn all(&self) -> Vec<(&'static str, CertificateFacts)> {
        let shared = self.certificates.by_source();
        let own = self.addresses.iter().filter_map(|address| address.own.as_ref());
        let own = own.flat_map(|(own, _)| own.by_source());
        own.chain(shared).map(|(source, certificate)| (name(source), certificate.facts().clone())).collect()
    }
}

fn name(source: CertificateSource) -> &'static str {
    match source {
        CertificateSource::Files => "files",
        CertificateSource::Acme => "acme",
        CertificateSource::Local => "local",
    }
}
