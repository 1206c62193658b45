//! Certificates on demand, for names that clients request: [`OnDemandOrders`] on the thread that orders,
//! [`OnDemandQuestions`] for handshakes.
//!
//! Contract:
//! 1. Only host names are served, never IP addresses, and only if `ask` says yes.
//! 2. A name is ordered once, however many clients wait for it. While a failed order waits for its retry,
//!    clients are refused at once.
//! 3. The number of names ([`KEPT`]), of orders per hour, and of handshakes that wait for this thread
//!    ([`WAITING`]) or for an answer ([`UNDER_WAY`]) is limited. Beyond that, clients are refused at once. A
//!    client that has gone no longer counts.

use crate::renewal::{CertificateRenewal, RenewalProgress};
use crate::shared::SharedCertificates;
use settings::{CertificateOrder, DomainKind, OnDemand};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tls::{Certificate, Certificates};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;

/// The largest number of names.
pub const KEPT: usize = 10_000;
/// The largest number of handshakes that wait for the thread.
pub const WAITING: usize = 256;
/// The largest number of handshakes that wait for an answer or an order.
pub const UNDER_WAY: usize = 1_000;
/// The longest wait of a handshake. Its own time-out may be shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// A name, and the channel for the answer whether it has a certificate.
pub type NameQuestion = (String, oneshot::Sender<bool>);

/// The side of the handshakes, on any thread.
pub struct OnDemandQuestions {
    questions: mpsc::Sender<NameQuestion>,
    certificates: Arc<Certificates>,
}

impl OnDemandQuestions {
    /// Sends questions to the thread that receives them.
    pub fn new(questions: mpsc::Sender<NameQuestion>, certificates: Arc<Certificates>) -> OnDemandQuestions {
        OnDemandQuestions { questions, certificates }
    }
}

impl tls::OnDemandHook for OnDemandQuestions {
    fn certificate(
        &self,
        name: String,
        _client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Certificate>>> + Send>> {
        let (reply, answer) = oneshot::channel();
        let asked = DomainKind::of(&name) == Some(DomainKind::Host)
            && self.questions.try_send((name.clone(), reply)).is_ok();
        let certificates = self.certificates.clone();
        Box::pin(async move {
            if !asked || !answer.await.unwrap_or(false) {
                return None;
            }
            let all = certificates.of(tls::CertificateSource::Acme);
            all.into_iter().find(|one| one.facts().names.contains(&name))
        })
    }
}

/// The side of the thread that orders.
pub struct OnDemandOrders {
    shared: Rc<SharedCertificates>,
    settings: OnDemand,
    names: RefCell<HashMap<String, watch::Receiver<RenewalProgress>>>,
    under_way: Cell<usize>,
}

impl OnDemandOrders {
    /// Creates an empty set of names.
    pub fn new(shared: Rc<SharedCertificates>, settings: OnDemand) -> Rc<OnDemandOrders> {
        Rc::new(OnDemandOrders { shared, settings, names: RefCell::default(), under_way: Cell::new(0) })
    }

    /// Answers handshakes until the channel is closed.
    pub async fn serve(self: Rc<Self>, mut questions: mpsc::Receiver<NameQuestion>) {
        while let Some((name, mut reply)) = questions.recv().await {
            if self.under_way.get() >= UNDER_WAY {
                // Dropping the reply means no.
                continue;
            }
            let door = self.clone();
            self.under_way.update(|count| count + 1);
            spawn_local(async move {
                let answered = tokio::select! {
                    answered = tokio::time::timeout(PATIENCE, door.is_there(&name)) => answered.unwrap_or(false),
                    // The client has gone. Its order continues.
                    () = reply.closed() => false,
                };
                let _ = reply.send(answered);
                door.under_way.update(|count| count - 1);
            });
        }
    }

    /// Whether there is a certificate for `name`, after waiting for its first order.
    async fn is_there(&self, name: &str) -> bool {
        if let Some(progress) = self.progress(name) {
            return outcome(progress).await;
        }
        if !self.shared.ask(name).await {
            return false;
        }
        // Another handshake may have begun an order meanwhile.
        if let Some(progress) = self.progress(name) {
            return outcome(progress).await;
        }
        match self.begin(name) {
            Some(progress) => outcome(progress).await,
            None => false,
        }
    }

    /// Returns the progress of a name. Names whose task has ended do not count.
    fn progress(&self, name: &str) -> Option<watch::Receiver<RenewalProgress>> {
        let names = self.names.borrow();
        names.get(name).filter(|progress| progress.has_changed().is_ok()).cloned()
    }

    fn begin(&self, name: &str) -> Option<watch::Receiver<RenewalProgress>> {
        let mut names = self.names.borrow_mut();
        if names.len() >= KEPT {
            names.retain(|_, progress| progress.has_changed().is_ok());
        }
        if names.len() >= KEPT {
            return None;
        }
        let (sender, progress) = watch::channel(RenewalProgress::Ordering);
        let order = CertificateOrder {
            domains: vec![name.to_owned()],
            profile: self.settings.profile.clone(),
            challenge: self.settings.challenge,
        };
        let mut keeper = CertificateRenewal::new(self.shared.clone(), order, Some(sender));
        let (answers, kept) = (self.shared.production.answers().clone(), name.to_owned());
        answers.allow(name);
        spawn_local(async move {
            keeper.begin().await;
            keeper.run().await;
            answers.forbid(&kept);
        });
        names.insert(name.to_owned(), progress.clone());
        Some(progress)
    }
}

/// Waits for the first outcome.
async fn outcome(mut progress: watch::Receiver<RenewalProgress>) -> bool {
    let ended = progress.wait_for(|progress| *progress != RenewalProgress::Ordering).await;
    ended.is_ok_and(|progress| *progress == RenewalProgress::Installed)
}
