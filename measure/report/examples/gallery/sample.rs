//! Data of the gallery: synthetic, but shaped like that of real runs.

use report::{
    Axis, Band, Bar, Bars, Better, Block, Cell, Curve, Frontier, Group, Heat, Histogram, Limit, Line, Lines,
    Percentiles, Plot, Span, Spot, Stack, Stages, Unit, VerticalLine, buckets_of, percentile_steps,
};

/// Returns pseudo-random numbers that are the same each time.
fn noise(seed: u32) -> f64 {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519);
    x ^= x >> 13;
    f64::from(x) / f64::from(u32::MAX)
}

/// Returns response times of 30,000 requests in milliseconds, sorted; one in ten met a stall.
fn times() -> Vec<f64> {
    let time = |index: u32| {
        let usual =
            12.0 * (0.45 * (noise(index) + noise(index + 70_000) + noise(index + 140_000) - 1.5)).exp();
        if index.is_multiple_of(10) { usual + noise(index + 7) * 1000.0 } else { usual }
    };
    let mut times: Vec<f64> = (0..30_000).map(time).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn at(times: &[f64], percentile: f64) -> f64 {
    times[((percentile / 100.0 * times.len() as f64) as usize).min(times.len() - 1)]
}

fn time(label: &str) -> Axis {
    Axis::new(label, Unit::Milliseconds)
}

pub fn course() -> Plot {
    let line = |name: &str, usual: f64, stalled: f64, seed: u32| Line {
        name: name.into(),
        points: (0..60)
            .map(|second| {
                let value = if second % 10 == 7 { stalled } else { usual };
                (f64::from(second), value * (0.85 + 0.3 * noise(second + seed)))
            })
            .collect(),
        ..Line::default()
    };
    Plot::Lines(Lines {
        title: "Response time, second by second".into(),
        note: "The longest waits are every ten seconds, when the app stalled.".into(),
        x: Axis::new("time", Unit::Seconds),
        y: time("response time"),
        lines: vec![
            line("p50", 12.0, 480.0, 1),
            line("p95", 31.0, 900.0, 200),
            line("p99", 44.0, 960.0, 300),
        ],
        limits: vec![Limit { value: 200.0, label: "objective for p99: 200 ms".into() }],
        spans: vec![Span { from: 0.0, to: 5.0, label: "warm-up".into() }],
        marks: vec![
            VerticalLine { at: 27.0, label: "worker 2 restarted".into() },
            VerticalLine { at: 31.0, label: "worker 3 restarted".into() },
        ],
        ..Lines::default()
    })
}

pub fn histogram() -> Plot {
    let times = times();
    let mark =
        |percentile: f64, label: &str| VerticalLine { at: at(&times, percentile), label: label.into() };
    Plot::Histogram(Histogram {
        title: "Distribution of response times".into(),
        note: "Logarithmic scale. The small peak at the right are the stalls.".into(),
        x: time("response time").log(),
        counted: "requests".into(),
        buckets: buckets_of(times.iter().map(|time| (*time, 1)), true, 60),
        marks: vec![mark(50.0, "p50"), mark(95.0, "p95"), mark(99.0, "p99")],
    })
}

pub fn percentiles() -> Plot {
    let times = times();
    let points = |factor: f64| -> Vec<(f64, f64)> {
        let from = |step: f64| (step, at(&times, step) * if step < 90.0 { 1.0 } else { factor });
        percentile_steps(times.len() as u64).into_iter().map(from).collect()
    };
    Plot::Percentiles(Percentiles {
        title: "Percentiles of the response time".into(),
        note: "The axis is stretched towards the slowest requests.".into(),
        y: time("response time"),
        curves: vec![
            Curve { name: "as users see it".into(), points: points(1.0) },
            Curve { name: "from send time".into(), points: points(0.35) },
        ],
        limits: vec![Limit { value: 200.0, label: "objective 200 ms".into() }],
    })
}

pub fn stages(shares: bool) -> Plot {
    let stack = |label: &str, values: [f64; 5]| Stack { label: label.into(), values: values.to_vec() };
    Plot::Stages(Stages {
        title: if shares { "The same in percent" } else { "Parts of the response time" }.into(),
        note: "Of requests around each percentile.".into(),
        x: time("response time"),
        parts: [
            "queue",
            "app: database and other waits",
            "app: waiting for the GVL",
            "app: on the CPU",
            "network",
        ]
        .map(String::from)
        .to_vec(),
        shares,
        stacks: vec![
            stack("p50", [0.4, 7.9, 0.6, 2.8, 0.3]),
            stack("p90", [6.1, 15.0, 5.2, 3.4, 0.4]),
            stack("p99", [301.0, 28.0, 64.0, 18.2, 0.8]),
            stack("p99.9", [702.0, 31.0, 120.0, 21.5, 1.1]),
        ],
    })
}

const PROCESSES: [u32; 4] = [1, 2, 4, 10];
const THREADS: [u32; 5] = [1, 2, 5, 10, 30];

/// Returns the throughput of a shape of an app that waits most of the time.
fn throughput(processes: u32, threads: u32) -> f64 {
    let (p, t) = (f64::from(processes), f64::from(threads));
    let each = t * 9.1 / (1.0 + 0.04 * (t - 1.0) + 0.002 * t * (t - 1.0));
    (p * each).min(186.0) * (0.98 + 0.04 * noise(processes * 31 + threads))
}

fn memory(processes: u32, threads: u32) -> f64 {
    (38.0 + f64::from(processes) * (58.0 + 1.6 * f64::from(threads))) * 1_048_576.0
}

pub fn heat() -> Plot {
    let cell = |processes: u32, threads: u32| match (processes, threads) {
        (10, 30) => Cell::missing("crashed"),
        _ => Cell { chosen: (processes, threads) == (4, 10), ..Cell::new(throughput(processes, threads)) },
    };
    Plot::Heat(Heat {
        title: "Throughput of each shape".into(),
        note: "Stronger colours are higher values. The frame marks the recommendation.".into(),
        measure: "transactions".into(),
        unit: Unit::PerSecond,
        better: Better::More,
        column_label: "threads per process".into(),
        columns: THREADS.map(|threads| threads.to_string()).to_vec(),
        row_label: "processes".into(),
        rows: PROCESSES.map(|processes| processes.to_string()).to_vec(),
        cells: PROCESSES.map(|processes| THREADS.map(|threads| cell(processes, threads)).to_vec()).to_vec(),
    })
}

pub fn frontier() -> Plot {
    let spot = |processes: u32, threads: u32| Spot {
        label: format!("{processes}x{threads}"),
        x: memory(processes, threads),
        y: throughput(processes, threads),
        chosen: (processes, threads) == (4, 10),
        ..Spot::default()
    };
    Plot::Frontier(Frontier {
        title: "Throughput and memory".into(),
        note: "No other shape is better in both than those on the line.".into(),
        x: Axis::new("memory (PSS)", Unit::Bytes),
        y: Axis::new("transactions", Unit::PerSecond),
        spots: PROCESSES.iter().flat_map(|p| THREADS.iter().map(move |t| spot(*p, *t))).collect(),
        marks: vec![VerticalLine { at: 512.0 * 1_048_576.0, label: "budget 512 MiB".into() }],
        ..Frontier::default()
    })
}

pub fn growth() -> Plot {
    let threads = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0];
    let fit = |t: f64| t * 9.1 / (1.0 + 0.04 * (t - 1.0) + 0.002 * t * (t - 1.0));
    let measured = threads.iter().map(|t| (*t, fit(*t) * (0.96 + 0.08 * noise(*t as u32 + 5)))).collect();
    let curve = (1..=30).map(|t| (f64::from(t), fit(f64::from(t)))).collect();
    let spread =
        (1..=30).map(|t| (f64::from(t), fit(f64::from(t)) * 0.93, fit(f64::from(t)) * 1.07)).collect();
    Plot::Lines(Lines {
        title: "Where more threads stop helping".into(),
        note: "One process. Throughput falls beyond 22 threads.".into(),
        x: Axis::new("threads", Unit::Count),
        y: Axis::new("transactions", Unit::PerSecond),
        lines: vec![
            Line { name: "fitted".into(), points: curve, ..Line::default() },
            Line { name: "measured".into(), points: measured, loose: true, ..Line::default() },
        ],
        bands: vec![Band { name: "95 % confidence".into(), points: spread, line: 0 }],
        marks: vec![VerticalLine { at: 22.0, label: "maximum: 22".into() }],
        ..Lines::default()
    })
}

pub fn servers() -> Plot {
    let group = |label: &str, values: [f64; 2], marked: bool| Group {
        label: label.into(),
        bars: values.iter().map(|value| Bar::spread(*value, value * 0.95, value * 1.08)).collect(),
        marked,
    };
    Plot::Bars(Bars {
        title: "The same cell with other servers".into(),
        note: "4x10, 30 at a time.".into(),
        x: time("response time"),
        better: Better::Less,
        series: vec!["p50".into(), "p99".into()],
        groups: vec![
            group("Firebrick", [102.0, 201.0], true),
            group("Puma 5.6.5", [104.0, 388.0], false),
            group("Unicorn 6.1.0", [412.0, 977.0], false),
        ],
        ..Bars::default()
    })
}

pub fn peers() -> Plot {
    let group = |label: &str, value: f64, marked: bool| Group {
        label: label.into(),
        bars: vec![Bar::spread(value, value * 0.94, value * 1.03)],
        marked,
    };
    Plot::Bars(Bars {
        title: "ab -n 10000 -c 200, six workers".into(),
        note: "Requests per second.".into(),
        x: Axis::new("requests", Unit::PerSecond),
        better: Better::More,
        groups: vec![
            group("Firebrick", 4210.0, true),
            group("Passenger behind nginx", 3120.0, false),
            group("Unicorn 6.1.0 behind nginx", 2890.0, false),
            group("Puma 5.6.5 behind nginx, six workers with five threads each", 3560.0, false),
            Group {
                label: "H2O 2.2.5 with mruby".into(),
                bars: vec![Bar::missing("not run: Debian builds it without mruby")],
                marked: false,
            },
        ],
        ..Bars::default()
    })
}

/// Returns degenerate data.
pub fn odd() -> Vec<(&'static str, Vec<Block>)> {
    let lines = |title: &str, points: Vec<(f64, f64)>| {
        Block::Plot(Plot::Lines(Lines {
            title: title.into(),
            x: Axis::new("x", Unit::Seconds),
            y: time("y"),
            lines: vec![Line { name: "line".into(), points, ..Line::default() }],
            ..Lines::default()
        }))
    };
    let word = "Donaudampfschifffahrtsgesellschaft".repeat(3);
    vec![
        (
            "Lines",
            vec![
                lines("Empty", vec![]),
                lines("One point", vec![(3.0, 4.0)]),
                lines("Constant", vec![(0.0, 5.0), (1.0, 5.0), (2.0, 5.0)]),
                lines(
                    "Gaps",
                    vec![
                        (0.0, 1.0),
                        (1.0, 2.0),
                        (2.0, f64::NAN),
                        (3.0, 3.0),
                        (4.0, f64::INFINITY),
                        (5.0, 1.0),
                        (6.0, 2.0),
                    ],
                ),
                lines("Huge", vec![(0.0, 1e308), (1.0, 2e307)]),
                lines("Tiny", vec![(0.0, 1e-308), (1.0, 2e-12)]),
                lines("Below 0", vec![(0.0, -30.0), (1.0, 20.0)]),
                lines("An hour", (0..3600).map(|s| (f64::from(s), 20.0 + 30.0 * noise(s as u32))).collect()),
                lines(&word, vec![(0.0, 1.0), (1.0, 2.0)]),
                Block::Plot(Plot::Lines(Lines {
                    title: "Many long names".into(),
                    lines: (0..9)
                        .map(|n| Line {
                            name: format!("{n} {word}"),
                            points: vec![(0.0, f64::from(n)), (1.0, 2.0)],
                            ..Line::default()
                        })
                        .collect(),
                    marks: (0..9)
                        .map(|n| VerticalLine { at: f64::from(n) / 9.0, label: format!("event number {n}") })
                        .collect(),
                    limits: vec![Limit { value: 1e6, label: "far away".into() }],
                    ..Lines::default()
                })),
            ],
        ),
        (
            "Others",
            vec![
                Block::Plot(Plot::Histogram(Histogram {
                    title: "One value".into(),
                    x: time("time").log(),
                    buckets: buckets_of([(7.0, 12)], true, 60),
                    ..Histogram::default()
                })),
                Block::Plot(Plot::Percentiles(Percentiles {
                    title: "One request".into(),
                    y: time("time"),
                    curves: vec![Curve {
                        name: "one".into(),
                        points: percentile_steps(1).into_iter().map(|p| (p, 7.0)).collect(),
                    }],
                    ..Percentiles::default()
                })),
                Block::Plot(Plot::Stages(Stages {
                    title: "No parts".into(),
                    stacks: vec![Stack::default()],
                    ..Stages::default()
                })),
                Block::Plot(Plot::Bars(Bars {
                    title: "Broken bars".into(),
                    groups: vec![
                        Group {
                            label: word.clone(),
                            bars: vec![Bar::new(f64::INFINITY), Bar::new(-3.0), Bar::new(1e200)],
                            marked: false,
                        },
                        Group::default(),
                    ],
                    ..Bars::default()
                })),
                Block::Plot(Plot::Frontier(Frontier {
                    title: "Identical points".into(),
                    spots: (0..12)
                        .map(|n| Spot {
                            label: format!("{n}x{n}"),
                            x: 1.0,
                            y: 1.0,
                            series: n,
                            chosen: n == 3,
                        })
                        .collect(),
                    ..Frontier::default()
                })),
                Block::Plot(Plot::Heat(Heat {
                    title: "Ragged".into(),
                    rows: vec![word.clone(), "b".into()],
                    columns: (0..14).map(|n| format!("column {n}")).collect(),
                    cells: vec![vec![Cell::new(123_456.0); 3], vec![Cell::new(1e9); 20]],
                    ..Heat::default()
                })),
            ],
        ),
    ]
}
