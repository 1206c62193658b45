//! Tests that any data gives a well-formed drawing whose parts lie on the sheet.

use proptest::prelude::*;

use super::*;
use crate::plot::*;
use crate::unit::Unit;

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..1000f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 1e300, -1e300]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-zA-Z0-9 .%]{0,24}", 1 => any::<String>(), 1 => "[a-z<&]{60,90}"]
}

fn axis() -> impl Strategy<Value = Axis> {
    use Unit::*;
    let units = vec![Number, Count, Milliseconds, Seconds, Clock, Bytes, Fraction, PerSecond, PerMinute];
    let unit = prop_oneof![prop::sample::select(units), text().prop_map(Named)];
    (text(), unit, any::<bool>(), prop::option::of(number()), prop::option::of(number())).prop_map(
        |(label, unit, log, from, to)| Axis {
            label,
            unit,
            scale: if log { Scale::Log } else { Scale::Linear },
            from,
            to,
        },
    )
}

fn several<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(of, 0..6)
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    several((number(), text()).prop_map(|(value, label)| Limit { value, label }))
}

fn marks() -> impl Strategy<Value = Vec<VerticalLine>> {
    several((number(), text()).prop_map(|(at, label)| VerticalLine { at, label }))
}

fn better() -> impl Strategy<Value = Better> {
    prop::sample::select(vec![Better::More, Better::Less])
}

fn lines() -> impl Strategy<Value = Plot> {
    let style = prop::sample::select(vec![
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ]);
    let line = (text(), several((number(), number())), style)
        .prop_map(|(name, points, (filled, dots, loose))| Line { name, points, filled, dots, loose });
    let band = (text(), several((number(), number(), number())), 0usize..20)
        .prop_map(|(name, points, line)| Band { name, points, line });
    let span = (number(), number(), text()).prop_map(|(from, to, label)| Span { from, to, label });
    (
        text(),
        axis(),
        axis(),
        prop::collection::vec(line, 0..9),
        several(band),
        limits(),
        several(span),
        marks(),
    )
        .prop_map(|(title, x, y, lines, bands, limits, spans, marks)| {
            let note = title.clone();
            Plot::Lines(Lines { title, note, x, y, lines, bands, limits, spans, marks })
        })
}

fn plot() -> impl Strategy<Value = Plot> {
    let bucket = (number(), number(), any::<u64>()).prop_map(|(from, to, count)| Bucket { from, to, count });
    let histogram = (text(), axis(), several(bucket), marks()).prop_map(|(title, x, buckets, marks)| {
        Plot::Histogram(Histogram { counted: title.clone(), note: title.clone(), title, x, buckets, marks })
    });
    let share = prop_oneof![0f64..=100.0, number(), Just(100.0)];
    let curve = (text(), several((share, number()))).prop_map(|(name, points)| Curve { name, points });
    let percentiles = (text(), axis(), prop::collection::vec(curve, 0..9), limits()).prop_map(
        |(title, y, curves, limits)| {
            Plot::Percentiles(Percentiles { note: title.clone(), title, y, curves, limits })
        },
    );
    let stack = (text(), several(number())).prop_map(|(label, values)| Stack { label, values });
    let stages = (text(), axis(), several(text()), several(stack), any::<bool>()).prop_map(
        |(title, x, parts, stacks, shares)| {
            Plot::Stages(Stages { note: title.clone(), title, x, parts, shares, stacks })
        },
    );
    let bar = (number(), prop::option::of(number()), prop::option::of(number()), text())
        .prop_map(|(value, low, high, note)| Bar { value, low, high, note });
    let group =
        (text(), several(bar), any::<bool>()).prop_map(|(label, bars, marked)| Group { label, bars, marked });
    let bars = (text(), axis(), better(), several(text()), several(group), limits()).prop_map(
        |(title, x, better, series, groups, limits)| {
            Plot::Bars(Bars { note: title.clone(), title, x, better, series, groups, limits })
        },
    );
    let spot = (text(), number(), number(), 0usize..9, any::<bool>())
        .prop_map(|(label, x, y, series, chosen)| Spot { label, x, y, series, chosen });
    let frontier =
        (text(), axis(), axis(), (better(), better()), several(text()), several(spot), limits(), marks())
            .prop_map(|(title, x, y, (x_better, y_better), series, spots, limits, marks)| {
                Plot::Frontier(Frontier {
                    note: title.clone(),
                    title,
                    x,
                    y,
                    x_better,
                    y_better,
                    series,
                    spots,
                    limits,
                    marks,
                })
            });
    let cell =
        (number(), text(), any::<bool>()).prop_map(|(value, note, chosen)| Cell { value, note, chosen });
    let heat = (text(), axis(), better(), several(text()), several(text()), several(several(cell))).prop_map(
        |(title, axis, better, columns, rows, cells)| {
            let (column_label, row_label) = (title.clone(), axis.label.clone());
            let (note, measure, unit) = (title.clone(), axis.label, axis.unit);
            Plot::Heat(Heat {
                title,
                note,
                measure,
                unit,
                better,
                column_label,
                columns,
                row_label,
                rows,
                cells,
            })
        },
    );
    prop_oneof![lines(), histogram, percentiles, stages, bars, frontier, heat]
}

/// Asserts that the drawing is XML, and that all parts lie on the sheet; markers may exceed the edge by half
/// their size.
fn check(svg: &str, width: f64) -> Result<(), TestCaseError> {
    const EDGE: f64 = 12.0;
    let read =
        roxmltree::Document::parse(svg).map_err(|error| TestCaseError::fail(format!("{error}: {svg}")))?;
    for node in
        read.descendants().filter(|node| node.has_tag_name("text") || node.tag_name().name() == "text")
    {
        let font = if width > 500.0 { 13.0 } else { 12.5 };
        let x: f64 =
            node.attribute("x").and_then(|x| x.parse().ok()).ok_or_else(|| TestCaseError::fail("x"))?;
        let long = text::width(node.text().unwrap_or(""), font);
        let (from, to) = match node.attribute("text-anchor") {
            Some("middle") => (x - long / 2.0, x + long / 2.0),
            Some("end") => (x - long, x),
            _ => (x, x + long),
        };
        prop_assert!(from >= -EDGE && to <= width + EDGE, "{:?} from {from} to {to} in {svg}", node.text());
    }
    for node in read.descendants() {
        for name in ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"] {
            let Some(value) = node.attribute(name) else { continue };
            let value: f64 = value.parse().map_err(|_| TestCaseError::fail(format!("{name}={value}")))?;
            prop_assert!(value.is_finite() && value >= -EDGE, "{name}={value}");
            prop_assert!(!name.contains('x') || value <= width + EDGE, "{name}={value}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_data_can_be_drawn(plot in plot()) {
        for size in [Size::Wide, Size::Narrow] {
            let mut markup = Markup::default();
            plot.inline(size, &mut markup);
            check(&markup.finish(), size.width())?;
        }
        let file = plot.to_svg();
        roxmltree::Document::parse(&file).map_err(|error| TestCaseError::fail(format!("{error}: {file}")))?;
    }

    #[test]
    fn positions_belong_to_rows(plot in plot()) {
        for size in [Size::Wide, Size::Narrow] {
            let mut sheet = Sheet::new(size);
            plot.draw_on(&mut sheet);
            let rows = twin(&plot).rows.len();
            prop_assert!(sheet.positions.is_empty() || sheet.positions.len() == rows);
            let text = sheet.markup.finish();
            let named = text.split("data-row=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<usize>().ok());
            prop_assert!(named.into_iter().all(|row| row < rows));
        }
    }

    #[test]
    fn json_round_trip(plot in plot()) {
        let json = serde_json::to_string(&plot).expect("plots can be written");
        let read = crate::read_plot(&json).expect("and read again");
        // NaN is not equal to itself, so the texts are compared; infinities are read back as NaN.
        prop_assert_eq!(serde_json::to_string(&read).expect("twice"), json);
    }
}
