//! Three published tables of processes x threads (Puma 5.6, two cores, 600 requests at concurrency 30 by `siege -c30
//! -r20`, whose duration includes the time in which the last users finish alone): what few of their cells say of the others.

mod published;

use planner::{Model, Shape};
use published::{TABLES, Table};

/// The cells that the others are predicted from.
const FEW: [(u32, u32); 3] = [(1, 1), (1, 10), (2, 1)];

fn few(table: &Table) -> Vec<planner::Cell> {
    FEW.iter().map(|&(processes, threads)| table.cell(Shape::new(processes, threads))).collect()
}

#[test]
fn three_cells_predict_the_rest_within_their_bounds() {
    for table in TABLES {
        let model = Model::fit(&few(&table)).unwrap();
        println!("{}: {model:?}", table.name);
        let mut wrong = Vec::new();
        for cell in table.cells() {
            let said = model.predict(cell.shape(), 30);
            let line = format!(
                "{} {}: {:.1}/s in {:.1}..{:.1}, measured {:.1}; {:.0} MiB in {:.0}..{:.0}, measured {:.0}; {:?}",
                table.name,
                cell.shape(),
                said.rate_per_s.value,
                said.rate_per_s.low,
                said.rate_per_s.high,
                cell.rate_per_s,
                said.pss_bytes.value / 1_048_576.0,
                said.pss_bytes.low / 1_048_576.0,
                said.pss_bytes.high / 1_048_576.0,
                cell.pss_bytes as f64 / 1_048_576.0,
                said.bottleneck
            );
            println!("{line}");
            let rate_holds = (said.rate_per_s.low..=said.rate_per_s.high).contains(&cell.rate_per_s);
            if !rate_holds || (said.rate_per_s.value / cell.rate_per_s).ln().abs() > 0.25 {
                wrong.push(line);
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
