//! Waits for the front on a thread that serves no requests: a thread that the app has started and that writes
//! the body of a response.
//!
//! Such a thread is a *guest* of the worker. If no thread of the worker reads the links, and no idle one
//! could, the guest reads them: all of the worker's threads may be waiting for the guest, as in `Thread.new {
//! yield chunk }.join`.

use crate::links;
use crate::raw::gvl::{self, Guarded, Gvl};
use crate::raw::os::{self, Wait, Wakeup};
use crate::raw::ruby;
use crate::worker::place;
use crate::worker::task::{Task, Watcher};
use crate::worker::{Help, worker_at};

/// The bit that marks a guest among the leaders' numbers.
const GUEST: usize = 1 << (usize::BITS - 1);
/// The interval at which a guest checks for itself when it has no descriptor to be woken by, in microseconds.
const LOOK_AGAIN_US: u64 = 5_000;

/// Wake-ups that no guest uses.
static SPARE: Guarded<Vec<&'static Wakeup>> = Guarded::new(Vec::new());
static LAST: Guarded<usize> = Guarded::new(0);

/// Returns a new leader number.
fn name(gvl: &Gvl) -> usize {
    LAST.with(gvl, |last| {
        *last = last.wrapping_add(1);
        *last | GUEST
    })
}

fn wakeup(gvl: &Gvl) -> Option<&'static Wakeup> {
    SPARE.with(gvl, Vec::pop).or_else(|| Wakeup::new().ok().map(|made| &*Box::leak(Box::new(made))))
}

/// Closes the wake-ups in a child that the app has forked: they would wake the parent's threads.
pub(crate) fn abandon(gvl: &Gvl) {
    SPARE.with(gvl, |spare| spare.drain(..).for_each(Wakeup::close));
}

/// Waits until a message from the front arrives for the request, or its body has ended. May return early. May
/// raise (an interrupt).
pub(crate) fn wait_for_news(gvl: &mut Gvl, task: &'static Task) {
    let at = task.place.get();
    let Some(wakeup) = wakeup(gvl) else {
        let mut wait = Wait::readable(std::iter::empty());
        gvl::release(gvl, || wait.wait_for(LOOK_AGAIN_US));
        drop(wait);
        return ruby::check_interrupts(gvl);
    };
    let me = name(gvl);
    task.watch(Watcher::Thread(wakeup));
    let fds = worker_at(gvl, at, |w| w.guest_leads(me).then(|| w.links.iter().map(|link| link.fd).collect()));
    let fds: Vec<_> = fds.flatten().unwrap_or_default();
    let links = fds.len();
    let mut wait = Wait::readable(fds.into_iter().chain([wakeup.fd()]));
    gvl::release(gvl, || wait.wait());
    task.forget(wakeup);
    wakeup.clear();
    SPARE.with(gvl, |spare| spare.push(wakeup));
    // Another worker may use this place by now.
    if links > 0 && worker_at(gvl, at, |w| w.leader == Some(me)) == Some(true) {
        for link in (0..links).filter(|&link| wait.ready(link)) {
            place::within(at, || links::receive_now(gvl, link));
        }
        let help = worker_at(gvl, at, |w| w.guest_leaves(me, os::now_us())).unwrap_or(Help::None);
        let _ = ruby::protect(gvl, |gvl| place::within(at, || links::provide(gvl, help)));
    }
    drop(wait);
    ruby::check_interrupts(gvl);
}
