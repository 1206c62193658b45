//! The HTML report: throughput and memory by shape, memory against throughput, the app's profile, the table.

use planner::{Budget, Cell, LimitedBy, Shape};
use report::{
    Axis, Bar, Bars, Better, Block, Cell as HeatCell, Column, Frontier, Group, Heat, KeyFigure, Line, Lines,
    Page, Plot, Section, Spot, Table, Unit, Verdict as Rating, VerticalLine,
};

use crate::figures::{figure, mebibytes, size};
use crate::options::Options;
use crate::results::{Measured, Results};
use crate::server::ServerKind;
use crate::summary;
use crate::verdict::{Verdict, lines_for};
use crate::workload;

pub(crate) fn page(options: &Options, budget: &Budget, done: &Results, verdict: &Verdict) -> Page {
    let name = options.dir.file_name().map_or_else(|| "an app".into(), |name| name.to_string_lossy());
    Page {
        title: format!("Processes and threads for {name}"),
        subtitle: format!(
            "{}; {} mode; {}",
            options.dir.display(),
            options.environment,
            workload::words(&options.load)
        ),
        lead: lead(verdict, budget),
        sections: [
            recommended(verdict),
            remarks(verdict),
            shapes(done, verdict, budget),
            profile(verdict),
            fibers(verdict),
            others(done, verdict),
            table(done, verdict),
        ]
        .into_iter()
        .flatten()
        .collect(),
        foot: format!("firebrick tune {}; it took {} s", env!("CARGO_PKG_VERSION"), figure(done.seconds)),
        refresh_seconds: 0,
    }
}

fn lead(verdict: &Verdict, budget: &Budget) -> Vec<KeyFigure> {
    let Some(best) = &verdict.recommendation.best else {
        return vec![KeyFigure {
            label: "Recommended".to_owned(),
            value: summary::nothing(verdict).to_lowercase(),
            note: String::new(),
            verdict: Rating::Bad,
        }];
    };
    let mut lead = vec![
        key(
            "Recommended",
            &best.shape.to_string(),
            if best.shape.fibers > 0 { "workers x threads x fibers" } else { "workers x threads" },
        ),
        key(
            "Throughput",
            &format!("{}/s", figure(best.rate_per_s)),
            budget.rate_per_s.map(|rate| format!("{}/s required", figure(rate))).as_deref().unwrap_or(""),
        ),
        key(
            "95th percentile",
            &format!("{} ms", figure(best.latency_ms.p95)),
            budget.slo.map(|slo| slo.to_string()).as_deref().unwrap_or(""),
        ),
    ];
    if best.pss_bytes > 0.0 {
        let note = budget.memory_bytes.map(|bytes| format!("of {}", size(bytes as f64)));
        lead.push(key("Memory", &size(best.pss_bytes), note.as_deref().unwrap_or("")));
    }
    if let Some(leak) = &verdict.profile.leak {
        let each = format!("{} per request", size(leak.bytes_per_request));
        lead.push(KeyFigure {
            label: "Memory grows".to_owned(),
            value: each,
            note: "it does not level off".to_owned(),
            verdict: Rating::Bad,
        });
    }
    lead
}

fn key(label: &str, value: &str, note: &str) -> KeyFigure {
    KeyFigure {
        label: label.to_owned(),
        value: value.to_owned(),
        note: note.to_owned(),
        verdict: Rating::Neutral,
    }
}

fn section(title: &str, text: &str, blocks: Vec<Block>) -> Section {
    Section { title: title.to_owned(), text: text.to_owned(), blocks }
}

fn recommended(verdict: &Verdict) -> Option<Section> {
    let recommendation = &verdict.recommendation;
    let reasons: Vec<String> = recommendation.reasons.iter().cloned().chain(verdict.pool.clone()).collect();
    let mut blocks = vec![Block::Notes(reasons)];
    let runners_up: Vec<String> = recommendation.runners_up.iter().map(|one| one.words.clone()).collect();
    if !runners_up.is_empty() {
        blocks.extend([Block::Text("Alternatives:".to_owned()), Block::Notes(runners_up)]);
    }
    let rejected = summary::rejected(recommendation);
    if !rejected.is_empty() {
        blocks.extend([Block::Text("Rejected:".to_owned()), Block::Notes(rejected)]);
    }
    if let Some(best) = &recommendation.best {
        let lines = lines_for(best.shape).into_iter().map(|(file, lines)| format!("# {file}\n{lines}"));
        blocks.push(Block::Code(lines.collect::<Vec<_>>().join("\n\n")));
    }
    let title = recommendation
        .best
        .as_ref()
        .map_or_else(|| summary::nothing(verdict).to_owned(), |best| format!("Why {}", best.shape));
    Some(section(&title, "", blocks))
}

fn remarks(verdict: &Verdict) -> Option<Section> {
    (!verdict.remarks.is_empty()).then(|| section("Caveats", "", vec![Block::Notes(verdict.remarks.clone())]))
}

/// Returns heat maps, lines and the frontier.
fn shapes(done: &Results, verdict: &Verdict, budget: &Budget) -> Option<Section> {
    let users = done.measured.iter().map(|one| one.cell.users).max().unwrap_or(0);
    let best = verdict.recommendation.best.as_ref().map(|best| best.shape);
    let cells = shown(done);
    if cells.is_empty() {
        return None;
    }
    let rate = Measure {
        title: "Throughput",
        name: "requests",
        unit: Unit::PerSecond,
        better: Better::More,
        of: |one| one.rate,
    };
    let memory = Measure {
        title: "Memory",
        name: "memory (PSS)",
        unit: Unit::Bytes,
        better: Better::Less,
        of: |one| one.memory,
    };
    let (rate, memory) = (heat(&cells, best, rate), heat(&cells, best, memory));
    let blocks = vec![
        Block::Plots(vec![Plot::Heat(rate), Plot::Heat(memory)]),
        Block::Plots(vec![
            Plot::Lines(lines(&cells, verdict, users)),
            Plot::Frontier(frontier(done, best, budget)),
        ]),
    ];
    Some(section(
        "Throughput and memory of each shape",
        "A shape is processes x threads. Values marked est. are estimates, not measurements.",
        blocks,
    ))
}

/// A shape with its results; NaN if unknown.
struct ShapeResult {
    shape: Shape,
    rate: f64,
    memory: f64,
    note: String,
    measured: bool,
}

/// Returns measured shapes, and predictions for the other cells of their rows and columns.
fn shown(done: &Results) -> Vec<ShapeResult> {
    let known = |bytes: f64| if bytes > 0.0 { bytes } else { f64::NAN };
    // The heat maps are processes x threads.
    let ours = done.measured.iter().filter(|one| {
        one.server == ServerKind::Firebrick
            && one.cell.fibers == 0
            && (!one.look || one.cell.crashed.is_some())
    });
    let mut shown: Vec<ShapeResult> = ours
        .map(|one| match &one.cell.crashed {
            Some(_) => ShapeResult {
                shape: one.cell.shape(),
                rate: f64::NAN,
                memory: f64::NAN,
                note: "crashed".to_owned(),
                measured: true,
            },
            None => ShapeResult {
                shape: one.cell.shape(),
                rate: one.cell.rate_per_s,
                memory: known(one.cell.pss_bytes as f64),
                note: String::new(),
                measured: true,
            },
        })
        .collect();
    // Only rows and columns with measurements, because hundreds of predicted cells would tell nothing.
    let (rows, columns): (Vec<u32>, Vec<u32>) =
        done.usable().iter().map(|cell| (cell.processes, cell.threads)).unzip();
    for one in &done.predictions {
        let shape = one.shape();
        if rows.contains(&shape.processes)
            && columns.contains(&shape.threads)
            && shown.iter().all(|other| other.shape != shape)
        {
            shown.push(ShapeResult {
                shape,
                rate: one.rate_per_s.value,
                memory: known(one.pss_bytes.value),
                note: "est.".to_owned(),
                measured: false,
            });
        }
    }
    shown
}

/// A quantity that a heat map shows.
struct Measure {
    title: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    of: fn(&ShapeResult) -> f64,
}

fn heat(cells: &[ShapeResult], best: Option<Shape>, measure: Measure) -> Heat {
    let (rows, columns) = (numbers(cells, |shape| shape.processes), numbers(cells, |shape| shape.threads));
    let cell = |p: &u32, t: &u32| {
        let shape = Shape::new(*p, *t);
        match cells.iter().find(|one| one.shape == shape) {
            Some(one) => {
                HeatCell { value: (measure.of)(one), note: one.note.clone(), chosen: best == Some(shape) }
            }
            None => HeatCell::missing("not measured"),
        }
    };
    Heat {
        title: measure.title.to_owned(),
        note: String::new(),
        measure: measure.name.to_owned(),
        unit: measure.unit,
        better: measure.better,
        column_label: "threads per process".to_owned(),
        columns: columns.iter().map(u32::to_string).collect(),
        row_label: "processes".to_owned(),
        rows: rows.iter().map(u32::to_string).collect(),
        cells: rows.iter().map(|p| columns.iter().map(|t| cell(p, t)).collect()).collect(),
    }
}

fn numbers(cells: &[ShapeResult], of: impl Fn(Shape) -> u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = cells.iter().map(|one| of(one.shape)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Returns throughput over threads: measurements, and the model's curve for each number of processes.
fn lines(cells: &[ShapeResult], verdict: &Verdict, users: u32) -> Lines {
    let measured = |p: u32| points(cells.iter().filter(|one| one.measured && one.shape.processes == p));
    let threads = numbers(cells, |shape| shape.threads);
    let (from, to) = (threads.first().copied().unwrap_or(1), threads.last().copied().unwrap_or(1));
    let model = verdict.profile.model.as_ref().filter(|_| users > 0);
    let course = |p: u32| {
        let model = model?;
        // About thirty points per curve.
        let step = (to - from).div_ceil(30).max(1) as usize;
        let rate = |t: u32| (f64::from(t), model.predict(Shape::new(p, t), users).rate_per_s.value);
        Some((from..=to).step_by(step).map(rate).collect::<Vec<_>>())
    };
    let processes = numbers(cells, |shape| shape.processes);
    let shown = processes.into_iter().filter(|p| !measured(*p).is_empty());
    let of = |p: u32| {
        let name = if p == 1 { "1 process".to_owned() } else { format!("{p} processes") };
        let line = |name: String, points, loose| Line { name, points, filled: false, dots: loose, loose };
        match course(p) {
            Some(course) => {
                vec![line(format!("{name}, model"), course, false), line(name, measured(p), true)]
            }
            None => vec![Line { loose: false, ..line(name, measured(p), true) }],
        }
    };
    Lines {
        title: "Throughput over threads".to_owned(),
        note: if model.is_some() { "Markers are measurements; curves are the fitted model." } else { "" }
            .to_owned(),
        x: Axis { label: "threads per process".to_owned(), unit: Unit::Count, ..Axis::default() },
        y: Axis::new("requests", Unit::PerSecond),
        lines: shown.take(3).flat_map(of).collect(),
        ..Lines::default()
    }
}

/// Returns pairs of threads and rate, sorted by threads.
fn points<'a>(cells: impl Iterator<Item = &'a ShapeResult>) -> Vec<(f64, f64)> {
    let known = cells.filter(|one| one.rate.is_finite());
    let mut points: Vec<(f64, f64)> = known.map(|one| (f64::from(one.shape.threads), one.rate)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn frontier(done: &Results, best: Option<Shape>, budget: &Budget) -> Frontier {
    let servers = servers(done);
    let firm =
        done.measured.iter().filter(|one| !one.look && one.cell.crashed.is_none() && one.cell.pss_bytes > 0);
    let spot = |one: &Measured| Spot {
        label: one.cell.shape().to_string(),
        x: one.cell.pss_bytes as f64,
        y: one.cell.rate_per_s,
        series: servers.iter().position(|kind| *kind == one.server).unwrap_or(0),
        chosen: one.server == ServerKind::Firebrick && best == Some(one.cell.shape()),
    };
    let mark = budget
        .memory_bytes
        .map(|bytes| VerticalLine { at: bytes as f64, label: format!("budget {}", size(bytes as f64)) });
    // A budget far beyond all points would compress the plot.
    let largest = done.measured.iter().map(|one| one.cell.pss_bytes).max().unwrap_or(0) as f64;
    Frontier {
        title: "Throughput and memory".to_owned(),
        note: "No other shape is better in both than those on the line.".to_owned(),
        x: Axis::new("memory (PSS)", Unit::Bytes),
        y: Axis::new("requests", Unit::PerSecond),
        series: if servers.len() > 1 {
            servers.iter().map(|kind| kind.name().to_owned()).collect()
        } else {
            Vec::new()
        },
        spots: firm.map(spot).collect(),
        marks: mark.into_iter().filter(|mark| mark.at < 3.0 * largest).collect(),
        ..Frontier::default()
    }
}

/// Returns the servers with measured cells, in order of appearance.
fn servers(done: &Results) -> Vec<ServerKind> {
    let mut kinds = Vec::new();
    for one in &done.measured {
        if !kinds.contains(&one.server) {
            kinds.push(one.server);
        }
    }
    kinds
}

fn profile(verdict: &Verdict) -> Option<Section> {
    let notes: Vec<String> = verdict.profile.words.iter().cloned().chain(summary::laws(verdict)).collect();
    let mut facts = Vec::new();
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    if verdict.profile.model.is_some() {
        facts.push(("Waiting (I/O, sleep)".to_owned(), share(verdict.profile.waiting)));
        facts.push(("Running on a CPU".to_owned(), share(verdict.profile.running)));
        facts.push(("Holding the GVL without running".to_owned(), share(verdict.profile.holding)));
    }
    if let Some(memory) = &verdict.profile.memory {
        facts.push(("Memory per process".to_owned(), size(memory.per_process_bytes)));
        facts.push(("Memory per thread".to_owned(), size(memory.per_thread_bytes)));
        if verdict.fibers.with.is_some() {
            facts.push(("Memory per fiber".to_owned(), size(memory.per_fiber_bytes)));
        }
    }
    let blocks = [
        (!notes.is_empty()).then_some(Block::Notes(notes)),
        (!facts.is_empty()).then_some(Block::KeyValues(facts)),
    ];
    Some(section("Application profile", "", blocks.into_iter().flatten().collect()))
}

/// Returns the gain of fibers over threads, or why there are none.
fn fibers(verdict: &Verdict) -> Option<Section> {
    let report = &verdict.fibers;
    if report.words.is_empty() {
        return None;
    }
    let both = [("with fibers", &report.with), ("without", &report.without)];
    let row = |(name, choice): (&str, &Option<planner::Choice>)| {
        let choice = choice.as_ref()?;
        Some(vec![
            name.to_owned(),
            choice.shape.to_string(),
            figure(choice.rate_per_s),
            figure(choice.latency_ms.p99),
            mebibytes(choice.pss_bytes as u64),
        ])
    };
    let rows: Vec<Vec<String>> = both.into_iter().filter_map(row).collect();
    let texts = ["", "shape"].map(Column::text);
    let figures = ["requests/s", "p99 ms", "PSS MiB"].map(Column::number);
    let table = Table {
        caption: "The best measured shape of each kind.".to_owned(),
        columns: texts.into_iter().chain(figures).collect(),
        marked: Vec::new(),
        rows,
    };
    let notes = Block::Notes(report.words.clone());
    let blocks = if report.with.is_some() { vec![notes, Block::Table(table)] } else { vec![notes] };
    Some(section("Fibers", "", blocks))
}

fn others(done: &Results, verdict: &Verdict) -> Option<Section> {
    if verdict.others.is_empty() {
        return None;
    }
    let servers = servers(done);
    let shapes: Vec<Shape> = done
        .measured
        .iter()
        .filter(|one| one.server == ServerKind::Firebrick && !one.look)
        .map(|one| one.cell.shape())
        .collect();
    let bar = |shape: Shape, kind: ServerKind| {
        let cell = done
            .measured
            .iter()
            .find(|one| one.server == kind && !one.look && one.cell.shape() == shape)
            .map(|one| &one.cell);
        let rate = cell.filter(|cell| cell.crashed.is_none()).map_or(f64::NAN, |cell| cell.rate_per_s);
        let half = cell.map_or(0.0, |cell| cell.spread / 2.0 * cell.rate_per_s);
        match cell {
            None => Bar::missing("not measured"),
            Some(cell) if cell.crashed.is_some() => Bar::missing("crashed"),
            Some(_) if half > 0.0 => Bar::spread(rate, rate - half, rate + half),
            Some(_) => Bar::new(rate),
        }
    };
    let groups = shapes.iter().map(|shape| Group {
        label: shape.to_string(),
        bars: servers.iter().map(|kind| bar(*shape, *kind)).collect(),
        ..Group::default()
    });
    let bars = Bars {
        title: "Throughput of each server".to_owned(),
        x: Axis::new("requests", Unit::PerSecond),
        series: servers.iter().map(|kind| kind.name().to_owned()).collect(),
        groups: groups.collect(),
        ..Bars::default()
    };
    Some(section(
        "Other servers",
        "",
        vec![Block::Notes(verdict.others.clone()), Block::Plot(Plot::Bars(bars))],
    ))
}

fn table(done: &Results, verdict: &Verdict) -> Option<Section> {
    let best = verdict.recommendation.best.as_ref().map(|best| best.shape);
    let several = servers(done).len() > 1;
    let words = several.then_some("server").into_iter().chain(["shape"]).map(Column::text);
    let figures = [
        "seconds",
        "requests/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "PSS MiB",
        "RSS MiB",
        "CPUs used",
        "app ms",
        "CPU ms",
        "errors",
    ]
    .map(Column::number);
    let columns = words.chain(figures).chain([Column::text("remarks")]).collect();
    let marked = done.measured.iter().enumerate().filter(|(_, one)| {
        one.server == ServerKind::Firebrick && !one.look && best == Some(one.cell.shape())
    });
    let table = Table {
        caption: "look: a short measurement for the prediction; busy: other programs used the CPU; load: the load generator was the bottleneck.".to_owned(),
        columns,
        marked: marked.map(|(at, _)| at).collect(),
        rows: done.measured.iter().map(|one| row(one, several)).collect(),
    };
    Some(section("All cells", "", vec![Block::Table(table)]))
}

fn row(one: &Measured, several: bool) -> Vec<String> {
    let cell = &one.cell;
    let name = several.then(|| one.server.name().to_owned()).into_iter().chain([cell.shape().to_string()]);
    if let Some(why) = &cell.crashed {
        return name
            .chain(std::iter::repeat_n("-".to_owned(), 11))
            .chain([format!("crashed: {why}")])
            .collect();
    }
    let known = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
    let times = &cell.latency_ms;
    let figures = [
        figure(cell.seconds),
        figure(cell.rate_per_s),
        figure(times.p50),
        figure(times.p95),
        figure(times.p99),
        mebibytes(cell.pss_bytes),
        mebibytes(cell.rss_bytes),
        known(cell.cpu_cores),
        known(cell.app_ms),
        known(cell.cpu_ms),
        cell.errors.to_string(),
    ];
    name.chain(figures).chain([remark(one, cell)]).collect()
}

fn remark(one: &Measured, cell: &Cell) -> String {
    let limit = match cell.limited_by {
        Some(LimitedBy::LoadGenerator) => Some("load"),
        Some(LimitedBy::Machine) => Some("busy"),
        None => None,
    };
    let parts = [one.look.then_some("look"), limit];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
