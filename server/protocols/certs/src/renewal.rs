//! Keeps one certificate valid, from the first order through all renewals: [`CertificateRenewal`].
//!
//! Contract:
//! 1. A stored certificate is served at once, even if it has expired. If it is missing, broken, or has other
//!    names or another profile, a new one is ordered; until then the old one is served.
//! 2. An order holds a lease, which is renewed. If the lease is lost, the order is given up.
//! 3. A certificate that cannot be saved is served from memory, and saved as soon as possible.
//! 4. Every failure is one line in the log, with the reason and the time of the retry. Names that exceed the
//!    limit of orders on demand share a line ([`crate::overflow`]).

use crate::ca::Ca;
use crate::names;
use crate::order::{Issued, OrderRequest, obtain};
use crate::record::{StoredNote, bundle};
use crate::schedule::{Action, Lifetime, Moment, OrderFault, RenewalSchedule, Window};
use crate::shared::{SharedCertificates, now, random, when};
use crate::store::{Item, Lease, RENEW_EVERY};
use crate::trouble::Trouble;
use instant_acme::CertificateIdentifier;
use settings::CertificateOrder;
use stats::CertificateSnapshot;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tls::Certificate;
use tokio::sync::watch;
use trust::Secret;

/// The longest sleep, so that a change of the clock does not delay a renewal.
const TURN: Duration = Duration::from_secs(60);
/// The interval between checks whether another machine has ordered, or needs its challenges answered.
const SHARED_TURN: Duration = Duration::from_secs(5);
/// The interval between checks while another server orders.
const LEASED_TURN: Duration = Duration::from_secs(1);
/// The number of failures after which a name on demand is given up.
const ON_DEMAND_FAILURES: u32 = 5;

/// The progress of a certificate on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalProgress {
    /// The first order is in progress.
    Ordering,
    /// The certificate is installed.
    Installed,
    /// The first order failed.
    Failed,
}

pub struct CertificateRenewal {
    shared: Rc<SharedCertificates>,
    id: String,
    order: CertificateOrder,
    schedule: RenewalSchedule,
    /// The certificate that is served.
    current: Option<Arc<Certificate>>,
    /// The last content of the store.
    seen: Option<Vec<u8>>,
    /// A certificate that could not be saved yet.
    unsaved: Option<Vec<u8>>,
    error: Option<String>,
    /// Receives the progress of a name on demand.
    on_demand: Option<watch::Sender<RenewalProgress>>,
    /// The last challenges announced by another machine.
    announced: Vec<u8>,
}

impl CertificateRenewal {
    /// Creates a keeper that has not read the store yet.
    pub fn new(
        shared: Rc<SharedCertificates>,
        order: CertificateOrder,
        on_demand: Option<watch::Sender<RenewalProgress>>,
    ) -> CertificateRenewal {
        let schedule = RenewalSchedule::new(shared.staging.is_some(), shared.acme.retry);
        let id = crate::store::id_of(&order.domains);
        let (current, seen, unsaved, error, announced) = (None, None, None, None, Vec::new());
        CertificateRenewal {
            shared,
            id,
            order,
            schedule,
            current,
            seen,
            unsaved,
            error,
            on_demand,
            announced,
        }
    }

    /// Serves the stored certificate.
    pub async fn begin(&mut self) {
        self.load(true).await;
        self.publish();
    }

    /// Runs until it is dropped; for a name on demand, until it is no longer allowed.
    pub async fn run(mut self) {
        // A stored certificate is served already.
        self.tell();
        loop {
            match self.schedule.next(now()) {
                Action::Wait(until) => self.rest(until).await,
                Action::AskWindow => self.ask_window().await,
                Action::Order { staging } => {
                    if !self.is_welcome().await {
                        break;
                    }
                    self.order(staging).await;
                }
            }
            self.publish();
            self.tell();
            if self.on_demand.is_some()
                && self.current.is_none()
                && self.schedule.failures() >= ON_DEMAND_FAILURES
            {
                break;
            }
        }
        self.shared.remove(&self.id);
    }

    /// Sleeps, at most until `until`, and then checks what other machines have stored.
    async fn rest(&mut self, until: Moment) {
        let left = Duration::from_secs(u64::try_from(until.saturating_sub(now())).unwrap_or(0));
        let turn = if self.shared.store.is_shared() { SHARED_TURN } else { TURN };
        tokio::time::sleep(left.min(turn)).await;
        if let Some(bytes) = self.unsaved.take() {
            self.save(bytes).await;
        }
        self.load(false).await;
        self.answer_for_others().await;
    }

    /// Serves the stored certificate if it differs from the one that is served. `start`: logs errors.
    async fn load(&mut self, start: bool) {
        let stored = match self.shared.store.load(&Item::Certificate(self.id.clone())).await {
            Ok(stored) => stored,
            Err(why) if start && self.shared.store.is_shared() => {
                return self.shared.say(&format!("certificates cannot be loaded: {why}; it is tried again"));
            }
            Err(why) if start => return self.shared.say(&format!("{why}; the certificate is ordered anew")),
            Err(_) => return,
        };
        let Some(bytes) = stored.filter(|bytes| Some(bytes) != self.seen.as_ref()) else { return };
        self.seen = Some(bytes.clone());
        let title = self.title();
        let anew = |why: String| format!("the stored certificate for {title} {why}: it is ordered anew");
        let bytes = Secret::from(bytes);
        let certificate = match Certificate::from_pem(&bytes, &bytes) {
            Ok(certificate) => Arc::new(certificate),
            Err(why) => return self.shared.say(&anew(format!("is broken ({why})"))),
        };
        let facts = certificate.facts();
        if !names::same(&facts.names, &self.order.domains) {
            return self.shared.say(&anew(format!("is for other names ({})", facts.names.join(", "))));
        }
        if self.current.as_ref().is_some_and(|current| current.facts().not_after > facts.not_after) {
            // An older copy was put back. The newer certificate stays.
            return;
        }
        let expired = facts.not_after < SystemTime::now();
        if expired {
            let until = when(lifetime(&certificate).until);
            self.shared.say(&format!(
                "WARNING: the certificate for {title} EXPIRED on {until}; it is served until a new one is there"
            ));
        } else if !start {
            self.shared.say(&format!("the certificate for {title} is there: another server has obtained it"));
        }
        self.schedule.have(lifetime(&certificate), now(), random());
        self.serve(certificate);
        let note = self.shared.store.load(&Item::Note(self.id.clone())).await.ok().flatten();
        let note = note.and_then(|note| StoredNote::parse(&note));
        if note.is_some_and(|note| note.profile != self.order.profile) {
            self.shared
                .say(&format!("the profile of the certificate for {title} has changed: it is ordered anew"));
            self.schedule.lost();
        }
    }

    fn serve(&mut self, certificate: Arc<Certificate>) {
        self.error = None;
        self.shared.install(&self.id, certificate.clone());
        self.current = Some(certificate);
    }

    /// Answers the challenges of an order that another machine has placed.
    async fn answer_for_others(&mut self) {
        if !self.shared.store.is_shared() {
            return;
        }
        let Ok(stored) = self.shared.store.load(&Item::Challenges(self.id.clone())).await else { return };
        let bytes = stored.unwrap_or_default();
        if bytes != self.announced {
            self.shared.answer(&self.id, &crate::record::announced(&bytes));
            self.announced = bytes;
        }
    }

    /// Requests the CA's renewal window.
    async fn ask_window(&mut self) {
        let Some(current) = &self.current else { return self.schedule.no_windows() };
        let Ok(id) = CertificateIdentifier::try_from(&current.certified_key().cert[0]) else {
            return self.schedule.no_windows();
        };
        let account = match self.shared.production.account().await {
            Ok(account) => account,
            Err(_) => return self.schedule.window(None, None, now(), random()),
        };
        match account.renewal_info(&id).await {
            Ok((info, again)) => {
                let window = Window {
                    from: info.suggested_window.start.unix_timestamp(),
                    until: info.suggested_window.end.unix_timestamp(),
                };
                self.schedule.window(Some(window), Some(again), now(), random());
            }
            Err(instant_acme::Error::Unsupported(_)) => self.schedule.no_windows(),
            // Without a window, the lifetime decides.
            Err(_) => self.schedule.window(None, None, now(), random()),
        }
    }

    /// Whether the user still allows a name on demand, so that it may be ordered now.
    async fn is_welcome(&mut self) -> bool {
        if self.on_demand.is_none() {
            return true;
        }
        let Some(name) = self.order.domains.first() else { return false };
        let renewal = self.current.is_some();
        if renewal && !self.shared.ask(name).await {
            self.shared
                .say(&format!("{name} is no longer welcome (acme.ask): its certificate is not renewed"));
            return false;
        }
        true
    }

    /// Places an order, unless another server does.
    async fn order(&mut self, staging: bool) {
        let shared = self.shared.clone();
        let Ok(_permit) = shared.orders.acquire().await else { return };
        let lease = match shared.store.lease(&self.id).await {
            Ok(Some(lease)) => Some(lease),
            // A full disk must not prevent an order: no other server orders for this directory.
            Err(_) if !shared.store.is_shared() => None,
            Ok(None) => {
                tokio::time::sleep(LEASED_TURN).await;
                self.answer_for_others().await;
                return self.load(false).await;
            }
            Err(why) => {
                return self
                    .failed(&Trouble::new(OrderFault::Unreachable, format!("{}: {why}", self.title())))
                    .await;
            }
        };
        // Another server may have finished just before.
        self.load(false).await;
        if self.schedule.next(now()) == (Action::Order { staging }) {
            if self.on_demand.is_some() && self.current.is_none() && !shared.may_order_on_demand() {
                self.put_off().await;
            } else {
                self.publish_ordering();
                let placed = tokio::select! {
                    placed = self.place(staging) => placed,
                    why = keep(lease.as_deref()) => Err(Trouble::new(OrderFault::Unreachable, format!("{}: {why}", self.title()))),
                };
                match placed {
                    Ok(Some(issued)) => self.issued(issued).await,
                    Ok(None) => {}
                    Err(trouble) => self.failed(&trouble).await,
                }
            }
        }
        if let Some(lease) = lease {
            lease.release().await;
        }
    }

    /// Places one order. Returns `None` if it succeeded at the staging directory.
    async fn place(&mut self, staging: bool) -> Result<Option<Issued>, Trouble> {
        let shared = self.shared.clone();
        let ca = shared.staging.clone().filter(|_| staging).unwrap_or_else(|| shared.production.clone());
        let replaces = self.current.as_ref().filter(|_| !staging);
        let wish = OrderRequest {
            names: self.order.domains.clone(),
            profile: self.order.profile.clone(),
            challenge: self.order.challenge,
            dns_command: shared.acme.dns_command.clone(),
            means: shared.means,
            attempt: self.schedule.failures(),
            ending: shared.ending.clone(),
            replaces: replaces.map(|current| current.certified_key().cert[0].clone().into_owned()),
        };
        let mut issued = self.ask(&ca, &wish).await;
        if matches!(&issued, Err(trouble) if trouble.kind == "accountDoesNotExist") {
            ca.register_again().await?;
            issued = self.ask(&ca, &wish).await;
        }
        if issued.is_err() {
            ca.forget().await;
        }
        let issued = issued?;
        if staging {
            self.schedule.staging_succeeded();
            shared.say(&format!(
                "{}: the order succeeds at the CA's staging directory; now the real one",
                self.title()
            ));
            return Ok(None);
        }
        Ok(Some(issued))
    }

    async fn ask(&self, ca: &Ca, wish: &OrderRequest) -> Result<Issued, Trouble> {
        let account = ca.account().await.map_err(|mut trouble| {
            trouble.text = format!("{}: {}", self.title(), trouble.text);
            trouble
        })?;
        obtain(ca.client(), &account, wish, &self.shared.announcer(&self.id)).await
    }

    /// Checks, serves and saves a certificate that the CA has issued.
    async fn issued(&mut self, issued: Issued) {
        let refused = |why: String| Trouble::new(OrderFault::Unreachable, format!("{}: {why}", self.title()));
        let certificate =
            match Certificate::from_pem(&Secret::from(&*issued.chain), &Secret::from(&*issued.key)) {
                Ok(certificate) => Arc::new(certificate),
                Err(why) => {
                    let trouble =
                        refused(format!("the CA has issued a certificate that cannot be used: {why}"));
                    return self.failed(&trouble).await;
                }
            };
        let facts = certificate.facts();
        if !names::same(&facts.names, &self.order.domains) {
            let trouble = refused(format!("the CA has issued a certificate for {}", facts.names.join(", ")));
            return self.failed(&trouble).await;
        }
        let text = bundle(&issued.key, &issued.chain).into_bytes();
        // Recognize this certificate later as our own.
        self.seen = Some(text.clone());
        self.schedule.issued(lifetime(&certificate), now(), random());
        self.serve(certificate.clone());
        let from = now();
        self.shared.say(&format!(
            "certificate for {} obtained from {}, valid until {}; it is renewed on {}",
            self.title(),
            certificate.facts().issuer,
            when(lifetime(&certificate).until),
            when(self.schedule.next_order()),
        ));
        self.save(text).await;
        self.note(from).await;
    }

    /// Handles the limit of orders on demand. Thousands of names can be affected, so they share a line in the log.
    async fn put_off(&mut self) {
        let title = self.title();
        let text = format!("{title}: the limit acme.on_demand_per_hour is reached");
        let from = now();
        self.fail(&Trouble::new(OrderFault::Unreachable, text), from);
        let per_hour = self.shared.acme.on_demand.as_ref().map_or(0, |on_demand| on_demand.per_hour);
        self.shared.overflow.note(&title, per_hour, &self.shared.log);
        self.note(from).await;
    }

    /// Records a failure. Returns the time of the retry.
    fn fail(&mut self, trouble: &Trouble, from: Moment) -> Moment {
        self.error = Some(trouble.text.clone());
        self.schedule.failed(trouble.fault, trouble.retry_after, from, random())
    }

    async fn failed(&mut self, trouble: &Trouble) {
        let from = now();
        let at = self.fail(trouble, from);
        let first = match self.schedule.next(at) {
            Action::Order { staging: true } => ", at the CA's staging directory first",
            _ => "",
        };
        let serving = match &self.current {
            None => "there is no certificate yet",
            Some(current) if current.facts().not_after < SystemTime::now() => "the EXPIRED one is served",
            Some(_) => "the one before is served",
        };
        self.shared.say(&format!(
            "no certificate: {trouble}; {serving}; next attempt in {}{first}",
            crate::shared::span(at.saturating_sub(from))
        ));
        self.note(from).await;
    }

    /// Saves key and chain, or keeps them to try again later.
    async fn save(&mut self, bytes: Vec<u8>) {
        if let Err(why) = self.shared.store.save(&Item::Certificate(self.id.clone()), &bytes).await {
            self.shared.say(&format!(
                "the certificate for {} is used but cannot be kept: {why}; it is tried again",
                self.title()
            ));
            self.unsaved = Some(bytes);
        }
    }

    async fn note(&self, at: Moment) {
        let note = StoredNote {
            names: self.order.domains.clone(),
            directory: self.shared.production.directory().to_owned(),
            profile: self.order.profile.clone(),
            ordered_at: at,
            next_order: self.schedule.next_order(),
            failures: self.schedule.failures(),
            error: self.error.clone(),
        };
        // The note is not essential.
        let _ = self.shared.store.save(&Item::Note(self.id.clone()), &note.to_bytes()).await;
    }

    fn publish(&self) {
        self.show(self.schedule.next_order());
    }

    fn publish_ordering(&self) {
        self.show(now());
    }

    fn show(&self, next_order: Moment) {
        let facts = self.current.as_ref().map(|current| current.facts());
        self.shared.board.show(
            &self.id,
            CertificateSnapshot {
                names: self.order.domains.clone(),
                issuer: facts.map(|facts| facts.issuer.clone()),
                not_before: facts.map(|facts| facts.not_before),
                not_after: facts.map(|facts| facts.not_after),
                next_order: Some(crate::shared::time(next_order.max(0))),
                failures: self.schedule.failures(),
                error: self.error.clone(),
                directory: self.shared.production.directory().to_owned(),
                storage: self.shared.store.describe(),
                on_demand: self.on_demand.is_some(),
            },
        );
    }

    /// Wakes the handshakes that wait.
    fn tell(&self) {
        let Some(progress) = &self.on_demand else { return };
        let now = match &self.current {
            Some(_) => RenewalProgress::Installed,
            None if self.schedule.failures() > 0 => RenewalProgress::Failed,
            None => RenewalProgress::Ordering,
        };
        progress.send_if_modified(|before| std::mem::replace(before, now) != now);
    }

    fn title(&self) -> String {
        self.order.domains.join(", ")
    }
}

/// Renews a lease until it is lost. Returns the reason.
async fn keep(lease: Option<&dyn Lease>) -> String {
    let Some(lease) = lease else { return std::future::pending().await };
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match lease.renew().await {
            Ok(true) => {}
            Ok(false) => return "another server has taken the order over".to_owned(),
            Err(why) => return why.0,
        }
    }
}

fn lifetime(certificate: &Certificate) -> Lifetime {
    let facts = certificate.facts();
    Lifetime { from: crate::shared::moment(facts.not_before), until: crate::shared::moment(facts.not_after) }
}
