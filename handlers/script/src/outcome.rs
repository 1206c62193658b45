//! Interprets a handler's last step for its request: [`HandlerOutcome`] or a failure.

use crate::env;
use crate::failure;
use crate::fetch;
use crate::held::Number;
use crate::returned::{self, Returned};
use crate::runtime::Runtime;
use crate::stream::StreamHead;
use handler::{After, Body, Exchange, Failure, Fields, Request, Response};

/// The further course of a request.
pub(crate) enum HandlerOutcome {
    /// The handler responded.
    Response(Response),
    /// The link after the handler responds; the fields are added to that response.
    Fallthrough(Exchange, Fields),
    /// The request goes to a URL (`x-reproxy-url`); the status says whether it keeps its method.
    Delegated(Exchange, u16, Vec<u8>),
}

pub(crate) type Failed = Box<(Failure, Exchange)>;

/// Returns the outcome of a last step that did not raise.
pub(crate) fn read(runtime: &Runtime, mut exchange: Exchange) -> Result<HandlerOutcome, Failed> {
    let response = match runtime.tape(returned::read) {
        // A response of another server must not redirect the request with its fields.
        Ok(Returned::PassThrough(head, number)) => with_body(runtime, head, number),
        Ok(Returned::Response(mut response)) => match fetch::reproxy_url(&response.fields) {
            Some(url) => return Ok(HandlerOutcome::Delegated(exchange, response.status, url)),
            None => take_variables(&mut exchange.request, &mut response.fields).map(|()| response),
        },
        Ok(Returned::Fallthrough(pairs)) => return fall_through(&pairs, exchange),
        Err(failure) => Err(failure),
    };
    response.map(HandlerOutcome::Response).map_err(|failure| Box::new((failure, exchange)))
}

/// Returns a response whose body comes from a response that the handler requested.
fn with_body(runtime: &Runtime, mut response: Response, number: Number) -> Result<Response, Failure> {
    let Some((body, fields)) = runtime.fetch.unread(number) else {
        let why = "a handler returned the body of a response that has been closed or read";
        return Err(failure::handler(why));
    };
    let upgraded = matches!(body, Body::Tunnel { .. });
    if upgraded != (response.status == 101) {
        let why = format!(
            "a handler returned the status {} with the body of a response of another status",
            response.status
        );
        return Err(failure::handler(why));
    }
    let name = if upgraded { "upgrade" } else { "content-length" };
    if let Some(value) = fields.get(name).filter(|_| response.fields.get(name).is_none()) {
        response.fields.push(name.as_bytes(), value);
    }
    response.after = if upgraded { After::EndStream } else { After::Reuse };
    response.body = body;
    Ok(response)
}

/// Handles status 399: sets the variables among the fields, and keeps the other fields for the response.
fn fall_through(pairs: &[(Vec<u8>, Vec<u8>)], mut exchange: Exchange) -> Result<HandlerOutcome, Failed> {
    let pairs = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let result = returned::fields(pairs).and_then(|mut fields| {
        take_variables(&mut exchange.request, &mut fields)?;
        Ok(fields)
    });
    match result {
        Ok(fields) => Ok(HandlerOutcome::Fallthrough(exchange, fields)),
        Err(failure) => Err(Box::new((failure, exchange))),
    }
}

/// Returns a response whose body is still being produced.
pub(crate) fn streamed(head: StreamHead, mut exchange: Exchange) -> Result<HandlerOutcome, Failed> {
    let pairs = head.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let response = returned::fields(pairs).and_then(|mut fields| {
        take_variables(&mut exchange.request, &mut fields)?;
        returned::response(head.status, fields, Body::Stream(Box::new(head.body)))
    });
    response.map(HandlerOutcome::Response).map_err(|failure| Box::new((failure, exchange)))
}

/// Turns the fields `x-fallthru-set-NAME` into variables, for later links and for the log.
fn take_variables(request: &mut Request, fields: &mut Fields) -> Result<(), Failure> {
    const PREFIX: &[u8] = b"x-fallthru-set-";
    if !fields.iter().any(|(name, _)| name.starts_with(PREFIX)) {
        return Ok(());
    }
    let mut nameless = false;
    fields.retain(|name, value| {
        let Some(variable) = name.strip_prefix(PREFIX) else { return true };
        nameless |= variable.is_empty();
        request.set_variable(&env::variable_name(variable), value);
        false
    });
    match nameless {
        false => Ok(()),
        true => Err(failure::handler("a handler set the field x-fallthru-set- without a name")),
    }
}
