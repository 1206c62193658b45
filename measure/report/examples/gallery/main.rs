//! A page with every kind of plot and block, with realistic data: `cargo run -p report --example gallery >
//! gallery.html`. With `--json`: the data, as `plot --page` reads it; with `--odd`: plots of empty, constant, huge and
//! broken data.

mod sample;

use std::io::Write as _;

use report::{Block, Column, KeyFigure, Page, Section, Table, Verdict};

fn main() -> std::io::Result<()> {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let page = if has("--odd") { odd() } else { gallery() };
    let text = if has("--json") { serde_json::to_string_pretty(&page)? } else { page.to_html() };
    std::io::stdout().write_all(text.as_bytes())
}

fn gallery() -> Page {
    Page {
        title: "http://127.0.0.1:9292/orders under 500 requests/s".into(),
        subtitle: "60 s on 20 November 2026, 14:05 · open model · 4 cores · firebrick 0.1.0".into(),
        lead: lead(),
        sections: vec![
            Section {
                title: "Response time".into(),
                text: "Half of the requests took 12 ms or less. Every ten seconds the app stood still for one second; \
                       the requests that came then waited, and are the tail.\n\nTimes count from when a request was due."
                    .into(),
                blocks: vec![
                    Block::Plot(sample::course()),
                    Block::Plots(vec![sample::histogram(), sample::percentiles()]),
                ],
            },
            Section {
                title: "Where the time went".into(),
                text: "Reported by the server, request by request.".into(),
                blocks: vec![
                    Block::Plot(sample::stages(false)),
                    Block::Plot(sample::stages(true)),
                    Block::Notes(vec![
                        "p99 is 412 ms: 301 ms in the queue, 64 ms waiting for the GVL, 47 ms in the app.".into(),
                        "More threads would not help: the GVL is taken 92 % of the time.".into(),
                    ]),
                ],
            },
            Section {
                title: "Processes and threads".into(),
                text: "Each cell is a run of 600 requests with 30 at a time.".into(),
                blocks: vec![
                    Block::Plot(sample::heat()),
                    Block::Plot(sample::frontier()),
                    Block::Plots(vec![sample::growth(), sample::servers()]),
                    Block::Table(shapes()),
                    Block::Table(cells()),
                ],
            },
            Section {
                title: "Comparison with other servers".into(),
                text: "Medians of five runs; the lines show the smallest and the largest.".into(),
                blocks: vec![Block::Plot(sample::peers())],
            },
            Section {
                title: "Configuration".into(),
                text: String::new(),
                blocks: vec![
                    Block::KeyValues(vec![
                        ("Command".into(), "firebrick bench --rate 500/s -d 60s http://127.0.0.1:9292/orders".into()),
                        ("Connections".into(), "64, kept alive".into()),
                        ("Checks".into(), "status 200, length 4,096".into()),
                    ]),
                    Block::Code("[server]\nworkers = 2\nthreads = 10\n".into()),
                ],
            },
        ],
        foot: "Written by firebrick 0.1.0 on 20 November 2026, 14:06 UTC.".into(),
        refresh_seconds: 0,
    }
}

fn lead() -> Vec<KeyFigure> {
    let figure = |label: &str, value: &str, note: &str, verdict| KeyFigure {
        label: label.into(),
        value: value.into(),
        note: note.into(),
        verdict,
    };
    vec![
        figure("Requests", "30,000", "all successful", Verdict::Good),
        figure("Throughput", "498/s", "target: 500/s", Verdict::Neutral),
        figure("Median", "12 ms", "p50", Verdict::Neutral),
        figure("99th percentile", "412 ms", "limit: 200 ms", Verdict::Bad),
        figure("Load generator", "3 % busy", "not the bottleneck", Verdict::Neutral),
    ]
}

fn shapes() -> Table {
    let row = |cells: [&str; 7]| cells.map(String::from).to_vec();
    Table {
        caption: "The three best under 512 MiB".into(),
        columns: vec![
            Column::text("processes x threads"),
            Column::number("transactions/s"),
            Column::number("p50, ms"),
            Column::number("p95, ms"),
            Column::number("p99, ms"),
            Column::number("memory, MiB"),
            Column::number("CPU, cores"),
        ],
        rows: vec![
            row(["4x10", "183", "102", "166", "201", "334", "0.71"]),
            row(["4x30", "189", "108", "189", "254", "462", "0.74"]),
            row(["4x5", "150", "131", "224", "291", "302", "0.61"]),
        ],
        marked: vec![0],
    }
}

/// Returns a table with more columns than fit on most screens.
fn cells() -> Table {
    let heads = [
        "seconds",
        "requests/s",
        "p50, ms",
        "p95, ms",
        "p99, ms",
        "PSS, MiB",
        "RSS, MiB",
        "CPUs used",
        "app, ms",
        "CPU, ms",
    ];
    let mut columns = vec![Column::text("shape")];
    columns.extend(heads.map(Column::number));
    columns.push(Column::text("remark"));
    let row = |shape: &str, remark: &str| {
        let figures = ["4.99", "220", "72.0", "208", "257", "21.3", "41.2", "0.18", "19.6", "1.20"];
        let figures = figures.iter().map(|figure| (*figure).to_owned());
        std::iter::once(shape.to_owned()).chain(figures).chain([remark.to_owned()]).collect()
    };
    Table {
        caption: "All cells".into(),
        columns,
        rows: vec![
            row("1x5", ""),
            row("2x5", "other programs used the CPU; the parts differ by 27 %"),
            row("4x10", "recommended"),
        ],
        marked: vec![2],
    }
}

fn odd() -> Page {
    let section =
        |(title, blocks): (&str, Vec<Block>)| Section { title: title.into(), text: String::new(), blocks };
    Page {
        title: "Odd data".into(),
        sections: sample::odd().into_iter().map(section).collect(),
        ..Page::default()
    }
}
