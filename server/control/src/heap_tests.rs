use super::*;
use proptest::prelude::*;

const DUMP: &str = r#"
{"stopped_us":5300}
{"before":{"pages_bytes":655360,"live_slots":10,"free_slots":2,"malloc_held":100,"malloc_used":60,"traced":true,"allocator":"glibc's malloc"}}
{"after":{"pages_bytes":655360,"live_slots":8,"free_slots":4,"malloc_held":100,"malloc_used":50,"traced":true}}
{"route":0, "name":"(none)"}
{"route":2, "name":"posts#show"}
{"type":"ROOT", "root":"vm", "references":["0x7f10"]}
{"address":"0x9000", "route":2, "type":"STRING", "class":"0x8000", "value":"token=abc and 1234567890abcdef1234", "file":"/srv/app.rb", "line":7, "memsize":3112}
{"address":"0x9010", "route":0, "type":"STRING", "class":"0x8000", "value":"plain words", "file":"/srv/app.rb", "line":7, "memsize":40}
{"address":"0x9018", "type":"STRING", "class":"0x8000", "file":"/srv/app.rb", "line":7, "memsize":41}
{"address":"0x9019", "route":9, "type":"STRING", "class":"0x8000", "file":"/srv/app.rb", "line":7, "memsize":42}
{"address":"0x9020", "route":2, "type":"OBJECT", "class":"0x8030", "memsize":40}
{"address":"0x9030", "type":"OBJECT", "class":"0x8040", "memsize":80}
{"address":"0x9038", "type":"DATA", "class":"0x8000", "struct":"ObjectTracing/allocation_info_tracer", "references":["0x1"], "memsize":16779080}
{"address":"0x9040", "type":"IMEMO", "class":"0x1", "imemo_type":"env", "memsize":40}
{"address":"0x8000", "type":"CLASS", "class":"0x8010", "name":"String", "memsize":500}
{"address":"0x8020", "type":"CLASS", "class":"0x8010", "name":"Order", "memsize":500}
{"address":"0x8030", "type":"CLASS", "class":"0x8010", "superclass":"0x8020", "singleton":true, "real_class_name":"Order", "memsize":500}
{"address":"0x8040", "type":"CLASS", "class":"0x8010", "superclass":"0x8020", "memsize":500}
this is not JSON
{"done":true}
"#;

fn read(examples: bool, text: &[u8], chunk: usize) -> Result<HeapSnapshot, String> {
    let mut reader = HeapReader::new(examples);
    text.chunks(chunk.max(1)).for_each(|part| reader.read(part));
    reader.finish()
}

fn groups(snapshot: &HeapSnapshot) -> Vec<(&str, Option<&str>, u64, u64)> {
    snapshot.groups.iter().map(|one| (&*one.class, one.at.as_deref(), one.count, one.bytes)).collect()
}

#[test]
fn objects_are_counted_by_class_and_place() {
    let snapshot = read(false, DUMP.as_bytes(), usize::MAX).unwrap();
    let expected = [
        ("String", Some("/srv/app.rb:7"), 4, 3235),
        ("Class", None, 4, 2000),
        ("(anonymous subclass of Order)", None, 1, 80),
        ("(internal: env)", None, 1, 40),
        ("Order", None, 1, 40),
    ];
    assert_eq!(groups(&snapshot), expected);
    assert_eq!((snapshot.objects, snapshot.bytes, snapshot.unreadable), (11, 5395, 1));
    assert_eq!((snapshot.stopped_ms, snapshot.before.malloc_used), (5.3, Some(60)));
    let routes: Vec<_> =
        snapshot.groups[0].routes.iter().map(|one| (&*one.route, one.count, one.bytes)).collect();
    assert_eq!(routes, [("posts#show", 1, 3112), ("(unknown)", 2, 83), ("(none)", 1, 40)]);
    // Without a place an object is older than the recording.
    assert!(snapshot.groups[1..].iter().all(|group| group.routes.is_empty()));
    assert!(snapshot.after.traced && snapshot.groups.iter().all(|group| group.examples.is_empty()));
}

#[test]
fn a_dump_without_routes_has_none() {
    let bare: String = DUMP.split_inclusive('\n').filter(|line| !line.starts_with("{\"route")).collect();
    let snapshot = read(false, bare.as_bytes(), usize::MAX).unwrap();
    assert!(snapshot.objects == 11 && snapshot.groups.iter().all(|group| group.routes.is_empty()));
}

#[test]
fn names_of_routes_are_bounded() {
    let long = format!("{{\"route\":2, \"name\":\"{}\"}}", "x".repeat(LONGEST_ROUTE + 1));
    let dump = DUMP.replace("{\"route\":2, \"name\":\"posts#show\"}", &long);
    let snapshot = read(false, dump.as_bytes(), usize::MAX).unwrap();
    assert_eq!(snapshot.groups[0].routes[0], HeapRoute { route: UNKNOWN.to_owned(), count: 3, bytes: 3195 });
}

#[test]
fn examples_have_no_secrets() {
    let snapshot = read(true, DUMP.as_bytes(), usize::MAX).unwrap();
    assert_eq!(snapshot.groups[0].examples, ["token=(not shown) and (not shown)", "plain words"]);
}

#[test]
fn the_end_decides() {
    let cut = DUMP.replace("{\"done\":true}", "");
    assert_eq!(read(false, cut.as_bytes(), 10).unwrap_err(), "the worker ended before its dump was complete");
    let failed = format!("{cut}{{\"address\":\"0x1\n{{\"error\":\"no memory\"}}\n{{\"error\":\"later\"}}\n");
    assert_eq!(read(false, failed.as_bytes(), 10).unwrap_err(), "no memory");
    assert!(read(false, b"", 1).is_err());
}

/// Objects with many references and long Strings, of which the stream contains everything.
#[test]
fn long_lines_are_not_kept() {
    let references = vec!["\"0x7f8d7e4103d0\""; 100_000].join(", ");
    let text = "\\\"references\\\":[ \\\\".repeat(100_000);
    let lines = format!(
        "{{\"type\":\"ARRAY\", \"class\":\"0x8000\", \"references\":[{references}], \"file\":\"a.rb\", \"line\":1, \"memsize\":800}}\n\
         {{\"type\":\"STRING\", \"class\":\"0x8000\", \"value\":\"{text}\", \"file\":\"a.rb\", \"line\":2, \"memsize\":900}}\n\
         {{\"type\":\"STRING\", \"class\":\"0x8000\", \"other\":\"{}\", \"memsize\":5}}\n\
         {{\"type\":\"STRING\", \"class\":\"0x8000\", \"memsize\":7}}\n{{\"done\":true}}\n",
        "x".repeat(3 << 20)
    );
    for chunk in [10_000, 65_536, usize::MAX] {
        let mut reader = HeapReader::new(true);
        for part in lines.as_bytes().chunks(chunk) {
            reader.read(part);
            assert!(reader.part.len() <= LONG + chunk.min(lines.len()), "{}", reader.part.len());
        }
        let snapshot = reader.finish().unwrap();
        let places: Vec<_> = snapshot.groups.iter().map(|one| (one.at.as_deref(), one.bytes)).collect();
        // A line that came in one piece is read whole.
        let whole = if chunk == usize::MAX { 12 } else { 7 };
        assert_eq!(places, [(Some("a.rb:2"), 900), (Some("a.rb:1"), 800), (None, whole)], "{chunk}");
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(chunk in 1usize..200) {
        prop_assert_eq!(read(true, DUMP.as_bytes(), chunk), read(true, DUMP.as_bytes(), usize::MAX));
    }

    #[test]
    fn routes_divide_their_groups(
        objects in proptest::collection::vec((0u64..3, 1u64..4, proptest::option::of(0u16..6), 0u64..1_000), 0..60),
        chunk in 1usize..200,
    ) {
        let mut dump = "{\"route\":0, \"name\":\"(none)\"}\n{\"route\":2, \"name\":\"posts#show\"}\n".to_owned();
        for (class, line, route, bytes) in objects {
            let route = route.map(|route| format!("\"route\":{route}, ")).unwrap_or_default();
            let class = 0x8000 + class;
            writeln!(
                dump,
                "{{\"address\":\"0x1\", {route}\"type\":\"OBJECT\", \"class\":\"0x{class:x}\", \"file\":\"a.rb\", \"line\":{line}, \"memsize\":{bytes}}}"
            )
            .unwrap();
        }
        dump.push_str("{\"done\":true}\n");
        for group in read(false, dump.as_bytes(), chunk).unwrap().groups {
            let sums = group.routes.iter().fold((0, 0), |sum, one| (sum.0 + one.count, sum.1 + one.bytes));
            prop_assert_eq!(sums, (group.count, group.bytes));
            prop_assert!(group.routes.iter().all(|one| ["(none)", "(unknown)", "posts#show"].contains(&&*one.route)));
            prop_assert!(group.routes.is_sorted_by(|a, b| a.bytes >= b.bytes));
        }
    }

    #[test]
    fn any_bytes_are_read(bytes: Vec<u8>, chunk in 1usize..20) {
        let _ = read(true, &bytes, chunk);
    }

    #[test]
    fn any_end_is_no_snapshot(end in 0..DUMP.len() - 2) {
        prop_assert!(read(true, &DUMP.as_bytes()[..end], 16).is_err());
    }
}
