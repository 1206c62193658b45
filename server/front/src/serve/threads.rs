//! Starts all front threads together, hands them their listeners when the app can respond, and drains them at the end.

use super::logs::Logs;
use crate::accept::Admission;
use crate::caching;
use crate::hub::{HubSeed, SharedHub};
use crate::interruption::Maintenance;
use crate::listen::Listener;
use crate::release::Releases;
use crate::scripts;
use crate::thread::{self, Seed, ThreadPhase};
use crate::tls::Encryption;
use crate::traces::Traces;
use crate::vitals::Vitals;
use cache::Store;
use ratelimit::LimiterState;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use workers::Shared;

pub(crate) struct Threads {
    listeners: Vec<mpsc::UnboundedSender<Listener>>,
    /// One recorder per thread.
    pub(crate) recorders: Vec<stats::Recorder>,
    /// The counts of each thread's mruby handlers. Empty without routes to any.
    pub(crate) handlers: Vec<stats::HandlerCounts>,
    /// The counts of the rate limits.
    pub(crate) ledger: Arc<LimiterState>,
    /// The kept responses; `None` if the cache is off.
    pub(crate) store: Option<Arc<Store>>,
    /// The hub of live pages; `None` if it is off.
    pub(crate) hub: Option<Arc<SharedHub>>,
    phase: watch::Sender<ThreadPhase>,
    drained: mpsc::Receiver<()>,
    /// Closes when all tunnels of all threads have ended after the drain. The waiting task takes it.
    pub(super) ended: Option<mpsc::Receiver<()>>,
}

impl Threads {
    /// Starts the threads, and waits until each has evaluated its handlers.
    ///
    /// # Errors
    /// The system refuses a thread, or a handler cannot be used.
    pub(super) async fn start(
        releases: &Releases,
        shared: Option<Arc<Shared>>,
        encryption: &Arc<Encryption>,
        vitals: &Arc<Vitals>,
        maintenance: &Arc<Maintenance>,
        logs: &Logs,
        (traces, hub): (Option<&Traces>, Option<HubSeed>),
    ) -> Result<Threads, String> {
        let settings = releases.settings();
        let (first, mut evaluated) = mpsc::unbounded_channel();
        let has_handlers = releases.in_force().handlers.is_some();
        let (phase, in_phase) = watch::channel(ThreadPhase::Serve);
        let (last, drained) = mpsc::channel(1);
        let (last_tunnel, ended) = mpsc::channel(1);
        let admission = Arc::new(Admission::default());
        let (listeners, recorders, handlers) = (Vec::new(), Vec::new(), Vec::new());
        let error = logs.error.clone();
        let ledger = Arc::new(LimiterState::new(Box::new(move |what| error.write(what))));
        let store = caching::store(&settings, &logs.error)?;
        let (hub, mailboxes) = hub.unzip();
        let mut mailboxes = mailboxes.into_iter().flatten();
        let ended = Some(ended);
        let mut threads =
            Threads { listeners, recorders, handlers, ledger, store, hub, phase, drained, ended };
        for index in 0..settings.front_threads as u16 {
            let (sender, listeners) = mpsc::unbounded_channel();
            let recorder = stats::Recorder::new();
            threads.listeners.push(sender);
            threads.recorders.push(recorder.clone());
            let handlers = stats::HandlerCounts::default();
            threads.handlers.extend(has_handlers.then(|| handlers.clone()));
            let seed = Seed {
                index,
                serving: releases.watch(),
                shared: shared.clone(),
                evaluated: first.clone(),
                recorder,
                recent: releases.recent.clone(),
                handlers,
                access_log: logs.access_log(&settings),
                traces: traces.map(Traces::seed),
                error_log: logs.error.clone(),
                admission: admission.clone(),
                maintenance: maintenance.clone(),
                ledger: threads.ledger.clone(),
                store: threads.store.clone(),
                hub: threads.hub.clone().zip(mailboxes.next()),
                encryption: encryption.clone(),
                vitals: vitals.clone(),
                listeners,
                phase: in_phase.clone(),
                drained: last.clone(),
                ended: last_tunnel.clone(),
            };
            thread::start(seed).map_err(|e| format!("cannot start a front thread: {e}"))?;
        }
        drop(first);
        if has_handlers {
            let (count, timeout) = (settings.front_threads as usize, settings.timeouts.worker_boot);
            scripts::ready(&mut evaluated, count, timeout).await?;
        }
        Ok(threads)
    }

    /// Hands the listeners of an address to the threads in turn.
    pub(super) fn listen(&self, listeners: Vec<Listener>) {
        for (thread, listener) in self.listeners.iter().cycle().zip(listeners) {
            // A failed thread has logged the reason.
            let _ = thread.send(listener);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.listeners.len()
    }

    /// Continues accepting, but closes each connection after its next response.
    pub(super) fn leave(&self) {
        self.phase.send_replace(ThreadPhase::Leave);
    }

    /// Leaves accepting to another program, and closes each connection after its next response.
    pub(super) fn hand_over(&self) {
        self.phase.send_replace(ThreadPhase::Yield);
    }

    /// Accepts no more connections; finishes the requests in progress.
    pub(super) fn drain(&self) {
        self.phase.send_replace(ThreadPhase::Drain);
    }

    /// Waits until all threads have drained.
    pub(super) async fn drained(&mut self) {
        // The channel carries no messages. It closes when the last thread drops its sender.
        while self.drained.recv().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Handed;
    use crate::listen::{Address, bind_all};
    use crate::release::tests::releases_of;
    use crate::systemd::activation::Activated;
    use settings::{Bind, Settings};
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::path::Path;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    fn status(server: SocketAddr, path_length: usize) -> String {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let path = "p".repeat(path_length);
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn new_settings_reach_every_thread() {
        let mut settings = Settings::defaults(Path::new("/"));
        settings.front_threads = 2;
        settings.binds = vec![Bind::tcp("127.0.0.1", 0)];
        let next = Rc::new(RefCell::new(settings.clone()));
        let releases = releases_of(next.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let logs = Logs::open(&releases).unwrap();
        let encryption = Arc::new(Encryption::read(&settings).unwrap());
        let threads = runtime
            .block_on(Threads::start(
                &releases,
                None,
                &encryption,
                &Vitals::new(2),
                &Arc::default(),
                &logs,
                (None, None),
            ))
            .unwrap();
        let bound = bind_all(&settings.binds, 2, &mut Activated::default(), &mut Handed::default())
            .unwrap()
            .remove(0);
        let Address::Tcp(address) = bound.address().clone() else { panic!("a TCP address") };
        threads.listen(bound.listen().unwrap().0);
        assert_eq!(status(address, 100), "404", "within the default limit");

        next.borrow_mut().limits.max_uri = 64;
        releases.put_in_force(releases.read(2, 1).unwrap().id);
        // The kernel picks the thread of each connection: 20 refusals in a row show that both threads have
        // the new limit.
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut refused = 0;
        while refused < 20 {
            assert!(Instant::now() < deadline, "the new limit is not in force");
            refused = if status(address, 100) == "414" { refused + 1 } else { 0 };
        }
        assert_eq!(status(address, 10), "404", "within the new limit");
    }
}
