//! Tests the engine with the client of the `h2` crate, over a pipe in memory: each side decodes what the
//! other encodes, whatever the sizes of windows, reads and bodies.

use crate::support::DATE;
use bytes::Bytes;
use handler::Fields;
use http_types::{HeaderMap, HeaderName, HeaderValue, Request};
use http2::{Connection, Event, Limits, StreamId};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

type Pairs = Vec<(String, String)>;

/// A message of one side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Message {
    path: String,
    fields: Pairs,
    body: Vec<u8>,
    trailers: Pairs,
}

fn fields(pairs: &Pairs) -> Fields {
    let mut fields = Fields::default();
    pairs.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort();
    pairs
}

/// The server around the engine: collects requests by path, responds with the message for the path.
struct Server {
    engine: Connection,
    responses: Rc<BTreeMap<String, Message>>,
    open: BTreeMap<StreamId, Message>,
    sending: BTreeMap<StreamId, (Bytes, Pairs)>,
    got: Rc<RefCell<Vec<Message>>>,
}

impl Server {
    fn event(&mut self, stream: StreamId, data: Option<Bytes>, end: bool) {
        let Some(message) = self.open.get_mut(&stream) else { return };
        if let Some(data) = data {
            message.body.extend_from_slice(&data);
            self.engine.credit(stream, data.len());
        }
        if end {
            self.respond(stream);
        }
    }

    fn respond(&mut self, stream: StreamId) {
        let Some(request) = self.open.remove(&stream) else { return };
        let response = &self.responses[&request.path];
        self.got.borrow_mut().push(request);
        let mut head = fields(&response.fields);
        if response.body.len().is_multiple_of(2) {
            head = head.freeze();
        }
        let has_trailers = !response.trailers.is_empty();
        let length = (!has_trailers).then_some(response.body.len() as u64);
        let end = response.body.is_empty() && !has_trailers;
        self.engine.interim(stream, 103, &fields(&vec![("link".into(), "</a>".into())]));
        assert!(self.engine.head(stream, 200, &head, DATE, length, end));
        if !end {
            self.sending.insert(stream, (response.body.clone().into(), response.trailers.clone()));
            self.send(stream, usize::MAX);
        }
    }

    /// Continues to send; trailers or the end come last.
    fn send(&mut self, stream: StreamId, most: usize) {
        let Some((body, trailers)) = self.sending.get_mut(&stream) else { return };
        let last = trailers.is_empty();
        if most.is_multiple_of(3) {
            self.engine.data_with(stream, most, |text, most| {
                let piece = body.split_to(most.min(body.len()));
                text.extend_from_slice(&piece);
                last && body.is_empty()
            });
        } else {
            let rest = self.engine.data(stream, std::mem::take(body), last);
            *body = rest;
        }
        if !body.is_empty() {
            self.engine.ready(stream);
            return;
        }
        if let Some((_, trailers)) = self.sending.remove(&stream)
            && !trailers.is_empty()
        {
            self.engine.trailers(stream, &fields(&trailers));
        }
    }

    async fn run(mut self, mut io: DuplexStream, read: usize) {
        let mut buffer = vec![0; read];
        loop {
            while let Some((stream, most)) = self.engine.next_sender() {
                self.send(stream, most);
            }
            while !self.engine.output().is_empty() {
                let piece: Vec<u8> =
                    self.engine.output().slices().iter().flat_map(|slice| slice.to_vec()).collect();
                if io.write_all(&piece).await.is_err() {
                    return;
                }
                self.engine.output().advance(piece.len());
            }
            let n = io.read(&mut buffer).await.unwrap_or(0);
            if n == 0 {
                return;
            }
            let mut events = Vec::new();
            let result = self.engine.receive(&buffer[..n], Instant::now(), &mut |event| match event {
                Event::Request { stream, head, end } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let path = text(head.path.slice(head.fields.text()));
                    let fields = head.fields.iter().map(|(name, value)| (text(name), text(value))).collect();
                    self.open.insert(stream, Message { path, fields, ..Message::default() });
                    events.push((stream, None, end));
                }
                Event::Data { stream, data, end } => {
                    events.push((stream, Some(Bytes::copy_from_slice(data)), end))
                }
                Event::Trailers { stream } => events.push((stream, None, true)),
                Event::Reset { stream, .. } => {
                    self.open.remove(&stream);
                    self.sending.remove(&stream);
                }
                Event::Refused { failure, .. } => panic!("{failure:?}"),
                Event::GoAway { .. } => {}
            });
            assert_eq!(result, Ok(()));
            events.into_iter().for_each(|(stream, data, end)| self.event(stream, data, end));
        }
    }
}

fn map(pairs: &Pairs) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn pairs(map: &HeaderMap) -> Pairs {
    map.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_string())).collect()
}

async fn exchange(
    mut client: h2::client::SendRequest<Bytes>,
    message: Message,
    response: Message,
    give_up: bool,
) {
    let mut request =
        Request::builder().method("POST").uri(format!("https://x.test{}", message.path)).body(()).unwrap();
    *request.headers_mut() = map(&message.fields);
    client = client.ready().await.unwrap();
    let end = message.body.is_empty() && message.trailers.is_empty();
    let (answer, mut body) = client.send_request(request, end).unwrap();
    if give_up {
        body.send_reset(h2::Reason::CANCEL);
        return;
    }
    if !end {
        body.send_data(message.body.into(), message.trailers.is_empty()).unwrap();
        if !message.trailers.is_empty() {
            body.send_trailers(map(&message.trailers)).unwrap();
        }
    }
    let answer = answer.await.unwrap();
    let mut got = pairs(answer.headers());
    got.retain(|(name, value)| !(name == "date" && value.as_bytes() == DATE || name == "content-length"));
    assert_eq!((answer.status().as_u16(), sorted(got)), (200, sorted(response.fields)));
    let mut body = answer.into_body();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        data.extend_from_slice(&piece);
    }
    assert!(data == response.body, "{} of {}", data.len(), response.body.len());
    let trailers = body.trailers().await.unwrap();
    assert_eq!(sorted(trailers.as_ref().map(pairs).unwrap_or_default()), sorted(response.trailers));
}

fn message() -> impl Strategy<Value = Message> {
    let pairs = |most: usize| {
        let value = prop_oneof![4 => "[!-~]{0,30}", 1 => "[!-~][ -~]{0,300}[!-~]"];
        prop::collection::vec(("x-[a-z0-9-]{1,12}|accept|user-agent|etag", value), 0..most)
    };
    let size = prop_oneof![Just(0usize), 1usize..100, 1000usize..20_000, 60_000usize..200_000];
    (pairs(15), size, pairs(3), any::<u8>()).prop_map(|(fields, size, trailers, seed)| {
        let body = (0..size).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        Message { path: String::new(), fields, body, trailers }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn messages_arrive_as_they_were_sent(
        exchanges in prop::collection::vec((message(), message(), prop::bool::weighted(0.1)), 1..12),
        window in prop::sample::select(vec![1000u32, 16_384, 65_535, 1 << 20]),
        table in prop::sample::select(vec![0u32, 50, 100, 4096, 65_536]),
        read in prop::sample::select(vec![1usize, 9, 100, 16_384, 65_536]),
        max_streams in prop::sample::select(vec![1u32, 3, 100]),
    ) {
        let mut exchanges = exchanges;
        for (at, (request, _, _)) in exchanges.iter_mut().enumerate() {
            request.path = format!("/{at}");
        }
        let responses = exchanges.iter().map(|(request, response, _)| (request.path.clone(), response.clone())).collect();
        let got = Rc::new(RefCell::new(Vec::new()));
        let limits = Limits { max_streams, stream_window: 65_535, connection_window: 100_000, ..Limits::default() };
        let server = Server {
            engine: Connection::new(limits, Instant::now()),
            responses: Rc::new(responses),
            open: BTreeMap::new(),
            sending: BTreeMap::new(),
            got: got.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = exchanges.clone();
        LocalSet::new().block_on(&runtime, async move {
            let (ours, theirs) = duplex(10_000);
            let server = spawn_local(server.run(ours, read));
            let (client, connection) = h2::client::Builder::new()
                .initial_window_size(window)
                .initial_connection_window_size(window.max(65_535))
                .header_table_size(table)
                .initial_max_send_streams(1)
                .handshake::<_, Bytes>(theirs)
                .await
                .unwrap();
            let connection = spawn_local(connection);
            let tasks: Vec<JoinHandle<()>> = all
                .into_iter()
                .map(|(request, response, give_up)| spawn_local(exchange(client.clone(), request, response, give_up)))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            drop(client);
            connection.await.unwrap().unwrap();
            server.await.unwrap();
        });
        let mut got = got.take();
        for (request, _, give_up) in &exchanges {
            let Some(at) = got.iter().position(|message| message.path == request.path) else {
                prop_assert!(*give_up);
                continue;
            };
            let message = got.swap_remove(at);
            let mut expected = request.fields.clone();
            expected.push(("host".into(), "x.test".into()));
            prop_assert_eq!(sorted(message.fields), sorted(expected));
            prop_assert!(message.body == request.body);
        }
        prop_assert!(got.is_empty());
    }
}
