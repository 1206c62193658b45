//! Connects the server to the service that obtains and renews certificates (`certs`).

use super::Encryption;
use crate::error_log::ErrorLog;
use certs::{CertificateService, HttpAnswers, Means};
use settings::{Bind, Settings};
use stats::CertificateSnapshot;
use std::sync::Arc;

impl Encryption {
    /// Starts the service that obtains certificates, if it is configured. Stored certificates are served from
    /// now on; orders wait for [`Encryption::opened`].
    ///
    /// # Errors
    /// An option names something that cannot be used.
    pub(crate) fn obtain(&self, settings: &Settings, log: &Arc<ErrorLog>) -> Result<(), String> {
        let acme = &settings.acme;
        if !acme.is_on() {
            return Ok(());
        }
        let means = Means {
            http: settings.binds.iter().any(|bind| bind.tls().is_none()),
            tls: settings.binds.iter().any(|bind| bind.tls().is_some()),
            dns: acme.dns_command.is_some(),
        };
        if !means.tls {
            log.write(
                "warning: certificates are obtained, but no address speaks TLS: add one such as -b ssl://0.0.0.0:443",
            );
        }
        self.certificates.set_expected(acme.domains());
        let log = log.clone();
        let service = CertificateService::start(
            acme,
            means,
            self.certificates.clone(),
            Arc::new(move |line: &str| log.write(line)),
        )?;
        // A process has only one server, so this cannot fail.
        let _ = self.obtaining.set(service);
        Ok(())
    }

    /// Allows orders: the ports are open, so challenges of a CA reach this server.
    pub(crate) fn opened(&self) {
        self.obtaining.get().into_iter().for_each(CertificateService::open);
    }

    /// Stops the service that obtains certificates.
    pub(crate) fn stop_obtaining(&self) {
        self.obtaining.get().into_iter().for_each(CertificateService::stop);
    }

    /// Returns the answers to HTTP-01 challenges.
    pub(crate) fn challenges(&self) -> Option<HttpAnswers> {
        self.obtaining.get().map(|service| service.http.clone())
    }

    /// Returns the obtained certificates, for statistics.
    pub(crate) fn obtained(&self) -> Vec<CertificateSnapshot> {
        self.obtaining.get().map(|service| service.board.all()).unwrap_or_default()
    }
}

/// Returns the lines of `check` about certificates to obtain.
pub(crate) fn plan(settings: &Settings) -> Option<String> {
    let acme = &settings.acme;
    if !acme.is_on() {
        return None;
    }
    let mut lines = vec![format!("Certificates are obtained from {}:", acme.directory)];
    lines.extend(acme.certificates.iter().map(|order| format!("  for {}", order.domains.join(", "))));
    if let Some(on_demand) = &acme.on_demand {
        lines.push(format!("  on demand, for names that {} welcomes", on_demand.ask));
    }
    if settings.binds.iter().all(|bind| bind.tls().is_none()) {
        lines.push("warning: no address speaks TLS: add one such as -b ssl://0.0.0.0:443".to_owned());
    }
    let public = |bind: &Bind| matches!(bind, Bind::Tcp { port: 80 | 443, .. });
    if acme.dns_command.is_none() && !settings.binds.iter().any(public) {
        lines.push(
            "Public CAs connect to port 80 or 443: those must lead to the addresses of this server."
                .to_owned(),
        );
    }
    Some(lines.join("\n"))
}
