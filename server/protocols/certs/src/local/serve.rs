//! Serves development certificates for the names of this machine (`https`), created when a client requests them.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tls::{Certificate, CertificateSource, Certificates, OnDemandHook};

use super::leaves::Leaves;
use super::{COVERED, Error};

/// How often the certificate for clients without a host name is checked. The clock stops while the machine
/// sleeps, so this is much shorter than the certificate's last month.
const LOOK: Duration = Duration::from_secs(12 * 3600);

/// Registers `leaves` with `certificates`, and keeps them fresh until the returned future is dropped. Logs
/// names that cannot be signed to `log`.
///
/// # Errors
/// The first certificate cannot be created.
pub fn serve(
    leaves: Leaves,
    certificates: &Arc<Certificates>,
    log: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Pin<Box<dyn Future<Output = ()> + Send>>, Error> {
    let leaves = Arc::new(leaves);
    let nameless = |leaves: &Leaves| leaves.leaf(None, SystemTime::now());
    certificates.set(CertificateSource::Local, nameless(&leaves)?.into_iter().collect());
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(log);
    certificates.add_on_demand(Arc::new(Hook {
        leaves: leaves.clone(),
        log: log.clone(),
        refused: Mutex::default(),
    }));
    let certificates = certificates.clone();
    Ok(Box::pin(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            match nameless(&leaves) {
                Ok(leaf) => certificates.set(CertificateSource::Local, leaf.into_iter().collect()),
                Err(why) => log(&why.to_string()),
            }
        }
    }))
}

struct Hook {
    leaves: Arc<Leaves>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
    /// When a name was last refused.
    refused: Mutex<Option<Instant>>,
}

impl Hook {
    /// Logs at most one name per second, because clients retry.
    fn refuse(&self, name: &str) {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let last = self.refused.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        if last.is_none_or(|last| now.duration_since(last) >= second) {
            (self.log)(&format!(
                "https: a client asked for {name:?}, and the authority of development certificates can sign for {COVERED} \
                 only: use such a name, or give a certificate for this one (tls.cert and tls.key)"
            ));
        }
    }
}

impl OnDemandHook for Hook {
    fn certificate(
        &self,
        name: String,
        _client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Certificate>>> + Send>> {
        let made = self.leaves.leaf(Some(&name), SystemTime::now()).unwrap_or_else(|why| {
            (self.log)(&why.to_string());
            None
        });
        if made.is_none() {
            self.refuse(&name);
        }
        Box::pin(std::future::ready(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Authority;

    #[test]
    fn names_are_served_on_demand_and_others_are_logged() {
        let dir = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::open(dir.path(), SystemTime::now()).unwrap();
        let certificates = Certificates::new();
        let logged = Arc::new(Mutex::new(Vec::new()));
        let lines = logged.clone();
        let leaves = Leaves::new(authority).unwrap();
        let fresh = serve(leaves, &certificates, move |line| lines.lock().unwrap().push(line.to_owned()));
        drop(fresh.unwrap());
        assert!(certificates.covers("localhost") && certificates.covers("127.0.0.1"));
        let leaves = Leaves::new(Authority::find(dir.path()).unwrap().unwrap()).unwrap();
        let log = logged.clone();
        let hook = Hook {
            leaves: Arc::new(leaves),
            log: Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned())),
            refused: Mutex::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |name: &str| runtime.block_on(hook.certificate(name.to_owned(), None));
        assert_eq!(ask("shop.test").unwrap().facts().names, ["shop.test"]);
        assert!(logged.lock().unwrap().is_empty());
        assert!(ask("example.com").is_none());
        (0..100).for_each(|_| assert!(ask("example.org").is_none()));
        let logged = logged.lock().unwrap();
        assert!(logged[0].contains("example.com") && logged.len() < 100, "{} lines", logged.len());
    }
}
