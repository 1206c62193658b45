//! What can be asked, and the answers. Pure but for asking the provider.

use crate::provider::Provider;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

const ENDPOINTS: [(&str, &str); 4] = [
    (
        "/stats",
        "requests, workers, queue and times; ?buckets adds the histograms' buckets, ?format=puma is /puma/stats",
    ),
    (
        "/requests",
        "requests under way, slowest first; ?limit=N (20), &backtraces asks the workers where in the app they are",
    ),
    ("/puma/stats", "the same in the shape of Puma's stats"),
    ("/", "this list"),
];

#[derive(Debug, PartialEq, Eq)]
enum Route {
    Index,
    Stats { buckets: bool },
    PumaStats,
    Requests { limit: usize, backtraces: bool },
    BadLimit,
    UnknownFormat,
    NotFound,
    MethodNotAllowed,
}

/// Answers one request.
pub(crate) async fn answer<B>(request: &Request<B>, provider: &impl Provider) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    match route(request.method(), request.uri().path(), query) {
        Route::Index => json_response(StatusCode::OK, pretty(&json!({ "endpoints": endpoints() }))),
        Route::Stats { buckets } => {
            let mut snapshot = provider.stats().await;
            if !buckets {
                snapshot.front = snapshot.front.without_buckets();
            }
            written(snapshot.to_json())
        }
        Route::PumaStats => written(provider.stats().await.to_puma_json()),
        Route::Requests { limit, backtraces } => {
            written(serde_json::to_string_pretty(&provider.requests(limit, backtraces).await))
        }
        Route::BadLimit => refuse(StatusCode::BAD_REQUEST, "limit is a number from 1, such as limit=20"),
        Route::UnknownFormat => refuse(StatusCode::BAD_REQUEST, "unknown format: it is native or puma"),
        Route::NotFound => refuse(StatusCode::NOT_FOUND, "there is nothing of that name"),
        Route::MethodNotAllowed => {
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are understood");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
    }
}

/// Requests that `/requests` shows when it is not told how many.
const SHOWN: usize = 20;

fn route(method: &Method, path: &str, query: &str) -> Route {
    let parameters = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let given = |name: &str| parameters.clone().find(|(given, _)| *given == name).map(|(_, value)| value);
    let on = |name: &str| given(name).is_some_and(|value| value != "0");
    let route = match path {
        "/" => Route::Index,
        "/puma/stats" => Route::PumaStats,
        "/stats" => match given("format") {
            None | Some("native") => Route::Stats { buckets: on("buckets") },
            Some("puma") => Route::PumaStats,
            Some(_) => Route::UnknownFormat,
        },
        "/requests" => match given("limit").map_or(Ok(SHOWN), str::parse) {
            Ok(limit @ 1..) => Route::Requests { limit, backtraces: on("backtraces") },
            Ok(0) | Err(_) => Route::BadLimit,
        },
        _ => return Route::NotFound,
    };
    if matches!(*method, Method::GET | Method::HEAD) { route } else { Route::MethodNotAllowed }
}

fn endpoints() -> serde_json::Value {
    ENDPOINTS.iter().map(|(path, text)| json!({ "method": "GET", "path": path, "gives": text })).collect()
}

fn written(json: serde_json::Result<String>) -> Response<Full<Bytes>> {
    match json {
        Ok(text) => json_response(StatusCode::OK, text),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refuse(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    json_response(status, pretty(&json!({ "error": error, "endpoints": endpoints() })))
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}")
}

fn json_response(status: StatusCode, mut text: String) -> Response<Full<Bytes>> {
    text.push('\n');
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let get = |path, query| route(&Method::GET, path, query);
        assert_eq!(get("/", ""), Route::Index);
        assert_eq!(get("/stats", ""), Route::Stats { buckets: false });
        assert_eq!(get("/stats", "token=secret&buckets"), Route::Stats { buckets: true });
        assert_eq!(get("/stats", "buckets=0"), Route::Stats { buckets: false });
        assert_eq!(get("/stats", "format=puma"), Route::PumaStats);
        assert_eq!(get("/stats", "format=xml"), Route::UnknownFormat);
        assert_eq!(get("/puma/stats", "token=x"), Route::PumaStats);
        assert_eq!(get("/requests", ""), Route::Requests { limit: 20, backtraces: false });
        assert_eq!(get("/requests", "limit=3&backtraces"), Route::Requests { limit: 3, backtraces: true });
        assert_eq!(get("/requests", "limit=three"), Route::BadLimit);
        assert_eq!(get("/stats/", ""), Route::NotFound);
        assert_eq!(route(&Method::HEAD, "/stats", ""), Route::Stats { buckets: false });
        assert_eq!(route(&Method::POST, "/stats", ""), Route::MethodNotAllowed);
        assert_eq!(route(&Method::POST, "/halt", ""), Route::NotFound);
    }
}
