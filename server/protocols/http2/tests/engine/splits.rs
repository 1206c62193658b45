//! Tests that any split of the same bytes gives the same events, and that random frames do no harm.

use crate::support::*;
use bytes::Bytes;
use handler::Fields;
use http2::{ErrorCode, Limits, StreamId};
use proptest::prelude::*;

/// Generates frames that a client might send.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop::sample::select(vec![0u32, 1, 1, 3, 3, 5, 7, 9, 2]);
    let fields = prop::sample::select(vec![
        block(&GET),
        block(&POST),
        block(&[("x", "1")]),
        block(&GET[1..]),
        vec![0x82, 0x87, 0x84, 0x41, 1, b'x'],
        vec![0x82, 0x87, 0x84, 0xbe],
        vec![0x20],
        vec![0xc0],
    ]);
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (0usize..3000).prop_map(|len| vec![b'd'; len]),
        prop::sample::select(vec![
            vec![0, 0, 0, 1],
            vec![0, 0, 255, 255],
            vec![0; 8],
            vec![0, 4, 0, 0, 1, 0],
            vec![]
        ]),
    ];
    prop_oneof![
        4 => (stream.clone(), prop::sample::select(vec![4u8, 5, 5, 0, 1, 0x24, 12]), fields).prop_map(|(s, f, p)| frame(1, f, s, &p)),
        4 => (stream.clone(), prop::sample::select(vec![0u8, 0, 1, 8, 9]), payload.clone()).prop_map(|(s, f, p)| frame(0, f, s, &p)),
        3 => (0u8..18, any::<u8>(), stream.clone(), payload).prop_map(|(k, f, s, p)| frame(k, f, s, &p)),
        2 => (stream, 0u32..70_000).prop_map(|(s, by)| frame(8, 0, s, &by.to_be_bytes())),
        1 => (0u32..70_000).prop_map(|size| frame(4, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat())),
    ]
}

fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<Seen>, Vec<Frame>, Option<ErrorCode>) {
    let mut client = Client::raw(Limits { max_streams: 3, ..Limits::default() });
    let mut from = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        client.send(&bytes[from..cut]);
        from = cut;
    }
    (client.take(), client.frames(), client.result.map_err(|error| error.code).err())
}

fn conversation() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_frame(), 0..12).prop_map(|frames| {
        [PREFACE.to_vec(), frame(4, 0, 0, &[]), frame(1, 4, 1, &block(&POST)), frames.concat()].concat()
    })
}

proptest! {
    #[test]
    fn any_split_gives_the_same(bytes in conversation(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let whole = run(&bytes, &[]);
        prop_assert_eq!(&run(&bytes, &cuts), &whole);
        let every: Vec<usize> = (1..bytes.len()).collect();
        prop_assert_eq!(&run(&bytes, &every), &whole);
    }

    #[test]
    fn random_frames_and_calls_keep_all_bounds(
        steps in prop::collection::vec((any_frame(), 0u8..13, any::<prop::sample::Index>(), 0usize..40_000), 0..40),
    ) {
        let limits = Limits { max_streams: 4, ..Limits::default() };
        let mut client = Client::with(limits);
        let (mut window, mut headed) = (0i64, Vec::<StreamId>::new());
        for (bytes, call, which, size) in steps {
            client.send(&bytes);
            if client.result.is_err() { break }
            prop_assert!(client.server.streams() <= 4);
            if !client.streams.is_empty() {
                let stream = client.streams[which.index(client.streams.len())];
                let body = Bytes::from(vec![0; size]);
                match call {
                    0 => client.server.credit(stream, size),
                    1..=3 => if client.server.head(stream, 200, &Fields::default(), DATE, None, call == 3) { headed.push(stream) },
                    4 | 5 => {
                        let room = client.server.room(stream);
                        let rest = client.server.data(stream, body, call == 5);
                        prop_assert!(rest.is_empty() || size - rest.len() == room);
                    }
                    6 => client.server.ready(stream),
                    7 | 8 => if let Some((next, most)) = client.server.next_sender() {
                        prop_assert!(most > 0 && most <= client.server.room(next) && headed.contains(&next));
                        let _ = client.server.data_with(next, most, |text, most| { text.resize(text.len() + most, 1); call == 8 });
                    },
                    9 => client.server.reset(stream, ErrorCode::CANCEL),
                    10 => client.server.trailers(stream, &Fields::default()),
                    11 => client.server.discard(stream, client.now),
                    _ => client.server.interim(stream, 103, &Fields::default()),
                }
            }
            for frame in client.frames() {
                prop_assert!(frame.payload.len() <= 16_384);
                window += if frame.kind == 0 { frame.payload.len() as i64 } else { 0 };
            }
            if bytes[3] == 8 && bytes[5..9] == [0; 4] && bytes.len() == 13 {
                window -= i64::from(u32::from_be_bytes(bytes[9..13].try_into().unwrap()) & 0x7fff_ffff);
            }
            prop_assert!(window <= 65_535);
        }
    }

    #[test]
    fn any_bytes_are_safe(bytes: Vec<u8>, after_preface: bool) {
        let mut client = Client::raw(Limits::default());
        if after_preface {
            client.send(PREFACE);
            client.send(&frame(4, 0, 0, &[]));
        }
        client.send(&bytes);
        client.frames();
    }
}
