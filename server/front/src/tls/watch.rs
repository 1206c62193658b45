//! Reads certificates and authorities again when their files change.
//!
//! Why polling: see `file_state.rs`. Chain and key are two files. Between the two writes they do not match,
//! so the old pair stays in force until they do.

use super::{EncryptedAddress, Encryption};
use crate::error_log::ErrorLog;
use crate::file_state::{EVERY, FileStamp, stamp};
use ::tls::{Certificate, CertificateSource, Certificates, FileChange, Pair};
use settings::Settings;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a pair may mismatch before that is reported. Both files are usually written at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// Checks all files for as long as the server runs.
pub(super) async fn run(encryption: Arc<Encryption>, settings: Arc<Settings>, log: Arc<ErrorLog>) {
    let mut marked: Vec<FileStamp> = encryption.addresses.iter().map(authorities).collect();
    let mut late = Late::default();
    loop {
        tokio::time::sleep(EVERY).await;
        shared(&encryption, &mut late, &log);
        for (address, marked) in encryption.addresses.iter().zip(&mut marked) {
            if let Some((own, pair)) = &address.own {
                let mut pair = pair.lock().unwrap_or_else(PoisonError::into_inner);
                if look(&mut pair, &mut late, &log).is_some() {
                    own.set(CertificateSource::Files, vec![pair.current().clone()]);
                }
            }
            let now = authorities(address);
            if now != *marked {
                *marked = now;
                renew(&encryption, address, &settings, &log);
            }
        }
        late.report(&log);
    }
}

/// Checks the files of `[tls]`.
fn shared(encryption: &Encryption, late: &mut Late, log: &ErrorLog) {
    let mut pairs = encryption.pairs();
    let changed = pairs.iter_mut().filter_map(|pair| look(pair, late, log)).count();
    if changed > 0 {
        let all: Vec<Arc<Certificate>> = pairs.iter().map(|pair| pair.current().clone()).collect();
        let certificates: &Certificates = &encryption.certificates;
        certificates.set(CertificateSource::Files, all);
    }
}

/// Checks a pair. Returns `Some` if there is a new certificate.
fn look(pair: &mut Pair, late: &mut Late, log: &ErrorLog) -> Option<()> {
    let name = pair.files().cert.display().to_string();
    match pair.look() {
        FileChange::None => {
            if pair.is_sound() {
                late.forget(&name);
            }
            None
        }
        FileChange::Unusable(why) => {
            late.complain(name, why);
            None
        }
        FileChange::Replaced(new) => {
            late.forget(&name);
            let facts = new.facts();
            log.write(&format!("the certificate {name} has been read again: {}", super::report::line(facts)));
            for warning in new.warnings(SystemTime::now()) {
                log.write(&format!("warning: the certificate {name}: {warning}"));
            }
            Some(())
        }
    }
}

fn authorities(address: &EncryptedAddress) -> FileStamp {
    stamp(address.ca.as_deref()?)
}

/// Renews an address whose authorities have changed.
fn renew(encryption: &Encryption, address: &EncryptedAddress, settings: &Settings, log: &ErrorLog) {
    let Some(file) = &address.ca else { return };
    match encryption.renew(address, settings) {
        Ok(()) => log.write(&format!("the authorities {} have been read again", file.display())),
        Err(why) => log.write(&format!("{why}\nthe authorities before this change stay in force")),
    }
}

/// Delayed complaints: a change that is half done is not an error yet.
#[derive(Default)]
struct Late(Vec<(String, String, Instant)>);

impl Late {
    fn complain(&mut self, name: String, why: String) {
        self.forget(&name);
        self.0.push((name, why, Instant::now()));
    }

    fn forget(&mut self, name: &str) {
        self.0.retain(|(known, ..)| known != name);
    }

    fn report(&mut self, log: &ErrorLog) {
        self.0.retain(|(_, why, since)| {
            let due = since.elapsed() >= PATIENCE;
            if due {
                log.write(&format!("{why}\nthe certificate before this change stays in force"));
            }
            !due
        });
    }
}
