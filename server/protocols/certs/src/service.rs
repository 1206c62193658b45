//! The thread that orders certificates: [`CertificateService`].
//!
//! Contract:
//! 1. Starting waits at most [`PATIENCE`] for the store, and never for the CA.
//! 2. Nothing runs on a thread that serves requests. Stopping takes at most [`END`], whatever is in progress.

use crate::answers::DomainAnswers;
use crate::budget::OrderBudget;
use crate::ca::Ca;
use crate::challenge::{HttpAnswers, Means};
use crate::client::CaClient;
use crate::on_demand::{NameQuestion, OnDemandOrders, OnDemandQuestions, WAITING};
use crate::renewal::CertificateRenewal;
use crate::shared::{ORDERS, SharedCertificates, now};
use crate::states::CertificateStates;
use crate::store::{CertificateStore, Folder, Redis};
use settings::{Acme, CertificateOrder};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tls::Certificates;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::spawn_local;
use trust::Trusted;

/// How long starting waits for the store.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time-out for the runtime's blocking tasks at the end.
const LAST: Duration = Duration::from_millis(500);
/// The pause before a certificate's task restarts after a panic.
const AGAIN: Duration = Duration::from_secs(60);
/// How long stopping waits for the thread.
const END: Duration = Duration::from_secs(1);

/// Orders certificates from [`CertificateService::open`] until it is stopped or dropped.
pub struct CertificateService {
    /// The answers to HTTP-01.
    pub http: HttpAnswers,
    /// The state of all certificates.
    pub board: CertificateStates,
    open: watch::Sender<bool>,
    ending: Arc<AtomicBool>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl std::fmt::Debug for CertificateService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("board", &self.board).finish_non_exhaustive()
    }
}

struct Seed {
    acme: Acme,
    means: Means,
    certificates: Arc<Certificates>,
    http: HttpAnswers,
    board: CertificateStates,
    questions: mpsc::Receiver<NameQuestion>,
    opened: watch::Receiver<bool>,
    ending: Arc<AtomicBool>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl CertificateService {
    /// Starts the thread, and waits until it serves the stored certificates. Orders wait for
    /// [`CertificateService::open`].
    ///
    /// # Errors
    /// The system refuses a thread, or an option names something that cannot be used.
    pub fn start(
        acme: &Acme,
        means: Means,
        certificates: Arc<Certificates>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<CertificateService, String> {
        // Errors in options show at once.
        if let Some(ca) = &acme.ca {
            trust::client(Trusted::File(ca), None)
                .map_err(|error| format!("acme.ca: {}", untrusted(&error)))?;
        }
        if let Some(url) = &acme.storage {
            Redis::new(url, &acme.directory).map_err(|error| error.0)?;
        }
        let (http, board) = (HttpAnswers::default(), CertificateStates::default());
        // Names on demand that another machine has allowed are unknown here.
        http.set_names(acme.domains().map(str::to_owned), acme.on_demand.is_some() && acme.storage.is_some());
        let (stop, stopped) = oneshot::channel();
        let (sender, questions) = mpsc::channel(WAITING);
        let (ready, begun) = std::sync::mpsc::channel();
        let (open, opened) = watch::channel(false);
        let ending = Arc::new(AtomicBool::new(false));
        if acme.on_demand.is_some() {
            certificates.add_on_demand(Arc::new(OnDemandQuestions::new(sender, certificates.clone())));
        }
        let seed = Seed {
            acme: acme.clone(),
            means,
            certificates,
            http: http.clone(),
            board: board.clone(),
            questions,
            opened,
            ending: ending.clone(),
            log,
        };
        let thread = std::thread::Builder::new().name("certificates".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(async {
                        tokio::select! {
                            () = run(seed, ready) => {}
                            // The sender is dropped at the end of the process.
                            _ = stopped => {}
                        }
                    });
                    // This stops a DNS command, but not a pending name resolution.
                    runtime.shutdown_timeout(LAST);
                }
                Err(error) => (seed.log)(&format!("certificates are not obtained: no event loop: {error}")),
            }
        });
        let thread = thread.map_err(|error| format!("cannot start the thread for certificates: {error}"))?;
        // If this takes longer, certificates are served later.
        let _ = begun.recv_timeout(PATIENCE);
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(CertificateService { http, board, open, ending, stop, thread })
    }

    /// Allows orders: a CA can reach this server from now on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Stops the thread, and waits for it at most a second.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let deadline = Instant::now() + END;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

async fn run(seed: Seed, ready: std::sync::mpsc::Sender<()>) {
    let Seed { acme, means, certificates, http, board, questions, mut opened, ending, log } = seed;
    let log: Rc<dyn Fn(&str)> = Rc::new(move |line: &str| log(line));
    let store = match open(&acme, &acme.directory) {
        Ok(store) => store,
        Err(why) => return log(&why),
    };
    let trusted = acme.ca.as_deref().map_or(Trusted::System, Trusted::File);
    let tls = trust::client(trusted, None).map_err(|error| untrusted(&error));
    let client = CaClient::new(tls, false);
    let production = Ca::new(&acme.directory, client, store.clone(), &acme, http, log.clone());
    let staging = acme.staging.as_deref().and_then(|directory| {
        let store = open(&acme, directory).ok()?;
        Some(Rc::new(production.staging(directory, store)))
    });
    let asked = acme.on_demand.as_ref().map(|on_demand| {
        let trusted = acme.ca.as_deref().map_or(Trusted::System, Trusted::SystemAndFile);
        let tls = trust::client(trusted, None).map_err(|error| untrusted(&error));
        Rc::new(DomainAnswers::new(&on_demand.ask, CaClient::new(tls, true)))
    });
    let per_hour = acme.on_demand.as_ref().map_or(0, |on_demand| on_demand.per_hour);
    let shared = Rc::new(SharedCertificates {
        means,
        production: Rc::new(production),
        staging,
        store,
        board,
        orders: Semaphore::new(ORDERS),
        asked,
        budget: OrderBudget::new(per_hour, now()).into(),
        overflow: Rc::default(),
        certificates,
        installed: Default::default(),
        answering: Default::default(),
        ending,
        log,
        acme,
    });
    let mut keepers = Vec::new();
    for order in &shared.acme.certificates {
        let mut keeper = CertificateRenewal::new(shared.clone(), order.clone(), None);
        keeper.begin().await;
        keepers.push(keeper);
    }
    shared.production.learn_thumbprint().await;
    // The receiver may have timed out.
    let _ = ready.send(());
    if opened.wait_for(|opened| *opened).await.is_err() {
        return;
    }
    for (order, keeper) in shared.acme.certificates.clone().into_iter().zip(keepers) {
        spawn_local(kept(shared.clone(), order, keeper));
    }
    if let Some(on_demand) = shared.acme.on_demand.clone() {
        spawn_local(OnDemandOrders::new(shared.clone(), on_demand).serve(questions));
    }
    // Another machine may create the account. This one answers its challenges as well.
    while shared.store.is_shared() {
        tokio::time::sleep(Duration::from_secs(2)).await;
        shared.production.learn_thumbprint().await;
    }
    std::future::pending::<()>().await;
}

/// Keeps a certificate for as long as the server runs. If its task panics, that is logged and the task
/// restarts after a pause.
async fn kept(shared: Rc<SharedCertificates>, order: CertificateOrder, keeper: CertificateRenewal) {
    let mut next = Some(keeper);
    let title = order.domains.join(", ");
    let log = shared.log.clone();
    unending(AGAIN, &title, &*log, || {
        let keeper = next.take();
        let (shared, order) = (shared.clone(), order.clone());
        async move {
            match keeper {
                Some(keeper) => keeper.run().await,
                None => {
                    let mut keeper = CertificateRenewal::new(shared, order, None);
                    keeper.begin().await;
                    keeper.run().await;
                }
            }
        }
    })
    .await;
}

/// Runs a task, and restarts it when it panics.
async fn unending<F>(pause: Duration, title: &str, log: &dyn Fn(&str), mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()> + 'static,
{
    while spawn_local(begin()).await.is_err_and(|error| error.is_panic()) {
        log(&format!(
            "certificate for {title}: the order crashed (a bug in Firebrick, please report it); the current certificate, if any, stays in \
             use, next attempt in {} s",
            pause.as_secs()
        ));
        tokio::time::sleep(pause).await;
    }
}

fn open(acme: &Acme, directory: &str) -> Result<Rc<dyn CertificateStore>, String> {
    match &acme.storage {
        Some(url) => Ok(Rc::new(Redis::new(url, directory).map_err(|error| error.0)?)),
        None => {
            let folder = Folder::new(&acme.dir, directory);
            folder.tidy();
            Ok(Rc::new(folder))
        }
    }
}

/// Explains why the CA cannot be trusted.
fn untrusted(error: &trust::Error) -> String {
    match error {
        trust::Error::File { path, why, .. } => format!("{}: {why}", path.display()),
        trust::Error::NoTrustedCertificates(why) => format!(
            "this system trusts no authority, so that the CA cannot be believed: install the package ca-certificates, or \
             name the CA's own authority with --acme-ca {why}"
        ),
        trust::Error::Tls(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn a_task_that_panics_is_said_and_begins_anew() {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        let (begun, said) = (Cell::new(0), RefCell::new(Vec::new()));
        let log = |line: &str| said.borrow_mut().push(line.to_owned());
        runtime.block_on(unending(Duration::ZERO, "a.test", &log, || {
            begun.set(begun.get() + 1);
            let round = begun.get();
            async move { assert!(round > 2, "a fault, on purpose") }
        }));
        assert_eq!((begun.get(), said.borrow().len()), (3, 2));
        assert!(said.borrow()[0].starts_with("certificate for a.test: "), "{said:?}");
    }
}
