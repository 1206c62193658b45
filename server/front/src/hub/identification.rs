//! Clients that show a token when they connect. The token says for whom they connect, so the server does not call the app.
//!
//! Why: when all clients connect again at once, after the end of a server or of a network, each would be a call to the app.
//!
//! Contract:
//! 1. The identifiers of the connection are those of the token (`ext`). `connect` of the app does not run, and its rule of origins is not asked: no browser
//!    sends a token by itself, as it does with a cookie.
//! 2. A token that has expired, or is not valid, is no reason to ask the app instead. The last message to the client says which of both it is.
//! 3. The app learns of the end only if the client is in one of its channels then.

use super::call::HubAnswer;
use super::rpc::RpcCalls;
use super::{SharedHub, count, now_ms};
use cable::connection_token::{end_stream, in_protocols, in_query};
use cable::jwt::{TokenFault, TokenKey};
use cable::message;
use handler::Request;
use settings::Settings;

/// Reads the tokens of clients.
pub(super) struct ConnectionTokens {
    key: TokenKey,
    param: Box<str>,
    /// The name of the field.
    field: Box<str>,
    /// Clients without a token are rejected.
    is_required: bool,
}

impl ConnectionTokens {
    /// `None` without a secret.
    pub(super) fn new(settings: &Settings) -> Option<ConnectionTokens> {
        let hub = &settings.hub;
        let secret = hub.jwt_secret.as_ref().or(hub.secret.as_ref())?;
        Some(ConnectionTokens {
            key: TokenKey::new(secret),
            param: (&*hub.jwt_param).into(),
            field: format!("x-{}", hub.jwt_param).into(),
            is_required: hub.jwt_required,
        })
    }

    /// Returns the token that a client shows.
    fn shown(&self, handshake: &Request) -> Option<String> {
        let field = |name: &str| handshake.fields.get(name).map(<[u8]>::trim_ascii);
        let in_field = field(&self.field).filter(|token| !token.is_empty());
        in_field
            .map(|token| String::from_utf8_lossy(token).into_owned())
            .or_else(|| in_query(handshake.query(), self.param.as_bytes()))
            .or_else(|| in_protocols(field("sec-websocket-protocol")?))
    }
}

impl SharedHub {
    /// Answers a handshake by its token; `None` if the app has to be asked.
    pub(super) fn identified(&self, handshake: &Request) -> Option<HubAnswer> {
        let tokens = self.tokens.as_ref()?;
        let rejected = |reason: &str| {
            count(&self.counts.rejected);
            HubAnswer {
                transmissions: vec![message::disconnect_text(reason, false)],
                closed: true,
                ..HubAnswer::default()
            }
        };
        let Some(token) = tokens.shown(handshake) else {
            return tokens.is_required.then(|| rejected("unauthorized"));
        };
        Some(match tokens.key.identifiers(&token, now_ms() / 1000) {
            Ok(identifiers) => self.accepted(identifiers),
            Err(TokenFault::Expired) => rejected("token_expired"),
            Err(TokenFault::Invalid(_)) => rejected("unauthorized"),
        })
    }

    fn accepted(&self, identifiers: String) -> HubAnswer {
        let (connection, remote) = match &self.rpc {
            Some(_) => RpcCalls::connection(identifiers),
            // The app reads it in place of a state of its own (worker/lib/firebrick/hub/connection_token.rb).
            None => {
                let remote = end_stream(&identifiers);
                (identifiers, remote)
            }
        };
        HubAnswer {
            connection: Some(connection.into()),
            remote: remote.map(Into::into),
            by_token: true,
            ..HubAnswer::default()
        }
    }
}
