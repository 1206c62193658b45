//! Explains in a sentence why there is no certificate: [`Trouble`].
//!
//! Contract: a text names the failed step, quotes the CA and gives a remedy. It is one line of limited length.

use crate::client::Last;
use crate::schedule::OrderFault;
use instant_acme::{Error, Problem};
use std::fmt;
use std::time::Duration;

/// The longest text, in characters.
const MOST: usize = 700;
/// The prefix of ACME's problem types (RFC 8555 section 6.7).
const ACME: &str = "urn:ietf:params:acme:error:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub fault: OrderFault,
    /// The time after which the CA allows the next attempt.
    pub retry_after: Option<Duration>,
    /// The problem's type without its prefix; empty if the CA gave none.
    pub kind: String,
    pub text: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Trouble {
    /// Creates a failure without a response of the CA.
    pub fn new(fault: OrderFault, text: impl AsRef<str>) -> Trouble {
        Trouble { fault, retry_after: None, kind: String::new(), text: line(text.as_ref()) }
    }

    /// Explains `error` while doing `what`. `last` is the last response of the CA.
    pub fn of(what: &str, error: &Error, last: &Last) -> Trouble {
        match error {
            Error::Api(problem) => Trouble::problem(what, problem, last),
            Error::Json(_) => {
                let said = match &last.page {
                    _ if last.detail.is_some() => {
                        format!("status {}: {}", last.status, last.detail.as_deref().unwrap_or_default())
                    }
                    Some(page) if !page.is_empty() => {
                        format!("status {} and not JSON but {page:?}", last.status)
                    }
                    _ => format!("status {} and JSON that has not the right members", last.status),
                };
                let advice = match last.status {
                    429 | 503 => "the CA is asked again when it allows it",
                    _ => "check --acme-directory, which must be the address of the CA's directory",
                };
                let text = format!("{what}: {} answered with {said}; {advice}", last.url);
                Trouble { retry_after: last.retry_after, ..Trouble::new(OrderFault::Unreachable, text) }
            }
            Error::Timeout(at) => {
                let again = at.map(|at| at.saturating_duration_since(std::time::Instant::now()));
                let text = format!("{what}: the CA has not finished in time; it is asked again later");
                Trouble {
                    retry_after: again.or(last.retry_after),
                    ..Trouble::new(OrderFault::Unreachable, text)
                }
            }
            Error::Other(_) => Trouble::new(OrderFault::Unreachable, format!("{what}: {error}")),
            _ => Trouble::new(
                OrderFault::Unreachable,
                format!("{what}: the CA does not behave as expected: {error}"),
            ),
        }
    }

    /// Explains `error` while an account is opened or created. `bound`: with an external account binding.
    pub fn of_account(error: &Error, bound: bool, last: &Last) -> Trouble {
        match error {
            Error::Api(problem) => {
                Trouble::advised("the account", problem, last, |kind| account_advice(kind, bound))
            }
            _ => Trouble::of("the account", error, last),
        }
    }

    pub fn problem(what: &str, problem: &Problem, last: &Last) -> Trouble {
        Trouble::advised(what, problem, last, advice)
    }

    fn advised(
        what: &str,
        problem: &Problem,
        last: &Last,
        advice: impl FnOnce(&str) -> &'static str,
    ) -> Trouble {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(ACME).unwrap_or(kind).to_owned();
        let detail = said(problem);
        let fault = match kind.as_str() {
            "serverInternal" | "badNonce" => OrderFault::Unreachable,
            _ if problem.status.is_some_and(|status| status >= 500) => OrderFault::Unreachable,
            _ => OrderFault::Refused,
        };
        let advice = advice(&kind);
        let text =
            format!("{what}: the CA says: {detail}{}{advice}", if advice.is_empty() { "" } else { "; " });
        Trouble { fault, retry_after: last.retry_after, kind, text: line(&text) }
    }
}

/// Returns the CA's text about each name, or about all.
fn said(problem: &Problem) -> String {
    let mut said = problem.detail.clone().unwrap_or_else(|| problem.r#type.clone().unwrap_or_default());
    for one in &problem.subproblems {
        let name = one.identifier.as_ref().map(|name| name.authorized(false).to_string()).unwrap_or_default();
        said.push_str(&format!(", {name}: {}", one.detail.clone().unwrap_or_default()));
    }
    if said.is_empty() { "(nothing)".to_owned() } else { said }
}

/// Returns the remedy for a problem of this type.
fn advice(kind: &str) -> &'static str {
    match kind {
        "dns" => "the name does not resolve: add an A or AAAA record that points to this machine",
        "connection" => {
            "the CA cannot connect to this machine under that name: check that its A and AAAA records point here, and \
             that port 80 (http-01) or 443 (tls-alpn-01) is open in every firewall"
        }
        "unauthorized" | "incorrectResponse" | "tls" => {
            "another server answers under that name: check that its A and AAAA records point to this machine, and that \
             no proxy in front keeps /.well-known/acme-challenge/ to itself"
        }
        "caa" => {
            "a CAA record of the domain forbids this CA: change that record, or take another CA with --acme-directory"
        }
        "rateLimited" => "nothing has to be done: the order is repeated when the CA allows it",
        "externalAccountRequired" => {
            "this CA needs an external account: set acme.eab_kid and acme.eab_hmac (EAB_KID, EAB_HMAC_KEY) to the values that it gave you"
        }
        "invalidContact" | "unsupportedContact" => "check acme.email",
        "userActionRequired" => "visit the address that the CA names, then restart the server",
        "rejectedIdentifier" => "this CA does not issue for that name: check acme.domains",
        "invalidProfile" => "the CA has no such profile: check acme.profile",
        "accountDoesNotExist" => "the stored account is unknown to the CA; a new one is made",
        _ => "",
    }
}

/// Returns the remedy for an account problem. No name is verified there.
fn account_advice(kind: &str, bound: bool) -> &'static str {
    match kind {
        "unauthorized" | "malformed" if bound => {
            "check acme.eab_kid and acme.eab_hmac (EAB_KID, EAB_HMAC_KEY): both have to be what the CA gave, for this directory"
        }
        "unauthorized" => {
            "the CA does not accept the stored account's key: remove account.json to get another account"
        }
        kind => advice(kind),
    }
}

/// Puts a text on one line and limits its length.
fn line(text: &str) -> String {
    let text = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty());
    let text = text.collect::<Vec<_>>().join(" ");
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Trouble {
        let problem: Problem = serde_json::from_str(json).unwrap();
        Trouble::problem("a.test", &problem, &Last::default())
    }

    #[test]
    fn the_cas_words_are_quoted_with_what_to_do() {
        let trouble = problem(
            r#"{"type":"urn:ietf:params:acme:error:connection","detail":"203.0.113.9: Fetching\nhttp://a.test: Timeout","status":400}"#,
        );
        assert_eq!(trouble.fault, OrderFault::Refused);
        let words =
            "a.test: the CA says: 203.0.113.9: Fetching http://a.test: Timeout; the CA cannot connect";
        assert!(trouble.text.starts_with(words), "{trouble}");
    }

    #[test]
    fn faults_of_the_ca_are_not_ours() {
        assert_eq!(problem(r#"{"type":"about:blank","status":503}"#).fault, OrderFault::Unreachable);
        assert_eq!(
            problem(r#"{"type":"urn:ietf:params:acme:error:serverInternal"}"#).fault,
            OrderFault::Unreachable
        );
        assert_eq!(
            problem(r#"{"type":"urn:ietf:params:acme:error:rateLimited","status":429}"#).fault,
            OrderFault::Refused
        );
    }

    #[test]
    fn accounts_are_not_about_names() {
        let refused = |bound| {
            let json =
                r#"{"type":"urn:ietf:params:acme:error:unauthorized","detail":"bad MAC","status":401}"#;
            let error = Error::Api(serde_json::from_str(json).unwrap());
            Trouble::of_account(&error, bound, &Last::default()).text
        };
        assert!(refused(true).contains("bad MAC; check acme.eab_kid and acme.eab_hmac"), "{}", refused(true));
        assert!(!refused(false).contains("records"), "{}", refused(false));
    }

    #[test]
    fn names_of_subproblems_are_there() {
        let trouble = problem(
            r#"{"type":"urn:ietf:params:acme:error:compound","detail":"2 names","subproblems":[
                {"identifier":{"type":"dns","value":"b.test"},"detail":"no"}]}"#,
        );
        assert!(trouble.text.contains("2 names, b.test: no"), "{trouble}");
    }

    #[test]
    fn nonsense_is_shown_with_its_address() {
        let last = Last {
            url: "https://ca.test/dir".to_owned(),
            status: 502,
            page: Some("<h1>Bad gateway".to_owned()),
            ..Last::default()
        };
        let error = Error::from(serde_json::from_str::<u8>("<").unwrap_err());
        let trouble = Trouble::of("a.test", &error, &last);
        assert!(trouble.text.contains("https://ca.test/dir answered with status 502"), "{trouble}");
        assert!(trouble.text.contains("Bad gateway"), "{trouble}");
        let last = Last {
            status: 429,
            retry_after: Some(Duration::from_secs(3_600)),
            detail: Some("too many requests".to_owned()),
            page: None,
            ..last
        };
        let limited = Trouble::of("a.test", &error, &last);
        assert!(limited.text.contains("status 429: too many requests; the CA is asked again"), "{limited}");
        assert_eq!(limited.retry_after, last.retry_after);
        assert_eq!(Trouble::new(OrderFault::Refused, "x ".repeat(2_000)).text.chars().count(), MOST + 1);
    }
}
