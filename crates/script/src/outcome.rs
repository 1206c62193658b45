//! What a handler's last step means for its request: a response, the turn of others, another place, a failure.

use crate::answer::{self, Said};
use crate::env;
use crate::fetch;
use crate::runtime::Runtime;
use crate::stream::Head;
use handler::{Body, Exchange, Failure, FailureKind, Fields, Request, Response};

/// What becomes of a request.
pub(crate) enum Answer {
    Final(Response),
    Fallthrough(Exchange, Fields),
    /// The status and `x-reproxy-url` of a handler that sends the request elsewhere.
    Elsewhere(Exchange, u16, Vec<u8>),
}

/// A failure, and the exchange that it befell.
pub(crate) type Failed = Box<(Failure, Exchange)>;

/// The response that the last step gave.
pub(crate) fn read(runtime: &Runtime, mut exchange: Exchange) -> Result<Answer, Failed> {
    let response = match runtime.tape(answer::read) {
        // What was passed on is not the handler's own: who made it cannot send the request elsewhere.
        Ok(Said::Passing(head, number)) => with_body(runtime, head, number),
        Ok(Said::Whole(mut response)) => match fetch::delegated(&response.fields) {
            Some(url) => return Ok(Answer::Elsewhere(exchange, response.status, url)),
            None => take_variables(&mut exchange.request, &mut response.fields).map(|()| response),
        },
        Ok(Said::Nothing(pairs)) => return fall_through(&pairs, exchange),
        Err(failure) => Err(failure),
    };
    response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)))
}

/// A response with the body of one that the handler has asked for.
fn with_body(runtime: &Runtime, mut response: Response, number: fetch::Number) -> Result<Response, Failure> {
    let Some((body, came)) = runtime.state.fetch.untouched(number) else {
        let why = "a handler returned the body of a response that is over or has been read";
        return Err(Failure::new(FailureKind::Internal, why));
    };
    let upgraded = matches!(body, Body::Tunnel { .. });
    if upgraded != (response.status == 101) {
        let why = format!("a handler returned the status {} with a body of another", response.status);
        return Err(Failure::new(FailureKind::Internal, why));
    }
    let name = if upgraded { "upgrade" } else { "content-length" };
    if let Some(value) = came.get(name).filter(|_| response.fields.get(name).is_none()) {
        response.fields.push(name.as_bytes(), value);
    }
    response.close = upgraded;
    response.body = body;
    Ok(response)
}

pub(crate) fn fail(
    kind: FailureKind,
    why: impl Into<std::borrow::Cow<'static, str>>,
    exchange: Exchange,
) -> Failed {
    Box::new((Failure::new(kind, why), exchange))
}

/// The fields that were set with 399: those for the handlers that follow, and those for the response.
fn fall_through(pairs: &[(Vec<u8>, Vec<u8>)], mut exchange: Exchange) -> Result<Answer, Failed> {
    let pairs = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let taken = answer::fields(pairs).and_then(|mut fields| {
        take_variables(&mut exchange.request, &mut fields)?;
        Ok(fields)
    });
    match taken {
        Ok(fields) => Ok(Answer::Fallthrough(exchange, fields)),
        Err(failure) => Err(Box::new((failure, exchange))),
    }
}

/// A response whose body is still being made.
pub(crate) fn begun(head: Head, mut exchange: Exchange) -> Result<Answer, Failed> {
    let pairs = head.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let response = answer::fields(pairs).and_then(|mut fields| {
        take_variables(&mut exchange.request, &mut fields)?;
        answer::response(head.status, fields, Body::Stream(Box::new(head.body)))
    });
    response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)))
}

/// Takes the fields that are meant for those who follow, and for the log: `x-fallthru-set-NAME`.
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
        true => {
            Err(Failure::new(FailureKind::Internal, "a handler set the field x-fallthru-set- without a name"))
        }
    }
}
