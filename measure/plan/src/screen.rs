//! The result for people: the most important first, then tables, what-if cases, cost, and the sources of the facts.

use control::by_route::cut;
use planner::bill::Bill;
use planner::capacity::Resource;
use planner::facts::Size;
use planner::format::{count, figure, millis, percent, whole};
use planner::sizing::{Cost, Load, Sizing};
use text::people::wrapped;

use crate::options::{Inputs, MONTH};
use crate::table::lines;

const WIDTH: usize = 96;

/// The longest name of a route in a bill, in characters.
const NAME: usize = 36;
/// The routes that are shown of a bill.
const SHOWN: usize = 20;

pub(crate) fn text(inputs: &Inputs, sizings: &[Sizing], bill: Option<&Bill>, explain: bool) -> String {
    let Some(best) = sizings.first() else { return String::new() };
    let mut out = Vec::new();
    out.push(wrapped(&headline(inputs, best, sizings.len() > 1), WIDTH, 0));
    out.extend(in_short(inputs, best).map(|text| wrapped(&text, WIDTH, 0)));
    if sizings.len() > 1 {
        section(&mut out, lines(&sizes(sizings)));
    }
    section(&mut out, lines(&needed(inputs, best)));
    section(&mut out, lines(&loads(inputs, best)));
    section(&mut out, what_if(inputs, best));
    section(&mut out, costs(inputs, best));
    if let Some(bill) = bill {
        let money = |amount: Option<f64>| {
            best.cost.as_ref().zip(amount).map_or("-".to_owned(), |(cost, amount)| money(cost, amount))
        };
        section(&mut out, routes(bill, &money));
        section(&mut out, savings(bill, &money));
    }
    section(&mut out, facts(inputs));
    if explain {
        section(&mut out, steps(best));
    }
    out.join("\n") + "\n"
}

fn section(out: &mut Vec<String>, lines: Vec<String>) {
    if !lines.is_empty() {
        out.push(String::new());
        out.extend(lines);
    }
}

fn instances(sizing: &Sizing) -> String {
    let number = count(sizing.instances.into(), "instance", "instances");
    match &sizing.size.name {
        Some(name) => format!("{number} of `{name}`"),
        None => number,
    }
}

/// Formats a multiple, rounded down to be on the safe side.
fn multiple(times: f64) -> String {
    if times >= 10.0 { figure(times.floor()) } else { figure((times * 10.0).floor() / 10.0) }
}

fn money(cost: &Cost, amount: f64) -> String {
    match cost.currency.len() {
        0 => figure(amount),
        3 if cost.currency.is_ascii() => format!("{} {}", figure(amount), cost.currency),
        _ => format!("{}{}", cost.currency, figure(amount)),
    }
}

fn headline(inputs: &Inputs, best: &Sizing, several: bool) -> String {
    let one = best.instances == 1;
    let (are, could) = if one { ("is", "it could") } else { ("are", "they could") };
    let name = instances(best);
    if best.load.times.is_none() {
        let needed = count(best.needed.in_all.into(), "instance", "instances");
        return format!(
            "{name} {are} not enough: the utilisation would be {}. {needed} {} needed.",
            percent(best.load.utilisation),
            if best.needed.in_all == 1 { "is" } else { "are" }
        );
    }
    if let (Some(slo), Some(false)) = (inputs.facts.slo, best.keeps_slo) {
        return match best.needed.for_slo {
            None => format!(
                "No number of instances meets {slo}: requests take longer in the app, even without waiting."
            ),
            // With the required reserve, if that needs more instances.
            Some(_) => format!(
                "{name} {} not meet {slo}. {} are needed.",
                if one { "does" } else { "do" },
                best.needed.in_all
            ),
        };
    }
    let (times, kept) = match (inputs.facts.slo, best.headroom_within_slo_times) {
        (Some(slo), Some(times)) => (times, format!(" and meet {slo}")),
        _ => (best.headroom_times, String::new()),
    };
    if best.instances < best.needed.with_headroom {
        let needed = count(best.needed.in_all.into(), "instance", "instances");
        let keeps = if one { "keeps" } else { "keep" };
        return format!(
            "{needed} are needed to keep {} headroom; {name} {keeps} up with this rate and could handle {} times it{kept}.",
            percent(inputs.facts.headroom),
            multiple(times)
        );
    }
    match &best.cost {
        Some(cost) if several => {
            format!("{name} {are} enough and cheapest: {} per month.", money(cost, cost.per_month))
        }
        Some(cost) => format!(
            "{name} {are} enough for {} per month: {could} handle {} times this rate{kept}.",
            money(cost, cost.per_month),
            multiple(times)
        ),
        None => format!("{name} {are} enough: {could} handle {} times this rate{kept}.", multiple(times)),
    }
}

fn in_short(inputs: &Inputs, best: &Sizing) -> Option<String> {
    let times = best.load.times?;
    let waits = match times.waits {
        waits if waits < 1e-4 => "Hardly any requests wait".to_owned(),
        waits => format!(
            "{} of the requests wait, {} on average over all",
            percent(waits),
            millis(times.wait_mean_ms)
        ),
    };
    let facts = &inputs.facts;
    Some(format!(
        "{waits}; the 95th percentile of the response time is {}. At {} requests per second of {} each, {} are in the app at once (Little's law).",
        millis(times.p95_ms),
        figure(facts.rate_per_s),
        millis(facts.response_ms),
        figure(best.in_the_app)
    ))
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shape(size: &Size) -> String {
    let cores = size.cores.map(|cores| {
        format!(", {}", if cores == 1.0 { "1 core".to_owned() } else { format!("{} cores", figure(cores)) })
    });
    let fibers = if size.fibers > 0 { format!("x{}", size.fibers) } else { String::new() };
    format!("{}x{}{fibers}{}", size.workers, size.threads, cores.unwrap_or_default())
}

fn sizes(sizings: &[Sizing]) -> Vec<Vec<String>> {
    let mut rows = vec![texts([
        "Size",
        "shape",
        "instances",
        "per month",
        "per million",
        "utilisation",
        "p95",
        "headroom",
    ])];
    for sizing in sizings {
        let cost =
            |of: fn(&Cost) -> f64| sizing.cost.as_ref().map_or("-".to_owned(), |cost| money(cost, of(cost)));
        rows.push(vec![
            format!("  {}", sizing.size.name.as_deref().unwrap_or("-")),
            shape(&sizing.size),
            sizing.instances.to_string(),
            cost(|cost| cost.per_month),
            cost(|cost| cost.per_million),
            percent(sizing.load.utilisation),
            sizing.load.times.map_or("unbounded".to_owned(), |times| millis(times.p95_ms)),
            format!("{}x", multiple(sizing.headroom_times)),
        ]);
    }
    rows
}

fn needed(inputs: &Inputs, best: &Sizing) -> Vec<Vec<String>> {
    let needed = &best.needed;
    let mut rows = vec![texts(["Needed", "instances"])];
    let mut row = |what: String, number: String| rows.push(vec![format!("  {what}"), number]);
    row("to keep up".to_owned(), needed.to_keep_up.to_string());
    if let Some(slo) = inputs.facts.slo {
        row(format!("to meet {slo}"), needed.for_slo.map_or("never".to_owned(), |number| number.to_string()));
    }
    if inputs.facts.headroom > 0.0 {
        row(format!("with {} headroom", percent(inputs.facts.headroom)), needed.with_headroom.to_string());
    }
    row("with one lost as well".to_owned(), needed.with_one_lost.to_string());
    rows
}

fn loads(inputs: &Inputs, best: &Sizing) -> Vec<Vec<String>> {
    let both: Vec<&Load> = std::iter::once(&best.load).chain(best.one_lost.as_ref()).collect();
    let mut head = vec!["With".to_owned()];
    head.extend(both.iter().map(|load| count(load.instances.into(), "instance", "instances")));
    let mut rows = vec![head];
    let mut row = |what: &str, of: &dyn Fn(&Load) -> String| {
        let cells = both.iter().map(|load| of(load));
        rows.push(std::iter::once(format!("  {what}")).chain(cells).collect());
    };
    let time = |of: fn(&planner::sizing::ResponseTimes) -> f64| {
        move |load: &Load| load.times.as_ref().map_or("unbounded".to_owned(), |times| millis(of(times)))
    };
    row("utilisation", &|load| percent(load.utilisation));
    if both.iter().all(|load| load.times.is_none()) {
        return rows;
    }
    row("requests that wait", &|load| load.times.map_or("all".to_owned(), |times| percent(times.waits)));
    row("wait, mean", &time(|times| times.wait_mean_ms));
    row("wait, p99", &time(|times| times.wait_p99_ms));
    row("response, mean", &time(|times| times.mean_ms));
    row("response, p50", &time(|times| times.p50_ms));
    row("response, p95", &time(|times| times.p95_ms));
    row("response, p99", &time(|times| times.p99_ms));
    if let Some(slo) = inputs.facts.slo.filter(|slo| ![50.0, 95.0, 99.0].contains(&slo.percentile)) {
        row(&format!("response, p{}", slo.percentile), &|load| {
            load.times.map_or("unbounded".to_owned(), |times| millis(times.slo_time_ms(slo)))
        });
    }
    rows
}

fn what_if(inputs: &Inputs, best: &Sizing) -> Vec<String> {
    let item = |text: String| wrapped(&format!("  {text}"), WIDTH, 2);
    let mut out = vec!["What if".to_owned()];
    out.push(item(most(inputs, best)));
    out.push(item(burst(inputs, best)));
    out.push(item(lost(inputs, best)));
    out
}

fn most(inputs: &Inputs, best: &Sizing) -> String {
    let because = match best.limit {
        Resource::Threads if best.size.fibers > 0 => "then all its fibers are busy",
        Resource::Threads => "then all its threads are busy",
        Resource::Workers => "then Ruby runs all the time in each worker",
        Resource::Cores => "then its CPU is fully used",
    };
    let within = inputs.facts.slo.zip(best.instance_rate_within_slo_per_s);
    let within = within.map(|(slo, rate)| format!(", {} within {slo}", figure(rate)));
    format!(
        "the rate grows: an instance handles at most {} requests per second{}; {because}.",
        figure(best.instance_rate_per_s),
        within.unwrap_or_default()
    )
}

fn burst(inputs: &Inputs, best: &Sizing) -> String {
    let (facts, burst) = (&inputs.facts, &best.burst);
    let each =
        if best.instances > 1 { format!(" ({} per instance)", whole(burst.requests)) } else { String::new() };
    let drained = burst.drained_ms.map_or("the queue never empties".to_owned(), |ms| {
        format!("the queue is back to normal after {}", millis(ms))
    });
    let all = f64::from(best.instances);
    let refused = match burst.refused_by_backlog {
        0 => format!("a backlog of {} refuses none", whole(facts.backlog)),
        refused => {
            format!("a backlog of {} refuses {}", whole(facts.backlog), figure(refused as f64 * all))
        }
    };
    let router = millis(facts.router_timeout_ms);
    let cut_off = match burst.cut_off_by_router {
        0 => format!("a router timeout of {router} cuts off none"),
        cut_off => format!("a router timeout of {router} cuts off {}", figure(cut_off as f64 * all)),
    };
    format!(
        "{} requests arrive at once{each}: the last waits {}, {drained}; {refused}, {cut_off}.",
        whole(facts.burst),
        millis(burst.last_wait_ms)
    )
}

fn lost(inputs: &Inputs, best: &Sizing) -> String {
    let Some(load) = &best.one_lost else {
        return "the instance fails: there is no other, and all requests fail. With two, one may fail."
            .to_owned();
    };
    let (rest, others) = match load.instances {
        1 => ("one instance".to_owned(), "the other".to_owned()),
        rest => (count(rest.into(), "instance", "instances"), format!("the other {}", whole(rest.into()))),
    };
    let Some(times) = load.times else {
        return format!(
            "one fails: {others} cannot keep up (utilisation {}), and the queue grows until it is back. {} would be enough.",
            percent(load.utilisation),
            best.needed.with_one_lost
        );
    };
    let broken = inputs.facts.slo.filter(|slo| times.slo_time_ms(*slo) > slo.under_ms * 1.000_001);
    let broken =
        broken.map(|slo| format!(" {slo} is not met then; {} would be enough.", best.needed.with_one_lost));
    format!(
        "one fails: utilisation of {rest} would be {}, and the p95 of the response time {}.{}",
        percent(load.utilisation),
        millis(times.p95_ms),
        broken.unwrap_or_default()
    )
}

fn costs(inputs: &Inputs, best: &Sizing) -> Vec<String> {
    let Some(cost) = &best.cost else { return Vec::new() };
    let (rate, which) = match inputs.facts.average_rate_per_s {
        Some(rate) => (rate, "at the average rate"),
        None => (
            inputs.facts.rate_per_s,
            "if every minute were the busiest; set the real rate with --average-rate",
        ),
    };
    let millions = rate * MONTH * 3_600.0 / 1e6;
    let own = if best.instances > 1 {
        format!(", {} per instance", money(cost, cost.instance_per_month))
    } else {
        String::new()
    };
    let text = format!(
        "  {} per month of 730 hours{own}. {} per million requests: {} million per month {which}.",
        money(cost, cost.per_month),
        money(cost, cost.per_million),
        figure(millions)
    );
    vec!["Cost".to_owned(), wrapped(&text, WIDTH, 2)]
}

fn routes(bill: &Bill, money: &dyn Fn(Option<f64>) -> String) -> Vec<String> {
    let mut rows = vec![texts(["Bill", "part", "a month", "1,000 requests", "a month at twice the load"])];
    for route in bill.routes.iter().take(SHOWN) {
        rows.push(vec![
            format!("  {}", cut(&route.route, NAME)),
            percent(route.share),
            money(route.per_month),
            money(route.per_thousand),
            money(route.per_month_at_twice),
        ]);
    }
    if bill.routes.len() > SHOWN {
        rows.push(vec![format!("  {} more: --json", bill.routes.len() - SHOWN)]);
    }
    rows.push(vec![
        "  all".to_owned(),
        String::new(),
        money(bill.per_month),
        String::new(),
        money(bill.per_month_at_twice),
    ]);
    let mut out = lines(&rows);
    let (now, twice) = (bill.instances, bill.instances_at_twice);
    let instances = |number: u32| count(number.into(), "instance", "instances");
    let note = format!(
        "  {} now, {} at twice the load. Costs are divided by the time in the app.",
        instances(now),
        instances(twice)
    );
    out.push(wrapped(&note, WIDTH, 2));
    if bill.per_month.is_none() {
        out.push("  Give the price with --instance-cost 40/month.".to_owned());
    }
    out
}

/// The savings of each piece of advice.
fn savings(bill: &Bill, money: &dyn Fn(Option<f64>) -> String) -> Vec<String> {
    if bill.savings.is_empty() {
        return Vec::new();
    }
    let mut out = vec!["Advice, with what it saves at most a month".to_owned()];
    for saving in &bill.savings {
        let worth = match saving.per_month {
            Some(_) => format!("{} ({})", money(saving.per_month), percent(saving.share)),
            None => percent(saving.share),
        };
        let fewer = |before: u32, after: u32, when: &str| match before.saturating_sub(after) {
            0 => String::new(),
            fewer => format!(" {} fewer{when}.", count(fewer.into(), "instance", "instances")),
        };
        let now = fewer(bill.instances, saving.instances, "");
        let twice = fewer(bill.instances_at_twice, saving.instances_at_twice, " at twice the load");
        out.push(wrapped(&format!("  {worth}: {}{now}{twice}", saving.text), WIDTH, 2));
    }
    out
}

fn facts(inputs: &Inputs) -> Vec<String> {
    let widest = inputs.origins.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let values = inputs.origins.iter().map(|(_, known)| known.value.chars().count()).max().unwrap_or(0);
    let line = |(name, known): &(&str, crate::sourced::Sourced<String>)| {
        let start = format!("  {name:widest$}  {:>values$}  ", known.value);
        let indent = start.chars().count();
        // `wrapped` would drop the blanks inside the start, so only the rest is wrapped.
        let rest =
            wrapped(&known.from, WIDTH - indent, 0).replace('\n', &format!("\n{}", " ".repeat(indent)));
        format!("{start}{rest}")
    };
    let mut out = vec!["Facts".to_owned()];
    out.extend(inputs.origins.iter().map(line));
    out.extend(inputs.notes.iter().map(|note| wrapped(&format!("  Note: {note}"), WIDTH, 2)));
    out
}

fn steps(best: &Sizing) -> Vec<String> {
    let mut out = vec!["Calculation".to_owned()];
    for step in &best.steps {
        out.push(wrapped(&format!("  {}: {}", step.what, step.formula), WIDTH, 4));
        out.push(wrapped(
            &format!("    = {} = {}    [{}]", step.filled_in, step.result, step.source),
            WIDTH,
            6,
        ));
    }
    out
}
