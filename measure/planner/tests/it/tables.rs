//! Tests of predictions against three published tables of processes x threads (Puma 5.6, two cores, 600
//! requests at concurrency 30 by `siege -c30 -r20`, whose duration includes the time in which the last users
//! finish alone).

use crate::published;

use planner::profile::AppKind;
use planner::{Budget, Cell, Model, Shape, profile, recommend, worth_measuring};
use published::{TABLES, Table};

/// The cells from which the others are predicted.
const FEW: [(u32, u32); 3] = [(1, 1), (1, 10), (2, 1)];

fn few(table: &Table) -> Vec<planner::Cell> {
    FEW.iter().map(|&(processes, threads)| table.cell(Shape::new(processes, threads))).collect()
}

#[test]
fn three_cells_predict_the_rest_within_their_bounds() {
    let mut all = Vec::new();
    for table in TABLES {
        let model = Model::fit(&few(&table)).unwrap();
        println!("{}: {model:?}", table.name);
        let mut wrong = Vec::new();
        for cell in table.cells() {
            let prediction = model.predict(cell.shape(), 30);
            let line = format!(
                "{} {}: {:.1}/s in {:.1}..{:.1}, measured {:.1}; {:.0} MiB in {:.0}..{:.0}, measured {:.0}; {:?}",
                table.name,
                cell.shape(),
                prediction.rate_per_s.value,
                prediction.rate_per_s.low,
                prediction.rate_per_s.high,
                cell.rate_per_s,
                prediction.pss_bytes.value / 1_048_576.0,
                prediction.pss_bytes.low / 1_048_576.0,
                prediction.pss_bytes.high / 1_048_576.0,
                cell.pss_bytes as f64 / 1_048_576.0,
                prediction.bottleneck
            );
            println!("{line}");
            let rate_holds =
                (prediction.rate_per_s.low..=prediction.rate_per_s.high).contains(&cell.rate_per_s);
            if !rate_holds || (prediction.rate_per_s.value / cell.rate_per_s).ln().abs() > 0.25 {
                wrong.push(line);
            }
        }
        all.extend(wrong);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn profiles_from_three_cells_and_from_all() {
    for (table, kind) in TABLES.iter().zip([AppKind::Waiting, AppKind::Computing, AppKind::Mixed]) {
        for cells in [few(table), table.cells()] {
            let found = profile(&cells);
            println!("{}:\n  {}", table.name, found.words.join("\n  "));
            assert_eq!(found.kind, kind, "{}", table.name);
        }
    }
}

/// Typical budgets.
fn budgets() -> Vec<Budget> {
    let mib = |mib: u64| Some(mib << 20);
    let open = Budget::default();
    vec![
        open,
        Budget { memory_bytes: mib(512), ..open },
        Budget { memory_bytes: mib(150), ..open },
        Budget { memory_bytes: mib(90), ..open },
        Budget { db_connections: Some(20), ..open },
        Budget { db_connections: Some(10), ..open },
        Budget { memory_bytes: mib(512), db_connections: Some(20), ..open },
    ]
}

/// Returns the highest rate in the whole table within `budget`.
fn best_of_all(table: &Table, budget: &Budget) -> Option<f64> {
    let fits = |cell: &&Cell| {
        budget.memory_bytes.is_none_or(|there| cell.pss_bytes <= there)
            && budget.db_connections.is_none_or(|there| cell.shape().slots() <= there)
    };
    table.cells().iter().filter(fits).map(|cell| cell.rate_per_s).max_by(f64::total_cmp)
}

#[test]
fn recommendations_from_the_whole_table_are_near_its_best() {
    for table in &TABLES {
        for budget in budgets() {
            let found = recommend(&table.cells(), &[], &budget);
            let best = best_of_all(table, &budget);
            println!(
                "{} {budget:?}: {:?}\n  {:?}",
                table.name,
                found.best.as_ref().map(|best| best.shape.to_string()),
                found.runners_up.iter().map(|one| &one.words).collect::<Vec<_>>()
            );
            assert_eq!(best.is_some(), found.best.is_some());
            let Some((best, found)) = best.zip(found.best) else { continue };
            assert!(found.rate_per_s >= best * 0.9, "{} {budget:?}: {found:?}", table.name);
        }
    }
}

/// Works like `firebrick tune`: three cells, then at most three more with the best predictions.
#[test]
fn three_cells_and_three_more_find_the_best() {
    for table in &TABLES {
        let shapes: Vec<Shape> = table.cells().iter().map(Cell::shape).collect();
        for budget in budgets() {
            let mut cells = few(table);
            while cells.len() < 6
                && let Some(next) = worth_measuring(&cells, &shapes, &budget).unwrap()
            {
                cells.push(table.cell(next));
            }
            let best = best_of_all(table, &budget);
            let found = recommend(&cells, &[], &budget).best;
            println!("{} {budget:?}: {} cells", table.name, cells.len());
            assert_eq!(best.is_some(), found.is_some(), "{} {budget:?}", table.name);
            let Some((best, found)) = best.zip(found) else { continue };
            assert!(found.rate_per_s >= best * 0.9, "{} {budget:?}: {} {found:?}", table.name, best);
        }
    }
}
