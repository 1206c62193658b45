//! Asks the user's `ask` address whether a certificate may be obtained for a name: [`DomainAnswers`].
//!
//! Contract:
//! 1. Status 200 means yes. Any other status, or no response, means no.
//! 2. Answers are cached: a yes for an hour, a no for ten minutes, a missing response for half a minute. At
//!    most [`KEPT`] answers are cached.
//! 3. At most [`AT_ONCE`] questions are open at a time; others wait. Each question is completed and its
//!    answer cached, even if the client has gone.

use crate::client::CaClient;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;

/// The largest number of cached answers.
pub const KEPT: usize = 10_000;
/// The largest number of open questions.
pub const AT_ONCE: usize = 16;
/// How long a yes is cached.
const YES: Duration = Duration::from_secs(3_600);
/// How long a no is cached.
const NO: Duration = Duration::from_secs(600);
/// How long a missing response counts as a no.
const NOTHING: Duration = Duration::from_secs(30);
/// The minimum interval between log lines about an address that does not respond.
const QUIET: Duration = Duration::from_secs(60);

/// Cached answers by name.
pub struct DomainAnswers {
    url: String,
    client: CaClient,
    kept: RefCell<HashMap<String, (bool, Instant)>>,
    asking: Arc<Semaphore>,
    said: Cell<Option<Instant>>,
}

impl DomainAnswers {
    /// Creates a cache of the answers of `url`.
    pub fn new(url: &str, client: CaClient) -> DomainAnswers {
        let (kept, said) = (RefCell::default(), Cell::default());
        DomainAnswers { url: url.to_owned(), client, kept, asking: Arc::new(Semaphore::new(AT_ONCE)), said }
    }

    /// Whether a certificate may be obtained for the host name `name`.
    pub async fn is_welcome(self: &Rc<DomainAnswers>, name: &str, log: &Rc<dyn Fn(&str)>) -> bool {
        if let Some(known) = self.known(name) {
            return known;
        }
        let Ok(permit) = self.asking.clone().acquire_owned().await else { return false };
        if let Some(known) = self.known(name) {
            return known;
        }
        let (asked, name, log) = (self.clone(), name.to_owned(), log.clone());
        let answer = spawn_local(async move {
            let answer = asked.ask(&name, &*log).await;
            drop(permit);
            answer
        });
        answer.await.unwrap_or(false)
    }

    async fn ask(&self, name: &str, log: &dyn Fn(&str)) -> bool {
        let (answer, keep) = match self.client.get(&address(&self.url, name)).await {
            Ok((200, _)) => (true, YES),
            Ok(_) => (false, NO),
            Err(why) => {
                if self.said.get().is_none_or(|at| at.elapsed() > QUIET) {
                    self.said.set(Some(Instant::now()));
                    log(&format!("acme.ask does not respond, so that no name is welcome: {why}"));
                }
                (false, NOTHING)
            }
        };
        self.keep(name, answer, keep);
        answer
    }

    fn known(&self, name: &str) -> Option<bool> {
        let kept = self.kept.borrow();
        kept.get(name).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| *answer)
    }

    fn keep(&self, name: &str, answer: bool, time: Duration) {
        let mut kept = self.kept.borrow_mut();
        let now = Instant::now();
        if kept.len() >= KEPT {
            kept.retain(|_, (_, until)| *until > now);
        }
        if kept.len() >= KEPT {
            // Happens only with thousands of new names within minutes. All names are then asked again.
            kept.clear();
        }
        kept.insert(name.to_owned(), (answer, now + time));
    }
}

/// Appends the name to the address. The name contains only characters that need no escaping.
fn address(url: &str, name: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}domain={name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(address("http://app.test/ask", "a.test"), "http://app.test/ask?domain=a.test");
        assert_eq!(address("http://app.test/ask?x=1", "a.test"), "http://app.test/ask?x=1&domain=a.test");
    }

    #[test]
    fn answers_are_kept_and_bounded() {
        let asked = DomainAnswers::new("http://app.test", CaClient::new(Err("none".to_owned()), true));
        asked.keep("a.test", true, YES);
        assert_eq!(asked.known("a.test"), Some(true));
        asked.keep("b.test", false, Duration::ZERO);
        assert_eq!(asked.known("b.test"), None, "too old");
        for number in 0..KEPT + 5 {
            asked.keep(&format!("{number}.test"), false, NO);
        }
        assert!(asked.kept.borrow().len() <= KEPT);
    }
}
