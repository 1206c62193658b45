//! The state that all certificates of a server share, on the thread that orders them: [`SharedCertificates`].

use crate::answers::DomainAnswers;
use crate::ca::Ca;
use crate::challenge::Means;
use crate::order::Announcer;
use crate::overflow::Overflow;
use crate::record::{Announced, announce};
use crate::schedule::Moment;
use crate::states::CertificateStates;
use crate::store::{CertificateStore, Item, Pending};
use crate::{alpn, budget::OrderBudget};
use settings::Acme;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tls::{Certificate, CertificateSource, Certificates};
use tokio::sync::Semaphore;

/// The largest number of orders at a time.
pub const ORDERS: usize = 4;
/// How long other machines may need to see a challenge. They check every five seconds.
const SPREAD: Duration = Duration::from_secs(7);

pub struct SharedCertificates {
    pub acme: Acme,
    /// The ways in which this server can answer challenges.
    pub means: Means,
    pub production: Rc<Ca>,
    /// The CA's staging directory.
    pub staging: Option<Rc<Ca>>,
    pub store: Rc<dyn CertificateStore>,
    /// The published state of all certificates.
    pub board: CertificateStates,
    /// Limits the number of orders at a time.
    pub orders: Semaphore,
    /// Decides about names on demand.
    pub asked: Option<Rc<DomainAnswers>>,
    /// The remaining orders on demand.
    pub budget: RefCell<OrderBudget>,
    /// Logs orders on demand that exceed the limit.
    pub overflow: Rc<Overflow>,
    /// The certificates that handshakes use.
    pub certificates: Arc<Certificates>,
    /// Ordered by id.
    pub installed: RefCell<BTreeMap<String, Arc<Certificate>>>,
    /// Names of the challenges that are answered, by id.
    pub answering: RefCell<BTreeMap<String, Vec<String>>>,
    /// Set when the server stops.
    pub ending: Arc<AtomicBool>,
    pub log: Rc<dyn Fn(&str)>,
}

impl SharedCertificates {
    pub fn say(&self, line: &str) {
        (self.log)(line);
    }

    /// Serves a certificate in place of the one with the same id.
    pub fn install(&self, id: &str, certificate: Arc<Certificate>) {
        self.installed.borrow_mut().insert(id.to_owned(), certificate);
        self.set();
    }

    pub fn remove(&self, id: &str) {
        self.board.remove(id);
        if self.installed.borrow_mut().remove(id).is_some() {
            self.set();
        }
    }

    fn set(&self) {
        self.certificates.set(CertificateSource::Acme, self.installed.borrow().values().cloned().collect());
    }

    /// Answers these TLS-ALPN-01 challenges in place of those before.
    pub fn answer(&self, id: &str, challenges: &[Announced]) {
        let names: Vec<String> = challenges.iter().map(|one| alpn::handshake_name(&one.name)).collect();
        for one in challenges {
            match alpn::certificate(&one.name, &one.digest) {
                Ok(key) => self.certificates.set_challenge(&alpn::handshake_name(&one.name), Arc::new(key)),
                Err(why) => self.say(&why),
            }
        }
        let before = self.answering.borrow_mut().insert(id.to_owned(), names.clone()).unwrap_or_default();
        before
            .iter()
            .filter(|name| !names.contains(name))
            .for_each(|name| self.certificates.remove_challenge(name));
    }

    /// Returns the announcer of an order's challenges.
    pub fn announcer<'a>(&'a self, id: &'a str) -> impl Announcer + 'a {
        Announces { shared: self, id }
    }

    /// Whether a certificate may be obtained for a name on demand.
    pub async fn ask(&self, name: &str) -> bool {
        match &self.asked {
            Some(asked) => asked.is_welcome(name, &self.log).await,
            None => false,
        }
    }

    /// Takes one of this hour's remaining orders on demand.
    pub fn may_order_on_demand(&self) -> bool {
        self.budget.borrow_mut().take(now())
    }
}

struct Announces<'a> {
    shared: &'a SharedCertificates,
    id: &'a str,
}

impl Announcer for Announces<'_> {
    fn announce<'a>(&'a self, challenges: &'a [Announced]) -> Pending<'a, Result<(), String>> {
        Box::pin(async move {
            self.shared.answer(self.id, challenges);
            if self.shared.store.is_shared() {
                let item = Item::Challenges(self.id.to_owned());
                self.shared.store.save(&item, &announce(challenges)).await.map_err(|why| why.0)?;
                if !challenges.is_empty() {
                    tokio::time::sleep(SPREAD).await;
                }
            }
            Ok(())
        })
    }
}

/// Returns the current time in seconds since 1970.
pub fn now() -> Moment {
    moment(SystemTime::now())
}

/// Converts a time to seconds since 1970.
pub fn moment(time: SystemTime) -> Moment {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(Moment::MAX),
        Err(_) => 0,
    }
}

/// Converts seconds since 1970 to a time.
pub fn time(moment: Moment) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(moment).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// Formats a moment for people: `2026-01-31 12:00 UTC`.
pub fn when(moment: Moment) -> String {
    let timestamp = jiff::Timestamp::from_second(moment).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{} UTC", timestamp.strftime("%Y-%m-%d %H:%M"))
}

/// Formats seconds for people.
pub fn span(seconds: i64) -> String {
    text::people::span(Duration::from_secs(seconds.max(0).unsigned_abs()))
}

/// Returns a random number from 0 to 1.
pub fn random() -> f64 {
    fastrand::f64()
}
