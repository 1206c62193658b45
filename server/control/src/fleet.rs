//! Serves the page about several servers: [`Fleet`]. The caller provides the figures. Sockets, token and
//! `Host` field are checked as for one server.

use crate::gate::{Gate, Refusal};
use crate::page;
use crate::reload::Reply;
use crate::routes::{OrderBody, Respond, json_response, reads_html, refused};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

/// Responds with the page, and with its figures.
pub(crate) struct Fleet<F> {
    figures: F,
}

impl<F: Fn() -> String + 'static> Fleet<F> {
    pub(crate) fn new(figures: F) -> Fleet<F> {
        Fleet { figures }
    }

    fn reply(&self, head: &Parts, gate: Option<&Gate>) -> Response<Full<Bytes>> {
        if let Err(refusal) = gate.map_or(Ok(()), |gate| gate.admits_host(head)) {
            return refused(&refusal);
        }
        let is_page = head.uri.path() == "/dashboard" || (head.uri.path() == "/" && reads_html(head));
        // The page asks for the token itself, and contains no figures.
        if !is_page && gate.is_some_and(|gate| gate.admits_token(head).is_err()) {
            return refused(&Refusal::Token);
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let text = "{ \"error\": \"only GET and HEAD are understood here\" }".to_owned();
            let mut response = json_response(StatusCode::METHOD_NOT_ALLOWED, text);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match head.uri.path() {
            _ if is_page => page::fleet(),
            "/fleet" => json_response(StatusCode::OK, (self.figures)()),
            _ => {
                let text =
                    "{ \"error\": \"no such endpoint: GET /fleet has the figures, /dashboard the page\" }";
                json_response(StatusCode::NOT_FOUND, text.to_owned())
            }
        }
    }
}

impl<F: Fn() -> String + 'static> Respond for Fleet<F> {
    async fn respond<B: OrderBody>(&self, request: Request<B>, gate: Option<&Gate>) -> Response<Reply> {
        let (head, _body) = request.into_parts();
        let mut response = self.reply(&head, gate);
        page::guard(&mut response);
        response.map(Reply::Whole)
    }
}
