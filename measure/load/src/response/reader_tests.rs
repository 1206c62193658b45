use super::*;
use proptest::prelude::*;

/// Records every call.
#[derive(Debug, Default, PartialEq)]
struct RecordingSink {
    to_head: bool,
    fields_wanted: bool,
    fields: Vec<(String, Vec<u8>)>,
    heads: Vec<Head>,
    body: Vec<u8>,
}

impl Sink for RecordingSink {
    fn to_head(&self) -> bool {
        self.to_head
    }

    fn wants_fields(&self) -> bool {
        self.fields_wanted
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.fields.push((name.to_owned(), value.to_vec()));
    }

    fn head(&mut self, head: &Head) {
        self.heads.push(*head);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }
}

/// Reads all pieces. Returns the recorded calls, the persistence of each complete response, and whether the reader is
/// at a boundary; or the error.
fn read(pieces: &[&[u8]], last: &mut LastHead) -> Result<(RecordingSink, Vec<bool>, bool), String> {
    let mut reader = Reader::new();
    let mut sink = RecordingSink::default();
    let mut whole = Vec::new();
    for piece in pieces {
        let mut bytes = *piece;
        while !bytes.is_empty() {
            let read = reader.take(bytes, last, &mut sink)?;
            whole.extend(read.complete);
            bytes = &bytes[read.used..];
        }
    }
    Ok((sink, whole, reader.is_fresh()))
}

fn read_whole(bytes: &[u8]) -> Result<(RecordingSink, Vec<bool>, bool), String> {
    read(&[bytes], &mut LastHead::default())
}

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\nT: 1\r\n\r\n\
HTTP/1.1 204 No Content\r\n\r\n\
HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain";

#[test]
fn consecutive_responses() {
    let (sink, whole, fresh) = read_whole(STREAM).expect("it is right");
    assert_eq!(sink.body, b"helloabc0123456789again");
    assert_eq!(sink.heads.iter().map(|head| head.status).collect::<Vec<_>>(), [200, 200, 204, 200]);
    assert_eq!(whole, [true; 4]);
    assert!(fresh);
}

#[test]
fn other_protocols_are_detected_at_once() {
    let mut reader = Reader::new();
    for bytes in [&b"SSH-2.0\n"[..], b"HTTP/2", b"\r\n", b"G"] {
        assert!(reader.take(bytes, &mut LastHead::default(), &mut RecordingSink::default()).is_err());
        reader = Reader::new();
    }
    let endless = vec![b'x'; LONGEST_HEAD];
    assert!(read(&[b"HTTP/1.1 200 OK\r\nA: ", &endless], &mut LastHead::default()).is_err());
}

#[test]
fn a_remembered_head_is_not_used_for_head_requests() {
    let mut last = LastHead::default();
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let mut sink = RecordingSink::default();
    Reader::new().take(response, &mut last, &mut sink).expect("a head");
    let mut to_head = RecordingSink { to_head: true, ..RecordingSink::default() };
    let read = Reader::new().take(response, &mut last, &mut to_head).expect("a head");
    assert_eq!(read.complete, Some(true));
}

#[test]
fn the_end_of_the_connection() {
    let mut last = LastHead::default();
    let mut reader = Reader::new();
    reader
        .take(b"HTTP/1.1 200 OK\r\n\r\nsome", &mut last, &mut RecordingSink::default())
        .expect("it is right");
    assert!(reader.end() && reader.is_fresh());
    reader
        .take(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsome", &mut last, &mut RecordingSink::default())
        .expect("so far");
    assert!(!reader.end());
}

/// Returns heads, valid and invalid, and bodies that may fit them.
fn responses() -> impl Strategy<Value = Vec<u8>> {
    let status =
        prop_oneof!["HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 204 x", "HTTP/1.1 103 x", "HTTP/1.1 404"];
    let field = prop_oneof![
        Just("Content-Length: 3".to_owned()),
        Just("Content-Length: 12".to_owned()),
        Just("Transfer-Encoding: chunked".to_owned()),
        Just("Connection: close".to_owned()),
        Just("Server: x".to_owned()),
        "[A-Za-z]{1,5}: [ -~]{0,10}",
    ];
    let body = prop_oneof![
        Just("abc".to_owned()),
        Just("123456789012".to_owned()),
        Just("3\r\nabc\r\n0\r\n\r\n".to_owned()),
        "[0-9a-f\r\n ;]{0,12}",
    ];
    let response = (status, prop::collection::vec(field, 0..4), body);
    let one = response.prop_map(|(status, fields, body)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        format!("{status}\r\n{fields}\r\n{body}").into_bytes()
    });
    prop::collection::vec(one, 1..4).prop_map(|responses| responses.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_result(bytes in prop_oneof![responses(), Just(STREAM.to_vec())], cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let split = read(&pieces, &mut LastHead::default());
        let whole = read_whole(&bytes);
        // The place where an error is detected may differ, but not whether there is one.
        prop_assert_eq!(split.is_ok(), whole.is_ok());
        if let (Ok(split), Ok(whole)) = (split, whole) {
            prop_assert_eq!(split, whole);
        }
    }

    #[test]
    fn the_remembered_head_does_not_change_the_result(first in responses(), second in responses()) {
        let mut last = LastHead::default();
        let _ = read(&[&first], &mut last);
        prop_assert_eq!(read(&[&second], &mut last), read_whole(&second));
        prop_assert_eq!(read(&[&second], &mut last), read_whole(&second));
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_whole(&bytes);
        let _ = read_whole(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", bytes.as_slice()].concat());
    }
}

#[test]
fn blank_lines_before_a_head_are_rejected_in_one_piece_and_in_two() {
    let bytes = b"\n\nHTTP/1.0 210 OK\r\n\r\n";
    for cut in 0..=bytes.len() {
        fuzz(bytes, cut);
    }
}
