//! Tests ranges and their multipart bodies.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::task::Waker;

fn of_100(value: &str) -> Ranges {
    parse(value.as_bytes(), 100)
}

#[test]
fn single_ranges() {
    assert_eq!(of_100("bytes=0-0"), Ranges::One(0..1));
    assert_eq!(of_100("Bytes=10-19"), Ranges::One(10..20));
    assert_eq!(of_100("bytes=90-"), Ranges::One(90..100));
    assert_eq!(of_100("bytes=90-1000"), Ranges::One(90..100));
    assert_eq!(of_100("bytes=0-99"), Ranges::One(0..100));
    assert_eq!(of_100("bytes=-5"), Ranges::One(95..100));
    assert_eq!(of_100("bytes=-500"), Ranges::One(0..100));
    assert_eq!(of_100("bytes=1-99999999999999999999999"), Ranges::One(1..100));
    assert_eq!(of_100("bytes= 1-2 "), Ranges::One(1..3));
}

#[test]
fn several_ranges() {
    assert_eq!(of_100("bytes=0-9,20-29"), Ranges::Several(vec![0..10, 20..30]));
    assert_eq!(of_100("bytes=50-59 , 0-9,, -1"), Ranges::Several(vec![50..60, 0..10, 99..100]));
    assert_eq!(of_100("bytes=0-0,200-,2-2"), Ranges::Several(vec![0..1, 2..3]));
    assert_eq!(of_100("bytes=0-0,100-"), Ranges::One(0..1));
    assert_eq!(of_100("bytes=200-300,-0"), Ranges::Unsatisfiable);
}

#[test]
fn touching_ranges_are_merged() {
    assert_eq!(of_100("bytes=0-9,10-19"), Ranges::One(0..20));
    assert_eq!(of_100("bytes=0-9,5-14"), Ranges::One(0..15));
    assert_eq!(of_100("bytes=0-9,20-29,8-21"), Ranges::One(0..30));
    assert_eq!(of_100("bytes=50-59,0-9,10-19"), Ranges::Several(vec![50..60, 0..20]));
    assert_eq!(of_100("bytes=20-29,50-59,0-9,8-21"), Ranges::Several(vec![0..30, 50..60]));
}

#[test]
fn ranges_outside_the_file_are_unsatisfiable() {
    for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
        assert_eq!(of_100(value), Ranges::Unsatisfiable, "{value}");
    }
    assert_eq!(
        [parse(b"bytes=0-", 0), parse(b"bytes=-1", 0)],
        [Ranges::Unsatisfiable, Ranges::Unsatisfiable]
    );
}

#[test]
fn invalid_fields_are_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "lines=0-1",
        "bytes=0x1-2",
        "bytes=+1-2",
        "bytes=1 - 2",
        "bytes=--1",
        "bytes=1-2-3",
        "bytes =0-1",
        "bytes=0-1,5-4",
        "bytes=0-1,x",
        "bytes=0-1;2-3",
    ] {
        assert_eq!(of_100(value), Ranges::Whole, "{value}");
    }
}

#[test]
fn excessive_requests_get_the_whole_file() {
    assert_eq!(of_100("bytes=0-,0-"), Ranges::Whole);
    assert_eq!(of_100("bytes=0-49,50-99,0-0"), Ranges::Whole);
    let many = |count: u64| {
        let list: Vec<String> = (0..count).map(|n| format!("{}-{}", n * 10, n * 10)).collect();
        format!("bytes={}", list.join(","))
    };
    assert!(matches!(parse(many(32).as_bytes(), 1 << 20), Ranges::Several(parts) if parts.len() == 32));
    assert_eq!(parse(many(33).as_bytes(), 1 << 20), Ranges::Whole);
    assert!(matches!(parse(many(8).as_bytes(), 100), Ranges::Several(parts) if parts.len() == 8));
    assert_eq!(parse(many(9).as_bytes(), 1000), Ranges::Whole);
    assert!(matches!(parse(many(9).as_bytes(), 1200), Ranges::Several(_)));
}

/// Drains the stream, reading file chunks from their file.
fn collect(mut stream: Box<dyn BodyStream>) -> Result<Vec<u8>, Failure> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    while let Poll::Ready(Some(item)) = stream.poll_chunk(&mut cx) {
        match item? {
            Chunk::Bytes(bytes) => out.extend_from_slice(&bytes),
            Chunk::File(region) => {
                let mut part = vec![0; region.len as usize];
                region.file.shared().read_exact_at(&mut part, region.offset).unwrap();
                out.extend_from_slice(&part);
            }
            Chunk::Offer(offer) => panic!("{offer:?}"),
        }
    }
    Ok(out)
}

#[test]
fn a_body_of_two_parts() {
    let text = b"0123456789abcdef";
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text).unwrap();
    for content in [Content::from(Rc::new(OpenFile::from(file))), Content::from(Bytes::from_static(text))] {
        let (field, total, stream) = multipart(&[10..12, 0..3], content, 16, "text/plain");
        let boundary = field.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let wanted = format!(
            "--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 10-11/16\r\n\r\nab\
             \r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-2/16\r\n\r\n012\
             \r\n--{boundary}--\r\n"
        );
        let body = collect(stream).unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), wanted);
        assert_eq!(total, wanted.len() as u64);
    }
}

#[test]
fn a_buffer_that_is_too_short_is_broken() {
    let (_, _, stream) = multipart(&[0..2, 8..12], Bytes::from_static(b"0123456789"), 12, "text/plain");
    assert!(collect(stream).is_err());
}

#[test]
fn boundaries_are_unique() {
    let boundaries: BTreeSet<String> = (0..100).map(|_| boundary()).collect();
    assert_eq!(boundaries.len(), 100);
    assert!(boundaries.iter().all(|boundary| boundary.len() == 32));
}

/// A slow reference implementation: the set of requested bytes, one by one; `None` for an invalid field.
fn bytes_of(specs: &[(Option<u64>, Option<u64>)], len: u64) -> Option<BTreeSet<u64>> {
    let mut wanted = BTreeSet::new();
    for spec in specs {
        match *spec {
            (Some(first), Some(last)) if first > last => return None,
            (Some(first), last) => {
                wanted.extend((0..len).filter(|&byte| byte >= first && last.is_none_or(|last| byte <= last)));
            }
            (None, Some(count)) => wanted.extend((0..len).filter(|&byte| len - byte <= count)),
            (None, None) => return None,
        }
    }
    Some(wanted)
}

proptest! {
    #[test]
    fn parts_lie_inside_the_file_and_apart(value in "bytes=([0-9]{0,3}-[0-9]{0,3},){0,40}[0-9]{0,3}-", len in 0_u64..5_000) {
        if let Ranges::Several(parts) = parse(value.as_bytes(), len) {
            prop_assert!(parts.len() >= 2 && parts.len() <= MAX_RANGES);
            let mut sorted = parts;
            sorted.sort_by_key(|part| part.start);
            prop_assert!(sorted.iter().all(|part| part.start < part.end && part.end <= len));
            prop_assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn any_field_value_is_accepted(value: Vec<u8>, len: u64) {
        if let Ranges::One(part) = parse(&value, len) {
            prop_assert!(part.start < part.end && part.end <= len);
        }
    }

    #[test]
    fn no_byte_is_lost_or_added(
        specs in prop::collection::vec((prop::option::of(0_u64..250), prop::option::of(0_u64..250)), 1..7),
        len in 0_u64..200,
    ) {
        let text = |number: &Option<u64>| number.map_or(String::new(), |number| number.to_string());
        let list: Vec<String> = specs.iter().map(|(first, last)| format!("{}-{}", text(first), text(last))).collect();
        let found = match parse(format!("bytes={}", list.join(", ")).as_bytes(), len) {
            Ranges::Whole => None,
            Ranges::Unsatisfiable => Some(BTreeSet::new()),
            Ranges::One(part) => Some(part.collect()),
            Ranges::Several(parts) => Some(parts.into_iter().flatten().collect()),
        };
        match (found, bytes_of(&specs, len)) {
            (Some(found), wanted) => prop_assert_eq!(Some(found), wanted),
            (None, Some(_)) => {
                let lengths = specs.iter().filter_map(|&spec| bytes_of(&[spec], len)).map(|bytes| bytes.len() as u64);
                prop_assert!(lengths.sum::<u64>() > len, "the whole file is sent only when bytes are requested twice");
            }
            (None, None) => {}
        }
    }

    #[test]
    fn the_length_is_exact(starts in prop::collection::vec((0_u64..1000, 1_u64..24), 0..20)) {
        let ranges: Vec<Range<u64>> = starts.iter().map(|&(start, count)| start..start + count).collect();
        let (_, total, stream) = multipart(&ranges, Bytes::from(vec![b'x'; 1024]), 1024, "image/png");
        prop_assert_eq!(collect(stream).unwrap().len() as u64, total);
    }
}
