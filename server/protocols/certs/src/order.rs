//! Obtains one certificate, from the first request to the chain: [`obtain`].
//!
//! Contract:
//! 1. If the CA refuses an order because of `replaces`, it is repeated without that field.
//! 2. Challenges are removed however the order ends, unless the future is dropped; their answers are harmless then.
//! 3. The whole order must finish within [`TIMEOUT`]. Nothing of a failed order is kept.

use crate::challenge::{Means, choose};
use crate::client::CaClient;
use crate::dns::{self, DnsChange};
use crate::names;
use crate::record::Announced;
use crate::schedule::OrderFault;
use crate::store::Pending;
use crate::trouble::Trouble;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rustls::pki_types::CertificateDer;
use settings::{AcmeChallenge, DomainKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time-out of an order. A DNS command can take minutes for each name.
const TIMEOUT: Duration = Duration::from_secs(1_800);
/// How often to ask the CA whether it has finished.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(200))
    .backoff(1.5)
    .timeout(Duration::from_secs(180));

/// An order to place.
#[derive(Clone, Debug)]
pub struct OrderRequest {
    /// The names, valid for [`DomainKind::of`].
    pub names: Vec<String>,
    /// The CA's certificate profile.
    pub profile: Option<String>,
    pub challenge: AcmeChallenge,
    /// The command that changes DNS records.
    pub dns_command: Option<String>,
    /// The ways in which this server can answer challenges.
    pub means: Means,
    /// Failures so far.
    pub attempt: u32,
    /// Set when the server stops.
    pub ending: Arc<AtomicBool>,
    /// The certificate that this one replaces.
    pub replaces: Option<CertificateDer<'static>>,
}

/// Key and chain as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub key: String,
    /// The certificate and its intermediates.
    pub chain: String,
}

/// Publishes TLS-ALPN-01 challenges to handshakes, here and on other machines.
pub trait Announcer {
    /// Publishes the names being verified. An empty list removes all.
    fn announce<'a>(&'a self, challenges: &'a [Announced]) -> Pending<'a, Result<(), String>>;
}

/// # Errors
/// The reason why there is none.
pub async fn obtain(
    client: &CaClient,
    account: &Account,
    wish: &OrderRequest,
    announcer: &dyn Announcer,
) -> Result<Issued, Trouble> {
    let mut posted = Posted { announced: Vec::new(), records: Vec::new(), announcer, wish };
    let result = tokio::time::timeout(TIMEOUT, run(client, account, wish, &mut posted)).await;
    posted.take_down().await;
    result.unwrap_or_else(|_| {
        let text =
            format!("{}: the order has not ended after {} minutes", wish.title(), TIMEOUT.as_secs() / 60);
        Err(Trouble::new(OrderFault::Unreachable, text))
    })
}

impl OrderRequest {
    /// Returns the names, for people.
    pub fn title(&self) -> String {
        match self.names.as_slice() {
            [first, _, _, .., _] => format!("{first} and {} more names", self.names.len() - 1),
            names => names.join(", "),
        }
    }
}

async fn run(
    client: &CaClient,
    account: &Account,
    wish: &OrderRequest,
    posted: &mut Posted<'_>,
) -> Result<Issued, Trouble> {
    let failed = |error: &Error| Trouble::of(&wish.title(), error, &client.last());
    let identifiers: Vec<Identifier> = wish.names.iter().map(|name| names::identifier(name)).collect();
    let mut order = place(account, wish, &identifiers).await.map_err(|error| failed(&error))?;
    let ready = prove(client, wish, &mut order, posted).await?;
    if ready {
        let status = order.poll_ready(&POLL).await;
        if !matches!(status, Ok(OrderStatus::Ready)) {
            // The result for each name is more precise than the error of the order.
            if let Some(trouble) = verdict(client, &mut order).await {
                return Err(trouble);
            }
            status.map_err(|error| failed(&error))?;
            return Err(Trouble::new(
                OrderFault::Refused,
                format!("{}: the CA calls the order invalid", wish.title()),
            ));
        }
    }
    let key = order.finalize().await.map_err(|error| failed(&error))?;
    let chain = order.poll_certificate(&POLL).await.map_err(|error| failed(&error))?;
    Ok(Issued { key, chain })
}

/// Places the order, and repeats it without `replaces` if the CA objects to that field.
async fn place(account: &Account, wish: &OrderRequest, identifiers: &[Identifier]) -> Result<Order, Error> {
    let order = |replaces| {
        let mut order = NewOrder::new(identifiers);
        if let Some(profile) = &wish.profile {
            order = order.profile(profile);
        }
        if let Some(replaces) = replaces {
            order = order.replaces(replaces);
        }
        order
    };
    let replaces = wish.replaces.as_ref().and_then(|old| CertificateIdentifier::try_from(old).ok());
    if let Some(replaces) = replaces {
        match account.new_order(&order(Some(replaces))).await {
            Ok(placed) => return Ok(placed),
            Err(error) if is_about_replaces(&error) => {}
            Err(error) => return Err(error),
        }
    }
    account.new_order(&order(None)).await
}

/// Whether an order without `replaces` may succeed where this one failed (RFC 9773 section 5).
fn is_about_replaces(error: &Error) -> bool {
    match error {
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            let limited = kind.ends_with(":rateLimited") || kind.ends_with(":accountDoesNotExist");
            !limited && problem.status.is_none_or(|status| (400..500).contains(&status))
        }
        // No renewal information, or an order that does not repeat the field.
        Error::Unsupported(_) | Error::Other(_) | Error::Str(_) => true,
        _ => false,
    }
}

/// Sets up a challenge for each name and tells the CA. Returns whether any was necessary.
async fn prove(
    client: &CaClient,
    wish: &OrderRequest,
    order: &mut Order,
    posted: &mut Posted<'_>,
) -> Result<bool, Trouble> {
    let failed = |error: &Error| Trouble::of(&wish.title(), error, &client.last());
    let mut chosen = Vec::new();
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization.map_err(|error| failed(&error))?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => {
                chosen.push(None);
                continue;
            }
            AuthorizationStatus::Pending => {}
            status => {
                let text =
                    format!("{name}: the CA calls its authorization {status:?}; the order is repeated");
                return Err(Trouble::new(OrderFault::Refused, text));
            }
        }
        let kind = {
            let offered =
                |kind: &ChallengeType| authorization.challenges.iter().any(|one| one.r#type == *kind);
            choose(wish.challenge, &name, wish.means, wish.attempt, offered)
        };
        let Some(kind) = kind else { return Err(impossible(&name, wish)) };
        let Some(challenge) = authorization.challenge(kind.clone()) else {
            return Err(impossible(&name, wish));
        };
        posted.put_up(&kind, &name, &challenge.key_authorization()).await?;
        chosen.push(Some(kind));
    }
    posted.announce().await?;
    let mut any = false;
    let mut chosen = chosen.into_iter();
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization.map_err(|error| failed(&error))?;
        let Some(Some(kind)) = chosen.next() else { continue };
        if let Some(mut challenge) = authorization.challenge(kind) {
            challenge.set_ready().await.map_err(|error| failed(&error))?;
            any = true;
        }
    }
    Ok(any)
}

/// Explains that no challenge can prove this name.
fn impossible(name: &str, wish: &OrderRequest) -> Trouble {
    let text = match DomainKind::of(name) {
        Some(DomainKind::Wildcard) => format!(
            "{name}: a wildcard is verified by a record of the DNS only; set acme.dns_command to a command that changes records"
        ),
        _ if wish.challenge == AcmeChallenge::Auto => format!(
            "{name}: the CA offers no challenge that this server can answer; it needs an address without TLS (port 80), \
             one with TLS (port 443), or acme.dns_command"
        ),
        _ => {
            format!("{name}: the CA does not offer the challenge that acme.challenge names; leave it at auto")
        }
    };
    Trouble::new(OrderFault::Refused, text)
}

/// Returns the CA's error for the name that it could not verify.
async fn verdict(client: &CaClient, order: &mut Order) -> Option<Trouble> {
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization.ok()?;
        authorization.refresh().await.ok()?;
        let name = authorization.identifier().to_string();
        if let Some(problem) = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref())
        {
            let how = authorization.challenges.iter().find(|challenge| challenge.error.is_some());
            let how = how.map(|challenge| match challenge.r#type {
                ChallengeType::Http01 => "http-01",
                ChallengeType::TlsAlpn01 => "tls-alpn-01",
                ChallengeType::Dns01 => "dns-01",
                _ => "challenge",
            });
            let what = format!("{name} ({})", how.unwrap_or_default());
            return Some(Trouble::problem(&what, problem, &client.last()));
        }
    }
    None
}

/// The challenges that the CA can see.
struct Posted<'a> {
    announced: Vec<Announced>,
    /// Names and values of DNS records.
    records: Vec<(String, String)>,
    announcer: &'a dyn Announcer,
    wish: &'a OrderRequest,
}

impl Posted<'_> {
    async fn put_up(
        &mut self,
        kind: &ChallengeType,
        name: &str,
        authorization: &instant_acme::KeyAuthorization,
    ) -> Result<(), Trouble> {
        match kind {
            ChallengeType::TlsAlpn01 => self
                .announced
                .push(Announced { name: name.to_owned(), digest: authorization.digest().as_ref().to_vec() }),
            ChallengeType::Dns01 => {
                let Some(command) = &self.wish.dns_command else { return Err(impossible(name, self.wish)) };
                let record = (dns::record_name(name), authorization.dns_value());
                // Recorded before the command runs, so that a record of a failed command is removed as well.
                self.records.push(record.clone());
                let added =
                    dns::change(command, DnsChange::Add, &record.0, &record.1, &self.wish.ending).await;
                added.map_err(|why| Trouble::new(OrderFault::Unreachable, format!("{name}: {why}")))?;
            }
            // The answer to HTTP-01 needs no preparation.
            _ => {}
        }
        Ok(())
    }

    async fn announce(&self) -> Result<(), Trouble> {
        if self.announced.is_empty() {
            return Ok(());
        }
        let announced = self.announcer.announce(&self.announced).await;
        announced
            .map_err(|why| Trouble::new(OrderFault::Unreachable, format!("{}: {why}", self.wish.title())))
    }

    async fn take_down(self) {
        if !self.announced.is_empty() {
            // Challenges that stay are harmless.
            let _ = self.announcer.announce(&[]).await;
        }
        for (name, value) in &self.records {
            if let Some(command) = &self.wish.dns_command {
                // A record that stays is harmless; the next order creates another one.
                let _ = dns::change(command, DnsChange::Remove, name, value, &self.wish.ending).await;
            }
        }
    }
}
